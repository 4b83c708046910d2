"""Frames of video files, one after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from csml.errors import CsmlError, reason
from csml.extras import extra
from csml.progress import Progress

VIDEOS = frozenset({".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".ts"})
"""Suffixes of video files."""


class Frame(NamedTuple):
    """A frame of a video."""

    number: int
    """from 0"""
    seconds: float
    """since the start"""
    picture: Image.Image


def require_video(path: Path) -> None:
    """Raise a CsmlError unless the file can be opened as a video."""
    with _opened(path):
        pass


def frames(path: Path, every: int = 1) -> Iterator[Frame]:
    """Every `every`-th frame of a video file, with a progress bar."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        with Progress(f"watching {path.name}", total=max(1, stream.frames)) as bar:
            for number, frame in enumerate(container.decode(stream)):
                bar.advance()
                if number % every == 0:
                    yield Frame(number, float(frame.time or 0.0), frame.to_image())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """PyAV's container; raises a CsmlError if the file, now or while it is read, is no video."""
    with extra("video", "a video"):
        import av
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise CsmlError(f"{path} has no pictures, only sound")
            yield container
    except av.FFmpegError as error:
        raise CsmlError(f"{path} cannot be read as a video ({reason(error)})") from error
