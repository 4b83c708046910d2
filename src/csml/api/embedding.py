"""`csml.embed`: the features of every image."""

import csv
import itertools
import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from csml.api.data import data_setting
from csml.api.images import open_all_images
from csml.api.processes import in_processes
from csml.api.run import PathLike, Run, path_of
from csml.api.session import device_for
from csml.api.settings import given, using_config
from csml.config import EmbedConfig
from csml.console import show_log
from csml.data.failures import Failures
from csml.data.image_names import path_from_here
from csml.data.images import Images
from csml.data.tables import without_quote, write_csv
from csml.distributed.launch import join_world
from csml.distributed.world import world_of
from csml.errors import CsmlError
from csml.evaluation.features import FeatureBatch
from csml.evaluation.stored_features import stored_batches
from csml.extras import extra
from csml.files import atomic_write, open_matrix
from csml.models.backbones import feature_channels
from csml.progress import watched
from csml.weights import load_backbone

log = logging.getLogger("csml")


class Embeddings(NamedTuple):
    """Features of N images."""

    features: np.ndarray
    """float32 `(N, C)`; zeros where the image could not be read"""
    paths: list[str]
    """of the images, in the order of the rows"""


@show_log()
def embed(
    weights: "Run | PathLike",
    data: Any = None,
    *,
    output: PathLike | None = None,
    config: PathLike | None = None,
    **settings: Any,
) -> Embeddings:
    """Compute the pooled features of every image.

    Args:
        weights: a run, its directory, a weight file of csml or another trainer, or a name: lite0, timm:NAME, pixels,
            random:NAME.
        data: a folder or images in memory; by default the data of the run.
        output: also write them to this .npy (with a .csv of paths beside it) or .parquet file.
        config: a YAML file of settings.
        settings: any setting of `csml embed --help`.
    """
    data, in_memory = data_setting(data, weights)
    made = embed_config(weights, data, config=config, **given(output=output), **settings)
    if made.output is None:
        return in_processes(run_embed, made.hardware, str(path_of(weights)), made, in_memory)
    path = in_processes(run_embed_to_file, made.hardware, str(path_of(weights)), made, in_memory)
    return read_embeddings(path)


def embed_config(
    weights: "Run | PathLike", data: str | None = None, *, config: PathLike | None = None, **settings: Any
) -> EmbedConfig:
    """The settings that `embed` would run with, checked."""
    return using_config(EmbedConfig, str(path_of(weights)), {**given(data=data), **settings}, config=config)


def run_embed(weights: str, config: EmbedConfig, in_memory: Any = None) -> Embeddings:
    """Features in memory; in this process, which may be one of several."""
    images, _, batches = _open(weights, config, in_memory)
    rows = [batch.by_stage[config.stage].numpy() for batch in batches]
    return Embeddings(np.concatenate(rows), [path_from_here(images, id) for id in range(len(images))])


def run_embed_to_file(weights: str, config: EmbedConfig, in_memory: Any = None) -> Path:
    """Write features batch by batch, so that any number of images fits; returns the file."""
    path = Path(str(config.output)).expanduser()
    if path.suffix not in (".npy", ".parquet"):
        raise CsmlError(f"output: a .npy or .parquet file, not {path}")
    for file in (path, path.with_suffix(".csv")) if path.suffix == ".npy" else (path,):
        if file.exists():
            raise CsmlError(f"output: {file} exists; choose another, or delete it")
    images, channels, batches = _open(weights, config, in_memory)
    world = join_world(config.hardware)
    if world.is_rank_zero:
        write = _write_npy if path.suffix == ".npy" else _write_parquet
        write(path, batches, images, config.stage, channels)
        log.info("%d images; written to %s", len(images), path)
    else:  # other ranks do their share of the work, but write no file
        deque(batches, maxlen=0)
    world.barrier()
    return path


def read_embeddings(path: Path) -> Embeddings:
    """Read the file that `run_embed_to_file` wrote."""
    if path.suffix == ".npy":
        with path.with_suffix(".csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            return Embeddings(
                np.load(path, mmap_mode="r"), [without_quote(row["path"]) for row in csv.DictReader(file)]
            )
    with extra("pack", "a .parquet file"):
        import pyarrow.parquet as pq
    table = pq.read_table(path)
    features = table["features"].combine_chunks()
    return Embeddings(
        features.values.to_numpy().reshape(len(features), features.type.list_size), table["path"].to_pylist()
    )


def _open(weights: str, config: EmbedConfig, in_memory: Any) -> tuple[Images, int, Iterator[FeatureBatch]]:
    """The images, the number of channels, and all batches of features in order."""
    world = join_world(config.hardware)
    backbone = load_backbone(weights, config.images.channels)
    images = open_all_images(world, config.data, config.images, in_memory)
    fabric = device_for(images, config, backbone)
    failures = Failures(images, config.images.max_failed)
    batches = stored_batches(backbone.to(fabric.device), images, config.images, fabric, config.stage, config.batch_size)
    batches = watched(batches, "features", total=-(-len(images) // config.batch_size))
    channels = feature_channels(backbone)[config.stage]
    counted = _counted(batches, failures, config.stage) if world_of(fabric).is_rank_zero else batches
    return images, channels, counted


def _counted(batches: Iterator[FeatureBatch], failures: Failures, stage: int) -> Iterator[FeatureBatch]:
    """The same batches; logs how many images could not be read, and how many features are not finite."""
    wrong: list[int] = []
    for batch in batches:
        failures.add(batch.ids[~batch.good].tolist())
        wrong += batch.ids[~batch.by_stage[stage].isfinite().all(1)].tolist()
        yield batch
    if wrong:
        log.warning(
            "the features of %d images are not finite, such as those of %s; the weights are damaged, or need "
            "hardware.precision 32-true",
            len(wrong),
            failures.images.name(wrong[0]),
        )


def _write_npy(path: Path, batches: Iterator[FeatureBatch], images: Images, stage: int, channels: int) -> None:
    with atomic_write(path) as temporary:
        matrix = open_matrix(temporary, np.float32, (len(images), channels))
        for batch in batches:
            matrix[int(batch.ids[0]) : int(batch.ids[-1]) + 1] = batch.by_stage[stage].numpy()
        matrix.flush()  # type: ignore[attr-defined]
    known = ((id, path_from_here(images, id), _label(images, id)) for id in range(len(images)))
    write_csv(path.with_suffix(".csv"), itertools.chain([("id", "path", "label")], known))


def _write_parquet(path: Path, batches: Iterator[FeatureBatch], images: Images, stage: int, channels: int) -> None:
    with extra("pack", "a .parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("path", pa.string()),
            ("label", pa.string()),
            ("features", pa.list_(pa.float32(), channels)),
        ]
    )
    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for batch in batches:
            ids = batch.ids.tolist()
            features = pa.FixedSizeListArray.from_arrays(batch.by_stage[stage].numpy().ravel(), channels)
            names = [path_from_here(images, id).encode("utf-8", "replace").decode() for id in ids]
            columns = [pa.array(ids), pa.array(names), pa.array([_label(images, id) for id in ids]), features]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _label(images: Images, id: int) -> str:
    label = int(images.labels[id])
    return images.classes[label] if label >= 0 else ""
