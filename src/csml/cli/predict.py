"""`csml predict RUN IMAGES …`: label, probability and entropy of any number of images, or the objects on them."""

import csv
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from csml.cli.using import parse
from csml.config.checks import check_images
from csml.config.detection import ScenesConfig
from csml.config.schema import HardwareConfig, ImagesConfig
from csml.data.failures import Failures
from csml.data.images import FolderImages, Images, ListedImages
from csml.data.index import index_folder
from csml.data.scenes.repair import unannotated
from csml.errors import CsmlError
from csml.evaluation.detections import detect
from csml.evaluation.predictions import predict
from csml.models.classifier import Classifier
from csml.models.detectors import Detector
from csml.progress import watched
from csml.training.device import build_fabric
from csml.training.launch import join_world
from csml.weights import finds_objects, load_classifier, load_detector

log = logging.getLogger("csml")

_CORNERS = ("x0", "y0", "x1", "y1")
_LABEL_COLUMNS = ("path", "label", "probability", "entropy", "error")
_OBJECT_COLUMNS = ("path", "label", "probability", *_CORNERS, "error")
_SUMMARY = (
    "Say what is on each image: label, probability, and entropy in nats (0 is certain); of a run of csml detect, a "
    "line for each object found, with the corners of its box in pixels."
)


@dataclass
class PredictConfig:
    """Settings of `csml predict`."""

    output: str = "-"
    """A .csv, .jsonl or .json (lines) file; by default the table is printed as CSV."""
    batch_size: int | None = None
    """Images at once; by default 256, of a detector 8."""
    min_score: float = 0.5
    """Of a detector: objects it is less sure of are left out."""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)


def run(arguments: list[str]) -> int:
    usage = "csml predict RUN IMAGES … [--output FILE]"
    settings, config = parse(
        "predict", PredictConfig, _SUMMARY, usage, arguments, "sources", "Image files and folders."
    )
    check_images(config.images)
    columns: tuple[str, ...] = _LABEL_COLUMNS
    if finds_objects(settings.weights):
        columns, tell = _OBJECT_COLUMNS, partial(_objects, *load_detector(settings.weights), config)
    else:
        tell = partial(_labels, *load_classifier(settings.weights), config)
    counted = failed = 0
    with _table(config.output, columns) if join_world(config.hardware).first else nullcontext(_nothing) as write:
        for images, folder in _sources(settings.sources):
            for id, rows in tell(images):
                path = folder + images.name(id)
                for row in [{"error": "cannot be read"}] if rows is None else rows or [{}]:
                    write({"path": path, **row})
                if rows is None:
                    log.warning("cannot be read: %s", path)
                counted, failed = counted + 1, failed + (rows is None)
    log.info("%d images%s", counted, f", {failed} of them cannot be read" if failed else "")
    return 0


Told = Iterator[tuple[int, list[dict[str, Any]] | None]]
"""Ids of images and the rows about each; None: it cannot be read."""


def _labels(classifier: Classifier, facts: dict[str, Any], config: PredictConfig, images: Images) -> Told:
    """One row an image."""
    fabric = build_fabric(config.hardware, images, config.images.workers)
    batch_size = config.batch_size or 256
    batches = predict(classifier, images, config.images, fabric, batch_size)
    for batch in watched(batches, "predicting", total=-(-len(images) // batch_size)):
        for id, label, probability, entropy, good in zip(*(part.tolist() for part in batch), strict=True):
            row = {"label": facts["classes"][label], "probability": probability, "entropy": entropy}
            yield id, [row] if good else None


def _objects(
    detector: Detector, facts: dict[str, Any], config: PredictConfig, images: FolderImages | ListedImages
) -> Told:
    """One row an object, best first; an image without objects has a row with nothing but its path."""
    paths = {str(images.path(id)): id for id in range(len(images))}
    scenes, bad = unannotated([Path(path) for path in paths])
    yield from ((paths[path], None) for path in bad)
    if scenes is None:
        return
    fabric = build_fabric(config.hardware, scenes.images, config.images.workers)
    reading = ScenesConfig(
        test_side=facts["test_side"], max_side=facts["max_side"], workers=config.images.workers, max_failed=1.0
    )
    failures = Failures(scenes.images, reading.max_failed)
    detector = detector.to(fabric.device)
    for number, found in detect(detector, scenes, reading, config.batch_size or 8, fabric, failures):
        yield (
            paths[str(scenes.image_ids[number])],
            [
                {"label": facts["classes"][label], "probability": score, **dict(zip(_CORNERS, box, strict=True))}
                for label, score, box in zip(
                    found.labels.tolist(), found.scores.tolist(), found.boxes.tolist(), strict=True
                )
                if score >= config.min_score
            ],
        )
    for number in failures.ids:
        yield paths[str(scenes.image_ids[number])], None


def _sources(names: list[str]) -> list[tuple[FolderImages | ListedImages, str]]:
    """Folders one by one, each with what leads to its images; single files together."""
    files = [Path(name).expanduser() for name in names]
    missing = [path for path in files if not path.exists()]
    if missing:
        raise CsmlError(f"{missing[0]} is not there; give image files or folders")
    sources: list[tuple[FolderImages | ListedImages, str]] = [
        (FolderImages(index_folder(path)), f"{path}/") for path in files if path.is_dir()
    ]
    single = [path for path in files if not path.is_dir()]
    return [*sources, (ListedImages(single), "")] if single else sources


def _nothing(row: dict[str, Any]) -> None:
    """Where another process writes."""


@contextmanager
def _table(output: str, columns: tuple[str, ...]) -> Iterator[Any]:
    """A function that writes a row; what is written is there even if the command is stopped."""
    if output == "-":
        yield _writer(sys.stdout, columns, as_json=False)
        return
    path = Path(output).expanduser()
    if path.exists():
        raise CsmlError(f"output: {path} exists; choose another, or delete it")
    try:
        with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            yield _writer(file, columns, as_json=path.suffix in (".jsonl", ".json", ".ndjson"))
    except OSError as error:
        raise CsmlError(f"output: cannot write {path} ({error.strerror})") from error
    log.info("written to %s", path)


def _writer(file: TextIO, columns: tuple[str, ...], as_json: bool) -> Any:
    if as_json:
        return lambda row: file.write(json.dumps(row, ensure_ascii=False) + "\n")
    writer = csv.DictWriter(file, columns, restval="")
    writer.writeheader()

    def write(row: dict[str, Any]) -> None:
        writer.writerow({key: f"{value:.4f}" if isinstance(value, float) else value for key, value in row.items()})

    return write
