"""Image files named by a list, a table or a pattern."""

import os
from collections.abc import Sequence
from pathlib import Path

from csml.config import ImagesConfig
from csml.data.bit_depth import reading_of
from csml.data.decode import image_suffixes
from csml.data.decoded_cache import store_for
from csml.data.folder_index import describe_left_out, index_paths, suffix_of
from csml.data.images import FolderImages, Images
from csml.data.layout import arrange
from csml.data.tables import TABLES, read_image_table, read_list
from csml.errors import CsmlError, some

LISTS = (".txt", ".lst", ".list", *TABLES)
"""Suffixes of the files that name images."""
_SHOWN = 3


def open_list(file: Path, config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    """Open the images of a list file (one path per line) or a table (columns path and, optionally, label).

    Paths are relative to the folder of the file, or else to the current folder, as csml writes them. Missing files are
    left out, with a note.
    """
    is_table = file.suffix.lower() in TABLES
    rows = read_image_table(file) if is_table else [(name, None) for name in read_list(file, "data")]
    if not rows:
        raise CsmlError(f"data: {file} names no image; each line must be a path{' and perhaps a label' * is_table}")
    wanted: dict[str, str | None] = {}
    for name, label in rows:
        if "\0" in name:
            raise CsmlError(f"data: {file} is not a list of paths: it has zero bytes")
        known = wanted.get(name)
        if label is not None and known not in (None, label):
            raise CsmlError(f"data: {file}: {name} is {label!r} and also {known!r}")
        wanted[name] = known if label is None else label
    root = file.parent.absolute()
    found = {name: path for name in wanted if (path := _found(root, name)) is not None}
    there: dict[str, str | None] = {}
    for name, path in found.items():
        there[path] = wanted[name] if wanted[name] is not None else there.get(path)
    missing = [name for name in wanted if name not in found]
    if not there:
        hint = f"; for labels of a folder give --data FOLDER --labels {file}" if is_table else ""
        raise CsmlError(
            f"data: none of the {len(missing):,} files in {file} exists, such as {missing[0]}; "
            f"paths are relative to {file.parent} or to the current folder{hint}"
        )
    notes = [f"{len(missing):,} files in {file} do not exist: {some(missing, _SHOWN)}"] if missing else []
    repeated = len(rows) - len(wanted)
    notes += [f"{repeated:,} lines in {file} repeat a path"] if repeated else []
    texts = list(there.values()) if any(label is not None for label in there.values()) else None
    return _arranged(root, list(there), config, file, texts), notes


def _found(root: Path, name: str) -> str | None:
    """The path of an image, as listed or absolute; None if there is none."""
    if os.path.isfile(root / name):
        return name
    here = os.path.abspath(name)
    return here if os.path.isfile(here) else None


def open_matches(root: Path, files: Sequence[Path], config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    """The image files that a pattern matched, named relative to `root`, sorted."""
    suffixes, others = image_suffixes(), dict[str, int]()
    top = os.path.abspath(root)
    paths: list[str] = []
    for file in files:
        suffix = suffix_of(os.fsencode(file.name))
        if suffix in suffixes:
            paths.append(os.path.relpath(file, top).replace(os.sep, "/"))
        else:
            others[suffix] = others.get(suffix, 0) + 1
    line = describe_left_out(others)
    if not paths:
        raise CsmlError(f"data: no image among the files that match in {root} ({line})")
    return _arranged(Path(top), sorted(paths, key=os.fsencode), config, root, None), [line] if line else []


def _arranged(
    root: Path, paths: list[str], config: ImagesConfig, place: object, texts: list[str | None] | None
) -> dict[str, Images]:
    index = index_paths(root, [os.fsencode(path) for path in paths])
    images = FolderImages(index, reading=reading_of(config), decoded=store_for(config, len(index)))
    return arrange(images, paths, config, place, texts)
