"""What an environment says about itself: written last, so that an environment without one does not count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sglforge.base import files
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.errors import InstallError

SCHEMA = 2
RECEIPT = "receipt.json"
VENV = "venv"
PYTHON_CONFIG = "pyvenv.cfg"

TorchOrigin = Literal["local-file", "download", "kept-archive", "uv-torch-backend"]


class BuiltFile(NamedTuple):
    """One installed file of a wheel that we built; what comes after the hash is cheap to compare."""

    sha256: str
    size: int
    mtime_ns: int
    inode: int


class RecordFile(NamedTuple):
    """The RECORD of an installed distribution, which lists its files with their hashes.

    ``stamps`` is the digest of size, time and inode of the listed files; what comes after it is the RECORD's own.
    """

    version: str
    sha256: str
    stamps: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonReceipt:
    """The interpreter of the environment.

    ``base`` is the Python that the venv was made from, ``config_sha256`` the hash of the venv's ``pyvenv.cfg``.
    """

    minor: str
    version: str
    base: str
    config_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchReceipt:
    """The torch that was installed; ``proven`` means that its hash is in the lock."""

    version: str
    variant: str
    sha256: str | None
    origin: TorchOrigin
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementReceipt:
    """A locked distribution; the hash is that of the file that was taken, where it can be told."""

    name: str
    version: str
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltReceipt:
    """A wheel that we built, with its files by their path below site-packages."""

    name: str
    version: str
    build_key: str
    wheel: str
    wheel_sha256: str
    files: Mapping[str, BuiltFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRequirement:
    """A requirement that ``by`` declares and that is not held: not installed, or relaxed for a reason."""

    by: str
    requirement: str
    installed: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """``receipt.json``: what was installed, from which build keys, with the hash of every file that we built.

    ``site_packages`` is relative to the environment. ``records`` has every distribution by its dist-info
    folder; ``loose`` names the files that no distribution owns.
    """

    environment_key: BuildKey
    name: str
    created: str
    engine: str
    site_packages: str
    python: PythonReceipt
    torch: TorchReceipt
    requirements: tuple[RequirementReceipt, ...]
    built: tuple[BuiltReceipt, ...]
    omitted: tuple[DeclaredRequirement, ...]
    relaxed: tuple[DeclaredRequirement, ...]
    records: Mapping[str, RecordFile]
    loose: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An installed environment: its folder, its name, its receipt and the receipt's hash."""

    path: Path
    name: str
    receipt: Receipt
    receipt_sha256: Sha256

    @property
    def python(self) -> Path:
        """The environment's own interpreter."""
        return self.path / VENV / "bin" / "python"

    @property
    def python_config(self) -> Path:
        """What tells that interpreter which Python it belongs to."""
        return self.path / VENV / PYTHON_CONFIG

    @property
    def site_packages(self) -> Path:
        """Where its distributions are."""
        return self.path / self.receipt.site_packages

    def to_json(self) -> dict[str, object]:
        """Return what documents say of it."""
        return {
            "name": self.name,
            "path": str(self.path),
            "python": str(self.python),
            "receipt_sha256": self.receipt_sha256,
        }

    @property
    def sglang_version(self) -> str | None:
        """The version of the SGLang that was built into it, as upstream counts; None when there is none."""
        versions = [built.version for built in self.receipt.built if built.name == "sglang"]
        return versions[0].partition("+")[0] if versions else None


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """Write the receipt of an environment; from here on it counts."""
    files.write_text(folder / RECEIPT, _readable({"schema": SCHEMA, **asdict(receipt)}) + "\n")


def read_environment(folder: Path, name: str) -> Environment | None:
    """Read the environment in a folder; None when it has no receipt.

    Raises InstallError ``receipt-unreadable``.
    """
    path = folder / RECEIPT
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        receipt = _parse(json.loads(data))
    except (ValueError, KeyError, TypeError) as error:
        raise InstallError(
            code="receipt-unreadable",
            message=f"the receipt of environment {name} cannot be read: {error}",
            where=str(path),
            hint="nox -s install makes the environment again",
        ) from error
    return Environment(path=folder, name=name, receipt=receipt, receipt_sha256=Sha256(hashlib.sha256(data).hexdigest()))


def find_environment(workspace: Workspace, name: str) -> Environment | None:
    """Return the environment that a name points at, None when there is none or it is not finished.

    Raises InstallError ``receipt-unreadable``.
    """
    return read_environment((workspace.environments / name).resolve(), name)


def _parse(document: dict[str, Any]) -> Receipt:
    fields = dict(document)
    if fields.pop("schema") != SCHEMA:
        raise ValueError("another version of sglforge wrote it")
    fields["python"] = PythonReceipt(**fields["python"])
    fields["torch"] = TorchReceipt(**fields["torch"])
    fields["requirements"] = tuple(RequirementReceipt(**entry) for entry in fields["requirements"])
    fields["built"] = tuple(_parse_built(entry) for entry in fields["built"])
    fields["omitted"] = tuple(DeclaredRequirement(**entry) for entry in fields["omitted"])
    fields["relaxed"] = tuple(DeclaredRequirement(**entry) for entry in fields["relaxed"])
    fields["records"] = {name: RecordFile._make(row) for name, row in fields["records"].items()}
    fields["loose"] = tuple(fields["loose"])
    return Receipt(**fields)


def _parse_built(entry: dict[str, Any]) -> BuiltReceipt:
    return BuiltReceipt(**{**entry, "files": {path: BuiltFile._make(row) for path, row in entry["files"].items()}})


def _readable(value: object, margin: str = "") -> str:
    """Return JSON with one line per file: tables are broken into lines, rows are not."""
    inner = margin + " "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{json.dumps(key)}: {_readable(entry, inner)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    if isinstance(value, tuple) and not isinstance(value, (BuiltFile, RecordFile)) and value:
        return "[\n" + ",\n".join(inner + _readable(entry, inner) for entry in value) + f"\n{margin}]"
    return json.dumps(value, ensure_ascii=False)
