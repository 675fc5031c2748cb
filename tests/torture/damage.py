"""Damage to a workspace at rest: bytes, sizes, files, folders, times, and the things of dead runs."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torture.scenario import Scenario

HEX = "[0-9a-f]" * 64


def damage(scenario: Scenario, workspace: Path, *, lock: Path, aside: Path, lock_names: Sequence[str]) -> str:
    """Do the damage of a scenario and return what was done, in words.

    ``lock`` is the stack's lock, ``aside`` takes what is moved out, ``lock_names`` are those of locks that runs take.
    """
    chance = random.Random(f"{scenario.seed}:damage")
    match scenario.fault:
        case "flip" | "truncate" | "delete":
            path = chance.choice(sorted(_files(scenario.phase, workspace, lock)))
            return _file(path, scenario.fault, chance)
        case "link":
            folder = _folder(scenario.phase, workspace, chance)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, aside)
            folder.symlink_to(aside)
            return f"{folder} is a link to where it was moved"
        case "touch":
            return _touch(_folder(scenario.phase, workspace, chance), scenario.shift_s)
        case "dead-holder":
            return _dead_holder(workspace / "locks", lock_names, chance)
        case _:
            return _litter(scenario.phase, workspace, chance)


def _files(phase: str, workspace: Path, lock: Path) -> Iterator[Path]:
    """Yield the files that a phase has left and somebody relies on."""
    match phase:
        case "fetch":
            yield from (path for path in (workspace / "sources").glob(f"{HEX}/*") if path.is_file())
        case "mirror":
            yield from (path for path in (workspace / "sources" / "git").rglob("*") if path.is_file())
        case "store" | "history":
            yield from (path for path in (workspace / phase).rglob("*") if path.is_file())
        case "receipt":
            yield from workspace.glob("environments/*/receipt.json")
        case "lock-file":
            yield lock
        case _:
            for receipt in workspace.glob("environments/mini.cpu/receipt.json"):
                document = json.loads(receipt.read_text())
                site = receipt.resolve().parent / document["site_packages"]
                yield from (path for path in site.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _file(path: Path, fault: str, chance: random.Random) -> str:
    size = path.stat().st_size
    if fault == "delete" or not size:
        path.unlink()
        return f"{path} is gone"
    if fault == "truncate":
        left = chance.randrange(size)
        os.truncate(path, left)
        return f"{path} ends after {left} of {size} bytes"
    place, bit = chance.randrange(size), 1 << chance.randrange(8)
    with path.open("r+b") as stream:  # in place, as a disk does it: size and inode stay
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ bit]))
    return f"{path} has another bit in byte {place}"


def _folder(phase: str, workspace: Path, chance: random.Random) -> Path:
    name = {"fetch": "sources", "mirror": "sources/git", "environment": "environments"}.get(phase, phase)
    folder = workspace / name
    inner = sorted(path for path in folder.glob("*") if path.is_dir() and not path.is_symlink())
    return chance.choice([folder, *inner]) if inner else folder


def _touch(folder: Path, shift_s: float) -> str:
    when = time.time() + shift_s
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (when, when))
    return f"{folder}: all times moved by {shift_s:.0f} s"


def _dead_holder(locks: Path, names: Sequence[str], chance: random.Random) -> str:
    """Leave locks and holders of a process that is gone, or whose number another one has now."""
    pid = chance.choice((os.getpid(), 1, 2**22 - 1))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    document = {
        "pid": pid, "started": 12345, "boot": boot, "host": socket.gethostname(), "words": ["build"], "since": 0.0,
    }  # fmt: skip
    holder = chance.choice((f"{pid}\n", "", "{", json.dumps(document)))
    locks.mkdir(parents=True, exist_ok=True)
    for name in names:
        (locks / f"{name}.lock").touch()
        (locks / f"{name}.holder").write_text(holder)
    return f"{len(names)} locks name process {pid} as holder: {holder!r}"


def _litter(phase: str, workspace: Path, chance: random.Random) -> str:
    """Leave what killed runs leave: drafts, parts, working folders without an owner."""
    if phase == "collect":
        phase = chance.choice(("fetch", "mirror", "store", "environment", "scratch", "record"))
    tag = f"{chance.randrange(1000, 4_000_000)}-{chance.randbytes(4).hex()}"
    name, folder = {
        "fetch": (f"{'1' * 64}/.x-1.0.tar.gz.part", workspace / "sources"),
        "mirror": (f".{'4' * 64}.git.{tag}.tmp/HEAD", workspace / "sources" / "git"),
        "store": (f"objects/{'2' * 64}/.toy.whl.{tag}.tmp", workspace / "store"),
        "environment": (f"{'3' * 64}/venv/pyvenv.cfg", workspace / "environments"),
        "scratch": (f"toy-wheel-{tag}.work/source/x.py", workspace / "scratch"),
        "record": (f".latest.{tag}.tmp", workspace / "runs"),
    }[phase]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(chance.randbytes(chance.randrange(100)))
    return f"{path} was left by a killed run"
