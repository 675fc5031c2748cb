"""What decided a build that had nothing to do, and what it said: the next one need not read and plan it all again.

``remembered.json`` is believed only while everything that it rests on looks as it did: every file of the catalog that a
build reads, sglforge's own code, the Python that runs it, the variables, the machine. It proves nothing by itself: what
was built, installed and proven is looked at anew by whoever says it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import sglforge
from sglforge.base.files import digest, write_text
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.looks import Look, look
from sglforge.base.workspace import Workspace
from sglforge.errors import Finding, Severity
from sglforge.host.facts import HostFacts
from sglforge.pipeline.request import Request

SCHEMA = 1
KEPT = 8
"""How many builds are remembered: one for each catalog, stack, target and Python that asks."""
LIMIT_BYTES = 4 * 1024 * 1024
SETTLED_NS = 2_000_000_000
"""What was changed later than this before a run began is not believed: a second change may bear the same time."""
CATALOG = ("recipes", "patches", "locks", "templates", "kernels", "models")
"""The folders of a catalog; what else a stack names is among ``more``."""
IDLE_VARIABLES = frozenset(
    {
        b"_",
        b"COLUMNS",
        b"LINES",
        b"OLDPWD",
        b"PWD",
        b"SHLVL",
        b"SSH_CLIENT",
        b"SSH_CONNECTION",
        b"SSH_TTY",
        b"TERM",
        b"TMUX_PANE",
        b"XDG_SESSION_ID",
    }
)
"""The variables that decide nothing: where and on what terminal a shell is. Every other one counts."""

_HEX = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class Surroundings(NamedTuple):
    """What decides a build, but for what only its stack names: a digest, the newest change (ns), when it was seen.

    ``asked`` is a digest of what is built of which catalog, and with which Python.
    """

    asked: Sha256
    digest: Sha256
    newest_ns: int
    seen_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What a build was ``asked``, what it rested on, and what it said.

    It rested on ``surroundings``, the files in ``more`` as ``more_look`` has them, and ``facts``; it holds while at
    least ``min_disk_gib`` are free. ``because`` is why the target was chosen, ``names`` are what a run works with.
    """

    asked: str
    surroundings: str
    more: tuple[str, ...]
    more_look: str
    facts: str
    min_disk_gib: float
    stack: str
    target: str
    because: str
    findings: tuple[Finding, ...]
    plan: Mapping[str, Any]
    profile: str
    proof_key: str
    names: tuple[str, ...]

    @property
    def environment_key(self) -> BuildKey:
        """The key of the environment."""
        return BuildKey(self.plan["environment_key"])

    @property
    def environment_name(self) -> str:
        """The name of the environment."""
        return f"{self.stack}.{self.target}"

    def holds(self, around: Surroundings) -> bool:
        """Say whether catalog, sglforge, Python, variables and the request are those that it rests on."""
        if self.surroundings != around.digest:
            return False
        seen = look(map(Path, self.more))
        return seen is not None and seen.digest == self.more_look

    def holds_on(self, facts: HostFacts) -> bool:
        """Say whether the machine is the one that it rests on, with enough room on its disk."""
        return facts.disk_gib is not None and facts.disk_gib >= self.min_disk_gib and machine(facts) == self.facts


def surroundings(request: Request) -> Surroundings | None:
    """Look at what decides a build before anything of it is read.

    None for a request that is never remembered: single packages, a set of modules, a proof that is asked for, another
    Python than the one that runs, facts of a file.
    """
    if request.words("packages") or request.flag("prove") or request.python or request.facts_file:
        return None
    if request.option("modules", str):
        return None
    now_ns, folders = time.time_ns(), [Path(folder) for folder in sys.path if folder.endswith("-packages")]
    seen = look(
        [
            *(request.catalog_root / name for name in CATALOG),
            Path(sglforge.__file__).parent,
            Path(sys.executable),
            Path(getattr(sys, "_base_executable", sys.executable)),
        ]
    )
    if seen is None:
        return None
    asked = _hashed(request.catalog_root, request.stack, request.target, sys.executable)
    python = [sys.version, sys.flags, sys.path, [_listed(folder) for folder in folders]]
    variables = sorted(pair for pair in os.environb.items() if pair[0] not in IDLE_VARIABLES)
    everything = _hashed(asked, seen.digest, request.workspace.root, python, variables, os.getuid(), os.getgid())
    return Surroundings(asked, everything, seen.newest_ns, now_ns)


def machine(facts: HostFacts) -> str | None:
    """Return a digest of what is known about the machine, but for its free disk; None where it cannot be written."""
    known = {name: value for name, value in facts.to_json().items() if name != "disk_gib"}
    with suppress(ValueError):  # a variable that is no text
        return digest(known)
    return None


def remember(request: Request, memory: Remembered, before: Surroundings, more_before: Look) -> None:
    """Write down what a build with nothing to do said, unless something that it rests on is changing.

    Args:
        request: What was asked for.
        memory: What it rests on and said; its looks are those of ``before`` and ``more_before``.
        before: What decides it, as it looked before it was read.
        more_before: Likewise, for ``memory.more``.
    """
    after, more_after = surroundings(request), look(map(Path, memory.more))
    if after is None or more_after is None or more_before != more_after:
        return
    if (after.digest, after.newest_ns) != (before.digest, before.newest_ns):
        return
    if max(after.newest_ns, more_after.newest_ns) > before.seen_ns - SETTLED_NS:
        return
    others = [other for other in _read(request.workspace) if other.asked != memory.asked]
    document = {"schema": SCHEMA, "builds": [asdict(build) for build in (memory, *others[: KEPT - 1])]}
    with suppress(OSError, ValueError):  # nothing is lost
        write_text(request.workspace.remembered, json.dumps({**document, "sha256": digest(document)}) + "\n")


def recall(workspace: Workspace, around: Surroundings) -> Remembered | None:
    """Return what was written down of the last build that was asked the same; it may hold no longer."""
    return next((build for build in _read(workspace) if build.asked == around.asked), None)


def _read(workspace: Workspace) -> list[Remembered]:
    """Return what was written down; nothing of anything but a whole and unchanged document."""
    try:
        with workspace.remembered.open("rb") as stream:
            data = stream.read(LIMIT_BYTES + 1)
        document = json.loads(data) if len(data) <= LIMIT_BYTES else None
        if not isinstance(document, dict) or document.pop("sha256", None) != digest(document):
            return []
        return [_parse(build) for build in document["builds"]] if document["schema"] == SCHEMA else []
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _parse(document: dict[str, Any]) -> Remembered:
    more, names = _texts(document.pop("more")), _texts(document.pop("names"))
    findings = tuple(map(_finding, document.pop("findings")))
    memory = Remembered(**document, more=more, names=names, findings=findings)
    steps, python = memory.plan["steps"], memory.plan["python"]
    _texts([memory.because, python["minor"], python["why"]])
    _texts([step[word] for step in steps for word in ("package", "state", "why")])
    keys = (memory.proof_key, memory.environment_key, *memory.names, *(step["key"] for step in steps))
    named = (memory.stack, memory.target, memory.profile)
    if not (all(map(_HEX.fullmatch, keys)) and all(map(_NAME.fullmatch, named))):
        raise ValueError("it names what is no key, or leads out of its folder")
    return replace(memory, min_disk_gib=float(memory.min_disk_gib))


def _finding(entry: dict[str, Any]) -> Finding:
    where, detail = entry.pop("where"), _texts(entry.pop("detail"))
    _texts(entry.values())
    return Finding(
        **{**entry, "severity": Severity(entry["severity"])}, where=None if where is None else str(where), detail=detail
    )


def _texts(values: Collection[object]) -> tuple[str, ...]:
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) != len(values):
        raise TypeError("a text is expected")
    return texts


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are enough
    except OSError:
        return []


def _hashed(*values: object) -> Sha256:
    return Sha256(hashlib.sha256(repr(values).encode()).hexdigest())
