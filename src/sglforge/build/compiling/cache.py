"""ccache as our launcher calls it, and what its own log says became of each unit.

Facts from ccache's manual and from trying 4.7.5 with nvcc 13.0: it gives false hits on nvcc (host code under
``#ifndef __CUDA_ARCH__``) unless it goes by the compiler's own list of dependencies (depend mode). What it needs to
know of the compilers beyond that comes from `compilers`, of headers that appear from `includes`.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.base.proc import ProcessError, Runner
from sglforge.errors import ConfigError

SWITCH = "SGLFORGE_CCACHE"
SIZE = "SGLFORGE_CCACHE_SIZE"
DEFAULT_SIZE = "10G"
_SIZE = re.compile(r"\d{1,12}(?:\.\d{1,6})?(?:[kKMGT]i?)?B?")
OLDEST = (4, 7)
ASK_TIMEOUT_S = 20.0

HITS = frozenset({"direct_cache_hit", "preprocessed_cache_hit"})
ERRORS = frozenset({"remote_storage_error", "remote_storage_timeout", "internal_error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ccache:
    """A ccache that can be used: the program and its version."""

    program: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What became of the units of one build, by ccache's own log; ``sources`` are the source files that hit.

    ``remote_hits`` of the hits came from storage that others share. ``other`` counts everything that is neither a hit
    nor a miss, by ccache's names: why a call was not cached, errors of the storage.
    """

    hits: int = 0
    misses: int = 0
    remote_hits: int = 0
    other: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


def find(environment: Mapping[str, str], run: Runner) -> tuple[Ccache | None, str]:
    """Return the ccache on PATH, or None and why none is used."""
    if environment.get(SWITCH, "").lower() in {"off", "no", "0"}:
        return None, f"switched off by {SWITCH}"
    if not (path := shutil.which("ccache", path=environment.get("PATH"))):
        return None, "there is no ccache on PATH"
    try:
        said = run([path, "--version"], timeout_s=ASK_TIMEOUT_S).stdout
    except ProcessError as error:
        return None, f"{path} does not run: {error.message}"
    if not (found := re.search(r"version ((\d+)\.(\d+)\S*)", said)):
        return None, f"{path} does not say its version"
    if (int(found[2]), int(found[3])) < OLDEST:
        return None, f"ccache {found[1]} is older than {'.'.join(map(str, OLDEST))}"
    return Ccache(program=Path(path), version=found[1]), ""


def limit(environment: Mapping[str, str]) -> str:
    """Return the most that a package's objects may take, as ccache writes it.

    Raises ConfigError ``compile-cache-invalid``.
    """
    size = environment.get(SIZE, "").strip() or DEFAULT_SIZE
    if _SIZE.fullmatch(size):
        return size
    raise ConfigError(
        code="compile-cache-invalid",
        message=f"{SIZE} is no size: {size}",
        hint=f"a number with k, M, G or T after it, as {DEFAULT_SIZE}",
    )


def settings(folder: Path, *, identity: str, log: Path, size: str = DEFAULT_SIZE, remote: str = "") -> dict[str, str]:
    """Return ccache's environment: nothing of a person's own configuration counts.

    Args:
        folder: Where its objects lie.
        identity: What the compilers are.
        log: Gets what becomes of each unit.
        size: The most that the folder may hold, as ccache writes it.
        remote: Storage that others share, as ccache writes it; empty for none.
    """
    return {
        "CCACHE_DIR": str(folder),
        "CCACHE_TEMPDIR": str(folder / "tmp"),
        "CCACHE_CONFIGPATH": "/dev/null",
        "CCACHE_CONFIGPATH2": "/dev/null",
        "CCACHE_MAXSIZE": size,
        "CCACHE_DEPEND": "1",
        "CCACHE_COMPILERCHECK": f"string:{identity}",
        "CCACHE_STATSLOG": str(log),
        "CCACHE_NOINODECACHE": "1",
        **({"CCACHE_REMOTE_STORAGE": remote} if remote else {}),
    }


def statistics(text: str) -> Statistics:
    """Return what ccache's log of one build says: a line with the source file of each call, then a name a line."""
    hits, misses, remote, other, sources = 0, 0, 0, Counter[str](), []
    for block in re.split(r"(?m)^# ", text)[1:]:
        source, *names = block.splitlines()
        hit = bool(HITS & set(names))
        hits += hit
        sources += [source] if hit else []
        misses += "cache_miss" in names
        remote += hit and "remote_storage_hit" in names and "local_storage_hit" not in names
        if not hit and "cache_miss" not in names:
            other.update(name for name in names if not _is_detail(name))
        else:
            other.update(ERRORS & set(names))
    return Statistics(hits=hits, misses=misses, remote_hits=remote, other=dict(other), sources=tuple(sources))


def _is_detail(name: str) -> bool:
    return name.startswith(("local_storage_", "remote_storage_read", "remote_storage_write", "direct_cache_miss")) or (
        name in {"remote_storage_hit", "remote_storage_miss", "preprocessed_cache_miss", "cleanups_performed"}
    )
