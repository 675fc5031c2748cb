"""The names of files in the folders that a unit looks for headers in. Light.

A cache that remembers which headers were read does not see one that appears at an earlier place, or that
``__has_include`` asks for: so the names below all folders are part of what it compares. Names only, no times: a tree
that is unpacked again is the same tree.
"""

from __future__ import annotations

import os
import time

SETTLED_NS = 2_000_000_000
"""A folder that changed within so many nanoseconds is read again the next time: a second change leaves no trace."""
_OUTPUTS = (".o", ".d", ".so", ".a", ".obj", ".tmp", ".log", ".ninja", ".ninja_deps", ".ninja_log", ".ninja_lock")
# what compilers and build tools make beside objects while they run
_INTERMEDIATE = (
    ".ii",
    ".ptx",
    ".cubin",
    ".fatbin",
    ".fatbin.c",
    ".module_id",
    ".gpu",
    ".stub.c",
    ".cudafe1.c",
    ".cudafe1.cpp",
)


def digest(source: str, folders: tuple[str, ...], memory: str) -> str:
    """Return a digest of the names below the folders and beside the source.

    Args:
        source: The source file: its own folder is looked at first for what it includes.
        folders: What the call names for headers.
        memory: A folder in which digests are remembered for the length of a build.
    """
    import hashlib  # takes long to import, and only units that may be cached need it

    places = [os.path.dirname(source) or ".", *folders]
    whole = hashlib.sha256()
    for place in dict.fromkeys(os.path.realpath(place) for place in places):
        whole.update(_folder(place, memory).encode())
    return whole.hexdigest()


def _folder(place: str, memory: str) -> str:
    import hashlib

    name = hashlib.sha256(os.fsencode(place)).hexdigest()[:24]
    remembered = f"{memory}/names-{name}"
    if known := _still_true(remembered):
        return known
    found, times = _listed(place)
    result = hashlib.sha256(b"\0".join(os.fsencode(path) for path in found)).hexdigest()
    if times and time.time_ns() - max(times.values()) > SETTLED_NS:
        _remember(remembered, result, place, times)
    return result


def _listed(top: str) -> tuple[list[str], dict[str, int]]:
    """Return the files below a folder, and when each folder below it changed."""
    found, times, left, been = [], {}, [""], set()
    while left:
        inner = left.pop()
        try:
            about = os.stat(f"{top}{inner}")
            if (about.st_dev, about.st_ino) in been:  # a link that leads back
                continue
            been.add((about.st_dev, about.st_ino))
            times[inner] = about.st_mtime_ns
            with os.scandir(f"{top}{inner}") as entries:
                for entry in entries:
                    path = f"{inner}/{entry.name}"
                    if entry.is_dir():
                        left.append(path)
                    elif not entry.name.endswith(_OUTPUTS + _INTERMEDIATE):
                        found.append(path)
        except OSError:
            continue
    return sorted(found), times


def _still_true(remembered: str) -> str:
    """Return what was remembered, if no folder has changed since."""
    try:
        with open(remembered, "rb") as stream:
            result, top, *rows = stream.read().split(b"\0")
        for row in rows:
            changed, _, inner = row.partition(b" ")
            if os.stat(top + inner).st_mtime_ns != int(changed):
                return ""
        return result.decode("ascii")
    except (OSError, ValueError):
        return ""


def _remember(remembered: str, result: str, top: str, times: dict[str, int]) -> None:
    rows = [f"{changed} {inner}" for inner, changed in times.items()]
    draft = f"{remembered}.{os.getpid()}"
    try:
        with open(draft, "wb") as stream:
            stream.write(b"\0".join(map(os.fsencode, [result, top, *rows])))
        os.replace(draft, remembered)
    except OSError:
        return
