"""Calls of git that see the files they are given and no repository or configuration around them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def plain_environment(folder: Path) -> Mapping[str, str]:
    """Return the environment for git in a folder that is no repository, even where a folder above it is one.

    Without it `git apply` in an ignored folder of a repository succeeds and changes nothing.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
