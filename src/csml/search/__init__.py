"""Cosine nearest neighbours of every training image: the neighbour set Ω (docs/method.md#neighbors)."""

from csml.search.nearest_neighbors import nearest, top_k

__all__ = ["nearest", "top_k"]
