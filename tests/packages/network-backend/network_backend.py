"""A backend that fetches something in the middle of a build, from the address in `address.txt`."""

from __future__ import annotations

import urllib.request
from pathlib import Path


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Fetch, and never come to build."""
    with urllib.request.urlopen(Path("address.txt").read_text().strip(), timeout=10) as answer:
        raise AssertionError(f"the network answered: {answer.status}")
