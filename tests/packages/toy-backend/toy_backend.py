"""The smallest PEP 517 backend that makes correct wheels: what `src` holds, or the listed modules."""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path
from typing import Any


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel of the project in the current folder and return its file name."""
    pyproject = tomllib.loads(Path("pyproject.toml").read_text())
    name, version = pyproject["project"]["name"].replace("-", "_"), pyproject["project"]["version"]
    files = {path.relative_to("src").as_posix(): path.read_bytes() for path in Path("src").rglob("*.*")}
    for module in pyproject.get("tool", {}).get("toy-backend", {}).get("modules", []):
        files[module] = Path(module).read_bytes()
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{path},sha256={_hash(content)},{len(content)}\n" for path, content in files.items()]
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory, wheel), "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
