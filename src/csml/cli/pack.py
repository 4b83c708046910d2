"""`csml pack FOLDER`: a folder of images as a few large files, for network file systems and object stores."""

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from csml.config.checks import check_images
from csml.config.parsing import SettingsParser
from csml.config.schema import ImagesConfig
from csml.errors import CsmlError

log = logging.getLogger("csml")

_SUMMARY = (
    "Pack a folder of images into shards with random access. Give the pack, or the address you copied it to, as --data."
)


@dataclass
class PackConfig:
    """Settings of `csml pack`."""

    output: str | None = None
    """The folder to write; by default FOLDER-pack."""
    shard_mb: float = 256.0
    """Megabytes per shard."""
    images: ImagesConfig = field(default_factory=ImagesConfig)


def run(arguments: list[str]) -> int:
    parser = SettingsParser("pack", PackConfig, _SUMMARY, "csml pack FOLDER [--output PACK]")
    parser.add_argument("folder", type=str, help="Images; train/ and val/ inside are packed as such.")
    settings = parser.settings(arguments)
    config = parser.build(settings, PackConfig)
    check_images(config.images)
    if config.shard_mb <= 0:
        raise CsmlError(f"shard_mb: above 0, not {config.shard_mb:g}")
    from csml.data.open import open_folders
    from csml.data.packed import INDEX, write_pack

    folder = Path(settings.folder).expanduser()
    target = Path(config.output or f"{folder.absolute()}-pack").expanduser()
    if (target / INDEX).exists():
        raise CsmlError(f"output: {target} is a pack already; choose another, or delete it")
    started = time.monotonic()
    parts = open_folders(folder, config.images)
    try:
        size = write_pack(parts, target, int(config.shard_mb * 2**20))
    except OSError as error:
        raise CsmlError(f"output: cannot write {error.filename or target} ({error.strerror})") from error
    count = sum(len(images) for images in parts.values())
    log.info("%s images, %.1f MB, %.0f s", f"{count:,}", size / 1e6, time.monotonic() - started)
    log.info("use it: --data %s", target)
    return 0
