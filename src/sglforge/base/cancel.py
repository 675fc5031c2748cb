"""A word from one thread to others: end what you do."""

from __future__ import annotations

import threading


class Cancelled(KeyboardInterrupt):
    """The work of this thread is no longer wanted; whatever handles Ctrl-C handles this."""


class Cancellation:
    """Handed to work that runs in other threads: whoever started it cancels once, the work looks and ends."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Ask everything that was handed this to end."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether that was asked."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise Cancelled once that was asked; for work without processes, wherever it can stop."""
        if self.cancelled:
            raise Cancelled

    def sleep(self, seconds: float) -> None:
        """Pause, or raise Cancelled as soon as that is asked."""
        if self._event.wait(seconds):
            raise Cancelled
