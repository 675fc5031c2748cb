"""A backend whose wheel contradicts itself: another version inside, a file that RECORD does not know."""

from __future__ import annotations

import zipfile
from pathlib import Path


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Make the wheel."""
    info = "toy_wrong-1.0.dist-info"
    with zipfile.ZipFile(Path(wheel_directory, "toy_wrong-1.0-py3-none-any.whl"), "w") as archive:
        archive.writestr("toy_wrong.py", "x = 1\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-wrong\nVersion: 2.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/RECORD,,\n")
    return "toy_wrong-1.0-py3-none-any.whl"
