"""The environment in which a package writes the statements of its modules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sglforge.build.pep517 import Uv, pin_line
from sglforge.config.lockfile import LockedRequirement


def make_environment(
    folder: Path, requires: Sequence[LockedRequirement], python: Path, uv: Uv, scratch: Path, log: Path
) -> None:
    """Make the environment of a driver, without torch; steps may not write to it: links into uv's cache may stay."""
    pins = scratch / "modules-requires.txt"
    pins.write_text("".join(f"{pin_line(requirement)}\n" for requirement in requires), encoding="utf-8")
    uv("venv", "--quiet", "--no-project", "--relocatable", "--python", python, folder, log=log)
    install = ("pip", "install", "--quiet", "--python", folder, "--no-deps", "--no-build")
    uv(*install, "--require-hashes", "--requirement", pins, log=log)
