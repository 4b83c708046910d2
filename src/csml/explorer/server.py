"""The web server of the workbench: the page, its scripts, and the images by number; for this machine only."""

import io
import secrets
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files

from PIL import Image

from csml.data.decode import DecodeError
from csml.explorer.guard import Guard
from csml.explorer.request_errors import RequestErrors
from csml.explorer.routes import Api
from csml.explorer.training import Training
from csml.explorer.workbench import Workbench
from csml.extras import extra
from csml.reporting.pictures import thumbnail

with extra("explore", "csml explore"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

_LONGEST_SIDE, _THUMBNAIL = 1600, 128
_KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


def build_app(workbench: Workbench, training: Training, token: str) -> Starlette:
    """The web application: the page, its data, and the images."""
    pictures = _Pictures(workbench)
    routes = [Route("/", _constant("index.html"))]
    routes += [Route(f"/{name}", _constant(name)) for name in page_files() if name != "index.html"]
    routes += [Route("/thumb/{id:int}", pictures.thumb), Route("/image/{id:int}", pictures.image)]
    start = secrets.token_hex(4)
    routes += Api(workbench, training, start).routes()
    guards = [
        Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"]),
        Middleware(Guard, token=token, start=start),
        Middleware(RequestErrors),
    ]
    return Starlette(routes=routes, middleware=guards)


class _Pictures:
    """Serves images by number, small and large."""

    def __init__(self, workbench: Workbench) -> None:
        self._bench = workbench
        self._small = lru_cache(maxsize=8192)(self._make)

    def thumb(self, request: Request) -> Response:
        content = self._small(self._id(request))
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type="image/webp", headers={"Cache-Control": "private, max-age=3600"})

    def image(self, request: Request) -> Response:
        try:
            picture = self._bench.images.read(self._id(request))
        except DecodeError as error:
            raise HTTPException(404) from error
        picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        return Response(_encoded(picture, "PNG"), media_type="image/png")

    def _make(self, id: int) -> bytes | None:
        picture = thumbnail(self._bench.images, id, _THUMBNAIL)
        return None if picture is None else _encoded(picture, "WEBP")

    def _id(self, request: Request) -> int:
        id = int(request.path_params["id"])
        if id >= len(self._bench.names):
            raise HTTPException(404)
        return id


def page_files() -> list[str]:
    """Names of the files in page/."""
    return sorted(entry.name for entry in (files("csml.explorer") / "page").iterdir())


def page_file(name: str) -> str:
    """The text of a file in page/."""
    return (files("csml.explorer") / "page" / name).read_text("utf-8")


def _constant(name: str) -> Callable[[Request], Response]:
    kind = _KINDS["." + name.rsplit(".", 1)[1]]
    content = page_file(name)
    return lambda request: Response(content, media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})


def _encoded(picture: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format)
    return buffer.getvalue()
