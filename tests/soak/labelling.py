"""`csml explore` while images are labelled: whatever was answered is kept, whatever happens to the server."""

import http.client
import json
import os
import random
import re
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from csml.data.tables import read_table
from soak.comparing import Lost, compare
from soak.moments import FILLER, children_of, disturb, fill, watch
from soak.trials import Ground, Measured, Trial, last_lines, moment_of
from soak.victims import Forked, end, wait

NAME = "explore"
_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    *(("label", {"ids": [id], "label": f"class {id % 3}", "existing": "replace"}) for id in range(12)),
    ("label", {"ids": [3, 4, 5], "label": "another", "existing": "replace"}),
    *(("tag", {"ids": [id, id + 20], "tag": "blurred"}) for id in range(4)),
    ("label", {"ids": [0], "label": None, "existing": "replace"}),
    *(("label", {"labels": {str(id): "late", str(id + 1): "=late"}, "existing": "replace"}) for id in range(30, 42, 2)),
]
_START = 60.0
_MOST = 8


class Server:
    """A page that is being served in a process of its own."""

    def __init__(self, ground: Ground, first: Any = None) -> None:
        words = ["explore", str(ground.out), "--browser", "false", "--port", "0"]
        self.victim = Forked(words, ground.environment, 1, first)

    def address(self) -> tuple[int, str] | None:
        """Port and token, when the page is served; None if the server has died before."""
        until = time.monotonic() + _START
        while time.monotonic() < until:
            if found := re.search(r"127\.0\.0\.1:(\d+)/\?token=(\S+)", self.victim.printed):
                return int(found[1]), found[2]
            if self.dead:
                return None
            time.sleep(0.01)
        raise Lost(f"the page is not served: {self.victim.printed[-500:]}")

    @property
    def dead(self) -> bool:
        return None not in self.victim.codes()


def ask(address: tuple[int, str], path: str, body: Any) -> int:
    """The status of an answer; 0 if there is none."""
    port, token = address
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Cookie": f"csml-{port}={token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"/api/{path}", json.dumps(body), headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def label_undisturbed(ground: Ground) -> Measured:
    """Label once, to compare with."""
    _prepare(ground)
    began, notes = time.monotonic(), ground.place / f"{NAME}.changes"
    notes.unlink(missing_ok=True)
    server = Server(ground, partial(watch, ground.disk, notes, None))
    address = server.address()
    if address is None or any(ask(address, path, body) != 200 for path, body in _REQUESTS):
        raise SystemExit(f"{NAME} failed undisturbed: {server.victim.printed}")
    seconds, changes = time.monotonic() - began, len(notes.read_text().splitlines())
    _stop(server)
    shutil.rmtree(ground.undisturbed(NAME), ignore_errors=True)
    shutil.copytree(ground.out, ground.undisturbed(NAME))
    return Measured(seconds, changes)


def run_labelling(ground: Ground, trial: Trial, measured: Measured, dice: random.Random) -> None:
    """Send all requests, disturb the server between and in the middle of them, and compare. Raises Lost."""
    _prepare(ground)
    answered = 0
    while answered < len(_REQUESTS):
        how = dice.choice(ground.disturbances()) if len(trial.kills) < _MOST else None
        servers: list[Server] = []
        try:
            answered = _serve(ground, trial, how, measured, dice, answered, servers)
        finally:  # a server that is left would be waited for at the end of the soak
            for left in servers:
                end(left.victim)
        (ground.disk / FILLER).unlink(missing_ok=True)
    server = Server(ground)
    if server.address() is None:
        raise Lost(f"it does not start: {server.victim.printed[-500:]}")
    _stop(server)
    compare(ground.undisturbed(NAME), ground.out)


def _serve(
    ground: Ground,
    trial: Trial,
    how: str | None,
    measured: Measured,
    dice: random.Random,
    answered: int,
    servers: list[Server],
) -> int:
    """Serve once, until all is answered or the disturbance has come; how many requests are answered now."""
    notes = ground.place / "moment.txt"
    notes.unlink(missing_ok=True)
    in_itself = how in ("SIGKILL", "SIGTERM") and dice.random() < 0.7
    number = 1 + int(dice.random() * measured.changes)
    delay = dice.choice([0.0, dice.expovariate(1000) + 1e-6])
    server = Server(ground, partial(watch, ground.disk, notes, how, number, delay) if in_itself else None)
    servers.append(server)
    if how in ("SIGKILL", "SIGTERM") and not in_itself and not wait(server.victim, dice.random() * measured.seconds):
        disturb(str(how), server.victim.processes[0], ground.disk)
    address, disturb_at = server.address(), dice.randint(answered, len(_REQUESTS))
    if address is not None:
        _require_kept(ground.out, answered)
    while address is not None and answered < len(_REQUESTS):
        if answered == disturb_at and how == "full disk":
            fill(ground.disk)
            status = ask(address, *_REQUESTS[answered])
            (ground.disk / FILLER).unlink()
            if status != 200:
                trial.kills.append((how, "labels"))
            answered += status == 200
            disturb_at = -1
        elif answered == disturb_at and how == "dead worker":
            disturb_at = -1
            _kill_worker(server, address, trial, dice)
        elif ask(address, *_REQUESTS[answered]) == 200:
            answered += 1
        elif not wait(server.victim, 10):
            raise Lost(f"request {answered} is refused: {server.victim.printed[-500:]}")
        else:
            break
    if server.dead and how is not None:
        trial.kills.append((how, moment_of(notes) if in_itself else "by the clock"))
        trial.lines |= set(last_lines(server.victim, how))
    elif server.dead:
        raise Lost(f"it ended: {server.victim.printed[-500:]}")
    _stop(server)
    if "Traceback" in server.victim.printed:
        raise Lost(f"a traceback at {how}: {server.victim.printed[-1500:]}")
    return answered


def _kill_worker(server: Server, address: tuple[int, str], trial: Trial, dice: random.Random) -> None:
    """Fine-tune from the page, and kill the process that does."""
    if ask(address, "train", {}) != 200:
        return
    time.sleep(dice.random() * 6)
    for child in children_of(server.victim.processes[0]):
        os.kill(child, signal.SIGKILL)
        trial.kills.append(("dead worker", "by the clock"))


def _require_kept(out: Path, answered: int) -> None:
    """Raises Lost unless all labels that were answered are in the file."""
    labels: dict[int, str | None] = {}
    for path, body in _REQUESTS[:answered]:
        if path == "label":
            given = body["labels"] if "labels" in body else dict.fromkeys(body["ids"], body["label"])
            labels |= {int(id): label for id, label in given.items()}
    expected = {id: label for id, label in labels.items() if label is not None}
    file = out / "explore" / "labels.csv"
    found = [label for _, _, label in read_table(file)] if file.exists() else []
    missing = sorted(set(expected.values()) - set(found))
    if missing or len(found) < len(expected):
        raise Lost(f"{len(expected)} labels were given, {len(found)} are there; missing: {missing}")


def _prepare(ground: Ground) -> None:
    ground.clean()
    shutil.copytree(ground.undisturbed("pretrain"), ground.out)


def _stop(server: Server) -> None:
    """As Ctrl-C does."""
    if not server.dead:
        os.kill(server.victim.processes[0], signal.SIGINT)
        if not wait(server.victim, 20):
            end(server.victim)
            raise Lost("it does not stop")
