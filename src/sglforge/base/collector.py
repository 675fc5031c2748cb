"""The garbage collector, put off while something large is made that is no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Let nothing be collected meanwhile; what was made is looked at once, afterwards.

    The syntax trees of large files have some 100,000 objects and no cycles. While they grow, Python would walk them
    again and again, which takes longer than to parse the files.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
