"""`python -m csml.explorer.worker`: fine-tune in a separate process, and report progress on standard output.

The request is one line of JSON on standard input. When standard input ends, the server of the page is gone, and the
worker exits. Every line of output is a JSON object: progress, log, error or done.
"""

import json
import logging
import os
import sys
import threading
import time
from typing import Any

from csml.api.classifiers import finetune
from csml.crash import crashed
from csml.errors import CsmlError, machine_problem, one_line
from csml.evaluation.search_index import open_index
from csml.explorer.network_view import index_folder, with_network_of
from csml.progress import reported_to
from csml.reporting.mapped_images import open_network_and_data
from csml.reporting.runs import read_runs
from csml.runs.directory import RunDirectory

_SECONDS_BETWEEN = 0.2


class _Speaker(logging.Handler):
    """Sends progress and log lines to the server."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        self._writing = threading.Lock()
        self._last = (0.0, "")

    def say(self, kind: str, **more: Any) -> None:
        with self._writing:
            self._output.write(json.dumps({"kind": kind, **more}) + "\n")
            self._output.flush()

    def progress(self, what: str, done: int, total: int, note: str) -> None:
        now = time.monotonic()
        if what != self._last[1] or done >= total or now - self._last[0] > _SECONDS_BETWEEN:
            self._last = (now, what)
            self.say("progress", what=what, done=done, total=total, note=note)

    def emit(self, record: logging.LogRecord) -> None:
        self.say("log", text=record.getMessage())


def main() -> int:
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    speaker, log = _Speaker(), logging.getLogger("csml")
    os.dup2(2, sys.stdout.fileno())  # other output must not be mistaken for an answer
    log.setLevel(logging.INFO)
    log.addHandler(speaker)
    return _answer(order, speaker)


def _answer(order: dict[str, Any], speaker: _Speaker) -> int:
    """Do the work and say how it ended; returns the exit code."""
    try:
        with reported_to(speaker.progress):
            _work(order)
    except CsmlError as error:
        problem = str(error)
    except Exception as error:  # the page must report any failure: nobody reads the standard error of this process
        problem = machine_problem(error) or crashed(error, [*sys.argv, json.dumps(order)])
    else:
        speaker.say("done")
        return 0
    speaker.say("error", text=one_line(problem))
    return 1


def _work(order: dict[str, Any]) -> None:
    """Fine-tune, and compute the features of all images if the network has changed."""
    finetune(order["run"], data=order["data"], labels=order["labels"], out=order["out"], holdout=order["holdout"])
    home, tuned = RunDirectory(read_runs([order["run"]])[0].root), RunDirectory(read_runs([order["out"]])[0].root)
    opened = with_network_of(tuned, open_network_and_data(read_runs([order["run"]])[0].moved_to(order["data"])))
    open_index(index_folder(tuned, home, opened), opened.net, opened.data.train, opened.config, opened.fabric)


def _end_with_the_server() -> None:
    while sys.stdin.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
