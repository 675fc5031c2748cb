"""What a file system refuses, as errors with a name."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from sglforge.errors import SglforgeError

_CODES = {
    errno.ENOSPC: "disk-full",
    errno.EDQUOT: "disk-full",
    errno.EACCES: "not-writable",
    errno.EROFS: "not-writable",
}
_IN_THE_WAY = {errno.EEXIST: "workspace-unusable", errno.ENOTDIR: "workspace-unusable"}


@contextlib.contextmanager
def disk_faults(folder: Path, error: type[SglforgeError], *, in_the_way: bool = False) -> Iterator[None]:
    """Raise what the file system refuses as an error of a stage: ``disk-full``, ``not-writable``.

    With ``in_the_way`` a file where a folder should be is ``workspace-unusable``. Any other OSError passes.
    """
    codes = {**_CODES, **_IN_THE_WAY} if in_the_way else _CODES
    try:
        yield
    except OSError as refused:
        if refused.errno not in codes:
            raise
        raise error(
            code=codes[refused.errno],
            message=f"cannot write to {folder}: {refused.strerror}",
            hint="free some space, or use another workspace (--workspace DIR, SGLFORGE_HOME)",
        ) from refused
