"""Pre-training: devices, run directories, checkpoints, metrics and the loop."""
