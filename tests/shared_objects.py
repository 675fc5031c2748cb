"""Real shared objects, made with gcc, and processes that load them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sglforge.base import proc

# Loads each library, says so, and stays.
_LOADER = """
import ctypes, sys, time
loaded = [ctypes.CDLL(path) for path in sys.argv[1:]]
print("ready", flush=True)
time.sleep(60)
"""


def shared_object(
    path: Path, *, soname: str | None = None, needs: Sequence[Path] = (), body: str = "int one(void) { return 1; }"
) -> Path:
    """Build a shared object at a path; ``needs`` are linked in, whether used or not, and found beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_name(f"{path.name}.c")
    source.write_text(body)
    name = [f"-Wl,-soname,{soname}"] if soname else []
    rpath = [f"-Wl,-rpath,{folder}" for folder in sorted({str(need.parent) for need in needs})]
    command: list[str | Path] = ["gcc", "-shared", "-fPIC", "-o", path, source, *name]
    command += ["-Wl,--no-as-needed", *needs, *rpath]
    proc.run(command, timeout_s=30)
    source.unlink()
    return path


class Load(Protocol):
    """Start a process that has loaded libraries; ``env`` is added to a bare environment."""

    def __call__(self, *libraries: Path, env: Mapping[str, str] | None = None) -> proc.Service: ...


def start_loader(log: Path, libraries: Sequence[Path], env: Mapping[str, str] | None) -> proc.Service:
    """Start a process, and wait until it has loaded the libraries."""
    argv: list[str | Path] = [sys.executable, "-c", _LOADER, *libraries]
    service = proc.spawn(argv, log=log, env={"PATH": "/usr/bin:/bin", **(env or {})})
    deadline = time.monotonic() + 20
    while "ready" not in (text := log.read_text()):
        if time.monotonic() > deadline or service.poll() is not None:
            service.stop(grace_s=0.0)
            raise AssertionError(text)
        time.sleep(0.02)
    return service
