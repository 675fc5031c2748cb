"""What a launcher is told: a file of ``name=value``, each ended by a NUL. Light: standard library only."""

from __future__ import annotations

import os


class Settings:
    """The settings of all launchers of one build.

    ``ledger``: folder of the units that run or wait, on all builds of the workspace. ``journal``: file that gets a line
    for every unit. ``peaks``: file of what units took before, see `units.measured_mib`. ``roots``: folders that
    names of units are relative to. ``patterns`` and ``default_mib``: what a unit takes that was never measured.
    ``groups``: memory control groups, ``(version, folder)``. ``proc``: where /proc is. ``jobs``: compilers at once.
    ``fifo``: the jobserver's, or empty. ``ccache``: the program, or empty; ``variables``: its environment;
    ``inner``: the script that ccache puts before the compiler.
    """

    __slots__ = (
        "ccache",
        "default_mib",
        "fifo",
        "groups",
        "inner",
        "jobs",
        "journal",
        "ledger",
        "patterns",
        "peaks",
        "proc",
        "roots",
        "variables",
    )

    def __init__(
        self,
        *,
        ledger: str,
        journal: str,
        peaks: str = "",
        roots: tuple[str, ...] = (),
        patterns: tuple[tuple[str, int], ...] = (),
        default_mib: int = 4096,
        groups: tuple[tuple[int, str], ...] = (),
        proc: str = "/proc",
        jobs: int = 1,
        fifo: str = "",
        ccache: str = "",
        inner: str = "",
        variables: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.ledger = ledger
        self.journal = journal
        self.peaks = peaks
        self.roots = roots
        self.patterns = patterns
        self.default_mib = default_mib
        self.groups = groups
        self.proc = proc
        self.jobs = jobs
        self.fifo = fifo
        self.ccache = ccache
        self.inner = inner
        self.variables = variables


_PLAIN = ("ledger", "journal", "peaks", "proc", "fifo", "ccache", "inner")
_NUMBERS = ("default_mib", "jobs")


def dump(settings: Settings) -> bytes:
    """Return the file's bytes.

    Raises ValueError for a NUL in a value.
    """
    lines = [(name, getattr(settings, name)) for name in _PLAIN]
    lines += [(name, str(getattr(settings, name))) for name in _NUMBERS]
    lines += [("root", root) for root in settings.roots]
    lines += [("pattern", f"{mib} {glob}") for glob, mib in settings.patterns]
    lines += [("group", f"{version} {folder}") for version, folder in settings.groups]
    lines += [("variable", f"{name}={value}") for name, value in settings.variables]
    if any("\0" in value for _, value in lines):
        raise ValueError("a setting with a NUL")
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in lines)


def load(path: str) -> Settings:
    """Return the settings that a file holds.

    Raises OSError and ValueError.
    """
    plain: dict[str, str] = {}
    several: dict[str, list[str]] = {"root": [], "pattern": [], "group": [], "variable": []}
    with open(path, "rb") as stream:
        for entry in stream.read().split(b"\0")[:-1]:
            name, _, value = os.fsdecode(entry).partition("=")
            if name in several:
                several[name].append(value)
            else:
                plain[name] = value
    pairs = [value.partition(" ") for value in several["pattern"]]
    groups = [value.partition(" ") for value in several["group"]]
    variables = [value.partition("=") for value in several["variable"]]
    return Settings(
        ledger=plain["ledger"],
        journal=plain["journal"],
        peaks=plain["peaks"],
        roots=tuple(several["root"]),
        patterns=tuple((glob, int(mib)) for mib, _, glob in pairs),
        default_mib=int(plain["default_mib"]),
        groups=tuple((int(version), folder) for version, _, folder in groups),
        proc=plain["proc"],
        jobs=int(plain["jobs"]),
        fifo=plain["fifo"],
        ccache=plain["ccache"],
        inner=plain["inner"],
        variables=tuple((name, value) for name, _, value in variables),
    )
