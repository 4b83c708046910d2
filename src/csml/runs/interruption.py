"""SIGINT and SIGTERM end a run after the current step, when it has been saved, instead of in the middle of one."""

import logging
import signal
from pathlib import Path
from types import FrameType, TracebackType

log = logging.getLogger("csml")


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run, which has saved a checkpoint.

    A KeyboardInterrupt, so that a notebook's stop button ends the cell, and no `except Exception` catches it.
    """

    def __init__(self, signal_number: int, where: str, run: Path, command: str) -> None:
        super().__init__(signal_number, where, run, command)  # all arguments, so that it can be pickled
        self.signal = signal_number
        self.where = where
        """such as "epoch 3/15, step 4" """
        self.run = run
        """the directory to give to `resume`"""
        self.command = command
        """the verb that continues the run"""

    @property
    def exit_code(self) -> int:
        return 128 + self.signal

    def __str__(self) -> str:
        again = f"csml.{self.command}(resume={str(self.run)!r})"
        if self.command == "linear":  # a probe is continued beside the weights it judges
            again = f"csml.linear({str(self.run)!r}, resume=True)"
        elif self.command == "ablate":  # finds what is done by itself
            again = "the same call"
        return f"stopped in {self.where}; continue with {again}"


class StopSignals:
    """While entered, `caught` is the first signal that arrived; a second one raises KeyboardInterrupt at once.

    It may be nested. The outer one then learns of a signal that the inner one caught: if a run ends before it could
    stop, the next run of a series must not start.

    Args:
        finishing: what is finished before the work stops, such as "this step": the first signal is answered with it at
            once. Without it nothing is said, because nobody has to wait, or another process says it.
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
