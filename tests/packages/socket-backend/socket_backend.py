"""A backend that connects to the port in `port.txt` by itself: no proxy variable is asked."""

from __future__ import annotations

import socket
from pathlib import Path


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Connect, and say so to the other side."""
    with socket.create_connection(("127.0.0.1", int(Path("port.txt").read_text())), timeout=10) as connection:
        connection.sendall(b"a build was here")
    raise AssertionError("somebody answered")
