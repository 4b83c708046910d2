"""Optional packages: a missing one ends in one line that names the extra to install."""

import contextlib
from collections.abc import Iterator

from csml.errors import CsmlError


class MissingExtra(CsmlError):
    """An optional package is not installed."""


@contextlib.contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import the packages of an extra inside this block, at the top of a module or in a function:

        with extra("report", "a report"):
            import plotly

    Args:
        name: an extra of pyproject.toml: report, explore, detect, onnx, pack, tensorboard, heic, tiff or datasets.
        purpose: the subject of the message, such as "a report" or "csml explore".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "csml"):  # no package of an extra: a mistake in csml
            raise
        raise MissingExtra(
            f"{purpose} needs the extra [{name}]: pip install 'csml[{name}]' ({error.name} is not installed)"
        ) from error
