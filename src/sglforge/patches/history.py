"""What git knows about a tree: whether a file was changed, and the commit that took something away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.base import git, proc

_TIMEOUT_S = 10.0
_FORMAT = "%h of %cs, %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The git work tree that a source tree is, or lies in; every question has a time limit, and may have no answer.

    Files are named as the source tree names them.
    """

    folder: Path

    def is_changed(self, file: str) -> bool:
        """Tell whether a file has another content than the last commit gives it."""
        lines = _ask(self.folder, "status", "--porcelain", "--", file).splitlines()
        return any(not line.startswith("??") for line in lines)

    def removal(self, pattern: str, files: Sequence[str]) -> str:
        """Return the last commit that changed how often a regular expression (POSIX) is in some files, or ""."""
        return self._log("--pickaxe-regex", f"-S{pattern}", "--", *files)

    def departure(self, files: Sequence[str]) -> str:
        """Return the last commit that deleted or moved one of some files, or ""."""
        return self._log("--diff-filter=D", "--no-renames", "--", *files)

    def rewrite(self, file: str, first: int, last: int) -> str:
        """Return the last commit that changed some lines of a file, or ""."""
        return self._log("-s", f"-L{first},{last}:{file}")

    def _log(self, *words: str) -> str:
        return _ask(self.folder, "log", "-1", f"--format={_FORMAT}", *words).partition("\n")[0]


def history_of(folder: Path) -> History | None:
    """Return the history of a folder that is, or lies in, a git work tree with a commit."""
    if not any((parent / ".git").exists() for parent in (folder.resolve(), *folder.resolve().parents)):
        return None
    return History(folder=folder) if _ask(folder, "rev-parse", "--verify", "HEAD") else None


def _ask(folder: Path, *words: str) -> str:
    """Return what git says; nothing when it fails, takes too long or is not there."""
    # protocol.allow: a clone without all blobs would otherwise fetch them to answer
    argv = ["git", "-c", "protocol.allow=never", "-c", "core.quotePath=false", "--no-pager", *words]
    try:
        done = proc.run(argv, cwd=folder, env=git.own_environment(), timeout_s=_TIMEOUT_S, check=False)
    except proc.ProcessError:
        return ""
    return "" if done.returncode else done.stdout.strip("\n")
