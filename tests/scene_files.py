"""Small data sets in VOC's and COCO's layouts, as people have them."""

from pathlib import Path

import numpy as np
from PIL import Image


def photo(path: Path, width: int = 60, height: int = 40, exif_turn: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    exif = Image.Exif()
    if exif_turn is not None:
        exif[0x0112] = exif_turn
    picture.save(path, exif=exif)


def voc_object(name: str, xmin: float, ymin: float, xmax: float, ymax: float, difficult: int = 0) -> str:
    corners = f"<xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax>"
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{corners}</bndbox></object>"


def voc_xml(stem: str, objects: str, width: int = 60, height: int = 40) -> str:
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><filename>{stem}.jpg</filename>{size}{objects}</annotation>"


def voc_folder(root: Path, lists: dict[str, dict[str, str]]) -> Path:
    """`lists`: of each list the XML of each of its images."""
    for name, annotations in lists.items():
        (root / "ImageSets/Main").mkdir(parents=True, exist_ok=True)
        (root / "ImageSets/Main" / f"{name}.txt").write_text("".join(f"{stem}\n" for stem in annotations))
        for stem, text in annotations.items():
            photo(root / "JPEGImages" / f"{stem}.jpg")
            (root / "Annotations").mkdir(exist_ok=True)
            (root / "Annotations" / f"{stem}.xml").write_text(text)
    return root
