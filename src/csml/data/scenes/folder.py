"""The files of a data set, found once: images by name and by stem, and annotation files by suffix."""

import os
import re
from collections import defaultdict
from pathlib import Path

from csml.data.decode import image_suffixes

_MASKS = re.compile(r"mask|segmentation|instances?$", re.IGNORECASE)
_SKIPPED = ("__MACOSX",)
_ROLES = {
    "train": ("train", "training", "trainval"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


class Folder:
    """All files below a folder.

    Args:
        root: the folder; hidden files and folders are left out.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images: list[Path] = []
        """images, without masks"""
        self.masks: list[Path] = []
        """images in folders that are named after masks"""
        self._others: dict[str, list[Path]] = defaultdict(list)
        self._by_name: dict[str, list[Path]] = defaultdict(list)
        self._by_stem: dict[str, list[Path]] = defaultdict(list)
        self._by_folder: dict[Path, list[Path]] = defaultdict(list)
        suffixes = image_suffixes()
        on_the_way = {str(root): frozenset({os.path.realpath(root)})}
        """folder → real paths of it and its parents: a link back to one of them is not followed"""
        for folder, folders, names in os.walk(root, followlinks=True):
            here, above, kept = Path(folder), on_the_way.pop(folder), []
            for name in sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED):
                inside = os.path.join(folder, name)
                if (real := os.path.realpath(inside)) not in above:
                    on_the_way[inside] = above | {real}
                    kept.append(name)
            folders[:] = kept
            of_masks = here != root and bool(_MASKS.search(here.name))
            for name in sorted(names):
                suffix = os.path.splitext(name)[1].lower()
                if name.startswith("."):
                    continue
                if suffix not in suffixes:
                    if not (here / name).is_file():  # reading a pipe blocks, and a device never ends
                        continue
                    self._others[suffix].append(here / name)
                elif of_masks:
                    self.masks.append(here / name)
                else:
                    self.images.append(here / name)
                    self._by_name[name.lower()].append(here / name)
                    self._by_stem[os.path.splitext(name)[0].lower()].append(here / name)
                    self._by_folder[here].append(here / name)

    def with_suffix(self, *suffixes: str) -> list[Path]:
        """Files that are not images, in the order of their paths."""
        return sorted(path for suffix in suffixes for path in self._others.get(suffix, []))

    def image(self, near: Path, stem: str = "", name: str = "") -> Path | None:
        """The image with this stem, else with this file name, that is nearest to the file `near`."""
        found = self._by_stem.get(stem.lower()) or self._by_name.get(name.lower()) or []
        return min(found, key=lambda path: (_distance(path, near), str(path)), default=None)

    def images_in(self, folder: Path) -> list[Path]:
        """The images directly in a folder."""
        return self._by_folder.get(folder, [])

    def relative(self, path: Path) -> str:
        """The path from the root, with forward slashes."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def role(self, path: Path) -> str | None:
        """train, val or test, by the innermost folder of `path` that is named so; None if there is none."""
        folders = Path(self.relative(path)).parent.parts
        return next((role for name in reversed(folders) if (role := role_of(name))), None)


def role_of(name: str) -> str | None:
    """train, val or test if a name stands for it: `train2017` and `stage1_train` do, `trained` does not."""
    words = set(re.findall(r"[a-z]+", name.lower()))
    return next((role for role, names in _ROLES.items() if words & set(names)), None)


def _distance(one: Path, other: Path) -> int:
    """Steps through folders from one file to the other."""
    common = os.path.commonpath([one.parent, other.parent])
    depth = len(Path(common).parts)
    return len(one.parent.parts) + len(other.parent.parts) - 2 * depth
