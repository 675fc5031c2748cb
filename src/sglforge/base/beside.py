"""A call that runs in a thread of its own, for the few that are made at every start: a pool takes long to load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """Call a function in another thread; :meth:`result` is what it returned or raised."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._returned: list[T] = []
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._call)
        self._thread.start()

    def result(self) -> T:
        """Wait for the call and return its value, or raise what it raised."""
        self._thread.join()
        if self._raised:
            raise self._raised
        return self._returned[0]

    def _call(self) -> None:
        try:
            self._returned.append(self._function())
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            self._raised = error
