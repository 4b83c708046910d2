"""Ω: exact cosine neighbours of every training image."""

from csml.neighbors.search import nearest, top_k

__all__ = ["nearest", "top_k"]
