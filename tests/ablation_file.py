"""The small ablation of the tests: two variations, two seeds, a few seconds each."""

from pathlib import Path

FILE = """
title: With and without a mixture
base:
  preset: demo
  images: {size: 16, synthetic_train: 200, synthetic_val: 60}
  contrast.queue_length: 64
  epochs: 2
  neighbors: {warmup_epochs: 1, k: 3}
  model: {backbone: nano, stages: [4]}
  monitor: {knn_every: 0, tensorboard: false}
  hardware.threads: 1
  checkpoint: {every_steps: 1, keep: 99}
seeds: [0, 1]
variations:
  MoCo v2: {twin: moco-v2}
  "q_a + q_p": {views.mix: none}
knn: {k: [5]}
linear: {augment: false, epochs: 3}
"""


def written(folder: Path, text: str = FILE) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)
