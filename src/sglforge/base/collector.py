"""The garbage collector, put off while something large is made that is no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Let nothing be collected meanwhile; what was made is looked at once, afterwards.

    A syntax tree has some 50,000 objects and no cycles. While it grows, Python would walk it again and again: that
    takes longer than to parse the file.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
