"""Training: one loop (`loop.py`) over a task (`task.py`): pre-training, classification, detection, a linear probe."""
