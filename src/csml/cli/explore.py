"""`csml explore RUN`: a page on this machine to look at, search and label all images of a run."""

import contextlib
import logging
import socket
import threading
import webbrowser
from dataclasses import dataclass

from csml.config.parsing import SettingsParser
from csml.errors import CsmlError

log = logging.getLogger("csml")

_SUMMARY = "Open a local page over all images of a run: map, search by image, filters, labels. Stop it with Ctrl-C."
_HOST = "127.0.0.1"


@dataclass
class ExploreConfig:
    """Settings of `csml explore`."""

    data: str | None = None
    """Where the images of the run are now, if they were moved."""
    port: int = 8765
    """Of the page; 0: any that is free."""
    browser: bool = True
    """Open the page in a browser."""
    seed: int = 0
    """Of the map."""


def run(arguments: list[str]) -> int:
    parser = SettingsParser("explore", ExploreConfig, _SUMMARY, "csml explore RUN [--port NUMBER]")
    parser.add_argument("run", type=str, help="A run of csml pretrain, supervised, finetune or mine.")
    settings = parser.settings(arguments)
    return explore_run(settings.run, parser.build(settings, ExploreConfig))


def explore_run(name: str, config: ExploreConfig) -> int:
    """Make what is missing, serve it until Ctrl-C."""
    import uvicorn

    from csml.explore.server import build_app
    from csml.explore.state import explore
    from csml.report.runs import read_runs
    from csml.report.seen import can_be_seen

    runs = [run.moved_to(config.data) for run in read_runs([name])]
    if len(runs) != 1 or not can_be_seen(runs[0]):
        raise CsmlError(f"{name} has no backbone to explore with; give one run of csml pretrain, finetune or alike")
    door = _door(config.port)
    app = build_app(explore(runs[0], config.seed))
    address = f"http://{_HOST}:{door.getsockname()[1]}"
    log.info("the page: %s (Ctrl-C stops it)", address)
    if config.browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[door])
    return 0


def _door(port: int) -> socket.socket:
    """Taken before the work starts, so that a port in use is told at once."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((_HOST, port))
        door.listen()  # so that the port is ours, and who comes early waits
    except (OSError, OverflowError) as error:
        raise CsmlError(f"port: {port} cannot be used ({error}); try --port 0") from error
    return door
