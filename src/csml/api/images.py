"""All images that a verb looks at, without a split into training and test images."""

from pathlib import Path
from typing import Any

from csml.api.data import IN_MEMORY, open_splits, open_together
from csml.config import NAMED, ImagesConfig
from csml.data.images import FolderImages, Images, ListedImages
from csml.data.index import index_folder
from csml.data.open import folder_images, is_pack
from csml.distributed.world import World
from csml.errors import CsmlError


def open_all_images(world: World, data: str, config: ImagesConfig, in_memory: Any = None) -> Images:
    """Every image below a folder, with labels where it consists of class folders; or the training images of a name."""
    if in_memory is not None or data in (*NAMED, IN_MEMORY) or is_pack(data):
        return open_splits(world, data, config, in_memory).train
    root = Path(data).expanduser()
    if not root.is_dir():
        raise CsmlError(f"data: there is no folder {root}; give a folder of images or one of {', '.join(NAMED)}")
    return open_together(world, lambda: folder_images(root, config, classes=None), lambda images: images, data)


def open_files_and_folders(names: list[str]) -> list[tuple[FolderImages | ListedImages, str]]:
    """Folders one by one, each with the path that leads to its images; single files together."""
    files = [Path(name).expanduser() for name in names]
    missing = [path for path in files if not path.exists()]
    if missing:
        raise CsmlError(f"{missing[0]} is not there; give image files or folders")
    sources: list[tuple[FolderImages | ListedImages, str]] = [
        (FolderImages(index_folder(path)), f"{path}/") for path in files if path.is_dir()
    ]
    single = [path for path in files if not path.is_dir()]
    return [*sources, (ListedImages(single), "")] if single else sources
