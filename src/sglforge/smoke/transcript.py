"""A smoke test as a document that can be judged again: what was asked, what came, what was seen besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from sglforge.base.files import write_json
from sglforge.errors import ConfigError
from sglforge.smoke.client import Answer, Request, Status
from sglforge.smoke.generation import Generation, generation
from sglforge.smoke.server import Stopped
from sglforge.smoke.subject import Subject, subject_of

Role = Literal["profile", "control"]
_SCHEMA = 1
Look = Mapping[str, object]
"""What a probe saw of a server besides its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request of a probe and its answer; ``server`` says which of the two servers gave it."""

    probe: str
    server: Role
    request: Request
    answer: Answer

    @property
    def status(self) -> Status:
        """HTTP status, or why there is none."""
        return self.answer.status

    @property
    def ok(self) -> bool:
        """Whether the server answered as asked."""
        return self.answer.status == 200

    def to_json(self) -> dict[str, object]:
        """Return a step of CONTRACT's transcript."""
        return {
            "probe": self.probe,
            "server": self.server,
            "request": self.request.to_json(),
            "status": self.answer.status,
            "seconds": self.answer.seconds,
            "response": self.answer.response,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that a judge may look at.

    ``exchanges`` and ``control`` are this probe's, on the profile's server and on the control server. ``ended`` and
    ``health`` tell of the profile's server after the last request; health is asked only when an answer is missing.
    ``ready_log`` is what it had logged when it was ready, ``log`` what it has by now. ``looks`` are what the probe saw
    when the server was ready, before its first request, and after each wave of requests. ``noise`` is by how much
    equal requests differed here before, in nats. ``fault`` is why there was no server to ask: code, message, hint.
    """

    subject: Subject
    exchanges: tuple[Exchange, ...] = ()
    control: tuple[Exchange, ...] = ()
    ready_log: str = ""
    log: str = ""
    ended: str | None = None
    health: str | None = None
    looks: tuple[Look, ...] = ()
    noise: float | None = None
    stops: tuple[tuple[str, Stopped], ...] = ()
    fault: tuple[str, str, str] | None = None

    def generations(self) -> dict[str, Generation]:
        """Return the continuations of the profile's server by request name."""
        return _generations(self.exchanges)

    def control_generations(self) -> dict[str, Generation]:
        """Return the continuations of the control server by request name."""
        return _generations(self.control)

    def to_json(self) -> dict[str, object]:
        """Return what the steps of the transcript do not say; logs as their lengths in characters."""
        return {
            "ready_log": len(self.ready_log),
            "log": len(self.log),
            "ended": self.ended,
            "health": self.health,
            "looks": [dict(look) for look in self.looks],
            "noise": self.noise,
            "stops": [[name, asdict(stopped)] for name, stopped in self.stops],
            "fault": list(self.fault) if self.fault else None,
        }


def _generations(exchanges: Sequence[Exchange]) -> dict[str, Generation]:
    return {e.request.name: g for e in exchanges if e.ok and (g := generation(e.answer.response))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """What a smoke test leaves: its subject, and for each probe in running order what was observed.

    ``conditions`` says what a later test must know to be compared with it (see `conditions.Conditions`).
    """

    profile: str
    subject: Subject
    observed: Mapping[str, Observed]
    skipped: Mapping[str, str]
    log: str
    argv: tuple[str, ...] = ()
    conditions: Mapping[str, object] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the document."""
        seen = self.observed.values()
        steps = [step for observed in seen for step in (*observed.control, *observed.exchanges)]
        document = {
            "schema": _SCHEMA,
            "profile": self.profile,
            "subject": self.subject.to_json(),
            "probes": {
                **{name: observed.to_json() for name, observed in self.observed.items()},
                **{name: {"skipped": why} for name, why in self.skipped.items()},
            },
            "steps": [step.to_json() for step in steps],
            "log": self.log,
            "argv": list(self.argv),
            "conditions": dict(self.conditions),
        }
        write_json(path, document)


def is_ours(document: object) -> bool:
    """Say whether smoke wrote a transcript; others say less, and are judged by what they say."""
    return isinstance(document, Mapping) and "subject" in document and "probes" in document


def transcript_of(document: object) -> Transcript:
    """Read a transcript that smoke wrote.

    Raises ConfigError ``transcript-invalid``.
    """
    schema = document.get("schema", _SCHEMA) if isinstance(document, Mapping) else _SCHEMA
    if schema != _SCHEMA:
        raise _invalid(f"its schema is {str(schema)[:40]}, this release reads {_SCHEMA}")
    match document:
        case {
            "profile": str(profile), "subject": dict(about), "probes": dict(probes), "steps": list(steps),
            "log": str(log), "argv": list(argv), **rest,
        }:  # fmt: skip
            subject = subject_of(about)
            exchanges = [_exchange(number, step) for number, step in enumerate(steps)]
            skipped = {name: str(said["skipped"]) for name, said in probes.items() if "skipped" in said}
            return Transcript(
                profile=profile,
                subject=subject,
                observed={
                    name: _observed(name, said, subject, exchanges, log)
                    for name, said in probes.items()
                    if name not in skipped
                },
                skipped=skipped,
                log=log,
                argv=tuple(map(str, argv)),
                conditions=said if isinstance(said := rest.get("conditions"), dict) else {},
            )
        case _:
            raise _invalid("a part of it is missing, or is of another type")


def _exchange(number: int, step: object) -> Exchange:
    match step:
        case {
            "probe": str(probe), "server": ("profile" | "control") as server, "request": dict(asked),
            "status": (int() | "timeout" | "disconnected") as status, "seconds": (int() | float()) as seconds, **rest,
        }:  # fmt: skip
            answer = Answer(status=status, seconds=float(seconds), response=rest.get("response"))
            return Exchange(probe=probe, server=server, request=_request(number, asked), answer=answer)
        case _:
            raise _invalid(f"step {number} is none of smoke's")


def _request(number: int, asked: Mapping[str, object]) -> Request:
    match asked:
        case {"name": str(name), "path": str(path), "body": (dict() | None) as body, **rest}:
            stream, events, seconds = (rest.get(key) for key in ("stream", "hang_up_after", "timeout_s"))
            return Request(
                name=name,
                path=path,
                body=body,
                stream=bool(stream),
                hang_up_after=events if isinstance(events, int) else None,
                timeout_s=float(seconds) if isinstance(seconds, (int, float)) else None,
            )
        case _:
            raise _invalid(f"the request of step {number} is none of smoke's")


def _observed(name: str, said: object, subject: Subject, exchanges: Sequence[Exchange], log: str) -> Observed:
    match said:
        case {"ready_log": int(ready), "log": int(length), "looks": list(looks), "stops": list(stops), **rest}:
            ended, health, noise = (rest.get(key) for key in ("ended", "health", "noise"))
            mine = [exchange for exchange in exchanges if exchange.probe == name]
            return Observed(
                subject=subject,
                exchanges=tuple(exchange for exchange in mine if exchange.server == "profile"),
                control=tuple(exchange for exchange in mine if exchange.server == "control"),
                ready_log=log[:ready],
                log=log[:length],
                ended=ended if isinstance(ended, str) else None,
                health=health if isinstance(health, str) else None,
                looks=tuple(look for look in looks if isinstance(look, dict)),
                noise=float(noise) if isinstance(noise, (int, float)) else None,
                stops=tuple(_stop(name, stop) for stop in stops),
                fault=_fault(rest.get("fault")),
            )
        case _:
            raise _invalid(f"what it says of probe {name} is not what smoke writes")


def _fault(said: object) -> tuple[str, str, str] | None:
    match said:
        case [str(code), str(message), str(hint)]:
            return code, message, hint
        case _:
            return None


def _stop(name: str, stop: object) -> tuple[str, Stopped]:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(tuple[str, Stopped]).validate_python(stop)
    except ValidationError:
        raise _invalid(f"what it says of probe {name} is not what smoke writes") from None


def _invalid(why: str) -> ConfigError:
    return ConfigError(
        code="transcript-invalid",
        message=f"this is no transcript of smoke: {why}",
        hint="judge a transcript.json as smoke wrote it",
    )
