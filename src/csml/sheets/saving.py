"""Where a sheet is written: a wrong name is told before the work, and the file is replaced as a whole."""

from pathlib import Path

from PIL import Image

from csml.errors import CsmlError, disk_problem
from csml.files import atomic_write

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def sheet_file(sheet: str) -> Path:
    """The file that the setting `sheet` names, in a folder that exists now; a CsmlError if it cannot be written."""
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
    """Write a sheet to a file that `sheet_file` has returned."""
    try:
        with atomic_write(path) as temporary:
            sheet.save(temporary)
    except OSError as error:
        raise CsmlError(f"sheet: cannot write {path} ({disk_problem(error)})") from error
