"""Ablations: plans, runs, results, tables."""
