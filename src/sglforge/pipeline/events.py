"""What the events of a run look like: the schema of ``events.jsonl`` and ``--events``, and its page."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from sglforge.errors import Verdict

Seconds = Annotated[float, Field(ge=0)]


class _Event(BaseModel):
    """What every event has."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seq: Annotated[
        int, Field(description="number of the event in its run, from 0; a gap is an event that was lost", ge=0)
    ]
    time: Annotated[float, Field(description="seconds since the epoch")]


class RunStarted(_Event):
    """A verb has begun; the first event."""

    event: Literal["run-started"]
    run: Annotated[str, Field(description="id: the name of the folder in `runs/`")]
    verb: str
    argv: Annotated[list[str], Field(description="the words of the command line, the verb first")]
    versions: Annotated[dict[str, str], Field(description="of sglforge and of the Python that runs it")]


class StepStarted(_Event):
    """A step has begun; others may be running."""

    event: Literal["step-started"]
    step: Annotated[str, Field(description="its name, as on the console: `build sglang`")]


class StepProgress(_Event):
    """How far a step is; at most once a second for each."""

    event: Literal["step-progress"]
    step: str
    done: Annotated[float, Field(description="in the unit of the step: bytes, parts")]
    total: Annotated[float | None, Field(description="null where it is not known")]
    note: Annotated[str, Field(description="what it is at, for people")]


class StepFinished(_Event):
    """A step has ended."""

    event: Literal["step-finished"]
    step: str
    state: Annotated[
        Literal["ok", "hit", "failed", "interrupted"],
        Field(description="`hit`: there was nothing to do, and no `step-started` came before"),
    ]
    seconds: Seconds
    why: Annotated[str, Field(description="what the line on the console ends with")]


class ModuleReady(_Event):
    """A module that is compiled ahead of time is there."""

    event: Literal["module-ready"]
    package: str
    module: Annotated[str, Field(description="its name, as the package calls it")]
    state: Annotated[
        Literal["compiled", "kept"], Field(description="`kept`: it was compiled before, from the same sources")
    ]


class BuildPhase(_Event):
    """A phase of a build has ended."""

    event: Literal["build-phase"]
    package: str
    phase: Annotated[str, Field(description="`unpack`, `patch`, `build`, `modules`, `pack`, `check`, `store`")]
    outcome: Literal["done", "failed"]
    seconds: Seconds
    resources: Annotated[
        dict[str, float] | None, Field(description="of its processes: `seconds`, `cpu_seconds`, `peak_rss_mib`")
    ] = None
    sandbox: Annotated[
        dict[str, Any] | None, Field(description="what kept its processes to themselves, and why not more")
    ] = None


class BuildKept(_Event):
    """A working folder stays (`--keep`)."""

    event: Literal["build-kept"]
    package: str
    folder: str


class WheelCopied(_Event):
    """A wheel came from another store."""

    event: Literal["wheel-copied"]
    package: str
    place: Annotated[str, Field(description="the store: a folder or an address")]
    sha256: str


class StoreNotUsed(_Event):
    """Another store could not be asked, or what it has is not good."""

    event: Literal["store-not-used"]
    package: str
    place: str
    why: str


class Probe(_Event):
    """A smoke probe has been judged."""

    event: Literal["probe"]
    name: str
    verdict: Literal["pass", "fail", "inconclusive", "skipped"]
    message: str


class Wave(_Event):
    """A wave of requests of `tune` has been answered; its figures are those of the tuning document."""

    model_config = ConfigDict(extra="allow", strict=True)

    event: Literal["wave"]


class FindingTold(_Event):
    """A fault or remark, as in the verb's document."""

    event: Literal["finding"]
    code: str
    severity: Literal["error", "warning", "info"]
    subject: str
    message: str
    hint: str
    where: str | None
    detail: list[str]


class VerdictTold(_Event):
    """The verdict of a verb that judges."""

    event: Literal["verdict"]
    verdict: Verdict


class RunFinished(_Event):
    """The verb has ended; the last event. A run without it was killed, or still runs."""

    event: Literal["run-finished"]
    exit_code: int
    seconds: Seconds


EVENTS: tuple[type[_Event], ...] = (
    RunStarted, StepStarted, StepProgress, StepFinished, BuildPhase, ModuleReady, BuildKept, WheelCopied, StoreNotUsed,
    Probe, Wave, FindingTold, VerdictTold, RunFinished,
)  # fmt: skip


def adapter() -> TypeAdapter[Any]:
    """Return what validates one event."""
    union: Any = EVENTS[0]
    for model in EVENTS[1:]:
        union = union | model
    return TypeAdapter(Annotated[union, Field(discriminator="event")])


def schemas() -> dict[str, dict[str, object]]:
    """Return the JSON schema of one event, by kind."""
    document = adapter().json_schema()
    return {"event": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "event", **document}}


def page() -> str:
    """Return the reference page."""
    lines = [_INTRODUCTION]
    for model in EVENTS:
        fields = {name: field for name, field in model.model_fields.items() if name not in {"seq", "time", "event"}}
        lines += [f"## {name_of(model)}", "", str(model.__doc__), ""]
        if fields:
            lines += ["| field | meaning |", "|---|---|"]
            lines += [
                f"| `{name}` | {field.description or ''} |".replace(" |  |", " | |") for name, field in fields.items()
            ]
            lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def name_of(model: type[_Event]) -> str:
    """Return the name of an event."""
    return str(get_args(get_type_hints(model)["event"])[0])


_INTRODUCTION = """# Events of a run

Generated from `sglforge.pipeline.events`. Every verb that keeps a run record (`build`, `fetch`, `install`, `lock`,
`rebuild`, `smoke`, `tune`) appends its events to `runs/<id>/events.jsonl` as they happen, one JSON object a line, and
to the FILE of `--events FILE`:

- a file is appended to, so that several verbs can share it; one at a time;
- a FIFO must have a reader (`events-without-reader` otherwise);
- `--events /dev/fd/3 3>events.jsonl` writes to an open descriptor. stdout has the result and nothing else.

A reader that is slow, that goes away, or a disk that is full never holds up the run: events are lost to it, and `seq`
shows a gap. A run whose last event is not `run-finished` was killed, or still runs.

Each line has `seq`, `time` (seconds since the epoch) and `event`, the name below; the
[JSON schema](schema/event.schema.json) has all of it. More events and more fields may come: skip what you do not know.
"""
