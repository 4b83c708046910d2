"""`csml.neighbors`: the images of a folder that are most similar to given ones."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from csml.api.data import data_setting
from csml.api.images import open_all_images
from csml.api.run import PathLike, Run, path_of, paths_of, run_in_use
from csml.api.session import device_for
from csml.api.settings import given, using_config
from csml.config import NAMED, NeighborsOfConfig, is_weight_name
from csml.console import show_log
from csml.data.bit_depth import reading_of
from csml.data.image_names import file_of, path_from_here
from csml.data.images import Images, ListedImages, store_of
from csml.distributed.launch import require_alone
from csml.distributed.world import World
from csml.errors import CsmlError, did_you_mean
from csml.evaluation.features import extract_features
from csml.evaluation.search_index import open_index
from csml.files import cache_dir, cache_key
from csml.runs.directory import RunDirectory
from csml.runs.run_of_weights import directory_of
from csml.sheets.contact_sheet import sheet as draw_sheet
from csml.sheets.saving import save_sheet, sheet_file
from csml.weights import load_backbone

log = logging.getLogger("csml")


class Neighbor(NamedTuple):
    """An image and how similar it is."""

    path: str
    similarity: float
    """cosine of the two features"""


@show_log()
def neighbors(
    weights: "Run | PathLike",
    queries: PathLike | Sequence[PathLike],
    *,
    data: Any = None,
    config: PathLike | None = None,
    **settings: Any,
) -> dict[str, list[Neighbor]]:
    """Find the images that are most similar to given ones. The index of the images is made once and kept.

    Args:
        weights: a run, its directory, a weight file of csml or another trainer, or a name: lite0, timm:NAME, pixels,
            random:NAME.
        queries: one image file or several.
        data: the images to search; by default those of the run.
        config: a YAML file of settings.
        settings: any setting of `csml neighbors --help`, such as `k` and `sheet`.

    Returns:
        For each query its neighbours, the most similar first. An image is not its own neighbour.
    """
    data, in_memory = data_setting(data, weights)
    made = neighbors_config(weights, config=config, **given(data=data), **settings)
    paths = [path.expanduser() for path in paths_of(queries, "queries")]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        problem = "is not there" if not missing[0].exists() else "is not an image file"
        raise CsmlError(f"queries: {missing[0]} {problem}{did_you_mean(missing[0], 'give image files')}")
    require_alone("neighbors", made.hardware)
    sheet = sheet_file(made.sheet) if made.sheet else None
    root = Path(str(path_of(weights))).expanduser()
    images = open_all_images(World(), made.data, made.images, in_memory)
    backbone = load_backbone(root, made.images.channels)
    query_images = ListedImages(paths, reading_of(made.images), store_of(images))  # cropped like the images
    fabric = device_for(images, made, backbone)
    backbone = backbone.to(fabric.device)
    folder = Path(made.index).expanduser() if made.index else _own_index(str(root), made.data)
    with run_in_use(str(root)):
        index = open_index(folder, backbone, images, made.images, fabric)
    found = extract_features(backbone, query_images, made.images, fabric)
    if not found.good.all():
        raise CsmlError(f"{query_images.name(int((~found.good).nonzero()[0]))} cannot be read")
    ids, similarities = index.search(found.by_stage[4], min(made.k + 1, len(images)))  # one more: the query itself
    nearest = [
        _without(images, query_images.path(query), list(zip(row, values, strict=True)))[: made.k]
        for query, (row, values) in enumerate(zip(ids.tolist(), similarities.tolist(), strict=True))
    ]
    if sheet is not None:
        rows = [[query_images.read(query), *(images.read(id) for id, _ in row)] for query, row in enumerate(nearest)]
        save_sheet(draw_sheet(rows), sheet)
        log.info("written to %s", sheet)
    return {
        query_images.name(query): [Neighbor(path_from_here(images, id), value) for id, value in row]
        for query, row in enumerate(nearest)
    }


def _without(images: Images, query: Path, found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The images found, except the query's own file; copies of it in other files remain."""
    own = os.path.realpath(query)
    return [
        (id, value) for id, value in found if (file := file_of(images, id)) is None or os.path.realpath(file) != own
    ]


def _own_index(weights: str, data: str) -> Path:
    """The index folder: in the run, beside the weight file, or in the cache for weights without a folder."""
    key = cache_key(data if data in NAMED else str(Path(data).resolve()))
    owner = RunDirectory(cache_dir() / cache_key(weights)) if is_weight_name(weights) else directory_of(weights)
    return owner.index(key)


def neighbors_config(
    weights: "Run | PathLike", queries: Any = None, *, config: PathLike | None = None, **settings: Any
) -> NeighborsOfConfig:
    """The settings that `neighbors` would run with, checked; `queries` is ignored."""
    return using_config(NeighborsOfConfig, str(path_of(weights)), settings, config=config)
