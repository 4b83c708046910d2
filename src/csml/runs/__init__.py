"""Run directories: their files, settings, metrics, checkpoints, signals and locks."""
