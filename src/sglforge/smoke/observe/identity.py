"""Whether the server that answers is the one that the script started, and does what the script says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sglforge.errors import Finding, Severity
from sglforge.provision.receipt import Environment

# Where the name of a field is not that of the option (SGLang 0.5.9 to 0.5.23).
_FIELDS = {
    "--model": "model_path",
    "--tensor-parallel-size": "tp_size",
    "--tp": "tp_size",
    "--data-parallel-size": "dp_size",
    "--dp": "dp_size",
    "--pipeline-parallel-size": "pp_size",
    "--pp": "pp_size",
    "--expert-parallel-size": "ep_size",
    "--ep": "ep_size",
}
# Another value of these makes another server of it: other numbers, other hardware, no drafts.
_DECISIVE = (
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "speculative_",
    "tp_size",
    "dp_size",
)
# What a server is asked to decide itself; worth knowing, never a difference.
_CHOSEN = (
    "device",
    "dtype",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "kv_cache_dtype",
    "quantization",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "max_running_requests",
    "max_total_num_tokens",
    "tp_size",
    "dp_size",
)
_EFFECTIVE = "effective_max_running_requests_per_dp"
_SERVER_CHOOSES = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What was started: the version in the receipt with its local part, the interpreter, the command line.

    ``version`` and ``python`` are None for a server that is not from an environment of ours.
    """

    version: str | None
    python: str | None
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An option of the command line that the server does not have; ``by`` is the process that says so."""

    option: str
    field: str
    asked: str
    says: str
    by: str

    @property
    def decisive(self) -> bool:
        """Whether this makes another server of it."""
        return self.field.startswith(_DECISIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the server says beside what was expected.

    ``unstated`` are options of the command line that the server has no field for: they cannot be compared.
    ``chosen`` is what the server runs with, for the reader. ``program`` is the interpreter of the process that listens,
    None when it cannot be told.
    """

    version_says: str | None
    version_expected: str | None
    model_says: str | None
    model_expected: str | None
    program: str | None
    program_expected: str | None
    differences: tuple[Difference, ...]
    unstated: tuple[str, ...]
    chosen: Mapping[str, object]

    @property
    def local_version_stated(self) -> bool:
        """Whether the server states the local part of its version; upstream's wheels do not, ours may."""
        return "+" in (self.version_says or "")


def expected_of(environment: Environment, argv: Sequence[str]) -> Expected:
    """Return what an environment and a rendered command line let expect."""
    versions = [built.version for built in environment.receipt.built if built.name == "sglang"]
    return Expected(version=next(iter(versions), None), python=str(environment.python), argv=tuple(argv))


def compare(info: Mapping[str, object], expected: Expected, *, command: str | None = None) -> Comparison:
    """Compare the document of ``/server_info`` (or ``/get_server_info``) with what was expected.

    Args:
        info: The document; its top level is what the first process runs with, ``internal_states`` the schedulers.
        expected: See `expected_of`.
        command: The command line of the process that listens, None when it is not known.
    """
    asked = list(options(expected.argv))
    differences: list[Difference] = []
    unstated = []
    for option, value in asked:
        field = _FIELDS.get(option, option.removeprefix("--").replace("-", "_"))
        sources = [(by, state[field]) for by, state in _states(info) if field in state]
        if not sources:
            unstated.append(option)
        differences += [
            Difference(option=option, field=field, asked=_shown(value), says=_shown(says), by=by)
            for by, says in sources
            if not _same(value, says)
        ]
    return Comparison(
        version_says=_text(info.get("version")),
        version_expected=expected.version,
        model_says=_text(info.get("model_path")),
        model_expected=next((_shown(value) for option, value in asked if option in {"--model-path", "--model"}), None),
        program=_program(command, expected.python),
        program_expected=expected.python,
        differences=(*differences, *_fewer_requests(info, dict(asked))),
        unstated=tuple(unstated),
        chosen={name: info[name] for name in _CHOSEN if name in info},
    )


def judge_identity(comparison: Comparison) -> tuple[Finding, ...]:
    """Return what is wrong with who answers; nothing when all is well."""
    wrong = tuple(_wrong_server(comparison))
    found = []
    if wrong:
        found.append(
            Finding(
                code="wrong-server",
                severity=Severity.ERROR,
                message=f"another server answers than the script starts: {wrong[0]}",
                hint="find out who listens on the port; stop it, or give the profile another port",
                detail=wrong,
            )
        )
    if comparison.differences:
        decisive = [difference for difference in comparison.differences if difference.decisive]
        first = (decisive or comparison.differences)[0]
        found.append(
            Finding(
                code="server-differs-from-script",
                severity=Severity.ERROR if decisive else Severity.WARNING,
                message=f"the server does not run with what the script says: {_sentence(first)}",
                hint="its log says why it changed that; correct the profile to what can be had",
                detail=tuple(_sentence(difference) for difference in comparison.differences),
            )
        )
    return tuple(found)


def options(argv: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the options of a server's command line: a text, a list of texts, or True for a flag.

    What comes before the first option of the server, the interpreter with its own, is left out.
    """
    words = list(argv)
    if "-m" in words:
        words = words[words.index("-m") + 2 :]
    name: str | None = None
    values: list[str] = []
    for word in (*words, "--"):
        if not word.startswith("--"):
            values.append(word)
            continue
        if name is not None:
            yield name, True if not values else values[0] if len(values) == 1 else tuple(values)
        name, equals, value = word.partition("=")
        values = [value] if equals else []


def _program(command: str | None, python: str | None) -> str | None:
    """Return the program of a command line, None when it is no path, as of a process that has renamed itself."""
    if not command or not command.startswith("/"):
        return None
    return python if python and f"{command} ".startswith(f"{python} ") else command.partition(" ")[0]


def _wrong_server(comparison: Comparison) -> Iterator[str]:
    says, expected = comparison.version_says, comparison.version_expected
    if says is None and expected is not None:
        yield "it states no version"
    elif says and expected and says != (expected if "+" in says else expected.partition("+")[0]):
        yield f"it is SGLang {says}, the receipt has {expected}"
    model, wanted = comparison.model_says, comparison.model_expected
    # a model that is named by its hub may be stated as the folder that it was put into
    if model and wanted and not _same(wanted, model) and _is_path(wanted) >= _is_path(model):
        yield f"it serves {model}, the script says {wanted}"
    program, python = comparison.program, comparison.program_expected
    # links are not resolved: the interpreter of a venv is one, and leads out of it
    if program and python and program != python:
        yield f"it runs in {program}, the environment's interpreter is {python}"


def _states(info: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield what the first process says, then each scheduler, with a name for it."""
    yield "server", info
    states = info.get("internal_states")
    for number, state in enumerate(states if isinstance(states, Sequence) else ()):
        if isinstance(state, Mapping):
            yield f"scheduler {number}", state


def _fewer_requests(info: Mapping[str, object], asked: Mapping[str, object]) -> Iterator[Difference]:
    """Yield the schedulers that take fewer requests at once than asked, as a small KV cache makes them."""
    option = "--max-running-requests"
    try:
        wanted = int(str(asked[option])) // max(1, int(str(info.get("dp_size") or 1)))
    except (KeyError, ValueError):
        return
    for by, state in _states(info):
        effective = state.get(_EFFECTIVE)
        if isinstance(effective, int) and effective < wanted:
            yield Difference(option=option, field=_EFFECTIVE, asked=str(wanted), says=str(effective), by=by)


def _same(asked: object, says: object) -> bool:
    """Say whether a word of the command line and a JSON value mean the same."""
    if asked == _SERVER_CHOOSES:
        return True
    if isinstance(asked, tuple) or isinstance(says, list):
        one = asked if isinstance(asked, tuple) else (asked,)
        other = says if isinstance(says, list) else [says]
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(asked, bool) or isinstance(says, bool):
        return str(asked).lower() == str(says).lower()
    if isinstance(says, (int, float)):
        try:
            return float(str(asked)) == float(says)
        except ValueError:
            return False
    if isinstance(says, Mapping):
        try:
            return bool(json.loads(str(asked)) == says)
        except ValueError:
            return False
    return _same_text(str(asked), str(says))


def _same_text(one: str, other: str) -> bool:
    paths = _is_path(one) and _is_path(other)
    return one == other or (paths and os.path.normpath(one) == os.path.normpath(other))


def _is_path(text: str) -> bool:
    return text.startswith("/")


def _sentence(difference: Difference) -> str:
    return f"{difference.option} is {difference.asked}, but {difference.by} has {difference.says}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else " ".join(value) if isinstance(value, tuple) else json.dumps(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
