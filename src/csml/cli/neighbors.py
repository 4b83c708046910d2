"""`csml neighbors WEIGHTS IMAGE`: the most similar images of a folder."""

import logging
from dataclasses import dataclass
from pathlib import Path

from csml.cli.using import SearchingConfig, all_images, parse
from csml.config.schema import NAMED
from csml.data.cache import cache_key
from csml.data.images import ListedImages
from csml.errors import CsmlError
from csml.evaluation.features import extract_features
from csml.evaluation.index import open_index
from csml.report.contact_sheet import sheet
from csml.training.device import build_fabric
from csml.training.launch import require_alone
from csml.weights import load_backbone

log = logging.getLogger("csml")


@dataclass
class NeighborsOfConfig(SearchingConfig):
    """Settings of `csml neighbors`."""

    k: int = 10
    """Neighbours of each image."""
    sheet: str | None = None
    """A picture file: each image with its neighbours beside it."""
    index: str | None = None
    """Folder of the saved index; by default inside the run directory, or beside the weight file."""


def run(arguments: list[str]) -> int:
    summary = "Find the images of a folder that are most similar to given ones. The index is made once and kept."
    usage = "csml neighbors WEIGHTS IMAGE … [--data FOLDER] [--k 10] [--sheet FILE]"
    settings, config = parse("neighbors", NeighborsOfConfig, summary, usage, arguments, "queries", "Image files.")
    if config.k < 1:
        raise CsmlError(f"k: at least 1, not {config.k}")
    queries = ListedImages([Path(name).expanduser() for name in settings.queries])
    missing = [name for name in settings.queries if not Path(name).expanduser().is_file()]
    if missing:
        raise CsmlError(f"{missing[0]} is not there; give image files")
    require_alone("neighbors", config.hardware)
    images, backbone = all_images(config), load_backbone(settings.weights)
    fabric = build_fabric(config.hardware, images, config.images.workers)
    backbone = backbone.to(fabric.device)
    weights = Path(settings.weights).expanduser()
    folder = weights if weights.is_dir() else weights.parent
    own = folder / "index" / cache_key(config.data if config.data in NAMED else str(Path(config.data).resolve()))
    index = open_index(
        Path(config.index).expanduser() if config.index else own, backbone, images, config.images, fabric
    )
    found = extract_features(backbone, queries, config.images, fabric)
    if not found.good.all():
        raise CsmlError(f"{queries.name(int((~found.good).nonzero()[0]))} cannot be read")
    ids, similarities = index.search(found.by_stage[4], min(config.k, len(images)))
    for query, (row, values) in enumerate(zip(ids.tolist(), similarities.tolist(), strict=True)):
        print(f"{queries.name(query)}:" if len(queries) > 1 else "", end="\n" if len(queries) > 1 else "")
        for id, similarity in zip(row, values, strict=True):
            print(f"{similarity:.4f}  {index.names[id]}")
    if config.sheet:
        rows = [[queries.read(query), *(images.read(id) for id in row)] for query, row in enumerate(ids.tolist())]
        sheet(rows).save(Path(config.sheet).expanduser())
        log.info("drawn: %s", config.sheet)
    return 0
