"""Fine-tuning from the page: one worker process at a time, its progress, and its result."""

import itertools
import json
import logging
import shlex
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from csml.errors import CsmlError
from csml.explorer.network_view import open_view, with_network_of
from csml.explorer.workbench import Workbench
from csml.files import read_json
from csml.program import program
from csml.reporting.mapped_images import OpenedRun
from csml.runs.directory import RunDirectory
from csml.runs.locks import only_writer

log = logging.getLogger("csml")

HOLDOUT = 0.0
"""No label is held out; cross-validation estimates the accuracy of the classifier."""
_KEPT = 3
"""Number of fine-tuned classifiers to keep."""
_LINES = 8
_GRACE_SECONDS = 5.0
_ABANDONED_SECONDS = 600.0
"""Age from which an unlocked directory counts as abandoned; a new worker has not locked its directory yet."""

_WAYS = {
    "spread": "which first spread over the most similar images",
    "logistic": "by logistic regression, with the network as it is",
    "prototypes": "by the mean of each class, with the network as it is",
    "norms": "the network's norms were tuned, too",
    "last-stage": "the last stage of the network was tuned, too",
    "all": "the whole network was tuned, too",
    "paper": "the whole network was tuned as in the paper",
}
"""Values of `how` for people who have not read the manual."""

State = Literal["none", "running", "opening", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class Job:
    """State of the latest fine-tuning."""

    number: int = 0
    state: State = "none"
    what: str = ""
    """the current step"""
    done: int = 0
    total: int = 0
    lines: tuple[str, ...] = ()
    """the last lines of the log"""
    result: str = ""
    """if done: the chosen method and its expected accuracy; if failed: why"""


class Training:
    """Fine-tunes on request and puts the new network on the workbench.

    Args:
        workbench: has the labels, and shows the result.
        opened: the images and the network of the explored run.
        seed: of the map.
    """

    def __init__(self, workbench: Workbench, opened: OpenedRun, seed: int) -> None:
        self._workbench, self._opened, self._seed = workbench, opened, seed
        self.home = workbench.run.files
        self.data = str(workbench.run.settings["data"])
        self.job = Job()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def command(self) -> str:
        """The equivalent command."""
        words = [str(self.home.root), "--data", self.data, "--labels", str(self.home.explore_labels)]
        return f"{program()} finetune {shlex.join(words)} --holdout {HOLDOUT:g}"

    def start(self) -> None:
        """Start a worker; raises CsmlError if one is running or there are too few labels."""
        with self._lock:
            if self.job.state in ("running", "opening"):
                raise CsmlError("Fine-tuning is under way.")
            if len(self._workbench.said().counts()) < 2:
                raise CsmlError("A classifier needs labels of at least two classes: label some more images first.")
            self._workbench.store.write_labels()
            tuned = self._next_tuned()
            self.job = Job(self.job.number + 1, "running", "starting")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "csml.explorer.worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
            )  # fmt: skip
            self._thread = threading.Thread(target=self._watch, args=(self._process, tuned), daemon=True)
            self._thread.start()

    def _next_tuned(self) -> RunDirectory:
        """A new directory, unique among all pages of the run. Directories of killed workers are deleted."""
        numbers = self.home.explore_tuned_numbers()
        for left in map(self.home.explore_tuned, numbers):
            with suppress(CsmlError, OSError):  # held by a running worker, or deleted by another page
                if not left.result("finetune").exists() and _age(left) > _ABANDONED_SECONDS:
                    with only_writer(left.root):
                        shutil.rmtree(left.root)
        for number in itertools.count(max(numbers, default=0) + 1):
            tuned = self.home.explore_tuned(number)
            with suppress(FileExistsError):  # another page has just taken it
                tuned.root.mkdir(parents=True)
                return tuned
        raise AssertionError

    def cancel(self) -> None:
        """Stop the worker and delete its files."""
        with self._lock:
            if self._process is None or self.job.state != "running":
                return
            self._change(state="cancelled", what="")
            process, thread = self._process, self._thread
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        if thread is not None:
            thread.join(_GRACE_SECONDS)

    def _watch(self, process: "subprocess.Popen[str]", tuned: RunDirectory) -> None:
        assert process.stdin is not None and process.stdout is not None
        order = {"run": str(self.home.root), "data": self.data, "labels": str(self.home.explore_labels)}
        problem, finished = "the worker ended early", False
        try:
            process.stdin.write(json.dumps({**order, "out": str(tuned.root), "holdout": HOLDOUT}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                said: dict[str, Any] = json.loads(line)
                if said["kind"] == "progress":
                    self._change(what=said["what"], done=said["done"], total=said["total"])
                elif said["kind"] == "log":
                    self._change(lines=(*self.job.lines, said["text"])[-_LINES:])
                elif said["kind"] == "error":
                    problem = said["text"]
                finished |= said["kind"] == "done"
        except OSError as error:
            problem = str(error)
        process.wait()
        if self.job.state == "cancelled" or not finished:
            shutil.rmtree(tuned.root, ignore_errors=True)
            if self.job.state != "cancelled":
                self._change(state="failed", what="", result=problem)
            return
        self._change(state="opening", what="opening the new classifier")
        try:
            result = show_tuned(self._workbench, tuned, self._opened, self._seed)
        except Exception as error:  # in a thread, so the page must report it
            log.debug("the new classifier cannot be shown", exc_info=True)
            self._change(state="failed", what="", result=str(error))
            return
        self._change(state="done", what="", result=result)
        for old in self.home.explore_tuned_runs()[:-_KEPT]:
            shutil.rmtree(old.root, ignore_errors=True)

    def _change(self, **changes: Any) -> None:
        self.job = Job(**{**asdict(self.job), **changes})


def _age(run: RunDirectory) -> float:
    """Seconds since a file was created in it."""
    return time.time() - run.root.stat().st_mtime


def show_tuned(workbench: Workbench, tuned: RunDirectory, opened: OpenedRun, seed: int) -> str:
    """Put a fine-tuned network on the workbench; returns a description of its accuracy."""
    view = open_view(tuned, with_network_of(tuned, opened), workbench.run.files, seed)
    result = read_json(tuned.result("finetune"))
    labels = f"{result['labels']:,} labels"
    workbench.show(view, f"the classifier of {labels}")
    sure = "There are too few to estimate its accuracy."
    if result["expected"] is not None:
        sure = f"Expected to be right on {100 * result['expected']:.0f} % ± {100 * result['error']:.0f} of such images."
    way = _WAYS.get(result["how"], result["how"])
    return f"Learnt from {labels} ({way}). {sure} The classifier is in {tuned.root}."
