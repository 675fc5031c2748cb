"""A wheel tree with everything that packing must not lose."""

from __future__ import annotations

from pathlib import Path

import pytest

METADATA = (
    b"Metadata-Version: 2.4\r\n"
    b"Name: toy.Pack\r\n"
    b"Version: 0.5.23\r\n"
    b"License: Some License\r\n"
    b"        Version: 2.0, January 2004\r\n"
    b"Requires-Dist: packaging; extra == 'more'\r\n"
    b"\r\n"
    b"Version: this line is a description\r\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    info = root / "toy_pack-0.5.23.dist-info"
    data = root / "toy_pack-0.5.23.data"
    for folder in (root / "toy_pack" / "sub", info / "licenses", data / "scripts", data / "data" / "etc"):
        folder.mkdir(parents=True)
    (root / "toy_pack" / "__init__.py").write_text("def main():\n    print('hello from the toy')\n")
    (root / "toy_pack" / "sub" / "a, b.txt").write_text('a comma and "quotes"')
    (root / "toy_pack" / "big.bin").write_bytes(bytes(range(256)) * 12_000)
    (root / "toy_pack" / "tool").write_bytes(b"\x7fELF")
    (root / "toy_pack" / "tool").chmod(0o775)
    (data / "scripts" / "toy-script").write_text("#!python\nprint('from the script')\n")
    (data / "scripts" / "toy-script").chmod(0o755)  # pip makes a script executable only if the wheel says so
    (data / "data" / "etc" / "toy.conf").write_text("x")
    (info / "METADATA").write_bytes(METADATA)
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n"
    )
    (info / "entry_points.txt").write_text("[console_scripts]\ntoy-main = toy_pack:main\n")
    (info / "licenses" / "LICENSE").write_text("x")
    (info / "RECORD").write_text("old,,\n")
    (info / "RECORD.jws").write_text("a signature over the old RECORD")
    return root
