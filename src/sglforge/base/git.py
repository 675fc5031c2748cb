"""Environments for git: only the repository that is meant, and no more of the user's configuration than is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

NO_PROTOCOL = "none"
"""A value of ``GIT_ALLOW_PROTOCOL`` that allows nothing."""
_PROTOCOLS = "file:git:http:https:ssh"
_KEPT = (
    "GIT_ASKPASS",
    "GIT_CONFIG",
    "GIT_EXEC_PATH",
    "GIT_HTTP_",
    "GIT_PROTOCOL",
    "GIT_PROXY_",
    "GIT_SSH",
    "GIT_SSL_",
)


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


def sealed_environment() -> Mapping[str, str]:
    """Return the environment for reading a repository: what it lacks is not brought from anywhere."""
    return {
        **own_environment(),
        "GIT_ALLOW_PROTOCOL": NO_PROTOCOL,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }


def network_environment(*, offline: bool) -> Mapping[str, str]:
    """Return the environment for git that asks other repositories: the user's configuration, and no prompts.

    ``offline`` leaves repositories on this machine, also those that the user's configuration puts in the place of
    others (``insteadOf``). An object that is not there is not asked for one by one: at an origin whose history is cut
    off, each such question would start the next, process in process, without an end.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
    kept.pop("SSH_ASKPASS", None)  # a window is a prompt too
    allowed = "file" if offline else os.environ.get("GIT_ALLOW_PROTOCOL", _PROTOCOLS)
    return kept | {
        "GIT_ALLOW_PROTOCOL": allowed,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


def plain_environment(folder: Path) -> Mapping[str, str]:
    """Return the environment for git in a folder that is no repository, even where a folder above it is one.

    Without it `git apply` in an ignored folder of a repository succeeds and changes nothing.
    """
    return {**own_environment(), "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
