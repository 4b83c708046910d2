"""SIGINT and SIGTERM end a run at the next step instead of in the middle of one."""

import signal
from types import FrameType, TracebackType


class Interrupted(Exception):
    """The run was asked to stop and has saved itself."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class StopSignals:
    """While entered, `caught` tells the first signal that came; a second one ends the process at once.

    One may be entered inside another, which then hears of the signal too: a run that ended before it could stop must
    not be followed by the next one.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopSignals":
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread: whoever runs us there handles its signals
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
