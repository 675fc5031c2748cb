"""One round: start, fault, audit, the next run, audit, comparison."""

from __future__ import annotations

import contextlib
import operator
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torture import reference as references
from torture.audit import Fault, audit
from torture.damage import damage
from torture.processes import Ended, Launcher, Running, command, leftovers, send, state, wait
from torture.reference import Reference
from torture.scenario import CHECK, COLLECT, Scenario, Words

GRACE_S = 10.0
HINTS = 2
CLEAR = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 130})
"""Exit codes of errors that have a name."""
PAUSE_S = (0.2, 1.2)
WORKS = {
    "collect": "locks/store.holder",
    "mirror": "sources/git",
    "build": "scratch/toy-*",
    "environment": "environments/*/venv",
    "resolve": "scratch/lock-*",
}
"""What shows that a phase has begun."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was done in a round, what was wrong, and whether the fault came to pass."""

    scenario: Scenario
    hit: bool = False
    problems: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lost(self) -> bool:
        return bool(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of one round."""

    folder: Path
    mark: str

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def catalog(self) -> Path:
        return self.folder / "catalog"

    @property
    def lock(self) -> Path:
        return self.catalog / "locks" / "mini.cpu.lock.toml"


def play(scenario: Scenario, reference: Reference, folder: Path) -> Report:
    """Play one round in an empty folder and return what came of it."""
    report = Report(scenario=scenario)
    place = Place(folder=folder, mark=scenario.seed)
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            _play(report, place, reference, stack)
        except Exception as error:  # noqa: BLE001 - a fault of the harness is shown with its round
            report.problems.append(f"the harness failed: {error!r}")
    report.seconds = time.monotonic() - begin
    return report


def _play(report: Report, place: Place, reference: Reference, stack: contextlib.ExitStack) -> None:
    scenario = report.scenario
    _prepare(report, place, reference, stack)
    launcher = _launcher(place, reference, "disturbed", without_override=scenario.fault == "closed-folder")
    ended = wait(_disturb(report, place, reference, launcher), deadline_s=reference.deadline_s)
    for run in ended:
        report.log.append(f"{' '.join(run.words)}{' (victim)' if run.victim else ''}: {_outcome(run)}")
        report.problems += _judge(run, report, reference)
    _undo(report, place)
    _look(report, place, final=False)
    _recover(report, place, reference)
    _look(report, place, final=True)


def _prepare(report: Report, place: Place, reference: Reference, stack: contextlib.ExitStack) -> None:
    scenario = report.scenario
    shutil.copytree(reference.catalog.root, place.catalog, symlinks=True)
    shutil.copytree(reference.cache, place.folder / "uv-cache", symlinks=True)
    if set(scenario.verbs) == {("lock",)} and (scenario.phase == "lock-file" or scenario.number % 2):
        place.lock.unlink()
    if scenario.fault == "small-disk":
        stack.enter_context(_small_disk(report, place, reference))
    begun = "built" if scenario.start == "environment" else scenario.start
    shutil.copytree(reference.state(begun), place.workspace, symlinks=True, dirs_exist_ok=True)
    if scenario.start == "environment":
        made = _launcher(place, reference, "made").call(("install",), deadline_s=reference.deadline_s)
        if made.code:
            raise RuntimeError(f"the environment to begin from cannot be made:\n{made.stderr}")
    if scenario.kind == "damage":
        report.log.append(
            damage(
                scenario,
                place.workspace,
                lock=place.lock,
                aside=place.folder / "aside",
                lock_names=reference.lock_names,
            )
        )
        report.hit = True
    if scenario.fault == "closed-folder":
        _close(report, place)


def _launcher(place: Place, reference: Reference, talk: str, *, without_override: bool = False) -> Launcher:
    return Launcher(
        cwd=place.catalog,
        environment=references.environment(
            reference.catalog, place.workspace, place.folder / "uv-cache", place.mark, reference.source
        ),
        talk=place.folder / "talk" / talk,
        facts=reference.facts,
        without_override=without_override,
    )


def _disturb(report: Report, place: Place, reference: Reference, launcher: Launcher) -> list[Running]:
    """Start the runs and do the fault to them; return when it is done."""
    scenario, chance = report.scenario, random.Random(f"{report.scenario.seed}:times")
    told = place.folder / "told.jsonl"
    plan = None
    if scenario.kind == "inside":
        paths = {"workspace": str(place.workspace), "catalog": str(place.catalog), "told": str(told)}
        plan = {**scenario.plan(), **paths}
    runs = []
    for index, verb in enumerate(scenario.verbs):
        runs.append(launcher.start(verb, plan=None if index else plan))
        # whoever comes first makes the thing alone, and the others wait: let that be the victim, mostly
        again = verb == scenario.verbs[0] and scenario.kind == "inside"
        time.sleep(chance.random() * (0.3 * reference.seconds.get(" ".join(verb), 0.0) if again else 0.1))
    if scenario.fault == "stop":
        _continue_when_stopped(runs[0], chance, reference.deadline_s)
    elif scenario.kind == "outside" and scenario.fault not in {"small-disk", "closed-folder"}:
        _until_it_works(runs, place.workspace, WORKS[scenario.phase], reference.deadline_s)
        usual_s = reference.seconds.get(" ".join(scenario.verbs[0]), 1.0)
        _from_outside(report, runs, 0.3 * scenario.part * usual_s, chance, reference.deadline_s)
    if scenario.kind == "inside":
        wait(runs[:1], deadline_s=reference.deadline_s)
        report.hit = told.is_file()
        report.log.append(told.read_text().strip() if report.hit else "the operation was not reached")
    return runs


def _continue_when_stopped(run: Running, chance: random.Random, deadline_s: float) -> None:
    """Let a run that stops itself go on after a pause."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline and run.process.poll() is None:
        if state(run.process.pid) == "T":
            time.sleep(chance.uniform(*PAUSE_S))
            run.process.send_signal(signal.SIGCONT)
            return
        time.sleep(0.01)


def _until_it_works(runs: Sequence[Running], workspace: Path, pattern: str, deadline_s: float) -> None:
    """Wait for what shows that a run has come to the phase."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline and any(run.process.poll() is None for run in runs):
        if next(workspace.glob(pattern), None):
            return
        time.sleep(0.005)


def _from_outside(
    report: Report, runs: Sequence[Running], after_s: float, chance: random.Random, deadline_s: float
) -> None:
    time.sleep(after_s)
    fault = report.scenario.fault
    if fault == "kill-child":
        _kill_child(report, runs[0], deadline_s)
        return
    pids = [pid for run in runs for pid in (run.process.pid, *run.tree()) if run.process.poll() is None]
    report.hit = bool(pids)
    report.log.append(f"{fault} after {after_s:.2f} s: {', '.join(f'{pid} {_short(pid)}' for pid in pids)}")
    if fault == "kill-all":
        for run in runs:
            if run.process.poll() is None:
                run.hurt.append(fault)
        send(pids, signal.SIGSTOP)  # all at one instant, as when the machine loses its power
        send(pids, signal.SIGKILL)
    else:
        send(pids, signal.SIGSTOP)
        time.sleep(chance.uniform(*PAUSE_S))
        send(pids, signal.SIGCONT)


_NO_CHILD = frozenset({"", "/bin/sh"})


def _kill_child(report: Report, run: Running, deadline_s: float) -> None:
    """Kill one of the run's children, as soon as there is one; the shell that guards them is none."""
    deadline = time.monotonic() + deadline_s
    while run.process.poll() is None and time.monotonic() < deadline:
        # between fork and exec a child has the command line of the run
        own = command(run.process.pid)
        commands = {pid: command(pid) for pid in run.tree()}  # once each: it may end meanwhile, and has none then
        if children := [pid for pid, words in commands.items() if words not in (own, []) and words[0] not in _NO_CHILD]:
            report.log.append(f"kill-child: {children[-1]} {_short(children[-1])}")
            run.hurt.append("kill-child")
            send(children[-1:], signal.SIGKILL)
            report.hit = True
            return
        time.sleep(0.002)


def _short(pid: int) -> str:
    return " ".join(word.rpartition("/")[2] for word in command(pid)[:5])


def _outcome(run: Ended) -> str:
    said = ", ".join(f"[{finding.get('code')}] {finding.get('message')}" for finding in run.findings)
    return f"{'HUNG, ' if run.hung else ''}exit {run.code} after {run.seconds:.1f} s{': ' + said if said else ''}"


def _judge(run: Ended, report: Report, reference: Reference) -> Iterator[str]:
    """Yield what a run did that no fault excuses."""
    scenario, name = report.scenario, f"`{' '.join(run.words)}`"
    if run.hung:
        yield f"{name} hangs:\n{run.stderr[-3000:]}"
    elif run.code == 70 or "Traceback (most recent call last)" in run.stderr:
        yield f"{name} ends in a bug ({run.code}):\n{run.stderr[-3000:]}"
    elif run.code == 0:
        yield from _wrong_wheels(run, reference)
        if run.words[0] == "verify" and scenario.kind == "damage" and scenario.fault in {"flip", "truncate", "delete"}:
            report.log.append("verify finds nothing")
    elif run.code < 0:
        wanted = {"kill": signal.SIGKILL, "kill-all": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
        if not (run.victim and wanted.get(scenario.fault) == -run.code):
            yield f"{name} was ended by signal {-run.code}:\n{run.stderr[-3000:]}"
    elif run.code not in CLEAR:
        yield f"{name} ends with {run.code}, which is no exit code of an error"
    elif run.document is None or not run.findings:
        yield f"{name} ends with {run.code} and says no finding:\n{run.stderr[-2000:]}"
    elif not (run.victim or scenario.shared):
        yield f"{name} fails, although only another run was hurt: {_outcome(run)}"
    elif scenario.fault in {"stop", "stop-all", "clock"}:
        yield f"{name} fails, although it was only {scenario.fault}: {_outcome(run)}"
    elif scenario.fault in {"int", "term"} and run.code != 130:
        yield f"{name} ends with {run.code} when it is interrupted: {_outcome(run)}"
    elif not any(finding.get("hint") for finding in run.findings):
        yield f"{name} fails without a hint: {_outcome(run)}"


def _wrong_wheels(run: Ended, reference: Reference) -> Iterator[str]:
    if run.words[0] == "build":
        for package, sha256 in references.wheels(run).items():
            if sha256 != reference.result.wheels[package]:
                yield f"`{' '.join(run.words)}` succeeds with another wheel of {package}: {sha256}"


def _undo(report: Report, place: Place) -> None:
    """Do what a user does about the cause: give the disk room, open the folder."""
    if report.scenario.fault == "small-disk":
        subprocess.run(("mount", "-o", "remount,size=256m", place.workspace), check=True)
    if report.scenario.fault == "closed-folder":
        for path in (place.workspace, *place.workspace.iterdir()):
            path.chmod(0o755)


def _look(report: Report, place: Place, *, final: bool) -> None:
    """Audit the workspace; at rest only a fault that damaged it excuses damage."""
    left = leftovers(place.mark, place.folder, grace_s=GRACE_S)
    report.problems += [f"a process is left: {text}" for text in left]
    faults = audit(place.workspace, place.catalog)
    # what the last build was made of is a remark, and of a mirror the locked tree is held to its id when it is used:
    # damaged, they wait for a run that needs them
    waiting = [place.workspace / "history", place.workspace / "sources" / "git"]
    waiting = waiting if report.scenario.kind == "damage" else []
    damaged = [it for it in faults if it.kind == "damaged" and not any(_is_in(it, folder) for folder in waiting)]
    if final or report.scenario.kind != "damage":
        when = "after the next run" if final else "after the fault"
        report.problems += [f"{when}: {fault}" for fault in damaged]
    if final:
        report.litter = [_kind_of_litter(fault, place) for fault in faults if fault.kind == "litter"]
        scratch = place.workspace / "scratch"
        report.problems += [f"after the next run: {fault}" for fault in faults if _is_in(fault, scratch)]


def _kind_of_litter(fault: Fault, place: Place) -> str:
    path = Path(fault.path)
    inside = path.relative_to(place.workspace).parts[0] if path.is_relative_to(place.workspace) else "locks of catalog"
    return f"{inside}: {fault.message}"


def _is_in(fault: Fault, folder: Path) -> bool:
    return Path(fault.path).is_relative_to(folder)


def _recover(report: Report, place: Place, reference: Reference) -> None:
    """Do what a user does next, undisturbed, and hold the result to the reference."""
    scenario = report.scenario
    launcher = _launcher(place, reference, "next")
    verbs = {verb[0] for verb in scenario.verbs}
    needs: list[Words] = []
    if "lock" in verbs or (scenario.phase == "mirror" and scenario.kind == "damage"):
        needs.append(("lock",))
    # what is damaged or collected may be of a package that nobody has asked for
    everything = scenario.kind == "damage" or "store" in verbs
    if packages := reference.catalog.packages if everything else scenario.packages:
        needs.append(("build", *packages))
    if "fetch" in verbs:
        needs.append(("fetch",))
    if verbs & {"install", "verify"}:
        needs += [("install",), ("verify",)] if "install" in verbs else [("verify",)]
    for words in needs:
        _require(words, report, place, reference, launcher)
    if not report.problems:
        report.problems += _differences(report, place, reference, environment=bool(verbs & {"install", "verify"}))
    if not report.problems and ("store" in verbs or scenario.number % 8 == 0):
        _collect(report, place, reference, launcher)


def _collect(report: Report, place: Place, reference: Reference, launcher: Launcher) -> None:
    """Let gc work two hours later: what killed runs left has to go, and nothing else; the store has to verify."""
    plan = {
        "workspace": str(place.workspace),
        "catalog": str(place.catalog),
        "at_once": True,
        "shift_s": 7200.0,
    }
    ready = ("build", *reference.catalog.packages) if report.scenario.start == "built" else None
    for words in (COLLECT, CHECK, *([ready] if ready else [])):
        run = launcher.call(words, deadline_s=reference.deadline_s, plan=plan if words == COLLECT else None)
        report.log.append(f"later: {' '.join(words)}: {_outcome(run)}")
        report.problems += _next_is_wrong(run, reference)
        if run.code:
            report.problems.append(f"the later `{' '.join(words)}` fails: {_outcome(run)}")
        report.problems += [f"gc has removed the wheel of {name}" for name in _built(run)]
    places = [place.workspace / name for name in ("store", "sources", "scratch", "environments", "trees")]
    left = [fault for fault in audit(place.workspace) if fault.kind == "litter"]
    report.problems += [f"after gc: {it}" for it in left if any(_is_in(it, folder) for folder in places)]


def _require(words: Words, report: Report, place: Place, reference: Reference, launcher: Launcher) -> None:
    """Run a verb to success; where it fails, follow its hints, at most two."""
    for attempt in range(HINTS + 1):
        run = launcher.call(words, deadline_s=reference.deadline_s)
        report.log.append(f"next: {' '.join(words)}: {_outcome(run)}")
        report.problems += _next_is_wrong(run, reference)
        if report.scenario.start == "built" and report.scenario.kind != "damage":
            report.problems += [f"{name} is built again without a reason" for name in _built(run)]
        if run.code == 0 or report.problems:
            return
        if report.scenario.kind != "damage" or attempt == HINTS:
            report.problems.append(f"the next `{' '.join(words)}` fails: {_outcome(run)}")
            return
        hint = run.hinted()
        if hint is None:
            if report.scenario.phase == "lock-file" and run.code in {3, 5}:  # restore it from version control
                place.lock.write_text(reference.result.lock)
                report.log.append("hint: the lock is restored")
                continue
            report.problems.append(f"`{' '.join(words)}` fails and no hint names a command: {_outcome(run)}")
            return
        verb = ("build", *reference.catalog.packages) if hint[0] == "build" else hint
        followed = launcher.call(verb, deadline_s=reference.deadline_s)
        report.log.append(f"hint: {' '.join(hint)}: {_outcome(followed)}")
        report.problems += _next_is_wrong(followed, reference)


def _built(run: Ended) -> list[str]:
    """Return the packages that a build has built, and not found in the store."""
    return [step["package"] for step in (run.document or {}).get("steps", []) if step["state"] != "hit"]


def _next_is_wrong(run: Ended, reference: Reference) -> Iterator[str]:
    name = f"the next `{' '.join(run.words)}`"
    if run.hung:
        yield f"{name} hangs:\n{run.stderr[-3000:]}"
    elif run.code == 70 or run.code < 0 or "Traceback (most recent call last)" in run.stderr:
        yield f"{name} ends in a bug ({run.code}):\n{run.stderr[-3000:]}"
    elif run.code == 0:
        yield from _wrong_wheels(run, reference)


def _unnoticeable(scenario: Scenario, place: Place, reference: Reference) -> bool:
    """Say whether the lock has the flipped bit and still is one: one digit for another in a hash that no run needed."""
    now, before = place.lock.read_text(), reference.result.lock
    flipped = (scenario.fault, scenario.phase) == ("flip", "lock-file")
    return flipped and len(now) == len(before) and sum(map(operator.ne, now, before)) == 1


def _differences(report: Report, place: Place, reference: Reference, *, environment: bool) -> Iterator[str]:
    if place.lock.read_text() != reference.result.lock and not _unnoticeable(report.scenario, place, reference):
        yield "the lock is another one than that of an undisturbed run"
    if environment:
        found = references.installed(place.workspace)
        if found["environment_key"] != reference.result.environment_key:
            yield "the environment has another key than that of an undisturbed run"
        elif found["built"] != reference.result.built:
            differing = dict(found["built"].items() ^ reference.result.built.items())
            yield f"the environment holds other built files: {', '.join(sorted(differing))}"


@contextlib.contextmanager
def _small_disk(report: Report, place: Place, reference: Reference) -> Iterator[None]:
    """Mount a file system that is too small for what the verbs do, at a random size."""
    chance = random.Random(f"{report.scenario.seed}:disk")
    used = {"environment": 3_000_000, "build": 600_000}.get(report.scenario.phase, 250_000)
    begun = sum(path.lstat().st_size + 4096 for path in reference.state(report.scenario.start).rglob("*"))
    size = int(begun + used * chance.random()) // 4096 * 4096 + 8192
    place.workspace.mkdir(parents=True)
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={size}", "torture", place.workspace), check=True)
    report.hit = True
    report.log.append(f"the workspace is a disk of {size} bytes")
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", place.workspace), check=True)


def _close(report: Report, place: Place) -> None:
    """Take away the right to write to one folder of the workspace."""
    names = {"fetch": "sources", "build": "scratch", "record": "runs", "environment": "environments"}
    folder = place.workspace / names.get(report.scenario.phase, report.scenario.phase)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(random.Random(f"{report.scenario.seed}:mode").choice((0o555, 0o000)))
    report.hit = True
    report.log.append(f"{folder} is closed: {oct(folder.stat().st_mode & 0o777)}")


def written(report: Report) -> str:
    """Return the log of a round, as text for people."""
    scenario = report.scenario
    verbs = ", ".join(" ".join(verb) for verb in scenario.verbs)
    head = f"round {scenario.seed}  {scenario.fault} in {scenario.phase}  start {scenario.start}  [{verbs}]"
    state_ = "LOST" if report.lost else "ok" if report.hit else "not hit"
    lines = [f"{head}  {state_} after {report.seconds:.1f} s", *(f"    {line}" for line in report.log)]
    lines += [f"  ! {problem}" for problem in report.problems]
    return "\n".join(lines)


def to_json(report: Report) -> dict[str, object]:
    scenario = report.scenario
    return {
        "round": scenario.number, "fault": scenario.fault, "phase": scenario.phase, "hit": report.hit,
        "lost": report.lost, "processes": len(scenario.verbs), "seconds": round(report.seconds, 2),
        "problems": report.problems,
    }  # fmt: skip
