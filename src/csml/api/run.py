"""`Run`: a run directory as an object, with the verbs that use it."""

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.api.table import Table
from csml.config import (
    DetectConfig,
    FinetuneConfig,
    MineConfig,
    PretrainConfig,
    RunConfig,
    SupervisedConfig,
    configure,
    is_weight_name,
)
from csml.errors import CsmlError
from csml.runs.locks import in_use
from csml.runs.metadata import read_results, verb_of
from csml.runs.metrics import read_metrics
from csml.runs.opening import open_run
from csml.runs.run_of_weights import directory_of
from csml.runs.settings import read_settings

if TYPE_CHECKING:  # verbs import Run; its methods call verbs
    from csml.api.embedding import Embeddings
    from csml.api.evaluating import KnnResult, LinearResult
    from csml.api.exporting import Exported
    from csml.api.predicting import Predictions
    from csml.models.backbones import Backbone
    from csml.models.classifier import Classifier
    from csml.models.detectors import Detector

PathLike = str | Path

SCHEMAS: dict[str, type[RunConfig]] = {
    "pretrain": PretrainConfig,
    "supervised": SupervisedConfig,
    "finetune": FinetuneConfig,
    "mine": MineConfig,
    "detect": DetectConfig,
}


class Run:
    """A run directory, finished or not.

    Args:
        path: the directory.
        data: the images it was trained on, if they were passed in memory.
    """

    def __init__(self, path: PathLike, *, data: Any = None) -> None:
        self._directory = open_run(str(path))
        self.data = data

    def __repr__(self) -> str:
        return f"csml.Run({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._directory.root

    @cached_property
    def verb(self) -> str:
        """The verb that made the run: pretrain, supervised, finetune, mine or detect."""
        return verb_of(self.path)

    @cached_property
    def config(self) -> Any:
        """All settings, as the dataclass of the verb."""
        return configure(SCHEMAS[self.verb], read_settings(self.path))

    @property
    def metrics(self) -> Table:
        """One row per epoch; `run.metrics["loss"]` is a column."""
        return Table(read_metrics(self._directory.metrics))

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The existing result files by verb: knn, linear, finetune, …"""
        return read_results(self._directory)

    def backbone(self) -> "Backbone":
        """The network in eval mode, without heads: images `(B, 3, H, W)`, normalised, → features `(B, C)`."""
        from csml.weights import load_backbone

        return load_backbone(self.path)

    def classifier(self) -> "Classifier":
        """The network with its classes, in eval mode: images `(B, 3, H, W)`, normalised, → scores `(B, classes)`."""
        from csml.weights import load_classifier

        return load_classifier(self.path)[0]

    def detector(self) -> "Detector":
        """The detector in eval mode: a list of images `(3, h, w)` → boxes, labels from 1, scores, masks."""
        from csml.weights import load_detector

        return load_detector(self.path)[0]

    def knn(self, **settings: Any) -> "KnnResult":
        """As `csml.knn`."""
        from csml.api.evaluating import knn

        return knn(self, **settings)

    def linear(self, **settings: Any) -> "LinearResult":
        """As `csml.linear`."""
        from csml.api.evaluating import linear

        return linear(self, **settings)

    def finetune(self, **settings: Any) -> "Run":
        """As `csml.finetune`."""
        from csml.api.classifiers import finetune

        return finetune(self, **settings)

    def predict(self, sources: "PathLike | Sequence[PathLike]", **settings: Any) -> "Predictions":
        """As `csml.predict`."""
        from csml.api.predicting import predict

        return predict(self, sources, **settings)

    def embed(self, data: Any = None, **settings: Any) -> "Embeddings":
        """As `csml.embed`."""
        from csml.api.embedding import embed

        return embed(self, data, **settings)

    def export(self, to: str | None = None, **settings: Any) -> "Exported":
        """As `csml.export`."""
        from csml.api.exporting import export

        return export(self, to, **settings)


def path_of(run: "Run | PathLike | None") -> str | None:
    """A run, or a path, as a path."""
    if run is None:
        return None
    return str(run.path if isinstance(run, Run) else run)


def paths_of(given: Any, key: str) -> list[Path]:
    """One or several paths or runs, as paths; `key` names the argument in the error message."""
    one, several = isinstance(given, Run | str | os.PathLike), isinstance(given, Iterable)
    paths = [given] if one else list(given) if several else [given]
    if not all(isinstance(path, Run | str | os.PathLike) for path in paths):
        raise CsmlError(f"{key}: expected a path or a list of paths, got {given!r:.80}")
    if "" in paths:
        raise CsmlError(f"{key}: an empty name; give a path, . for this folder")
    return [Path(str(path_of(path))) for path in paths]


def run_in_use(weights: str) -> AbstractContextManager[None]:
    """Prevent the run of these weights, if there is one, from being overwritten meanwhile."""
    run = None if is_weight_name(weights) else directory_of(weights)
    return in_use(run.root) if run is not None and run.config.exists() else nullcontext()


def required_weights(weights: str | None, verb: str, otherwise: str = "") -> str:
    """The weights to start from; raise if none were given."""
    if weights is None:
        more = f", {otherwise}" if otherwise else ""
        raise CsmlError(f"weights: give what to start from: csml {verb} RUN{more}")
    return weights
