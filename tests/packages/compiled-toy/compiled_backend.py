"""Compile a library, and write down all that leaks into wheels: paths, order, times, modes, names of users.

A file ``luck.txt`` makes it draw a number, which no two builds have in common.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any

NAME = "compiled_toy-1.0"


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel and return its file name."""
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    files = {
        "compiled_toy/__init__.py": b"",
        "compiled_toy/libtoy.so": _library(),
        "compiled_toy/seen.json": json.dumps(_seen(), indent=1).encode(),
        f"{NAME}.dist-info/METADATA": b"Metadata-Version: 2.1\nName: compiled-toy\nVersion: 1.0\n",
        f"{NAME}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    rows = [f"{path},sha256={_hash(content)},{len(content)}\n" for path, content in files.items()]
    files[f"{NAME}.dist-info/RECORD"] = ("".join(rows) + f"{NAME}.dist-info/RECORD,,\n").encode()
    wheel = f"{NAME}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory, wheel), "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return wheel


def _library() -> bytes:
    """Return a library of what lies in a folder, in the order in which that is listed, and of generated files."""
    made = Path("generated")
    made.mkdir()
    for number in (9, 3, 27, 1, 14, 6, 21):  # no order that a file system would come to by itself
        luck = os.urandom(8).hex() if Path("luck.txt").exists() else "none"
        text = f'int made_{number}(void) {{ return {number}; }}\nconst char luck_{number}[] = "{luck}";\n'
        (made / f"part_{number}.c").write_text(text)
    sources = [f"csrc/{entry.name}" for entry in os.scandir("csrc")] + [str(path) for path in made.iterdir()]
    flags = os.environ.get("CFLAGS", "").split()
    include = str(Path("include").absolute())
    command = ["cc", *flags, "-g", "-O1", "-shared", "-fPIC", f"-I{include}", "-o", "libtoy.so"]
    absolute = [str(Path(source).absolute()) for source in sources]
    subprocess.run([*command, *absolute], check=True)
    return Path("libtoy.so").read_bytes()


def _seen() -> dict[str, object]:
    Path("new file").touch()
    Path("new folder").mkdir()
    return {
        "here": str(Path.cwd()),
        "prefix": sys.prefix,
        "executable": sys.executable,
        "argv": sys.argv,
        "paths": sysconfig.get_paths(),
        "search": sys.path,
        "environ": {name: os.environ.get(name) for name in ("HOME", "TMPDIR", "LANG", "TZ", "LC_ALL", "USER")},
        "zone": time.tzname,
        "walked": [[folder, *folders, *files] for folder, folders, files in os.walk(".")],
        "modes": {name: oct(Path(name).stat().st_mode) for name in ("csrc", "csrc/area.c", "new file", "new folder")},
        "times": {name: Path(name).stat().st_mtime for name in ("csrc", "csrc/area.c", "include/shape.h")},
        "config": Path(sys.prefix, "pyvenv.cfg").read_text(),
    }


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
