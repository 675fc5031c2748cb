"""Environments for git: nothing of the user's configuration, and only the repository that is meant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def own_environment() -> Mapping[str, str]:
    """Return the environment for git in a repository: no user or system configuration, no other work tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def plain_environment(folder: Path) -> Mapping[str, str]:
    """Return the environment for git in a folder that is no repository, even where a folder above it is one.

    Without it `git apply` in an ignored folder of a repository succeeds and changes nothing.
    """
    return {**own_environment(), "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
