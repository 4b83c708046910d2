"""`csml.scenes`: show how the annotations of a folder are read, and convert them to COCO's layout."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csml.api.run import PathLike
from csml.api.settings import plain_config
from csml.config import ScenesOfConfig
from csml.console import show_log
from csml.errors import CsmlError

log = logging.getLogger("csml")

_ON_SHEET = 20

Spread = tuple[float, float, float]
"""Smallest, median and largest value."""


@dataclass(frozen=True)
class PartResult:
    """Statistics of the training or test images."""

    images: int
    boxes: list[int]
    """objects of each class"""
    short_sides: Spread | None
    long_sides: Spread | None
    box_sides: Spread | None
    """root of the area of a box, in pixels"""
    crowding: Spread | None
    """objects per image"""
    scenes: Any
    """the images and their objects, `csml.data.scenes.Scenes`"""


@dataclass(frozen=True)
class ScenesResult:
    """The annotations that were read from a folder."""

    format: str
    classes: tuple[str, ...]
    parts: dict[str, PartResult]
    """train and test"""
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    repairs: list[tuple[str, str, str]]
    """kind, image and detail of every problem"""
    written: list[str]


@show_log()
def scenes(data: PathLike, *, config: PathLike | None = None, **settings: Any) -> ScenesResult:
    """Show how `csml.detect` reads the annotations of a folder; draw or convert them on request.

    Args:
        data: a folder with annotated images in any layout: VOC, COCO, YOLO, masks, FiftyOne.
        config: a YAML file of settings.
        settings: any setting of `csml scenes --help`, such as `split`, `sheet` and `coco`.
    """
    from csml.data.scenes.coco_file import write_coco
    from csml.data.scenes.open import open_scenes
    from csml.sheets.detections import scene_sheet
    from csml.sheets.saving import save_sheet, sheet_file

    made = scenes_config(config=config, **settings)
    sheet = sheet_file(made.sheet) if made.sheet else None
    if made.coco and str(data) == "synthetic":
        raise CsmlError("coco: only images in files can be converted, not drawn ones; give a folder")
    opened = open_scenes(str(data), made.scenes, made.format, made.train, made.test, made.split)
    for line in opened.notes:
        log.info(line)
    for line in opened.warnings:
        log.warning(line)
    opened.repairs.log()
    parts = {"train": opened.train, "test": opened.test}
    written = []
    if sheet is not None:
        ids = np.linspace(0, len(opened.train) - 1, min(len(opened.train), _ON_SHEET)).astype(int).tolist()
        save_sheet(scene_sheet(opened.train, ids), sheet)
        written.append(str(sheet))
    if made.coco:
        folder = Path(made.coco).expanduser()
        if folder.exists() and any(folder.iterdir()):
            raise CsmlError(f"coco: {folder} exists and is not empty; choose another")
        write_coco(parts, folder)
        written.append(str(folder))
    if made.repairs:
        opened.repairs.write(Path(made.repairs).expanduser())
        written.append(made.repairs)
    described = {name: _described(part) for name, part in parts.items()}
    return ScenesResult(
        opened.format,
        opened.train.classes,
        described,
        opened.notes,
        opened.warnings,
        opened.repairs.rows,
        written,
    )


def scenes_config(data: Any = None, *, config: PathLike | None = None, **settings: Any) -> ScenesOfConfig:
    """The settings that `scenes` would run with, checked; the folder is ignored."""
    return plain_config(ScenesOfConfig, settings, config)


def _described(scenes: Any) -> PartResult:
    truth = scenes.annotations
    boxes = truth.boxes[~truth.crowd].astype(np.float64)
    sides = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    return PartResult(
        images=len(scenes),
        boxes=np.bincount(truth.labels[~truth.crowd], minlength=len(scenes.classes)).tolist(),
        short_sides=_spread(truth.sizes.min(axis=1)),
        long_sides=_spread(truth.sizes.max(axis=1)),
        box_sides=_spread(sides),
        crowding=_spread(truth.count_learnable()),
        scenes=scenes,
    )


def _spread(values: np.ndarray) -> Spread | None:
    if not len(values):
        return None
    return float(values.min()), float(np.median(values)), float(values.max())
