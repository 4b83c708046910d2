"""`csml embed WEIGHTS`: the features of every image, for other programs."""

import csv
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.cli.using import SearchingConfig, all_images, parse
from csml.config.checks import check_stages
from csml.data.cache import atomic_write
from csml.data.failures import Failures
from csml.data.images import Images
from csml.errors import CsmlError
from csml.evaluation.features import FeatureBatch, feature_batches
from csml.models.backbones import stage_channels
from csml.progress import watched
from csml.training.device import build_fabric
from csml.weights import load_backbone
from csml.world import world_of

log = logging.getLogger("csml")


@dataclass
class EmbedConfig(SearchingConfig):
    """Settings of `csml embed`."""

    output: str = "features.npy"
    """features.npy: a matrix (images, dimensions) and beside it features.csv with id, path and label of every row.
    features.parquet: all in one table (needs pyarrow)."""
    stage: int = 4
    """Stage whose pooled features are taken."""
    batch_size: int = 256
    """Images at once."""


def run(arguments: list[str]) -> int:
    summary = "Write the features of every image of a folder to a file."
    usage = "csml embed WEIGHTS [--data FOLDER] [--output FILE]"
    settings, config = parse("embed", EmbedConfig, summary, usage, arguments)
    check_stages("stage", (config.stage,))
    path = Path(config.output).expanduser()
    if path.suffix not in (".npy", ".parquet"):
        raise CsmlError(f"output: a .npy or .parquet file, not {path}")
    if path.exists():
        raise CsmlError(f"output: {path} exists; choose another, or delete it")
    images, backbone = all_images(config), load_backbone(settings.weights)
    fabric = build_fabric(config.hardware, images, config.images.workers)
    backbone = backbone.to(fabric.device)
    failures = Failures(images, config.images.max_failed)
    batches = feature_batches(backbone, images, config.images, fabric, (config.stage,), config.batch_size)
    batches = watched(batches, "features", total=-(-len(images) // config.batch_size))
    if not world_of(fabric).first:  # it has its share of the work, and no file
        deque(batches, maxlen=0)
        return 0
    write = _write_npy if path.suffix == ".npy" else _write_parquet
    write(path, _noted(batches, failures), images, config.stage, stage_channels(backbone)[config.stage])
    log.info("%d images, %d of them unreadable (zeros); written to %s", len(images), len(failures.ids), path)
    return 0


def _noted(batches: Iterator[FeatureBatch], failures: Failures) -> Iterator[FeatureBatch]:
    for batch in batches:
        failures.add(batch.ids[~batch.good].tolist())
        yield batch


def _write_npy(path: Path, batches: Iterator[FeatureBatch], images: Images, stage: int, channels: int) -> None:
    with atomic_write(path) as temporary:
        matrix = np.lib.format.open_memmap(temporary, "w+", np.float32, (len(images), channels))
        for batch in batches:
            matrix[int(batch.ids[0]) : int(batch.ids[-1]) + 1] = batch.by_stage[stage].numpy()
        matrix.flush()
    with (
        atomic_write(path.with_suffix(".csv")) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["id", "path", "label"])
        for id in range(len(images)):
            writer.writerow([id, images.name(id), _label(images, id)])


def _write_parquet(path: Path, batches: Iterator[FeatureBatch], images: Images, stage: int, channels: int) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise CsmlError("output: a .parquet file needs one more package: pip install pyarrow") from error
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
            names = [images.name(id).encode("utf-8", "replace").decode() for id in ids]
            columns = [pa.array(ids), pa.array(names), pa.array([_label(images, id) for id in ids]), features]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _label(images: Images, id: int) -> str:
    label = int(images.labels[id])
    return images.classes[label] if label >= 0 else ""
