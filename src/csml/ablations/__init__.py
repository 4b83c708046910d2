"""Ablations: plans, runs, outcomes, tables."""
