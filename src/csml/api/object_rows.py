"""Objects detected on images, on tiles of images, or on the frames of a video, as rows of a table."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from csml.config import PredictConfig, ScenesConfig
from csml.data.decode import DecodeError
from csml.data.failures import Failures
from csml.data.images import FolderImages, Images, ListedImages
from csml.data.loading import fabric_for
from csml.data.video import frames
from csml.distributed.device import memory_format
from csml.errors import CsmlError, disk_problem
from csml.models.detectors import Detector
from csml.progress import watched

CORNERS = ("x0", "y0", "x1", "y1")
OBJECT_COLUMNS = ("path", "frame", "seconds", "label", "score", *CORNERS, "mask", "error")
_USUAL_SCORE = 0.5
_BATCH = 8

Row = dict[str, Any]
Rows = Iterator[tuple[int, list[Row] | None]]


def refuse_for_labels(config: PredictConfig) -> None:
    """Raise if a setting for detectors was given with a classifier."""
    for key in ("pictures", "tiles"):
        if getattr(config, key) is not None:
            raise CsmlError(f"{key}: these weights label whole images; give a run of csml detect")


class ObjectFinder:
    """Runs a detector and returns its detections as rows; draws them if `pictures` is set.

    Args:
        detector: in eval mode.
        facts: the metadata of its file.
        config: settings of `csml predict`.
    """

    def __init__(self, detector: Detector, facts: dict[str, Any], config: PredictConfig) -> None:
        self.detector, self.facts, self.config = detector, facts, config
        self.sides = (facts["test_side"], facts["max_side"])
        best = facts.get("min_score", _USUAL_SCORE)
        self.min_score = best if config.min_score is None else config.min_score
        self.batch_size = config.batch_size or _BATCH

    def make_folder(self) -> None:
        """Make the folder of the pictures, if they are drawn: one that cannot be made is reported before the work."""
        if self.config.pictures is not None:
            with _picture_problems(self._pictures):
                self._pictures.mkdir(parents=True, exist_ok=True)

    def rows(self, images: FolderImages | ListedImages) -> Rows:
        """One row per object, best first; an image without objects has no rows, one that cannot be read has None."""
        for id, picture, found in self._found(images):
            if found is None:
                yield id, None
                continue
            if self.config.pictures is not None:
                self._draw(images.read(id) if picture is None else picture, found, Path(images.name(id)))
            yield id, self._listed(found)

    def frame_rows(self, video: Path) -> Iterator[list[Row]]:
        """The rows of each frame, with its number and its time."""
        fabric = self._on_device(ListedImages([]))
        for frame in frames(video, self.config.every):
            found = self._found_on(frame.picture, fabric)
            if self.config.pictures is not None:
                self._draw(frame.picture, found, Path(f"{video.stem}-{frame.number:06d}.jpg"))
            where = {"frame": frame.number, "seconds": round(frame.seconds, 3)}
            yield [{**where, **row} for row in self._listed(found)] or [where]

    def _found(self, images: FolderImages | ListedImages) -> Iterator[tuple[int, Image.Image | None, Any]]:
        """Id, picture if it was read, and its detections; None if the image cannot be read."""
        if self.config.tiles is not None:
            yield from self._found_in_tiles(images)
            return
        from csml.data.scenes.repair import unannotated
        from csml.evaluation.detections import detect

        ids = {str(images.path(id)): id for id in range(len(images))}
        scenes, bad = unannotated([Path(path) for path in ids])
        yield from ((ids[path], None, None) for path in bad)
        if scenes is None:
            return
        fabric = self._on_device(scenes.images)
        workers = self.config.images.workers
        reading = ScenesConfig(test_side=self.sides[0], max_side=self.sides[1], short_sides=(32,), workers=workers)
        failures = Failures(scenes.images, 1.0)
        for number, found in detect(self.detector, scenes, reading, self.batch_size, fabric, failures):
            yield ids[str(scenes.image_ids[number])], None, found
        yield from ((ids[str(scenes.image_ids[number])], None, None) for number in failures.ids)

    def _found_in_tiles(self, images: Images) -> Iterator[tuple[int, Image.Image | None, Any]]:
        fabric = self._on_device(images)
        for id in watched(range(len(images)), "detecting in tiles", total=len(images)):
            try:
                picture = images.read(id)
            except DecodeError:
                yield id, None, None
                continue
            yield id, picture, self._found_on(picture, fabric)

    def _found_on(self, picture: Image.Image, fabric: Any) -> Any:
        """The detections on a picture in memory; on its tiles, if `tiles` is set."""
        from csml.evaluation.tiled_detection import detect_in_tiles, detect_on

        if self.config.tiles is not None:
            return detect_in_tiles(self.detector, picture, self.config.tiles, self.sides, fabric, self.batch_size)
        return detect_on(self.detector, [picture], self.sides, fabric)[0]

    def _on_device(self, images: Images) -> Any:
        fabric = fabric_for(images, self.config.images.workers, self.config.hardware)
        layout = memory_format(self.config.hardware)
        self.detector = self.detector.to(fabric.device).to(memory_format=layout)
        return fabric

    def _listed(self, found: Any) -> list[Row]:
        masks = found.masks or [None] * len(found.scores)
        columns = zip(found.labels.tolist(), found.scores.tolist(), found.boxes.tolist(), masks, strict=True)
        return [
            {"label": self.facts["classes"][label], "score": score, **dict(zip(CORNERS, box, strict=True))}
            | self._mask(mask)
            for label, score, box, mask in columns
            if score >= self.min_score
        ]

    def _mask(self, mask: Any) -> Row:
        if mask is None or self.config.masks == "none":
            return {}
        if self.config.masks == "rle":
            return {"mask": {"size": list(mask["size"]), "counts": mask["counts"].decode("ascii")}}
        from csml.data.scenes.annotations import decode_masks
        from csml.evaluation.polygons import outlines

        return {"mask": outlines(decode_masks([mask], tuple(mask["size"]))[0])}

    def _draw(self, picture: Image.Image, found: Any, name: Path) -> None:
        from csml.sheets.detections import draw_found

        inside = [part for part in name.parts if part not in ("..", name.anchor)]
        path = self._pictures.joinpath(*(inside if not name.is_absolute() else inside[-1:]))
        path = path if path.suffix.lower() in (".jpg", ".jpeg", ".png") else path.with_suffix(".jpg")
        drawn = draw_found(picture, found, self.facts["classes"], self.min_score)
        with _picture_problems(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn.save(path)

    @property
    def _pictures(self) -> Path:
        return Path(str(self.config.pictures)).expanduser()


@contextlib.contextmanager
def _picture_problems(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CsmlError(f"pictures: cannot write {path} ({disk_problem(error)})") from error
