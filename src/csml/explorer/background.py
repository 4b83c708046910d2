"""Background work in threads, so that the page stays usable: a value computed once, or work shared by many requests."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger("csml")

T = TypeVar("T")


class BackgroundValue(Generic[T]):
    """A value that is computed in the background on first use.

    Args:
        compute: gets a function to call with the completed share, 0 to 1.
    """

    def __init__(self, compute: Callable[[Callable[[float], None]], T]) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._value: T | None = None
        self.done = 0.0
        self.problem: str | None = None
        """why it failed, for display"""

    def get(self) -> T | None:
        """The value, or None while it is not ready; the first call starts the work."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        return self._value

    def _work(self) -> None:
        try:
            self._value = self._compute(self._note)
        except Exception as error:  # the page must report any failure
            log.debug("work for the page failed", exc_info=True)
            self.problem = f"{type(error).__name__}: {error}"

    def _note(self, share: float) -> None:
        self.done = share


class DelayedWork:
    """Work shared by many requests: it is done once in a thread, some seconds after the first request.

    Args:
        work: the work; it must not raise.
        seconds: delay in which further requests are merged.
    """

    def __init__(self, work: Callable[[], None], seconds: float) -> None:
        self._work, self._seconds = work, seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def ask(self) -> None:
        """Request the work."""
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(self._seconds, self.now)
                self._timer.daemon = True
                self._timer.start()

    def now(self) -> None:
        """Do the work in this thread."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._work()
