"""`csml predict RUN IMAGES …`: label, probability and entropy of any number of images."""

import csv
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from csml.cli.using import parse
from csml.config.checks import check_images
from csml.config.schema import HardwareConfig, ImagesConfig
from csml.data.images import FolderImages, Images, ListedImages
from csml.data.index import index_folder
from csml.errors import CsmlError
from csml.evaluation.predictions import predict
from csml.progress import progress_bar
from csml.training.device import build_fabric
from csml.weights import load_classifier

log = logging.getLogger("csml")

_COLUMNS = ("path", "label", "probability", "entropy", "error")
_SUMMARY = "Say what is on each image: label, probability, and entropy in nats (0 is certain)."


@dataclass
class PredictConfig:
    """Settings of `csml predict`."""

    output: str = "-"
    """A .csv, .jsonl or .json (lines) file; by default the table is printed as CSV."""
    batch_size: int = 256
    """Images at once."""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)


def run(arguments: list[str]) -> int:
    usage = "csml predict RUN IMAGES … [--output FILE]"
    settings, config = parse(
        "predict", PredictConfig, _SUMMARY, usage, arguments, "sources", "Image files and folders."
    )
    check_images(config.images)
    classifier, facts = load_classifier(settings.weights)
    sources = _sources(settings.sources)
    counted = failed = 0
    with _table(config.output) as write, progress_bar() as bar:
        for images, folder in sources:
            fabric = build_fabric(config.hardware, images, config.images.workers)
            task = bar.add_task("predicting", total=len(images), note="")
            for batch in predict(classifier, images, config.images, fabric, config.batch_size):
                for id, label, probability, entropy, good in zip(*(part.tolist() for part in batch), strict=True):
                    row = {"path": folder + images.name(id), "label": "", "probability": "", "entropy": "", "error": ""}
                    if good:
                        row |= {"label": facts["classes"][label], "probability": probability, "entropy": entropy}
                    else:
                        row["error"] = "cannot be read"
                        log.warning("cannot be read: %s", row["path"])
                    write(row)
                counted, failed = counted + len(batch.ids), failed + int((~batch.good).sum())
                bar.update(task, advance=len(batch.ids))
    log.info("%d images%s", counted, f", {failed} of them cannot be read" if failed else "")
    return 0


def _sources(names: list[str]) -> list[tuple[Images, str]]:
    """Folders one by one, each with what leads to its images; single files together."""
    files = [Path(name).expanduser() for name in names]
    missing = [path for path in files if not path.exists()]
    if missing:
        raise CsmlError(f"{missing[0]} is not there; give image files or folders")
    sources: list[tuple[Images, str]] = [
        (FolderImages(index_folder(path)), f"{path}/") for path in files if path.is_dir()
    ]
    single = [path for path in files if not path.is_dir()]
    return [*sources, (ListedImages(single), "")] if single else sources


@contextmanager
def _table(output: str) -> Iterator[Any]:
    """A function that writes a row; what is written is there even if the command is stopped."""
    if output == "-":
        yield _writer(sys.stdout, as_json=False)
        return
    path = Path(output).expanduser()
    if path.exists():
        raise CsmlError(f"output: {path} exists; choose another, or delete it")
    try:
        with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            yield _writer(file, as_json=path.suffix in (".jsonl", ".json", ".ndjson"))
    except OSError as error:
        raise CsmlError(f"output: cannot write {path} ({error.strerror})") from error
    log.info("written to %s", path)


def _writer(file: TextIO, as_json: bool) -> Any:
    if as_json:
        return lambda row: file.write(json.dumps({k: v for k, v in row.items() if v != ""}, ensure_ascii=False) + "\n")
    writer = csv.DictWriter(file, _COLUMNS)
    writer.writeheader()

    def write(row: dict[str, Any]) -> None:
        numbers = {key: f"{row[key]:.4f}" for key in ("probability", "entropy") if row[key] != ""}
        writer.writerow({**row, **numbers})

    return write
