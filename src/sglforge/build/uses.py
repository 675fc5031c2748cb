"""What running verbs work with: a note for each, under a lock that the system frees when its run ends.

A run that looks a wheel up and installs it a minute later must find it then. It writes down what it works with before
it looks, under the lock of the store, and whoever removes something reads these notes under the same lock.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from sglforge.base.exclusive import take
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build.store import used, writing
from sglforge.errors import BuildError


@contextmanager
def using(workspace: Workspace, names: Iterable[str], *, mark: bool = True) -> Iterator[None]:
    """Keep what has these names from being removed while the block runs: build keys, hashes of archives, runs.

    With ``mark`` the entries of the store say that they were used now.
    """
    own = sorted(set(names))
    workspace.locks.mkdir(parents=True, exist_ok=True)
    path = workspace.locks / f"uses-{os.getpid()}-{secrets.token_hex(4)}.json"
    with writing(workspace):
        lock = take(path)
        if lock is None:
            raise BuildError(code="workspace-busy", message=f"{path} is held by another process", hint="repeat")
        try:
            os.write(lock, json.dumps(own).encode())
        except OSError:
            path.unlink(missing_ok=True)
            os.close(lock)
            raise
    for key in own if mark else ():
        used(workspace, BuildKey(key))
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(lock)


def in_use(workspace: Workspace) -> frozenset[str]:
    """Return the names of what running verbs work with; notes of those that have ended are removed."""
    names: set[str] = set()
    for path in workspace.locks.glob("uses-*.json"):
        lock = take(path)
        if lock is None:
            with suppress(OSError, ValueError):
                names.update(str(name) for name in json.loads(path.read_text(encoding="utf-8")))
            continue
        path.unlink(missing_ok=True)
        os.close(lock)
    return frozenset(names)
