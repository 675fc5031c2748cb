"""What the stages after this one know about a source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sglforge.base.ids import Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArchive:
    """A fetched archive of a package, as a file, verified against ``sha256``."""

    package: str
    path: Path
    sha256: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A file that some location offers; ``sha256`` is what the location says, None when it says nothing."""

    name: str
    url: str
    sha256: Sha256 | None
