"""A backend that talks and then fails, as a compiler does."""

from __future__ import annotations

import sys


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Fail."""
    for number in range(50):
        print(f"compiling unit {number}", flush=True)
    print("unit_49.cu(12): error: identifier is undefined", file=sys.stderr, flush=True)
    raise RuntimeError("the compiler gave up")
