"""Write stores of small wheels."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.workspace import Workspace
from sglforge.build.store import StoredWheel, entry_path, publish


def key_of(number: int) -> BuildKey:
    return BuildKey(digest({"source": number}))


def put(
    workspace: Workspace, number: int, *, content: bytes | None = None, days_old: float = 0.0, package: str = "toy"
) -> StoredWheel:
    """Publish a wheel; its entry was used so many days ago."""
    content = b"wheel %d" % number if content is None else content
    wheel = workspace.scratch / f"{os.getpid()}-{number}" / "toy-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.write_bytes(content)
    document = {
        "package": package,
        "started": "2026-11-30T12:00:00+00:00",
        "wheel": {"name": wheel.name, "size": len(content), "sha256": sha256_file(wheel)},
        "key-parts": {"source": number},
    }
    stored = publish(workspace, key_of(number), wheel, document)
    shutil.rmtree(wheel.parent)
    when = time.time() - days_old * 24 * 3600
    os.utime(entry_path(workspace.store, stored.key), (when, when))
    return stored


def overwrite(path: Path, content: bytes) -> None:
    """Change a file in place, as a disk or a careless hand does."""
    path.chmod(0o644)
    path.write_bytes(content)
