"""Files of a commit in a folder, as git keeps them, and the same folder moved on to another commit."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from sglforge.base.treeid import Blob
from sglforge.sources.git import commands, trees
from sglforge.sources.git.mirror import Mirror

_LEFT_OUT = re.compile(r"^Ignoring path (?P<name>.*)$", re.MULTILINE)


class Worktree:
    """A folder that holds some files of a mirror; links are not followed, submodules left out.

    No filter, attribute or line-ending conversion is at work.
    """

    def __init__(self, folder: Path, *, index: Path) -> None:
        """Begin with an empty folder; ``index`` is a file beside it for git's own use."""
        self.folder = folder
        self._index = index
        self.files: dict[str, Blob] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def move(self, mirror: Mirror, entries: Mapping[str, Blob]) -> None:
        """Make the folder hold these files and no others; only what differs is written.

        Raises FetchError ``mirror-damaged`` when one of them cannot be read, ``source-path-unsafe`` for a name or a
        link that git does not write.
        """
        wanted = {name: entry for name, entry in entries.items() if entry.mode != trees.SUBMODULE}
        gone = self.files.keys() - wanted.keys()
        changed = {name: entry for name, entry in wanted.items() if self.files.get(name) != entry}
        replaced = [name for name in changed if name in self.files]
        self._remove([*gone, *replaced])
        self.files = {}  # until all is written
        if changed:
            self._write(mirror, changed)
        self.files = wanted

    def _write(self, mirror: Mirror, entries: Mapping[str, Blob]) -> None:
        more = {"GIT_INDEX_FILE": str(self._index), "GIT_WORK_TREE": str(self.folder)}
        self._index.unlink(missing_ok=True)
        lines = "".join(f"{entry.mode} {entry.id}\t{name}\0" for name, entry in entries.items())
        done = commands.attempt(mirror.path, "update-index", "-z", "--index-info", stdin=lines, more=more)
        if done.returncode:
            raise commands.damaged(mirror.path, done.stderr)
        if left_out := _LEFT_OUT.search(done.stderr):  # git calls that a success
            raise trees.unsafe(left_out["name"])
        words = ("checkout-index", "--all", "--force", f"--prefix={self.folder}/")
        commands.read(mirror.path, *words, more=more, timeout_s=commands.WRITE_TIMEOUT_S)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                for parent in path.parents:
                    if parent == self.folder:
                        break
                    parent.rmdir()
