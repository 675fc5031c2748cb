"""Libraries with GPU code in them, made with gcc and a few bytes: no CUDA is needed to have the containers."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglforge.base import proc

_KINDS = {"ptx": 1, "sass": 2, "lto": 8}
_SUFFIX = {"": 0, "a": 0x100000, "f": 0x200000}


def entry(name: str, *, kind: str = "sass", flags: int = 0x11, body: bytes = b"\0" * 16) -> bytes:
    """Return an entry of a container: `120f`, as machine code or PTX."""
    number, suffix = int(name.rstrip("af")), name[len(name.rstrip("af")) :]
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", _KINDS[kind], 0x101, 64, len(body), 0, 0, 8, 1, number, 0, 0, flags | _SUFFIX[suffix], 0, 0
    )
    return head + body


def container(*entries: str | bytes) -> bytes:
    """Return a container with entries; a name stands for machine code, `ptx:90` for PTX."""
    made = [
        one if isinstance(one, bytes) else entry(one.removeprefix("ptx:"), kind="ptx" if "ptx" in one else "sass")
        for one in entries
    ]
    body = b"".join(made)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(
    path: Path,
    *containers: bytes,
    registered: int | None = None,
    body: str = "int one(void) { return 1; }",
    options: Sequence[str | Path] = (),
    language: str = "c",
) -> Path:
    """Build a shared object that holds containers of GPU code; ``options`` go to gcc, behind the source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blob, source = (
        path.with_name(f"{path.name}.bin"),
        path.with_name(f"{path.name}.{'cc' if language == 'c++' else 'c'}"),
    )
    blob.write_bytes(b"".join(containers))
    count = len(containers) if registered is None else registered
    sections = (
        f'__asm__(".section .nv_fatbin,\\"a\\",@progbits\\n.balign 8\\n.incbin \\"{blob}\\"\\n"\n'
        f'        ".section .nvFatBinSegment,\\"aw\\",@progbits\\n.balign 8\\n.zero {24 * count}\\n.text\\n");\n'
    )
    source.write_text((sections if containers else "") + body)
    proc.run(["gcc", "-shared", "-fPIC", "-o", path, source, *options], timeout_s=30)
    blob.unlink()
    source.unlink()
    return path


def cubin(number: int, *, options: str | None = None) -> bytes:
    """Return a cubin without code: a header, and the note with ptxas's options where they are given."""
    names = b"\0.shstrtab\0.note.nv.tkinfo\0"
    note = struct.pack("<III", 12, len(options or ""), 2000) + b"NVIDIA Corp\0" + (options or "").encode() + b"\0"
    sections = [(1, 3, 64, len(names))] + ([(11, 7, 64 + len(names), len(note))] if options is not None else [])
    table_at = 64 + len(names) + len(note)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7), 2, 190, 1, 0, 0, table_at, number << 8 | 2, 64, 0, 0, 64,
        len(sections) + 1, 1,
    )  # fmt: skip
    headers = [bytes(64)] + [
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in sections
    ]
    return head + names + note + b"".join(headers)


def wheel_of(folder: Path, files: Mapping[str, bytes | Path], *, name: str = "toy_gpu-1.0-py3-none-any.whl") -> Path:
    """Pack files into a wheel whose RECORD is right."""
    stem = "-".join(name.split("-")[:2])
    tag = name.removesuffix(".whl").split("-", 2)[2]
    members = {
        **{path: one if isinstance(one, bytes) else one.read_bytes() for path, one in files.items()},
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.4\nName: {stem.split('-')[0]}\nVersion: 1.0\n".encode(),
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.writerow((path, f"sha256={digest}", len(content)))
    rows.writerow((f"{stem}.dist-info/RECORD", "", ""))
    members[f"{stem}.dist-info/RECORD"] = record.getvalue().encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / name
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in members.items():
            archive.writestr(path, content)
    return wheel
