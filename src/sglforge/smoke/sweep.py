"""Measure a profile at several concurrencies, on its server without a threshold and on one without speculation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from sglforge.errors import Finding, Severity, SmokeError
from sglforge.smoke import interview as interviews
from sglforge.smoke.bench import INFO_TIMEOUT_S, Bench
from sglforge.smoke.interview import Interview, server_info
from sglforge.smoke.measure import Figure, Wave, measured, requests
from sglforge.smoke.server import Server
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Role
from sglforge.smoke.tuning import NOISY, Captured, Level, captured

# A wave takes so long on the profile's server, as far as its KV cache and the bounds let it.
_WAVE_S = 1.5
_LEAST_TOKENS, _MOST_TOKENS = 16, 1024
_FIRST_TOKENS = 32
# Of the KV cache: verifications, pages and what the prefix cache keeps take room too.
_KV_SHARE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure: requests at once, how often, and what is asked (None: the prompts of the profile)."""

    concurrency: tuple[int, ...]
    repeats: int
    prompts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One wave that counts."""

    role: Role
    turn: int
    concurrency: int
    asked: int
    wave: Wave

    def to_json(self) -> dict[str, object]:
        """Return it as a raw figure; ``asked`` are tokens of each request."""
        return {
            "speculation": self.role == "profile",
            "repeat": self.turn,
            "concurrency": self.concurrency,
            "asked": self.asked,
            **self.wave.to_json(),
        }


@dataclass(slots=True, kw_only=True)
class Sweep:
    """What was measured, also where a server failed on the way.

    Attributes:
        points: Every wave that counts, in the order of time.
        findings: What was left out, and why; the fault of a server that failed.
        failed: Whether a server failed.
        graphs: The captured batch sizes, None where there are no graphs.
        sglang: The version that the profile's server tells.
    """

    points: list[Point] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failed: bool = False
    graphs: Captured | None = None
    sglang: str | None = None

    def levels(self) -> tuple[Level, ...]:
        """Return the levels that were measured both ways, smallest first."""
        return tuple(
            Level(concurrency=count, speculation=drafting, plain=plain)
            for count in self.concurrency
            if (drafting := self.figure("profile", count)) and (plain := self.figure("control", count))
        )

    @property
    def concurrency(self) -> tuple[int, ...]:
        """The levels of which anything was measured."""
        return tuple(sorted({point.concurrency for point in self.points}))

    def figure(self, role: Role, concurrency: int) -> Figure | None:
        """Return the tokens per second of a level on one server."""
        rates = tuple(point.wave.rate for point in self._of(role, concurrency))
        return Figure(values=rates) if rates else None

    def latency(self, role: Role, concurrency: int) -> float | None:
        """Return the median time of a request, in milliseconds for each of its tokens."""
        each = [1000 * seconds / point.asked for point in self._of(role, concurrency) for seconds in point.wave.each]
        return median(each) if each else None

    def accept_length(self, concurrency: int) -> float | None:
        """Return tokens for each verification, None where nothing was verified."""
        waves = [point.wave for point in self._of("profile", concurrency)]
        steps = sum(wave.steps or 0 for wave in waves)
        return sum(wave.tokens for wave in waves) / steps if steps else None

    def _of(self, role: Role, concurrency: int) -> list[Point]:
        return [point for point in self.points if (point.role, point.concurrency) == (role, concurrency)]


def sweep(bench: Bench, plan: Plan) -> Sweep:
    """Start the profile's server, then its control, and measure both at the same levels with the same requests.

    How many tokens a level asks for is worked out on the first server. Repeats of a level lie between those of the
    others, upwards and downwards in turn, so that a slow minute is noise of all levels. What was measured before a
    server failed is returned too.

    Args:
        bench: Where servers are started; its profile speculates without a threshold.
        plan: What to measure.

    Raises SmokeError ``port-taken``, RenderError.
    """
    found, asked = Sweep(), dict.fromkeys(plan.concurrency, 0)
    roles: tuple[Role, ...] = ("profile", "control")
    for role in roles:
        try:
            with bench.serving(role) as server:
                _on_server(role, server, bench, plan, asked, found)
        except SmokeError as error:
            if error.code == "port-taken":
                raise
            found.failed = True
            found.findings += error.as_findings()
            break
    return found


def _on_server(role: Role, server: Server, bench: Bench, plan: Plan, asked: dict[int, int], into: Sweep) -> None:
    info = server_info(lambda request: server.ask(request, timeout_s=INFO_TIMEOUT_S))
    interview = bench.interview(role, server, bench.subject.informed(info))
    prompts = plan.prompts or interview.subject.prompts
    if role == "profile":
        into.graphs = captured(bench.profile.flags, info, on_cpu=bench.target.kind == "cpu")
        into.sglang = str(info["version"]) if "version" in info else None
    for count in list(asked):
        if left_out := _too_many(count, interview.subject):
            into.findings.append(left_out)
            del asked[count]
    try:
        _warm_up(interview, prompts, info, asked, into)
        for turn in range(plan.repeats):
            for count in sorted(asked, reverse=bool(turn % 2)):
                bench.progress(f"{role} server: {count} at once, repeat {turn + 1} of {plan.repeats}")
                wave = measured(interview, requests(prompts, count, asked[count]))
                point = Point(role=role, turn=turn, concurrency=count, asked=asked[count], wave=wave)
                into.points.append(point)
                bench.record.event("wave", **point.to_json())
    except SmokeError as error:
        raise _explained(error, role, server) from error


def _warm_up(
    interview: Interview, prompts: Sequence[str], info: Mapping[str, object], asked: dict[int, int], into: Sweep
) -> None:
    """Ask each level once without counting it; on the first server also find out for how many tokens."""
    for count in list(asked):
        interview.progress(f"{interview.role} server: {count} at once, warming up")
        if not asked[count]:
            _, first = (measured(interview, requests(prompts, count, _FIRST_TOKENS)) for _ in range(2))
            asked[count] = _tokens(first, count, info)
        if asked[count] < _LEAST_TOKENS:
            into.findings.append(_left_out(count, f"the KV cache has room for {asked.pop(count)} tokens of each only"))
            continue
        measured(interview, requests(prompts, count, asked[count]))


def _tokens(first: Wave, count: int, info: Mapping[str, object]) -> int:
    """Return how many tokens each request of a level is asked for."""
    tokens = int(_FIRST_TOKENS * _WAVE_S / first.seconds)
    limits = [max(tokens, _FIRST_TOKENS), _MOST_TOKENS]
    for name, share in (("max_total_num_tokens", _KV_SHARE / count), ("max_req_input_len", 1.0)):
        if isinstance(limit := info.get(name), int):
            limits.append(int(limit * share) - first.prompt_tokens)
    return max(min(limits), 0)


def _too_many(count: int, subject: Subject) -> Finding | None:
    limit = subject.max_running
    if limit is None or count <= limit:
        return None
    return _left_out(count, f"the server runs {limit} at once")


def _left_out(count: int, why: str) -> Finding:
    return Finding(
        code="concurrency-too-high",
        severity=Severity.WARNING,
        subject=str(count),
        message=f"{count} requests at once were not measured: {why}",
        hint="leave the level out of --concurrency, or raise max-running-requests or the KV cache with --set flags....",
    )


def _explained(error: SmokeError, role: Role, server: Server) -> SmokeError:
    """Return the error of missing answers with what has become of the server."""
    time.sleep(interviews.SETTLE_S)  # a server that has dropped a connection may need a moment to end
    ended = server.ended()
    about = "the server with speculation" if role == "profile" else "the server without speculation"
    return SmokeError(
        code="server-died" if ended else error.code,
        message=f"{about}: {error.message}; "
        + (f"it has ended: {ended}" if ended else f"its health is {server.health()}"),
        hint=error.hint,
        context={"log": str(server.log)},
    )


def too_noisy(levels: Sequence[Level]) -> Iterator[Finding]:
    """Yield a finding where repeats differ by so much that what they say is worth little."""
    noisy = [level for level in levels if level.noise > NOISY]
    if noisy:
        worst = max(noisy, key=lambda level: level.noise)
        yield Finding(
            code="too-noisy",
            severity=Severity.WARNING,
            message=f"repeats differ by more than {NOISY:.0%} either way at {len(noisy)} of {len(levels)} levels, with "
            f"{worst.concurrency} at once by {worst.noise:.0%}",
            hint="measure on a machine that does nothing else, and with more --repeats",
        )


def unspeculated(found: Sweep) -> Iterator[Finding]:
    """Yield a finding where the server with speculation verified nothing: then both servers were the same."""
    with_drafts = [point for point in found.points if point.role == "profile"]
    if with_drafts and not any(point.wave.steps for point in with_drafts):
        yield Finding(
            code="spec-no-gain",
            severity=Severity.WARNING,
            message="the server with speculation has verified no draft: both servers were the same",
            hint="nox -s smoke -- --probe started,spec-gain tells more",
        )
