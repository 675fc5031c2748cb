"""What the stages after this one know about a source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sglforge.base.ids import Sha256
from sglforge.config.lockfile import LockedGit


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArchive:
    """A fetched archive of a package, as a file, verified against ``sha256``."""

    package: str
    path: Path
    sha256: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCommit:
    """A commit of a package whose files are all in a mirror, a bare git repository."""

    package: str
    mirror: Path
    locked: LockedGit


BroughtSource: TypeAlias = SourceArchive | SourceCommit
"""A source that is on this machine now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A file that some location offers; ``sha256`` is what the location says, None when it says nothing."""

    name: str
    url: str
    sha256: Sha256 | None
