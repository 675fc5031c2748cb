"""How much memory is free for compilers: of the machine, and of every memory control group above us. Light.

Sizes are KiB. Facts from the kernel's Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst: the page cache
counts as used in both versions and is given back when memory is needed, but for what lies in shared memory.
"""

from __future__ import annotations

MARGIN_KIB = 256 * 1024
"""Left free for everything that nobody announced: the build tool, links, the launchers."""
PRESSED = 20.0
"""Share of time (percent, of the last 10 s) in which everything waited for memory: then nothing more is started."""
UNLIMITED = 2**60
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
_V2 = ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))


class Room:
    """``free_kib``: what is free now, ``capacity_kib``: what would be if nothing ran; ``pressed``: see PRESSED."""

    __slots__ = ("capacity_kib", "free_kib", "pressed")

    def __init__(self, *, free_kib: int, capacity_kib: int, pressed: bool = False) -> None:
        self.free_kib = free_kib
        self.capacity_kib = capacity_kib
        self.pressed = pressed


def look(groups: tuple[tuple[int, str], ...], proc: str = "/proc") -> Room:
    """Return the room that there is; what cannot be read limits nothing."""
    machine = numbers(f"{proc}/meminfo")
    total = machine.get("MemTotal", UNLIMITED)
    free, capacity = machine.get("MemAvailable", total), total
    pressed = _is_pressed(f"{proc}/pressure/memory")
    for version, folder in groups:
        limit_name, usage_name, cached = _V1 if version == 1 else _V2
        limit = _number(f"{folder}/{limit_name}")
        if limit is None or limit >= UNLIMITED:
            continue
        stat = numbers(f"{folder}/memory.stat")
        used = (_number(f"{folder}/{usage_name}") or 0) - sum(stat.get(name, 0) for name in cached)
        capacity = min(capacity, limit // 1024)
        free = min(free, (limit - max(used, 0)) // 1024)
        pressed = pressed or (version == 2 and _is_pressed(f"{folder}/memory.pressure"))
    return Room(free_kib=free - MARGIN_KIB, capacity_kib=max(capacity - MARGIN_KIB, 0), pressed=pressed)


def kills(groups: tuple[tuple[int, str], ...], proc: str = "/proc") -> int:
    """Return how many processes were killed for want of memory since start-up: a number that only grows."""
    found = numbers(f"{proc}/vmstat").get("oom_kill", 0)
    for version, folder in groups:
        file = "memory.oom_control" if version == 1 else "memory.events"
        found += numbers(f"{folder}/{file}").get("oom_kill", 0)
    return found


def numbers(path: str) -> dict[str, int]:
    """Return the lines ``name number`` of a file of the kernel; none where it cannot be read."""
    found = {}
    for line in _text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _is_pressed(path: str) -> bool:
    for line in _text(path).splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "full":
            share = rest.partition("avg10=")[2].partition(" ")[0]
            return share.replace(".", "", 1).isdigit() and float(share) >= PRESSED
    return False


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
