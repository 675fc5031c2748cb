"""What lies behind a commit, and between two."""

from __future__ import annotations

from collections.abc import Sequence

from sglforge.base.workspace import Workspace
from sglforge.sources.git import commands
from sglforge.sources.git.mirror import Mirror, mirror_of


def first_parents(mirror: Mirror, commit: str, limit: int) -> Sequence[str]:
    """Return a commit and those that came before it on its branch, the newest first, at most ``limit`` of them."""
    return mirror.read("rev-list", "--first-parent", f"--max-count={limit}", commit, "--").split()


def distance(url: str, old: str, new: str, workspace: Workspace) -> int | None:
    """Return how many commits ``new`` has that ``old`` lacks; None where the mirror lacks one of them."""
    mirror = mirror_of(url, workspace)
    done = commands.attempt(mirror.path, "rev-list", "--count", f"{old}..{new}", "--")
    return None if done.returncode else int(done.stdout)
