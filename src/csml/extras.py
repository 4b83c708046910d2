"""Optional packages: a missing one is a one-line error that names the extra to install."""

import contextlib
from collections.abc import Iterator

from csml.errors import CsmlError
from csml.release import install_command


class MissingExtra(CsmlError):
    """An optional package is not installed."""


@contextlib.contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Import the packages of an extra inside this block, at the top of a module or in a function:

        with extra("report", "a report"):
            import jinja2

    Args:
        name: an extra of pyproject.toml: report, explore, detect, onnx, pack, tensorboard, weights, heic, tiff,
            datasets, video, wandb or mlflow.
        purpose: the subject of the message, such as "a report" or "csml explore".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "csml"):  # not a package of an extra but a bug in csml
            raise
        raise missing(name, purpose, error.name) from error


def missing(name: str, purpose: str, package: str | None) -> MissingExtra:
    """The error for a package of the extra `name` that is not installed."""
    return MissingExtra(f"{purpose} needs the extra [{name}]: {install_command(name)} ({package} is not installed)")
