"""What an nvcc says about itself, and which host compilers its headers take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.proc import ProcessError, Runner

TIMEOUT_S = 10.0
_BUILD = re.compile(r"\bV(\d+\.\d+(?:\.\d+)*)\b")
_GCC = re.compile(r"^#\s*if\s+__GNUC__\s*>\s*([0-9]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvccSays:
    """The version of an nvcc (``13.0.88``), or why it is not known."""

    version: str | None
    problem: str | None = None


def ask(home: Path, run: Runner) -> NvccSays:
    """Ask the nvcc of a toolkit for its version."""
    nvcc = home / "bin" / "nvcc"
    try:
        done = run([nvcc, "--version"], cwd=Path("/"), timeout_s=TIMEOUT_S, check=False)
    except ProcessError as error:
        late = error.code == "process-timeout"
        return NvccSays(version=None, problem=f"nvcc gives no answer in {TIMEOUT_S:.0f} s" if late else error.message)
    if found := _BUILD.search(done.stdout):
        return NvccSays(version=found[1])
    said = next((line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()), "nothing")
    shown = "".join(character if character.isprintable() else "?" for character in said[:80])
    return NvccSays(version=None, problem=f"nvcc does not say its version but: {shown} (status {done.returncode})")


def release_of(version: str) -> str:
    """Return the release of a version: ``13.0`` of ``13.0.88``."""
    return ".".join(version.split(".")[:2])


def newest_gcc(home: Path) -> int | None:
    """Return the newest major of gcc that a toolkit's own header takes; None where it does not say."""
    try:
        text = (home / "include" / "crt" / "host_config.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _GCC.search(text)
    return int(found[1]) if found else None
