"""The distributions of a site-packages folder, as their dist-info folders state them."""

from __future__ import annotations

import base64
import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from sglforge.base.files import sha256_file
from sglforge.provision.receipt import RecordFile
from sglforge.provision.stamps import BYTE_CODE, recorded_paths, stamp

DIST_INFO = ".dist-info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """One installed distribution.

    ``files`` maps each path of its RECORD (normalised, relative to site-packages) to its sha256 in
    hexadecimal digits, or None where RECORD gives none (RECORD itself).
    """

    name: str
    version: str
    info: Path
    files: Mapping[str, str | None]

    @property
    def record(self) -> RecordFile:
        """Return the identity of its RECORD and of the files that it lists."""
        path = self.info / "RECORD"
        status = path.stat()
        return RecordFile(
            version=self.version,
            sha256=sha256_file(path),
            stamps=stamp(self.info.parent, recorded_paths(path)).digest,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            inode=status.st_ino,
        )

    @property
    def requires(self) -> tuple[str, ...]:
        """Return its Requires-Dist lines; without METADATA, none."""
        from email.parser import HeaderParser

        try:
            text = (self.info / "METADATA").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ()
        metadata = HeaderParser().parsestr(text)
        return tuple(metadata.get_all("Requires-Dist", []))

    @property
    def wheel_tags(self) -> frozenset[str]:
        """Return the tags of the wheel that it came from."""
        lines = (self.info / "WHEEL").read_text(encoding="utf-8").splitlines()
        return frozenset(line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:"))


def read_distributions(site_packages: Path) -> dict[str, Distribution]:
    """Return the installed distributions by normalised name."""
    found: dict[str, Distribution] = {}
    for info in sorted(site_packages.glob(f"*{DIST_INFO}")):
        name, _, version = info.name.removesuffix(DIST_INFO).rpartition("-")
        normalised = canonicalize_name(name)
        found[normalised] = Distribution(
            name=normalised, version=version, info=info, files=read_record(info / "RECORD")
        )
    return found


def read_record(path: Path) -> dict[str, str | None]:
    """Read a RECORD file; a missing one is empty."""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as stream:
            return parse_record(stream)
    except FileNotFoundError:
        return {}


def parse_record(lines: Iterable[str]) -> dict[str, str | None]:
    """Return the normalised paths of a RECORD with their sha256 (hexadecimal), None where there is none."""
    return {os.path.normpath(row[0]): _hexadecimal(row[1]) for row in csv.reader(lines) if len(row) > 1}


def owned_twice(distributions: Iterable[Distribution]) -> dict[str, tuple[str, ...]]:
    """Return the files that more than one distribution claims, with their owners."""
    owners: dict[str, list[str]] = {}
    for distribution in distributions:
        for path in distribution.files:
            owners.setdefault(path, []).append(distribution.name)
    return {path: tuple(names) for path, names in owners.items() if len(names) > 1}


def loose_files(site_packages: Path, distributions: Iterable[Distribution]) -> tuple[str, ...]:
    """Return the files below site-packages that no distribution claims, compiled ones left out."""
    owned = {path for distribution in distributions for path in distribution.files}
    loose = []
    for folder, subfolders, names in os.walk(site_packages):
        subfolders[:] = [name for name in subfolders if name != BYTE_CODE]
        relative = os.path.relpath(folder, site_packages)
        prefix = "" if relative == "." else f"{relative}/"
        loose += [prefix + name for name in names if prefix + name not in owned]
    return tuple(sorted(loose))


def _hexadecimal(field: str) -> str | None:
    algorithm, _, encoded = field.partition("=")
    if algorithm != "sha256":
        return None
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
    except ValueError:
        return encoded  # no file has such a hash
