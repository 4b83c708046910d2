"""The web server of the explorer: only for this machine, images only by number, no requests from other sites."""

import asyncio
import io
import json
import shlex
from collections.abc import Awaitable, Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any

from PIL import Image

from csml.data.decode import DecodeError, open_picture
from csml.data.depth import reading_of
from csml.explorer.state import Explored, read_labels
from csml.extras import extra
from csml.program import program
from csml.reporting.charts import COLORS
from csml.reporting.html import asset, plotly_script
from csml.reporting.pictures import thumbnail

with extra("explore", "csml explore"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

_LARGEST_UPLOAD = 64 * 2**20
_LONGEST_SIDE, _THUMBNAIL = 1600, 96
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-eval'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def build_app(explored: Explored) -> Starlette:
    """The web application: the page, its data, and the images."""
    count = len(explored.images)

    def id_of(request: Request) -> int:
        id = int(request.path_params["id"])
        if id >= count:
            raise HTTPException(404)
        return id

    @lru_cache(maxsize=4096)
    def small(id: int) -> bytes | None:
        picture = thumbnail(explored.images, id, _THUMBNAIL)
        return None if picture is None else _encoded(picture, "WEBP")

    def thumb(request: Request) -> Response:
        content = small(id_of(request))
        if content is None:
            raise HTTPException(404)
        return Response(content, media_type="image/webp", headers={"Cache-Control": "private, max-age=3600"})

    def image(request: Request) -> Response:
        try:
            picture = explored.images.read(id_of(request))
        except DecodeError as error:
            raise HTTPException(404) from error
        picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        return Response(_encoded(picture, "PNG"), media_type="image/png")

    def summary(request: Request) -> Response:
        labeled, predicted = explored.columns[2] >= 0, explored.columns[4] >= 0
        return JSONResponse(
            {
                "name": explored.run.name,
                "count": count,
                "key": explored.images.fingerprint(),
                "classes": [_printable(name) for name in explored.images.classes] if labeled.any() else [],
                "predicted": [_printable(name) for name in explored.predicted_classes] if predicted.any() else [],
                "names": [_printable(explored.images.name(id)) for id in range(count)],
                "colors": COLORS,
                "settings": explored.settings,
                "labelled": len(read_labels(explored.labels_file)),
                "finetune": _finetune(explored),
            }
        )

    def points(request: Request) -> Response:
        return Response(explored.columns.tobytes(), media_type="application/octet-stream")

    def neighbors(request: Request) -> Response:
        return JSONResponse(explored.neighbors(id_of(request), k=24))

    async def search(request: Request) -> Response:
        content = await _body(request)
        try:
            found = await asyncio.to_thread(
                lambda: explored.search(open_picture(io.BytesIO(content), reading_of(explored.opened.config)), 24)
            )
        except DecodeError as error:
            raise HTTPException(400, "This file is not a readable picture.") from error
        return JSONResponse(found)

    async def label(request: Request) -> Response:
        if request.headers.get("content-type", "").split(";")[0] != "application/json":
            raise HTTPException(415)
        try:
            asked = json.loads(await _body(request))
            ids, name = [int(id) for id in asked["ids"]], str(asked["label"]).strip()
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise HTTPException(400, "Send ids and a label.") from error
        if not name.isprintable() or not name or not ids or min(ids) < 0 or max(ids) >= count:
            raise HTTPException(400, "Send ids of images and a label.")
        total = await asyncio.to_thread(explored.label, ids, name)
        return JSONResponse({"labelled": total, "file": str(explored.labels_file)})

    static = {
        "/": (asset_of("index.html"), "text/html"),
        "/style.css": (asset("style.css"), "text/css"),
        "/common.js": (asset("common.js"), "text/javascript"),
        "/explore.js": (asset_of("explore.js"), "text/javascript"),
        "/plotly.js": (plotly_script(), "text/javascript"),
    }
    routes = [Route(path, _constant(*content)) for path, content in static.items()]
    routes += [
        Route("/thumb/{id:int}", thumb),
        Route("/image/{id:int}", image),
        Route("/api/summary", summary),
        Route("/api/points", points),
        Route("/api/neighbors/{id:int}", neighbors),
        Route("/api/search", search, methods=["POST"]),
        Route("/api/label", label, methods=["POST"]),
    ]
    guards = [Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"]), Middleware(_SameSite)]
    return Starlette(routes=routes, middleware=guards)


class _SameSite:
    """Refuses requests that pages of other sites make a browser send, and forbids other sites to use the answers."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Request(scope).headers
        own = f"http://{headers.get('host', '')}"
        elsewhere = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        if scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate":  # a link to the page
            elsewhere = False
        if elsewhere or headers.get("origin", own) != own:
            await PlainTextResponse("Only the page of csml explore may send requests.", 403)(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(key.encode().lower(), value.encode()) for key, value in _HEADERS.items()]
            await send(message)

        await self.app(scope, receive, with_headers)


def asset_of(name: str) -> str:
    """The text of a file in page/."""
    return (files("csml.explorer") / "page" / name).read_text("utf-8")


def _constant(content: str, media_type: str) -> Callable[[Request], Response]:
    return lambda request: Response(content, media_type=f"{media_type}; charset=utf-8")


async def _body(request: Request) -> bytes:
    """The whole body of a request, unless it is too large."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _LARGEST_UPLOAD:
            raise HTTPException(413, "This file is too large.")
        chunks.append(chunk)
    return b"".join(chunks)


def _encoded(picture: Image.Image, format: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format)
    return buffer.getvalue()


def _printable(name: str) -> str:
    """A file name as valid text, which JSON needs."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _finetune(explored: Explored) -> str:
    words = [str(explored.run.root), "--data", explored.run.settings["data"], "--labels", str(explored.labels_file)]
    return f"{program()} finetune {shlex.join(words)} --preset photos"
