"""Tar files as training and test images with labels."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from csml.config import ImagesConfig
from csml.data.bit_depth import reading_of
from csml.data.images import Images
from csml.data.layout import arrange, split_parts
from csml.data.tars import COMPRESSED, TarImages, read_contents
from csml.errors import CsmlError
from csml.progress import watched

_WORD = re.compile(r"(?:.*[^a-z])?(train|training|val|valid|validation|test)(?:[^a-z].*)?")


def is_tar(path: Path) -> bool:
    """Whether a path has a tar suffix; a compressed file is refused with a reason when it is opened."""
    return path.name.lower().endswith((".tar", *COMPRESSED)) and not path.is_dir()


def open_shards(archives: Sequence[Path], config: ImagesConfig, place: str) -> tuple[dict[str, Images], dict[str, int]]:
    """The splits `train` and, if there is one, `val` of some archives, and the files left out by suffix.

    Archives with train, val or test in their names are used as such, and so are such folders inside the archives.
    Labels come from .cls and .json files beside the images, else from the names of class folders.
    """
    contents = [read_contents(path) for path in watched(archives, "opening tar files", total=len(archives))]
    if not any(found.names for found in contents):
        raise CsmlError(f"data: no image in {place}")
    words = [_word(path) for path in archives]
    parts = [f"{word}/" if split_parts(words) is not None else "" for word in words]
    paths = [part + name for part, found in zip(parts, contents, strict=True) for name in found.names]
    texts = [text for found in contents for text in found.texts]
    given = texts if any(text is not None for text in texts) else None
    left_out: Counter[str] = Counter()
    for found in contents:
        left_out.update(found.left_out)
    return arrange(TarImages(archives, contents, reading_of(config)), paths, config, place, given), dict(left_out)


def _word(path: Path) -> str:
    """train, val, … if the name of an archive contains it."""
    found = _WORD.fullmatch(path.stem.lower())
    return found[1] if found else ""
