"""`csml.explore`: serve a page on this machine to look at, search and label all images of a run."""

import logging
import socket
import threading
import time
import webbrowser
from pathlib import Path
from typing import Any

from csml.api.run import PathLike, Run, path_of
from csml.api.settings import plain_config
from csml.config import ExploreConfig
from csml.console import show_log
from csml.errors import CsmlError
from csml.extras import extra
from csml.reporting.runs import read_runs

log = logging.getLogger("csml")

_HOST = "127.0.0.1"


class Explorer:
    """A page that is being served.

    Args:
        server: a uvicorn server.
        listener: the socket it listens on.
        labels: the file that labels given on the page go to.
    """

    def __init__(self, server: Any, listener: socket.socket, labels: Path) -> None:
        self._server = server
        self.labels = labels
        self.address = f"http://{_HOST}:{listener.getsockname()[1]}"
        self._thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<csml.Explorer at {self.address}>"

    def wait(self) -> None:
        """Serve until `stop`, or Ctrl-C."""
        try:
            while self._thread.is_alive():
                time.sleep(0.1)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(timeout=5)


@show_log()
def explore(run: "Run | PathLike", *, config: PathLike | None = None, **settings: Any) -> Explorer:
    """Serve a page over all images of a run: map, search by image, filters, labels. Only this machine can open it.

    Args:
        run: a run of `pretrain`, `supervised`, `finetune` or `mine`.
        config: a YAML file of settings.
        settings: any setting of `csml explore --help`, such as `port` and `browser`.
    """
    made = explore_config(config=config, **settings)
    with extra("explore", "csml explore"):
        import uvicorn

        from csml.explorer.server import build_app
        from csml.explorer.state import explore as open_explored
        from csml.reporting.seen import can_be_seen

    name = str(path_of(run))
    runs = [found.moved_to(made.data) for found in read_runs([name])]
    if len(runs) != 1 or not can_be_seen(runs[0]):
        raise CsmlError(f"{name} has no backbone to explore with; give one run of csml pretrain, finetune or alike")
    listener = _listen(made.port)
    explored = open_explored(runs[0], made.seed)
    server = uvicorn.Server(uvicorn.Config(build_app(explored), log_level="warning", server_header=False))
    explorer = Explorer(server, listener, explored.labels_file)
    log.info("the page: %s (Ctrl-C stops it)", explorer.address)
    if made.browser:
        threading.Thread(target=webbrowser.open, args=(explorer.address,), daemon=True).start()
    return explorer


def explore_config(run: Any = None, *, config: PathLike | None = None, **settings: Any) -> ExploreConfig:
    """The settings that `explore` would run with, checked; run plays no part."""
    return plain_config(ExploreConfig, settings, config)


def _listen(port: int) -> socket.socket:
    """Take the port before the work starts, so that one in use is reported at once."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen()  # so that the port is ours, and early visitors wait
    except (OSError, OverflowError) as error:
        raise CsmlError(f"port: {port} cannot be used ({error}); try --port 0") from error
    return listener
