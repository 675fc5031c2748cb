"""A backend that leaves something in the folder that `place.txt` names, as if nobody else used this machine."""

from __future__ import annotations

from pathlib import Path


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Write where a build has no business, then build."""
    Path(Path("place.txt").read_text().strip(), "left-by-a-build.txt").write_text("mine")
    wheel = "toy_writing-1.0-py3-none-any.whl"
    Path(wheel_directory, wheel).touch()
    return wheel
