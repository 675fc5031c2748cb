"""Let Python list folders in the order of names: file systems list them in an order of their own.

It is copied into build environments, whose Pythons import it when they start (a ``.pth`` file names it). There it must
get along with the standard library alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self


class _Listing:
    """What `os.scandir` returns, sorted."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the listing."""
        self._entries = iter(())


def install() -> None:
    """Replace `os.listdir` and `os.scandir`, which all of the standard library goes through."""
    listdir: Callable[..., list[Any]] = os.listdir
    scandir: Callable[..., Any] = os.scandir

    def sorted_listdir(path: Any = None) -> list[Any]:
        return sorted(listdir(path))

    def sorted_scandir(path: Any = None) -> _Listing:
        with scandir(path) as entries:
            return _Listing(sorted(entries, key=_name))

    os.supports_fd.update({sorted_listdir, sorted_scandir})
    os.listdir, os.scandir = sorted_listdir, sorted_scandir  # type: ignore[assignment]


def _name(entry: os.DirEntry[Any]) -> Any:
    return entry.name


if __name__ == "sglforge_ordered_folders":
    install()
