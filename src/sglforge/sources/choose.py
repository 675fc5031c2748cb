"""Which of a locked source's files is for a Python on this machine."""

from __future__ import annotations

from sglforge.config.lockfile import LockedArchive, LockedFile
from sglforge.errors import LockError


def choose(locked: LockedArchive, python_minor: str) -> LockedFile:
    """Return the file of a locked source that fits a Python on this machine: the sdist, or the best wheel.

    Raises LockError ``no-file-for-python``.
    """
    from sglforge.sources.tags import rank, supported_tags

    if locked.kind == "sdist":
        fitting = [(0, file) for file in locked.files if not file.name.endswith(".whl")]
    else:
        supported = supported_tags(python_minor)
        places = [(rank(file.name, supported), file) for file in locked.files]
        fitting = [(place, file) for place, file in places if place is not None]
    if not fitting:
        raise LockError(
            code="no-file-for-python",
            message=(
                f"the lock has no {locked.kind} of {locked.project} {locked.version} "
                f"that fits Python {python_minor} on this machine"
            ),
            context={"locked": ", ".join(file.name for file in locked.files) or "nothing"},
            hint="use a Python that the lock has a file for (--python), or lock again on a machine like this",
        )
    return min(fitting, key=lambda entry: entry[0])[1]
