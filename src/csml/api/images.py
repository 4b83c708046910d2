"""Open all images for a verb, without a split into training and test images."""

import logging
from pathlib import Path
from typing import Any

from csml.api.data import open_splits, open_together
from csml.config import ImagesConfig
from csml.data.bit_depth import COLOUR, Reading
from csml.data.folder_index import index_folder, left_out
from csml.data.folders import folder_images
from csml.data.huggingface import is_saved
from csml.data.images import FolderImages, Images, ListedImages
from csml.data.open import IN_MEMORY
from csml.data.sources import is_pack
from csml.distributed.world import World
from csml.errors import CsmlError, did_you_mean

log = logging.getLogger("csml")


def open_all_images(world: World, data: str, config: ImagesConfig, in_memory: Any = None) -> Images:
    """Every image in a folder, with labels if it has class folders; or the training images of another source."""
    root = Path(data).expanduser()
    if in_memory is not None or data == IN_MEMORY or not root.is_dir() or is_pack(data) or is_saved(root):
        return open_splits(world, data, config, in_memory).train

    def opened() -> FolderImages:
        images = folder_images(root, config, classes=None)
        if line := left_out(images.index):
            log.info(line)
        return images

    return open_together(world, opened, lambda images: images, data)


def open_files_and_folders(names: list[str], reading: Reading = COLOUR) -> list[FolderImages | ListedImages]:
    """Folders one by one; single files together."""
    files = [Path(name).expanduser() for name in names]
    missing = [path for path in files if not path.exists()]
    if missing:
        raise CsmlError(f"{missing[0]} is not there{did_you_mean(missing[0], 'give image files or folders')}")
    folders = [FolderImages(index_folder(path), reading=reading) for path in files if path.is_dir()]
    single = [path for path in files if not path.is_dir()]
    return [*folders, *([ListedImages(single, reading)] if single else [])]
