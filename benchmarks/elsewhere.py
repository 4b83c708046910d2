"""A side that runs in a process of its own, as its users start it, and takes its turn when told to."""

import multiprocessing
from collections.abc import Callable
from typing import Any


class Elsewhere:
    """Calls `make(*arguments)` in a new process, and what that returned each time this is called.

    What our process has set up (threads, memory, compiled code) is not there.
    """

    def __init__(self, make: Callable[..., Callable[[], object]], *arguments: Any, await_it: bool = True) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments))
        self._process.start()
        if await_it:
            self.wait()

    def __call__(self) -> Any:
        self.begin()
        return self.wait()

    def begin(self) -> None:
        self._pipe.send("go")

    def wait(self) -> Any:
        """Until it is made, or its turn is over; what it returned."""
        return self._pipe.recv()

    def close(self) -> None:
        self._pipe.send("stop")
        self._process.join()


def _serve(pipe: Any, make: Callable[..., Callable[[], object]], arguments: tuple[Any, ...]) -> None:
    side = make(*arguments)
    pipe.send("ready")
    while pipe.recv() == "go":
        pipe.send(side())
