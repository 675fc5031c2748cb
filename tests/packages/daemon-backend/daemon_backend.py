"""A backend that leaves a process behind, for as many seconds as `seconds.txt` says: a compiler server does that."""

from __future__ import annotations

import subprocess
from pathlib import Path


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Start a process that has left the session and its environment, then build without waiting for it."""
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        ["sleep", Path("seconds.txt").read_text().strip()],
        env={},
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    wheel = "toy_daemon-1.0-py3-none-any.whl"
    Path(wheel_directory, wheel).touch()
    return wheel
