"""The file of a sheet: a wrong name is reported before the work starts, and the file is written atomically."""

from pathlib import Path

from PIL import Image

from csml.errors import CsmlError, disk_problem
from csml.files import atomic_write

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def sheet_file(sheet: str) -> Path:
    """The file of the setting `sheet`, with its folder created; raises CsmlError if it cannot be written."""
    path = Path(sheet).expanduser()
    if path.suffix.lower() not in _SUFFIXES:
        raise CsmlError(f"sheet: {path} is not a picture's name; give one that ends in {', '.join(_SUFFIXES)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CsmlError(f"sheet: cannot make {error.filename or path.parent} ({disk_problem(error)})") from error
    if path.is_dir():
        raise CsmlError(f"sheet: {path} is a folder; give a file")
    return path


def save_sheet(sheet: Image.Image, path: Path) -> None:
    """Write a sheet to a file returned by `sheet_file`."""
    try:
        with atomic_write(path) as temporary:
            sheet.save(temporary)
    except OSError as error:
        raise CsmlError(f"sheet: cannot write {path} ({disk_problem(error)})") from error
