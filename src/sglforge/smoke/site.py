"""Where a server of ours runs, for probes that look at it from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sglforge.launch.render import ServingEnvironment
from sglforge.smoke.client import Answer, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running server as its machine sees it.

    Attributes:
        members: Returns the ids of its processes.
        environment: What it is installed in.
        variables: The environment variables that its script sets.
        argv: Its command line.
        ask: Sends it a request.
    """

    members: Callable[[], Sequence[int]]
    environment: ServingEnvironment
    variables: Mapping[str, str]
    argv: tuple[str, ...]
    ask: Callable[[Request], Answer]
