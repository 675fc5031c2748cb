"""Git repositories that tests make: real ones, with commits, tags and submodules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {"NAME": "Tester", "EMAIL": "tester@example.org", "DATE": "2026-01-01T00:00:00Z"}.items()
}


def git(*words: str | Path, cwd: Path, check: bool = True, env: Mapping[str, str] | None = None) -> str:
    """Run git with nothing of this machine's configuration, and return what it says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *map(str, words)],
        cwd=cwd, env={**kept, **WHO, **alone, **(env or {})}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository with a work tree on the branch ``main``."""

    path: Path

    @property
    def url(self) -> str:
        return self.path.as_uri()

    def git(self, *words: str | Path, check: bool = True) -> str:
        return git(*words, cwd=self.path, check=check)

    def commit(self, files: Mapping[str, str | bytes | None] | None = None, message: str = "a change") -> str:
        """Write files (None removes one), commit everything and return the commit."""
        for name, content in (files or {}).items():
            path = self.path / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def id_of(self, commit: str, path: str) -> str:
        """Return git's own answer about a path of a commit."""
        return self.git("rev-parse", f"{commit}:{path}" if path != "." else f"{commit}^{{tree}}")


def make_repository(path: Path, *, blobless: bool = True) -> Repository:
    """Make an empty repository; ``blobless``: it leaves out blobs for those who ask for that."""
    path.mkdir(parents=True)
    repository = Repository(path=path)
    repository.git("init", "--quiet", "--initial-branch=main", "--template=")
    (path / ".git/info").mkdir()
    (path / ".git/info/attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
    if blobless:
        repository.git("config", "uploadpack.allowFilter", "true")
        repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    return repository
