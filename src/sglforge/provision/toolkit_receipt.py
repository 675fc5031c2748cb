"""What an installed CUDA toolkit was when it was finished, and whether it still is that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglforge.base.files import sha256_file, write_text
from sglforge.provision.stamps import row

RECEIPT = "toolkit.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitReceipt:
    """The fingerprint and the wheels of a toolkit; ``files`` has sha256, size, time and inode of each, by path.

    Folders are among them, without a sha256: what came into one later has changed its time.
    """

    fingerprint: str
    requirements: tuple[str, ...]
    stub_functions: int
    files: dict[str, tuple[str, int, int, int]]
    links: dict[str, str]


def write_receipt(folder: Path, *, fingerprint: str, requirements: tuple[str, ...], stub_functions: int) -> None:
    """Hash every file of a folder and write down what it holds."""
    files, links = {}, {}
    for path in _paths(folder):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            links[name] = str(path.readlink())
        elif name != RECEIPT:
            status = path.stat()
            sha256 = "" if path.is_dir() else sha256_file(path)
            files[name] = (sha256, status.st_size, status.st_mtime_ns, status.st_ino)
    document = {
        "schema": SCHEMA,
        "fingerprint": fingerprint,
        "requirements": list(requirements),
        "stub-functions": stub_functions,
        "files": files,
        "links": links,
    }
    write_text(folder / RECEIPT, json.dumps(document, indent=0) + "\n")


def read_receipt(folder: Path) -> ToolkitReceipt | None:
    """Return the receipt of a folder; None where there is none that can be read."""
    try:
        document: Any = json.loads((folder / RECEIPT).read_bytes())
        if document["schema"] != SCHEMA:
            return None
        return ToolkitReceipt(
            fingerprint=str(document["fingerprint"]),
            requirements=tuple(map(str, document["requirements"])),
            stub_functions=int(document["stub-functions"]),
            files={
                str(name): (str(one[0]), int(one[1]), int(one[2]), int(one[3]))
                for name, one in document["files"].items()
            },
            links={str(name): str(target) for name, target in document["links"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def changed(folder: Path, receipt: ToolkitReceipt) -> tuple[str, ...]:
    """Return the files, folders and links of a toolkit that are missing or other ones, by size, time and inode."""
    different = [name for name, target in receipt.links.items() if _target(folder / name) != target]
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return (*different, *receipt.files)
    try:
        seen = row(descriptor, list(receipt.files))
        if seen and seen.tolist() == [number for file in receipt.files.values() for number in file[1:]]:
            return tuple(different)
        for name, file in receipt.files.items():
            one = row(descriptor, [name])
            if one is None or tuple(one) != file[1:]:
                different.append(name)
    finally:
        os.close(descriptor)
    return tuple(different)


def other_bytes(folder: Path, receipt: ToolkitReceipt) -> tuple[str, ...]:
    """Return the files and links of a toolkit that are missing or other ones, every file hashed."""
    different = [name for name, target in receipt.links.items() if _target(folder / name) != target]
    for name, (sha256, *_) in receipt.files.items():
        path = folder / name
        try:
            same = sha256_file(path) == sha256 if sha256 else path.is_dir()
        except OSError:
            same = False
        if not same:
            different.append(name)
    return tuple(different)


def _target(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


def _paths(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        yield from (Path(parent, name) for name in sorted([*names, *folders]))
