"""Start a build step in its sandbox, and learn what it was kept from and what it took."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Literal, TypedDict

from sglforge.base.proc import Completed, ProcessError, Runner, failed, missing
from sglforge.base.proc import run as run_process
from sglforge.base.sandbox.namespaces import PLACE

LAUNCHER = Path(__file__).with_name("launcher.py")

Network = Literal["none", "no-tcp", "unchecked"]
Writes = Literal["own-folder", "unchecked"]
Processes = Literal["contained", "ended", "unchecked"]
Place = Literal["fixed", "real"]
_NETWORK: tuple[Network, ...] = ("none", "no-tcp", "unchecked")
_WRITES: tuple[Writes, ...] = ("own-folder", "unchecked")
_PROCESSES: tuple[Processes, ...] = ("contained", "ended", "unchecked")
_PLACES: tuple[Place, ...] = ("fixed", "real")
PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What a step was kept from, in words that promise no more than the kernel held.

    ``network``: ``none`` (a network namespace: no way out), ``no-tcp`` (Landlock refuses TCP; UDP is not checked),
    ``unchecked``. ``writes``: ``own-folder`` or ``unchecked``. ``processes``: ``contained`` (a pid namespace: nothing
    outlives the step, however it ends), ``ended`` (what the step leaves is ended with it; what left its process group
    survives a kill of sglforge itself), ``unchecked`` (the step was killed before it could say).
    ``place``: ``fixed`` (its folders were at the same path as those of every other step), ``real`` (where they lie).
    ``why`` has the reason for whatever could not be had.
    """

    network: Network = "unchecked"
    writes: Writes = "unchecked"
    processes: Processes = "unchecked"
    place: Place = "real"
    why: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything could be had."""
        held = (self.network, self.writes, self.processes, self.place)
        return held == ("none", "own-folder", "contained", "fixed")

    def to_json(self) -> dict[str, object]:
        """Return the form that provenance, events and documents have."""
        return {
            "network": self.network,
            "writes": self.writes,
            "processes": self.processes,
            "place": self.place,
            "why": list(self.why),
        }

    @classmethod
    def from_words(cls, words: Mapping[str, object]) -> Isolation:
        """Return what words of :meth:`to_json` say; a word that is not known promises nothing."""
        why = words.get("why")
        return cls(
            network=next((word for word in _NETWORK if word == words.get("network")), "unchecked"),
            writes=next((word for word in _WRITES if word == words.get("writes")), "unchecked"),
            processes=next((word for word in _PROCESSES if word == words.get("processes")), "unchecked"),
            place=next((word for word in _PLACES if word == words.get("place")), "real"),
            why=tuple(map(str, why)) if isinstance(why, list) else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a step took: wall and CPU seconds of all its processes, peak memory of the largest one in MiB."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_mib: float = 0.0

    def __add__(self, other: Resources) -> Resources:
        """Return what two steps took, one after the other."""
        return Resources(
            seconds=round(self.seconds + other.seconds, 3),
            cpu_seconds=round(self.cpu_seconds + other.cpu_seconds, 3),
            peak_rss_mib=max(self.peak_rss_mib, other.peak_rss_mib),
        )

    def to_json(self) -> dict[str, float]:
        """Return the form that provenance and events have."""
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "peak_rss_mib": self.peak_rss_mib}

    def describe(self) -> str:
        """Return the words for a line of the console."""
        return f"{self.cpu_seconds:.1f} s of CPU, {self.peak_rss_mib:.0f} MiB"

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float]) -> Resources:
        """Return what numbers of :meth:`to_json` say."""
        return cls(**{name: float(numbers.get(name, 0.0)) for name in ("seconds", "cpu_seconds", "peak_rss_mib")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is known of a step that has ended."""

    isolation: Isolation = field(default_factory=Isolation)
    resources: Resources = field(default_factory=Resources)


@dataclass(slots=True, kw_only=True)
class Sandbox:
    """Runs the steps of one build below its own folders; ``reports`` has one entry for every step that ran.

    ``fixed`` names folders that the steps see at ``PLACE/<name>``, the same path for every user and workspace; they
    may write there when the folder lies in one of ``folders``. Whatever a command, its variables and files say of
    paths goes through :meth:`seen` first: where the kernel refuses a fixed place, it leaves them as they are.
    ``user`` is the number of the user that the steps become, which needs root; None for who runs us. ``without``
    leaves parts out (``user net pid mount ipc uts read-only landlock``): tests stand in for kernels with it, and
    nothing that a person writes reaches it.
    """

    folders: tuple[Path, ...]
    fixed: Mapping[str, Path] = field(default_factory=dict)
    user: int | None = None
    run: Runner = run_process
    without: tuple[str, ...] = ()
    reports: list[Report] = field(default_factory=list)
    _refused: tuple[str, ...] | None = None

    @property
    def placed(self) -> bool:
        """Whether the steps see their folders at the fixed place; a step that does nothing is run to find out."""
        if self._refused is None:
            self._refused = self._probe() if self.fixed else ("not asked for",)
        return not self._refused

    def seen(self, path: Path) -> Path:
        """Return where the steps see a path; one outside of the ``fixed`` folders is where it is."""
        if self.placed:
            for name, folder in self.fixed.items():
                for seen, top in ((path, folder), (_real(path), _real(folder))):
                    if seen.is_relative_to(top):
                        return Path(PLACE, name, seen.relative_to(top))
        return path

    def prefix_maps(self) -> tuple[str, ...]:
        """Return the flags that let gcc and clang write the fixed place for the real one; none where it is fixed."""
        if self.placed:
            return ()
        return tuple(
            f"-ffile-prefix-map={path}={PLACE}/{name}"
            for name, folder in self.fixed.items()
            for path in dict.fromkeys((folder, folder.resolve()))
        )

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        log: Path | None = None,
        check: bool = True,
        more: Sequence[Path] = (),
    ) -> Completed:
        """Run a program to its end, as `base.proc.run` does; ``more`` are further folders that it may write to.

        ``cwd`` is the real folder; the program sees it where :meth:`seen` says.

        Raises ProcessError ``program-missing``, ``process-timeout`` and ``process-failed``.
        """
        fixed = self.fixed if self.placed else {}
        done, facts = self._launch(argv, fixed=fixed, cwd=cwd, env=env, timeout_s=timeout_s, log=log, more=more)
        if self.fixed and not fixed:
            facts["why"] = [*dict.fromkeys((*facts.get("why", ()), *(self._refused or ())))]
        self.reports.append(_report(facts))
        if errno := facts.get("not-started"):
            raise missing(str(argv[0]), os.strerror(int(errno[0])))
        if check and done.returncode:
            raise failed(done, log=log)
        return done

    def _probe(self) -> tuple[str, ...]:
        """Return why the steps cannot have their fixed place; nothing where they can."""
        try:
            facts = self._launch(("/bin/sh", "-c", ":"), fixed=self.fixed, timeout_s=PROBE_TIMEOUT_S)[1]
        except ProcessError as error:
            return (f"fixed place: {error.message}",)
        if facts.get("place") == ["fixed"]:
            return ()
        return tuple(facts.get("why", ())) or ("fixed place: nobody said why",)

    def _launch(
        self,
        argv: Sequence[str | Path],
        *,
        fixed: Mapping[str, Path],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        log: Path | None = None,
        more: Sequence[Path] = (),
    ) -> tuple[Completed, dict[str, list[str]]]:
        """Run a program, and return what its launcher wrote down too."""
        words = tuple(str(word) for word in argv)
        user = "" if self.user is None else str(self.user)
        said = os.memfd_create("report")
        try:
            launcher = (sys.executable, "-I", "-S", LAUNCHER, str(said), ",".join(self.without), user)
            places = (f"+{name}={folder}" for name, folder in fixed.items())
            done = self.run(
                [*launcher, *self.folders, *more, *places, "--", *words],
                cwd=cwd,
                env=env,
                timeout_s=timeout_s,
                log=log,
                check=False,
                pass_fds=(said,),
            )
            return replace(done, argv=words), _read(said)
        finally:
            os.close(said)


def _real(path: Path) -> Path:
    """Return a path without links and dots; the last name is as it is, for it may be a link that is meant."""
    return path.parent.resolve() / path.name


class Total(TypedDict, total=False):
    """What provenance and events say of the steps of a build; empty where none ran."""

    resources: dict[str, float]
    sandbox: dict[str, object]


def total(reports: Sequence[Report]) -> Total:
    """Return what several steps took together, and what held for every one of them."""
    if not reports:
        return {}
    took = reduce(Resources.__add__, (report.resources for report in reports))
    return {"resources": took.to_json(), "sandbox": weakest(report.isolation for report in reports).to_json()}


def weakest(found: Iterable[Isolation]) -> Isolation:
    """Return what holds for all of them; with none, nothing does."""
    all_of_them = tuple(found) or (Isolation(),)
    return Isolation(
        network=max((item.network for item in all_of_them), key=_NETWORK.index),
        writes=max((item.writes for item in all_of_them), key=_WRITES.index),
        processes=max((item.processes for item in all_of_them), key=_PROCESSES.index),
        place=max((item.place for item in all_of_them), key=_PLACES.index),
        why=tuple(dict.fromkeys(reason for item in all_of_them for reason in item.why)),
    )


def _read(descriptor: int) -> dict[str, list[str]]:
    """Return the lines of a report, ``name value``, by name."""
    facts: dict[str, list[str]] = {}
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace", closefd=False) as stream:
        for line in stream:
            name, _, value = line.rstrip("\n").partition(" ")
            facts.setdefault(name, []).append(value)
    return facts


def _report(facts: Mapping[str, Sequence[str]]) -> Report:
    return Report(
        isolation=Isolation.from_words(
            {name: values if name == "why" else values[0] for name, values in facts.items()}
        ),
        resources=Resources.from_numbers(
            {name: float(values[0]) for name, values in facts.items() if name in Resources.__slots__}
        ),
    )
