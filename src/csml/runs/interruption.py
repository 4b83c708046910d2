"""On SIGINT and SIGTERM, a run finishes the current step and saves before it ends."""

import logging
import signal
from pathlib import Path
from types import FrameType, TracebackType

log = logging.getLogger("csml")


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run, which has saved a checkpoint.

    A KeyboardInterrupt, so that a notebook's stop button ends the cell and no `except Exception` catches it.
    """

    def __init__(self, signal_number: int, where: str, run: Path, command: str) -> None:
        super().__init__(signal_number, where, run, command)  # all arguments, so that it can be pickled
        self.signal = signal_number
        self.where = where
        """for example "epoch 3/15, step 4" """
        self.run = run
        """the directory to pass to `resume`"""
        self.command = command
        """the verb that continues the run"""

    @property
    def exit_code(self) -> int:
        return 128 + self.signal

    def __str__(self) -> str:
        again = f"csml.{self.command}(resume={str(self.run)!r})"
        if self.command == "linear":  # a probe is resumed through the weights that it evaluates
            again = f"csml.linear({str(self.run)!r}, resume=True)"
        elif self.command == "ablate":  # finds finished runs by itself
            again = "the same call"
        return f"stopped in {self.where}; continue with {again}"


class StopSignals:
    """While entered, `caught` is the first signal that arrived; a second one raises KeyboardInterrupt at once.

    It may be nested. A signal caught by the inner one is passed to the outer one: if a run ends before it could stop,
    the next run of a series must not start.

    Args:
        finishing: what is finished before stopping, such as "this step", named in the answer to the first signal. Empty
            to stay silent, because stopping is immediate or another process answers.
    """

    def __init__(self, finishing: str = "") -> None:
        self.finishing = finishing
        self.caught: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:  # only the main thread may handle signals
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
            outer = getattr(handler, "__self__", None)
            if isinstance(outer, StopSignals) and self.caught == number:
                outer.caught = number

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            raise KeyboardInterrupt
        self.caught = number
        if self.finishing:
            again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
            log.warning("stopping after %s; %s stops at once", self.finishing, again)
