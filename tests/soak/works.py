"""The commands that are disturbed, as small as they can be: pictures of 32 pixels, the smallest network, one thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from csml.data.synthetic import synthetic

_COMMON = ["--hardware.threads", "1", "--checkpoint.every_steps", "1", "--monitor.tensorboard", "false"]
_PHOTOS = ["--data", "PHOTOS", "--images.size", "32", "--images.workers", "1"]
_PRETRAIN = [
    "pretrain", "--preset", "demo", *_PHOTOS, "--epochs", "3", "--model.backbone", "nano", "--batch_size", "36",
    "--contrast.queue_length", "72", "--neighbors.warmup_epochs", "1", "--neighbors.refresh_every", "1",
    "--neighbors.keep", "1", "--monitor.knn_every", "1", *_COMMON,
]  # fmt: skip
_ALONE = ["--monitor.baselines", "false"]
_LINEAR = [
    "linear", "BACKBONE", *_PHOTOS, "--epochs", "4", "--augment", "true", "--baselines", "false", "--hardware.threads",
    "1", "--checkpoint.every_steps", "1", "--batch_size", "36", "--monitor.tensorboard", "false",
    "--output", "OUT/linear.json",
]  # fmt: skip
_DETECT = [
    "detect", "BACKBONE", "--preset", "small-fpn", "--scenes.synthetic_train", "8", "--scenes.synthetic_val", "2",
    "--scenes.synthetic_size", "64", "--scenes.workers", "1", "--schedule.iterations", "6",
    "--schedule.report_every", "2", "--schedule.test_every", "4", "--batch_size", "2", *_COMMON,
]  # fmt: skip
PLAN = """
base: {preset: demo, data: PHOTOS, images: {size: 32, workers: 1}, epochs: 1, model: {backbone: nano}, batch_size: 36,
       contrast: {queue_length: 72}, monitor: {knn_every: 0, tensorboard: false}, hardware: {threads: 1},
       checkpoint: {every_steps: 1}}
seeds: [0]
linear: {epochs: 2}
variations: {CsMl: {}, MoCo v2: {twin: moco-v2}}
"""


@dataclass(frozen=True)
class Work:
    """A command and how to go on with it.

    In its words PHOTOS, PLAN, BACKBONE and TUNED stand for what is made before, and OUT for the directory to write.
    """

    words: list[str]
    again: list[str] | None = None
    """to continue from a checkpoint; without, the same words find what is done"""
    ranks: int = 1
    """processes, as torchrun would start them"""

    @property
    def many(self) -> bool:
        """Whether it has several processes."""
        return self.ranks > 1 or "--hardware.devices" in self.words


WORKS: Mapping[str, Work] = {
    "pretrain": Work([*_PRETRAIN, *_ALONE, "--out", "OUT"], ["pretrain", "--resume", "OUT"]),
    "pretrain from weights": Work(
        [*_PRETRAIN, "--model.weights", "BACKBONE", "--out", "OUT"], ["pretrain", "--resume", "OUT"]
    ),
    "pretrain, two ranks": Work(
        [*_PRETRAIN, *_ALONE, "--out", "OUT"], ["pretrain", "--resume", "OUT"], ranks=2
    ),
    "pretrain, two devices": Work(
        [*_PRETRAIN, *_ALONE, "--hardware.devices", "2", "--out", "OUT"], ["pretrain", "--resume", "OUT"]
    ),
    "finetune": Work(
        ["finetune", "BACKBONE", "--per_class", "3", "--tune_from", "2", "--epochs", "1", *_COMMON, "--out", "OUT"],
        ["finetune", "--resume", "OUT"],
    ),
    "mine": Work(
        ["mine", "TUNED", "--epochs", "2", "--rounds", "2", "--max_entropy", "2.5", *_COMMON, "--out", "OUT"],
        ["mine", "--resume", "OUT"],
    ),
    "linear": Work(_LINEAR, [*_LINEAR, "--resume"]),
    "detect": Work([*_DETECT, "--out", "OUT"], ["detect", "--resume", "OUT"]),
    "ablate": Work(["ablate", "PLAN", "--out", "OUT"]),
}  # fmt: skip
NEEDS = {"TUNED": "finetune", "BACKBONE": "pretrain"}
"""Words that stand for the undisturbed run of a work."""


def make_inputs(place: Path) -> None:
    """Pictures of three classes, and the plan of an ablation."""
    photos = place / "photos"
    if photos.exists():
        return
    for split, images in zip(("train", "val"), synthetic(32, 240, 80), strict=True):
        for id, label in enumerate(images.labels.tolist()):
            if label < 3:
                path = place / "photos.part" / split / images.classes[label] / f"{id:03d}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                images.read(id).save(path)
    (place / "plan.yaml").write_text(PLAN.replace("PHOTOS", str(photos)))
    (place / "photos.part").rename(photos)


def spelt(words: list[str], place: Path, out: Path) -> list[str]:
    """The words of a work with real paths."""
    paths = {"PHOTOS": place / "photos", "PLAN": place / "plan.yaml"}
    paths |= {word: place / "undisturbed" / name for word, name in NEEDS.items()}
    return [str(paths[word]) if word in paths else word.replace("OUT", str(out)) for word in words]
