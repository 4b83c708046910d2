"""Errors while serving the page: one line for the browser and the log, and no traceback in the terminal."""

import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from csml.crash import crashed
from csml.errors import CsmlError, machine_problem, one_line
from csml.extras import extra

with extra("explore", "csml explore"):
    from starlette.responses import PlainTextResponse

log = logging.getLogger("csml")


class RequestErrors:
    """Answers a failed request with a one-line reason, and logs it.

    Args:
        app: the application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begun = False

        async def noted(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            text = str(error) if isinstance(error, CsmlError) else machine_problem(error)
            line = one_line(text if text is not None else crashed(error, sys.argv))
            log.warning("%s: %s", scope.get("path", "?"), line)
            if not begun:
                await PlainTextResponse(line, 507 if text is not None else 500)(scope, receive, send)
