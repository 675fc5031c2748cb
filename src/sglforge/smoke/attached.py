"""A smoke test of a server that somebody else started: asked over its URL, never stopped, its log unseen."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import sglforge
from sglforge.base.runrecord import RunRecord
from sglforge.config.model import SmokeExpectations
from sglforge.errors import ConfigError, SmokeError
from sglforge.smoke.afterwards import Wanted, ask_afterwards, compared
from sglforge.smoke.client import Answer, Request, send
from sglforge.smoke.conditions import Conditions
from sglforge.smoke.examine import Examination, examine
from sglforge.smoke.generation import generation, greedy
from sglforge.smoke.interview import Interview, server_info
from sglforge.smoke.measure import Speed
from sglforge.smoke.openai import translated
from sglforge.smoke.probes.catalog import select
from sglforge.smoke.server import Progress
from sglforge.smoke.starting import HEALTH_TIMEOUT_S
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Transcript
from sglforge.smoke.verdict import Scope, SmokeReport

REQUEST_TIMEOUT_S = 60.0
API_KEY = "SGLFORGE_API_KEY"
"""The environment variable with the key that the server at an address wants; it is written nowhere."""
_ANSWER_TIMEOUT_S = 10.0
_SHORTEST_SECRET = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A server at a URL, with the key that it wants, if any."""

    url: str
    key: str = field(default="", repr=False)
    ready_log: str = ""

    def ask(self, request: Request, *, timeout_s: float) -> Answer:
        """Send a request; an answer that repeats the key is returned without it, where it is long enough."""
        if not self.key:
            return send(self.url, request, timeout_s=timeout_s)
        headers = {"authorization": f"Bearer {self.key}"}
        answer = send(self.url, request, timeout_s=timeout_s, headers=headers)
        if len(self.key) < _SHORTEST_SECRET:  # every other word of an answer might hold it
            return answer
        return replace(answer, response=_without(self.key, answer.response))

    def health(self) -> str:
        """Return what its own health route says: an HTTP status, ``timeout`` or ``disconnected``."""
        return str(self.ask(Request(name="health", path="/health"), timeout_s=HEALTH_TIMEOUT_S).status)

    def ended(self) -> str | None:
        """Return nothing: whether it has ended shows in its answers only."""
        return None

    def logged(self) -> str:
        """Return nothing: its log is somewhere else."""
        return ""


def run(
    url: str,
    *,
    record: RunRecord,
    expectations: SmokeExpectations | None = None,
    model: str | None = None,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    probes: Sequence[str] | None = None,
    wanted: Wanted | None = None,
    progress: Progress = lambda _note: None,
) -> SmokeReport:
    """Probe the server at a URL and return what was proven; the transcript stays in the run record.

    An SGLang is asked everything that needs neither its processes nor a control server; of any other server the
    OpenAI-compatible routes are asked.

    Args:
        url: Its address: ``http://host:port``, with the prefix of its routes where a proxy adds one.
        record: Where the transcript goes.
        expectations: What is known about its model, if anything is.
        model: The name of its model, where it may serve several; None, or a name it does not have, means its first.
        request_timeout_s: How long one answer may take.
        probes: Names of the probes to run; None means all.
        wanted: What to ask after the probes, for a comparison with another run; None means nothing.
        progress: Is told what happens now.

    Raises ConfigError ``url-invalid``, ``unknown-probe`` and ``usage`` (the key in the environment is none);
    SmokeError ``server-unreachable`` and ``healthy-but-no-decode``.
    """
    start = time.monotonic()
    chosen = select(probes)
    server = Attached(url=base_url(url), key=api_key())
    progress(f"asking {server.url} what it is")
    subject, info = identify(server, expectations, model=model)
    _first_token(server, subject, request_timeout_s)
    interview = Interview(
        subject=subject, role="profile", server=server, timeout_s=request_timeout_s, progress=progress
    )
    examination = Examination(record=record)
    examine(interview, chosen, examination)
    wanted = wanted or Wanted()
    afterwards = ask_afterwards(interview, examination.observed, wanted)
    path, version = record.folder / "transcript.json", info.get("version")
    sglang = version if isinstance(version, str) else None
    transcript = Transcript(
        profile=server.url,
        subject=subject,
        observed=examination.observed,
        skipped=examination.skipped,
        log="",
        conditions=Conditions(sglang=sglang, host={"address": server.url}, speed=afterwards.speed or Speed()).to_json(),
    )
    transcript.write(path)
    return SmokeReport(
        profile=server.url,
        scope=subject.scope,
        probes=tuple(examination.results),
        seconds=time.monotonic() - start,
        seconds_to_ready=None,
        versions={"sglforge": sglforge.__version__, "sglang": sglang},
        transcript=path,
        comparison=compared(transcript, wanted, afterwards),
        speed=afterwards.speed,
    )


def base_url(url: str) -> str:
    """Return an address without what we add ourselves.

    Raises ConfigError ``url-invalid``.
    """
    parts = None
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if "@" in (parts.netloc if parts else url):
        raise ConfigError(
            code="url-invalid",
            message="the address of a server holds a user or a password before `@`",
            hint=f"--url http://127.0.0.1:30000; a key that the server wants is read from the variable {API_KEY}",
        )
    if parts is None or not valid or parts.query or parts.fragment:
        raise ConfigError(
            code="url-invalid", message=f"{url!r} is no address of a server", hint="--url http://127.0.0.1:30000"
        )
    return parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()


def api_key() -> str:
    """Return the key in the environment, an empty text where there is none.

    Raises ConfigError ``usage`` for one that cannot be sent; it is not shown.
    """
    key = os.environ.get(API_KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            code="usage",
            message=f"the variable {API_KEY} holds characters that no key has",
            hint=f"export {API_KEY}=... with letters, digits and signs of ASCII only",
        )
    return key


def _without(key: str, document: object) -> object:
    """Return a document with the key taken out of every text."""
    match document:
        case str():
            return document.replace(key, "(the key)")
        case list():
            return [_without(key, part) for part in document]
        case dict():
            return {_without(key, name): _without(key, part) for name, part in document.items()}
        case _:
            return document


def identify(
    server: Attached, expectations: SmokeExpectations | None, *, model: str | None = None
) -> tuple[Subject, Mapping[str, object]]:
    """Return what a server is, and what it says of itself; of several models the one of this name, else the first.

    Raises SmokeError ``server-unreachable``.
    """
    info = server_info(lambda request: server.ask(request, timeout_s=_ANSWER_TIMEOUT_S))
    models = server.ask(Request(name="models", path="/v1/models"), timeout_s=_ANSWER_TIMEOUT_S)
    name = _model(models.response, model)
    subject = Subject(scope=_scope(info), own=False, api="openai", model=name, expectations=expectations)
    if "version" in info:
        return _native(subject, info), info
    if models.status == 200:
        return subject, info
    if models.status in {401, 403}:
        raise SmokeError(
            code="server-unreachable",
            message=f"the server at {server.url} wants "
            + (f"another key than that in {API_KEY}" if server.key else "a key")
            + f": /v1/models gave {models.status}",
            hint=f"put the key into the environment: export {API_KEY}=...; it is written nowhere",
        )
    raise SmokeError(
        code="server-unreachable",
        message=f"nothing at {server.url} answers as a model server: /v1/models gave {models.status}"
        + (f" ({str(models.response)[:200]})" if models.response else ""),
        hint="name the address that serves /v1/models, without /v1: --url http://127.0.0.1:30000",
    )


def _native(subject: Subject, info: Mapping[str, object]) -> Subject:
    def number(name: str) -> int | None:
        value = info.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    name = info.get("served_model_name")
    return replace(
        subject.informed(info),
        api="sglang",
        model=name if isinstance(name, str) else subject.model,
        speculates=bool(info.get("speculative_algorithm")),
        steps=number("speculative_num_steps"),
        threshold=number("speculative_disable_batch_threshold"),
    )


def _scope(info: Mapping[str, object]) -> Scope:
    """Return the scope by the device that a server says it is on; one that does not say is on anything."""
    match info.get("device"):
        case "cpu":
            return "cpu-logic"
        case str():
            return "gpu"
        case _:
            return "unknown"


def _model(response: object, wanted: str | None) -> str | None:
    match response:
        case {"data": list(models)}:
            names = [one["id"] for one in models if isinstance(one, dict) and isinstance(one.get("id"), str)]
            return wanted if wanted in names else next(iter(names), None)
        case _:
            return None


def _first_token(server: Attached, subject: Subject, timeout_s: float) -> None:
    request = greedy("first-token", "Hello", 1)
    request = request if subject.api == "sglang" else translated(request, subject.model)
    answer = server.ask(request, timeout_s=timeout_s)
    one = generation(answer.response)
    if answer.status == 200 and one and one.completion_tokens:
        return
    raise SmokeError(
        code="healthy-but-no-decode",
        message=f"the server at {server.url} answers (health is {server.health()}), but there is no completion of "
        f"one token: {answer.status} {str(answer.response)[:300]}",
        hint="read its log; nox -s smoke on the same profile shows it with its log",
    )
