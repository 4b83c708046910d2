"""`csml.predict`: label, probability and entropy of any number of images, or the objects on them."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from csml.api.images import open_files_and_folders
from csml.api.object_rows import CORNERS, OBJECT_COLUMNS, ObjectFinder, refuse_for_labels
from csml.api.prediction_table import Row, discard, open_table
from csml.api.processes import in_processes
from csml.api.run import PathLike, Run, path_of, paths_of
from csml.api.session import device_for
from csml.api.settings import using_config
from csml.config import PredictConfig
from csml.console import show_log
from csml.data.bit_depth import reading_of
from csml.data.image_names import path_from_here
from csml.data.images import FolderImages, Images, ListedImages
from csml.data.tables import read_list
from csml.data.video import VIDEOS, require_video
from csml.distributed.launch import join_world
from csml.errors import CsmlError
from csml.evaluation.predictions import predict as classify
from csml.models.classifier import Classifier
from csml.progress import watched
from csml.runs.run_of_weights import directory_of
from csml.runs.trust import Trust, read_trust
from csml.weights import finds_objects, load_classifier, load_detector

log = logging.getLogger("csml")

_LABEL_COLUMNS = ("path", "label", "probability", "entropy", "error")
_TRUSTED_COLUMNS = ("path", "label", "probability", "entropy", "familiar", "error")
_UNLIKE_IMAGES = 0.3
"""Share of images unlike the labelled ones above which a warning is logged; among the labelled ones it is 5 %."""

Rows = Iterator[tuple[int, list[Row] | None]]
"""Ids of images and the rows about each; None: the image cannot be read."""


@dataclass(frozen=True)
class Predictions:
    """One row per image, or per object of a detector; lists of equal length."""

    rows: list[Row]
    images: int
    """number of images and frames"""
    unreadable: int
    """number of those that cannot be read"""

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        first = f", the first: {self.rows[0]}" if self.rows else ""
        return f"Predictions({len(self.rows):,} rows of {self.images:,} images, {self.unreadable:,} unreadable{first})"

    @property
    def paths(self) -> list[str]:
        return [row["path"] for row in self.rows]

    @property
    def labels(self) -> list[str | None]:
        """None where the image cannot be read, or no object was found on it."""
        return [row.get("label") for row in self.rows]

    @property
    def probabilities(self) -> list[float | None]:
        """Of a detector, the score of each object."""
        return [row.get("probability", row.get("score")) for row in self.rows]

    @property
    def entropies(self) -> list[float | None]:
        """In nats; 0 is certain. Of classifiers only."""
        return [row.get("entropy") for row in self.rows]

    @property
    def boxes(self) -> list[tuple[float, ...] | None]:
        """Corners x0, y0, x1, y1 in pixels. Of detectors only."""
        return [tuple(row[c] for c in CORNERS) if CORNERS[0] in row else None for row in self.rows]

    @property
    def masks(self) -> list[Any]:
        """Run-length codes or polygons in COCO's form. Of detectors with masks only."""
        return [row.get("mask") for row in self.rows]


@show_log()
def predict(
    weights: "Run | PathLike",
    sources: PathLike | Sequence[PathLike],
    *,
    keep: bool = True,
    config: PathLike | None = None,
    **settings: Any,
) -> Predictions:
    """Predict each image: label, probability and entropy; with a detector, each object with its box.

    Args:
        weights: a run of `finetune`, `mine`, `supervised` or `detect`, or its weight file.
        sources: a folder, an image file, a list of paths (.txt, one per line), or several of them; for a detector also
            video files.
        keep: return the rows; False if there are too many and only the file is needed.
        config: a YAML file of settings.
        settings: any setting of `csml predict --help`; `output` also writes a .csv or .jsonl file as it goes.
    """
    made = predict_config(weights, config=config, **settings)
    names = [str(path) for path in paths_of(sources, "sources")]
    return in_processes(run_predict, made.hardware, str(path_of(weights)), names, made, keep)


def predict_config(
    weights: "Run | PathLike",
    sources: Any = None,
    *,
    keep: bool = True,
    config: PathLike | None = None,
    **settings: Any,
) -> PredictConfig:
    """The settings that `predict` would run with, checked; `sources` is ignored."""
    return using_config(PredictConfig, str(path_of(weights)), settings, config=config)


def run_predict(weights: str, sources: list[str], config: PredictConfig, keep: bool) -> Predictions:
    """Predict in this process, which may be one of several; the result has the rows if `keep`."""
    trust: Trust | None = None
    finder: ObjectFinder | None = None
    columns: tuple[str, ...] = OBJECT_COLUMNS
    rows_of: Callable[[Any], Rows]
    if finds_objects(weights):
        finder = ObjectFinder(*load_detector(weights), config)
        rows_of = finder.rows
    else:
        refuse_for_labels(config)
        trust = read_trust(directory_of(weights).trust)
        columns = _LABEL_COLUMNS if trust is None else _TRUSTED_COLUMNS
        rows_of = partial(_labels, *load_classifier(weights), trust, config)
    images, videos = _opened(sources, config, finder)  # before anything is written
    if finder is not None:
        finder.make_folder()
    counted = failed = unfamiliar = objects = 0
    probability = 0.0
    kept: list[Row] = []
    has_images = bool(videos) or any(len(part) for part in images)  # else no table that would have to be deleted
    writes = config.output is not None and has_images and join_world(config.hardware).is_rank_zero
    with open_table(str(config.output), columns) if writes else contextlib.nullcontext(discard) as write:
        for path, rows in _all_rows(images, videos, rows_of, finder):
            listed: list[Row] = [{"error": "cannot be read"}] if rows is None else rows or [{}]
            for row in listed:
                write({"path": path, **row})
                if keep:
                    kept.append({"path": path, **row})
                probability += float(row.get("probability", 0.0))
                unfamiliar += row.get("familiar") is False
                objects += "score" in row
            if rows is None:
                log.warning("cannot be read: %s", path)
            counted, failed = counted + 1, failed + (rows is None)
    images_text = "1 image" if counted == 1 else f"{counted:,} images"
    unread = f", {failed} of them cannot be read" if failed else ""
    on_them = "" if finder is None else ", 1 object" if objects == 1 else f", {objects:,} objects"
    log.info("%s%s%s", images_text, unread, on_them)
    if trust is not None and counted > failed:
        _log_reliability(trust, counted - failed, probability, unfamiliar)
    return Predictions(kept, counted, failed)


def _opened(
    sources: list[str], config: PredictConfig, finder: ObjectFinder | None
) -> tuple[list[FolderImages | ListedImages], list[str]]:
    """The images of all sources, and the paths of the videos; raises CsmlError if one of them cannot be opened."""
    names = [name for source in sources for name in _listed(source)]
    videos = [name for name in names if Path(name).suffix.lower() in VIDEOS]
    if videos and finder is None:
        raise CsmlError(f"{videos[0]}: a classifier labels images, not videos; give a run of csml detect")
    for video in videos:
        require_video(Path(video).expanduser())
    return open_files_and_folders([n for n in names if n not in videos], reading_of(config.images)), videos


def _all_rows(
    opened: list[FolderImages | ListedImages],
    videos: list[str],
    rows_of: Callable[[Any], Rows],
    finder: ObjectFinder | None,
) -> Iterator[tuple[str, list[Row] | None]]:
    """The path of each image, and of each frame of a video, with the rows about it."""
    for images in opened:
        yield from ((path_from_here(images, id), rows) for id, rows in rows_of(images))
    for video in videos:
        if finder is not None:
            yield from ((video, rows) for rows in finder.frame_rows(Path(video).expanduser()))


def _listed(source: str) -> list[str]:
    """The paths in a list file, one per line, relative to it; any other source is returned unchanged."""
    path = Path(source).expanduser()
    if path.suffix.lower() != ".txt" or not path.is_file():
        return [source]
    return [str(path.parent / line) for line in read_list(path, "sources") if not line.startswith("#")]


def _log_reliability(trust: Trust, images: int, probability: float, unfamiliar: int) -> None:
    """Log the expected accuracy, by cross-validation and by the probabilities; warn if many images are unfamiliar.

    Args:
        trust: of the classifier.
        images: number of images that could be read.
        probability: sum of their probabilities.
        unfamiliar: number of those that are unlike every labelled image.
    """
    if trust.accuracy is None or trust.error is None:
        log.warning("too few labels a class: the accuracy is not known, and the probabilities are hardly calibrated")
    else:
        log.info(
            "expected accuracy: %.0f %% ± %.0f by cross-validation on %d labels (%.0f %% by the probabilities)",
            100 * trust.accuracy,
            100 * trust.error,
            trust.labels,
            100 * probability / images,
        )
    if unfamiliar > _UNLIKE_IMAGES * images:
        log.warning(
            "%.0f %% of the images are unlike every labelled image; probabilities do not hold for them: label some",
            100 * unfamiliar / images,
        )


def _labels(
    classifier: Classifier, facts: dict[str, Any], trust: Trust | None, config: PredictConfig, images: Images
) -> Rows:
    """One row per image."""
    fabric = device_for(images, config, classifier.backbone)
    batch_size = config.batch_size or 256
    batches = classify(classifier, images, config.images, fabric, batch_size, trust)
    for batch in watched(batches, "predicting", total=-(-len(images) // batch_size)):
        for id, label, probability, entropy, good, similarity in zip(*(c.tolist() for c in batch), strict=True):
            row = {"label": facts["classes"][label], "probability": probability, "entropy": entropy}
            row |= {} if trust is None else {"familiar": similarity >= trust.floor}
            yield id, [row] if good else None
