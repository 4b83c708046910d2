"""Names of images: one form in every table and message that csml writes, and all forms that users may give."""

import os
from functools import cached_property

from csml.data.concat import ConcatImages
from csml.data.images import FolderImages, Images, Subset, source_of


def path_from_here(images: Images, id: int) -> str:
    """The path of an image from the current folder, absolute if it is elsewhere; its name if it is not a file.

    So a path that csml prints can be opened, and is the same in every file that csml writes.
    """
    file = file_of(images, id)
    return images.name(id) if file is None else file.removeprefix(os.path.join(os.getcwd(), ""))


def file_of(images: Images, id: int) -> str | None:
    """The absolute path of an image in a folder or a list; None for others. Links are not resolved."""
    while isinstance(images, Subset | ConcatImages):
        images, id = (images.images, int(images.ids[id])) if isinstance(images, Subset) else images.member(id)
    if not isinstance(images, FolderImages):
        return None
    return os.path.normpath(os.path.join(images.index.given, images.name(id)))


class Names:
    """Finds ids by relative path, by a path that contains the data folder or leads to the file from the current one, or
    by a file name that is unique."""

    def __init__(self, images: Images) -> None:
        self.images = images
        self.by_path = {images.name(id): id for id in range(len(images))}
        self.by_file: dict[str, int | None] = {}
        for path, id in self.by_path.items():
            file = path.rsplit("/", 1)[-1]
            self.by_file[file] = None if file in self.by_file else id
        self.roots = _roots(images)

    def find(self, name: str) -> int | None:
        id = self.by_path.get(name)
        return self._find(name.removeprefix("./").replace("\\", "/")) if id is None else id

    def _find(self, name: str) -> int | None:
        if name in self.by_path:
            return self.by_path[name]
        steps = tuple(name.split("/"))
        for root in self.roots:
            for length in range(1, min(len(steps), len(root) + 1)):  # photos/a.jpg, or an absolute path
                if steps[:length] == root[-length:] and (id := self.by_path.get("/".join(steps[length:]))) is not None:
                    return id
        if (id := self._by_place.get(os.path.abspath(name))) is not None:
            return id
        return self.by_file.get(name) if len(steps) == 1 else None

    @cached_property
    def _by_place(self) -> dict[str | None, int]:
        """Ids by absolute path; needed only if the shorter forms match no image."""
        return {file_of(self.images, id): id for id in range(len(self.images))}


def _roots(images: Images) -> tuple[tuple[str, ...], ...]:
    """The paths of the images' folder, as given and with links resolved, split at slashes: ("", "home", "photos")."""
    source = source_of(images)
    if not isinstance(source, FolderImages):
        return ()
    return tuple(tuple(path.split("/")) for path in dict.fromkeys((str(source.index.root), str(source.index.given))))
