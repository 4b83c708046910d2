"""`csml.explore`: serve a page on this machine to look at, search and label all images of a run."""

import logging
import secrets
import socket
import threading
import time
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.api.run import PathLike, Run, path_of
from csml.api.settings import plain_config
from csml.config import ExploreConfig
from csml.console import show_log
from csml.errors import CsmlError
from csml.extras import extra
from csml.reporting.runs import read_runs
from csml.runs.interruption import StopSignals
from csml.runs.locks import in_use

if TYPE_CHECKING:
    from csml.explorer.training import Training
    from csml.explorer.workbench import Workbench

log = logging.getLogger("csml")

_HOST = "127.0.0.1"
_GRACE_SECONDS = 1
"""Time for pending responses when the page is stopped."""


class Explorer:
    """A page that is being served.

    Args:
        server: a uvicorn server.
        listener: the socket it listens on.
        workbench: the state that the page shows.
        training: fine-tuning, which may be in progress.
        token: the secret in the address.
        used: closed when the page stops: the listener, and what prevents the run from being overwritten.
    """

    def __init__(
        self,
        server: Any,
        listener: socket.socket,
        workbench: "Workbench",
        training: "Training",
        token: str,
        used: ExitStack,
    ) -> None:
        self._server, self._workbench, self._training, self._used = server, workbench, training, used
        self.address = f"http://{_HOST}:{listener.getsockname()[1]}/?token={token}"
        """address with the token, which is all that is needed to use the page"""
        self._thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<csml.Explorer at {self.address}>"

    @property
    def labels(self) -> dict[str, str]:
        """The labels given so far: path → label."""
        return self._workbench.store.labels()

    @property
    def tags(self) -> dict[str, list[str]]:
        """The tags given so far: path → tags."""
        return self._workbench.store.tags()

    @property
    def selection(self) -> list[str]:
        """Paths of the images that are selected in the page."""
        return [self._workbench.names[id] for id in self._workbench.selection]

    @property
    def labels_file(self) -> Path:
        """The same labels as a CSV file for `csml.finetune(run, labels=…)`; it exists after the first label."""
        return self._workbench.store.write_labels()

    def wait(self) -> None:
        """Serve until `stop`, Ctrl-C, or SIGTERM."""
        with StopSignals() as signals:
            try:
                while self._thread.is_alive() and signals.caught is None:
                    time.sleep(0.1)
            finally:
                self.stop()

    def stop(self) -> None:
        """Stop serving, and all work of the page."""
        self._server.should_exit = True
        self._training.cancel()
        self._workbench.view.layout.stop()
        self._thread.join(timeout=5)
        self._workbench.store.save()
        self._used.close()


@show_log()
def explore(run: "Run | PathLike", *, config: PathLike | None = None, **settings: Any) -> Explorer:
    """Serve a page over all images of a run: map, search, labels, fine-tuning, lists of suspicious images.

    Only this machine can open it, and only with the token in its address.

    Args:
        run: a run of `pretrain`, `supervised`, `finetune` or `mine`.
        config: a YAML file of settings.
        settings: any setting of `csml explore --help`, such as `port` and `browser`.
    """
    made = explore_config(config=config, **settings)
    with extra("explore", "csml explore"):
        import uvicorn

        from csml.explorer.opening import open_workbench
        from csml.explorer.server import build_app
        from csml.reporting.mapped_images import can_be_mapped

    name = str(path_of(run))
    runs = [found.moved_to(made.data) for found in read_runs([name])]
    if len(runs) != 1 or not can_be_mapped(runs[0]):
        raise CsmlError(f"{name} has no backbone to explore with; give one run of csml pretrain, finetune or alike")
    with ExitStack() as used:
        listener = used.enter_context(_listen(made.port))
        used.enter_context(in_use(runs[0].root))
        workbench, training = open_workbench(runs[0], made.columns, made.seed)
        token = secrets.token_urlsafe(24)
        app = build_app(workbench, training, token)
        # Without a limit, an endless upload would prevent the server from stopping.
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=_GRACE_SECONDS)
        )
        explorer = Explorer(server, listener, workbench, training, token, used.pop_all())
    log.info("the page: %s (Ctrl-C stops it)", explorer.address)
    if made.browser:
        threading.Thread(target=webbrowser.open, args=(explorer.address,), daemon=True).start()
    return explorer


def explore_config(run: Any = None, *, config: PathLike | None = None, **settings: Any) -> ExploreConfig:
    """The settings that `explore` would run with, checked; `run` is ignored."""
    return plain_config(ExploreConfig, settings, config)


def _listen(port: int) -> socket.socket:
    """Take the port before the work starts, so that one in use is reported at once."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        listener.listen()  # so that the port is taken, and early requests wait
    except (OSError, OverflowError) as error:
        listener.close()
        raise CsmlError(f"port: {port} cannot be used ({error}); try --port 0") from error
    return listener
