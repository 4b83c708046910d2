"""The run directory: the path of every file in it.

RUN/
  config.yaml                every setting, resolved
  run.json                   verb, versions, commit, machine, data
  log.txt                    the log of the console
  .lock, .used               locks of the process that writes this directory, and of those that use it (`locks.py`)
  metrics.jsonl              one line per epoch
  tensorboard/               the same as event files
  loggers.json               ids of the run in W&B and MLflow
  checkpoints/               the newest few, for resuming
  neighbors/epoch-0010.npz   the neighbour set Ω of each search: indices (N, k), similarities (N, k)
  start.safetensors          the weights that pre-training started from, if any
  kept.json                  the point between start and end that became the backbone, and why
  backbone.safetensors       the network without its heads, rewritten each epoch
  classifier.safetensors, best.safetensors, detector.safetensors
  labels.csv, tests.csv      labelled images of a classifier: for training, for testing
  trust.safetensors          expected accuracy of a calibrated classifier, and features to detect unfamiliar images
  folds/HOW-1/, …            run directories of `csml finetune` while it cross-validates
  round-1/, round-2/, …      a run directory per round of mining, with pseudo_labels.csv and mined.json
  repairs.csv                problems in the annotations of a detector
  detections.json, detections.png, worst.png, best.png, figures/   of a detector's test
  best-detector.safetensors  the weights of a detector after its best test
  knn.json, linear.json, supervised.json, finetune.json, mine.json, detect.json   results
  baselines.json             accuracy of the baselines: raw pixels, untrained network, starting weights
  linear/                    run directory of a linear probe
  few-labels/FRACTION/VERB/  run directories of an ablation
  index/KEY/                 search index of `csml neighbors`
  explore/                   of `csml explore`: index, maps, labels.csv, workbench.sqlite (labels, tags, history),
                             tuned-001/, … (run directories of classifiers)
  export/                    the backbone in other libraries' formats
  report.html
"""

import re
from dataclasses import dataclass
from pathlib import Path

from csml.run_files import BACKBONE, CLASSIFIER, DETECTOR

RESULTS = ("knn", "linear", "supervised", "finetune", "mine", "detect")
"""Names of the result files."""
_CHECKPOINT = re.compile(r"epoch-(\d+)-step-(\d+)\.pt")


@dataclass(frozen=True)
class RunDirectory:
    """Paths inside one run directory; nothing is created until it is written."""

    root: Path
    outer: Path | None = None
    """the run directory that this one is a step of, such as a round of mining; the outer one is resumed"""

    # Every verb that trains.

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def facts(self) -> Path:
        return self.root / "run.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def loggers(self) -> Path:
        return self.root / "loggers.json"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def resumed(self) -> Path:
        """The directory to pass to `resume`."""
        return self.outer or self.root

    def has_checkpoint(self) -> bool:
        """Whether the run, a round of it or its cross-validation can be resumed."""
        inner = (*self.rounds(), *(RunDirectory(fold) for fold in self.folds.glob("*")))
        return any(checkpoint_files(run.checkpoints) or run.scores.exists() for run in (self, *inner))

    def result(self, name: str) -> Path:
        """The result file of a verb, one of `RESULTS`."""
        return self.root / f"{name}.json"

    # Weights.

    @property
    def backbone(self) -> Path:
        return self.root / BACKBONE

    @property
    def start(self) -> Path:
        """The backbone that pre-training started from."""
        return self.root / "start.safetensors"

    @property
    def kept(self) -> Path:
        """The point between start and end of pre-training that became the backbone, and why."""
        return self.root / "kept.json"

    @property
    def classifier(self) -> Path:
        return self.root / CLASSIFIER

    @property
    def best_classifier(self) -> Path:
        """The classifier after the epoch with the highest test accuracy."""
        return self.root / "best.safetensors"

    @property
    def detector(self) -> Path:
        return self.root / DETECTOR

    @property
    def best_detector(self) -> Path:
        """The detector after the test with the highest AP."""
        return self.root / "best-detector.safetensors"

    # Pre-training.

    def neighbors(self, epoch: int) -> Path:
        """The neighbour set Ω found after `epoch` epochs."""
        return self.root / "neighbors" / f"epoch-{epoch:04d}.npz"

    def neighbor_files(self) -> list[Path]:
        """Every saved neighbour set, the earliest first."""
        return sorted((self.root / "neighbors").glob("epoch-*.npz"))

    # Classifiers.

    @property
    def labels(self) -> Path:
        """Training images and their labels."""
        return self.root / "labels.csv"

    @property
    def tests(self) -> Path:
        """Test images and their labels."""
        return self.root / "tests.csv"

    @property
    def trust(self) -> Path:
        """Expected accuracy of a calibrated classifier, and features to detect unfamiliar images."""
        return self.root / "trust.safetensors"

    def fold(self, how: str, number: int) -> "RunDirectory":
        """The run directory of a training method on the labels outside a fold; folds are numbered from 1."""
        return RunDirectory(self.folds / f"{how}-{number}", outer=self.root)

    @property
    def folds(self) -> Path:
        return self.root / "folds"

    @property
    def scores(self) -> Path:
        """Scores for the held-out labels of a fold, `(held out, classes)`."""
        return self.root / "scores.npy"

    @property
    def pseudo_labels(self) -> Path:
        return self.root / "pseudo_labels.csv"

    @property
    def mined(self) -> Path:
        """How many pseudo-labels were kept, and how many are correct, if that is known."""
        return self.root / "mined.json"

    def round(self, number: int) -> "RunDirectory":
        """The directory of a round of mining, numbered from 1."""
        return RunDirectory(self.root / f"round-{number}", outer=self.root)

    def rounds(self) -> list["RunDirectory"]:
        """The rounds that exist, in order."""
        numbers = (path.name.removeprefix("round-") for path in self.root.glob("round-*"))
        return [self.round(number) for number in sorted(int(name) for name in numbers if name.isdecimal())]

    # Detectors.

    @property
    def repairs(self) -> Path:
        return self.root / "repairs.csv"

    @property
    def detections(self) -> Path:
        return self.root / "detections.json"

    @property
    def detection_sheet(self) -> Path:
        return self.root / "detections.png"

    @property
    def worst_detections(self) -> Path:
        """Test images with the lowest F1, with annotations and detections."""
        return self.root / "worst.png"

    @property
    def best_detections(self) -> Path:
        """Test images with the highest F1."""
        return self.root / "best.png"

    @property
    def detection_figures(self) -> Path:
        """Precision over recall, confusion matrix and errors by kind, as PNG and SVG."""
        return self.root / "figures"

    # Verbs that use a finished run.

    @property
    def baselines(self) -> Path:
        """Scores of the baselines, computed once."""
        return self.root / "baselines.json"

    @property
    def linear(self) -> "RunDirectory":
        """The run directory of a linear probe."""
        return probe_directory(self.result("linear"))

    def few_labels(self, fraction: float, verb: str) -> "RunDirectory":
        """The run directory of an ablation's classifier trained on a fraction of the labels."""
        return RunDirectory(self.root / "few-labels" / f"{fraction:g}" / verb)

    def index(self, key: str) -> Path:
        """Folder of the search index for the images identified by `key`."""
        return self.root / "index" / key

    @property
    def explore_index(self) -> Path:
        return self.root / "explore" / "index"

    def explore_map(self, key: str) -> Path:
        return self.root / "explore" / f"map-{key}.npz"

    def explore_cache(self, what: str, key: str) -> Path:
        """Other cached values for all images, such as probabilities."""
        return self.root / "explore" / f"{what}-{key}.npy"

    @property
    def explore_state(self) -> Path:
        """Labels and tags given on the page, and their history."""
        return self.root / "explore" / "workbench.sqlite"

    def explore_tuned(self, number: int) -> "RunDirectory":
        """The run directory of a classifier that was fine-tuned from the page, numbered from 1."""
        return RunDirectory(self.root / "explore" / f"tuned-{number:03d}")

    def explore_tuned_numbers(self) -> list[int]:
        """Numbers of the fine-tuned classifiers, finished or not, in order."""
        names = (path.name.removeprefix("tuned-") for path in (self.root / "explore").glob("tuned-*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def explore_tuned_runs(self) -> list["RunDirectory"]:
        """Run directories of the finished fine-tuned classifiers, in order."""
        found = map(self.explore_tuned, self.explore_tuned_numbers())
        return [run for run in found if run.result("finetune").exists()]

    @property
    def explore_labels(self) -> Path:
        return self.root / "explore" / "labels.csv"

    @property
    def export(self) -> Path:
        return self.root / "export"

    @property
    def report(self) -> Path:
        return self.root / "report.html"


def probe_directory(result: Path) -> RunDirectory:
    """The run directory of a linear probe, beside its result file: RUN/linear.json → RUN/linear/."""
    return RunDirectory(result.with_suffix(""), outer=result.parent)


def checkpoint_file(folder: Path, epoch: int, step: int) -> Path:
    return folder / f"epoch-{epoch:04d}-step-{step:06d}.pt"


def checkpoint_files(folder: Path) -> list[Path]:
    """Every checkpoint in a folder, the newest first."""
    found = [(match.groups(), path) for path in folder.glob("*.pt") if (match := _CHECKPOINT.fullmatch(path.name))]
    return [path for _, path in sorted(found, key=lambda item: tuple(map(int, item[0])), reverse=True)]
