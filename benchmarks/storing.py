"""A store of 10,000 wheels: list, verify, gc, and what a plan asks of it; beside find, sha256sum and a plain walk."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, summary, timed
from benchmarks.setting import ROOT, Setting, program

from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.build.collect import DAY_S, Kept, collect
from sglforge.build.entry import Entry, dump
from sglforge.build.store import entry_path, keys, object_path

ROUNDS = 5
ENTRIES = 10_000
LARGE, LARGE_BYTES, SMALL_BYTES = 10, 32 * 1024 * 1024, 16 * 1024
ASKED = 50
WALK = """
import os, sys
print(sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(sys.argv[1]) for name in names))
"""


def measure(setting: Setting) -> dict[str, object]:
    """Measure whole verbs and their peers side by side, and the work of gc and of a plan in this process.

    Half of the wheels are old and nobody refers to them: gc says so in every round, and removes them once, in the end.
    The verb gc also plans every stack of the catalog, which takes most of its time and does not depend on the store.
    """
    with setting.folder() as folder:
        workspace = Workspace(root=folder / "workspace")
        size = fill(workspace)
        objects = workspace.store / "objects"
        cases: dict[str, Callable[[], Sample]] = {
            "sglforge store list": lambda: _verb(setting, workspace, "list"),
            "walk with os.walk and lstat": lambda: _run(setting, sys.executable, "-c", WALK, workspace.store),
            "sglforge store verify": lambda: _verb(setting, workspace, "verify"),
            "find -exec sha256sum +": lambda: _run(
                setting, "find", objects, "-type", "f", "-exec", "sha256sum", "{}", "+"
            ),
            "find | xargs -P sha256sum, on all cores": lambda: _run(
                setting, "sh", "-c", f"find '{objects}' -type f -print0 | xargs -0 -n 500 -P {os.cpu_count()} sha256sum"
            ),
            "sglforge store gc --dry-run": lambda: _verb(setting, workspace, "gc", "--dry-run"),
            "gc of the store alone, dry run": lambda: _here(lambda: _collect(workspace, dry_run=True)),
            f"{ASKED} keys asked of the store": lambda: _here(lambda: _ask(workspace)),
        }
        interleave(cases, 1)
        samples = interleave(cases, setting.rounds or ROUNDS)
        samples["gc of the store alone, removes half"] = [_here(lambda: _collect(workspace, dry_run=False))]
        if (left := len(list((workspace.store / "entries").iterdir()))) != ENTRIES // 2:
            raise BenchError(f"gc left {left} entries")
    return {
        "entries": ENTRIES,
        "bytes": size,
        "cases": {name: summary(taken) for name, taken in samples.items()},
    }


def fill(workspace: Workspace, entries: int = ENTRIES) -> int:
    """Write a store of so many wheels that nobody built, every second one old; return their bytes."""
    choose, total, now = random.Random(5), 0, time.time()
    (workspace.store / "entries").mkdir(parents=True)
    for number in range(entries):
        content = choose.randbytes(LARGE_BYTES if number < LARGE else SMALL_BYTES)
        entry = Entry(
            key=_key(number),
            name=f"toy_{number % 50}-1.{number}+cpu.t{number:08x}-py3-none-any.whl",
            size=len(content),
            sha256=Sha256(hashlib.sha256(content).hexdigest()),
            key_parts=_parts(number),
            provenance={"package": f"toy-{number % 50}", "started": "2026-11-30T12:00:00+00:00", "python": "3.11"},
        )
        path = object_path(workspace.store, entry)
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        place = entry_path(workspace.store, entry.key)
        place.write_bytes(dump(entry))
        if number % 2:
            os.utime(place, (now - 99 * DAY_S, now - 99 * DAY_S))
        total += len(content)
    return total


def _verb(setting: Setting, workspace: Workspace, *words: str) -> Sample:
    place: list[str | Path] = ["--catalog", ROOT, "--workspace", workspace.root]
    argv = [program("sglforge"), "store", *words, "--json", "--quiet", *place]
    return timed(argv, env=setting.environment)


def _run(setting: Setting, *argv: str | Path) -> Sample:
    return timed(argv, env=setting.environment)


def _here(work: Callable[[], object]) -> Sample:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return Sample(wall_s=time.perf_counter() - start, cpu_s=time.process_time() - cpu)


def _collect(workspace: Workspace, *, dry_run: bool) -> None:
    collect(workspace, Kept, keep_s=14 * DAY_S, now=time.time(), dry_run=dry_run)


def _ask(workspace: Workspace) -> None:
    """Ask for keys as a plan does: half of them are not there."""
    known = keys(workspace)
    found = [_key(number if number % 2 else ENTRIES + number) in known for number in range(ASKED)]
    if found.count(True) != ASKED // 2:
        raise BenchError("the store does not know what is in it")


def _parts(number: int) -> dict[str, object]:
    return {"source": {"tree": f"{number:040x}"}, "target": {"name": "cpu"}, "package": f"toy-{number % 50}"}


def _key(number: int) -> BuildKey:
    return BuildKey(digest(_parts(number)))
