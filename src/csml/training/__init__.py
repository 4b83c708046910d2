"""Training: one loop (`loop.py`) for all tasks (`task.py`): pre-training, classification, detection, a linear probe."""
