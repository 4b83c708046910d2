"""Access control: only browsers with the token, and only requests of the page itself."""

import secrets
from collections.abc import Awaitable, Callable
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from csml.extras import extra

with extra("explore", "csml explore"):
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse

_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_LONGEST_PATH = 200
_START = "csml-start"
"""The header by which a page says to which start it belongs."""
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Refuses requests without the token, and cross-site requests.

    The address with ?token=… opens the page and sets a cookie, which all other requests need.

    Args:
        app: the guarded application.
        token: the secret.
        start: no secret, but different at every start. A page that was opened before holds the cookie of the page
            that is open now, if both had the same port: what it says of image 5 is not about this run's image 5.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], token: str, start: str) -> None:
        self.app, self.token, self.start = app, token, start

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page opens no web sockets
            return
        request = Request(scope)
        refused = self._refused(request)
        if refused is not None:
            await PlainTextResponse(refused, 403)(scope, receive, send)
            return
        if request.headers.get(_START, self.start) != self.start:
            await PlainTextResponse("This page is of an earlier start: reload it.", 412)(scope, receive, send)
            return
        port = (scope.get("server") or ("", 0))[1]
        cookie = f"{_cookie_name(port)}={self.token}; Path=/; HttpOnly; SameSite=Strict"
        more = _HEADERS | ({"Set-Cookie": cookie} if scope["path"] == "/" else {})

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(key.encode().lower(), value.encode()) for key, value in more.items()]
            await send(message)

        await self.app(scope, receive, with_headers)

    def _refused(self, request: Request) -> str | None:
        """Why a request is refused; None if it is allowed."""
        headers, path = request.headers, request.url.path
        if len(path) > _LONGEST_PATH:  # a number of thousands of digits cannot be converted
            return "There is no such page."
        own = f"http://{headers.get('host', '')}"
        elsewhere = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        if path == "/" and headers.get("sec-fetch-mode") == "navigate":  # a link to the page
            elsewhere = False
        if elsewhere or headers.get("origin", own) != own:
            return "Only the page of csml explore may send requests."
        given = parse_qs(request.scope["query_string"].decode("latin-1")).get("token", [""])[0] if path == "/" else ""
        jar = SimpleCookie()
        jar.load(headers.get("cookie", "")[:4096])
        held = jar.get(_cookie_name((request.scope.get("server") or ("", 0))[1]))
        for secret in (given, held.value if held else ""):
            if secrets.compare_digest(secret.encode("utf-8", "replace"), self.token.encode()):
                return None
        return "Open the address that csml explore has printed, with its token."


def _cookie_name(port: int) -> str:
    """With the port, because cookies are shared between ports, and two pages of csml may be open at once."""
    return f"csml-{port}"
