"""The probe of memory: the same work again and again takes no more of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from sglforge.smoke.client import Answer, Request
from sglforge.smoke.generation import greedy
from sglforge.smoke.observe.memory import steadiness
from sglforge.smoke.observe.processes import resident
from sglforge.smoke.probes.looking import by_looks
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, failed, inconclusive, passed
from sglforge.smoke.site import Site
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Look, Observed

_ROUNDS = 10
_TOGETHER = 4
_TOKENS = 2
_LAST = 3
"""Looks that must agree: a server publishes its figures a moment after its answer."""
_SETTLE_S = 0.3
_BUSY_S = 2.0


def _ask(subject: Subject) -> Waves:
    """Ask the same few tokens of the same prompts, round after round."""
    prompts = subject.prompts
    return tuple(
        tuple(greedy(f"round-{number}-{one}", prompts[one % len(prompts)], _TOKENS) for one in range(_TOGETHER))
        for number in range(1, _ROUNDS + 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """RSS in bytes over all processes; KV tokens in use and requests at work, None where the server does not say."""

    rss: int
    kv_tokens: int | None
    busy: int | None


def _look(site: Site) -> Look:
    tokens, busy = _load_at_rest(site.ask)
    return asdict(_Seen(rss=resident(site.members()), kv_tokens=tokens, busy=busy))


def _load_at_rest(ask: Callable[[Request], Answer]) -> tuple[int | None, int | None]:
    """Return KV tokens in use and requests at work; a moment is given to come to rest.

    Tokens that the prefix cache could give back do not count as used (SGLang 0.5.9 to 0.5.23).
    """
    start = time.monotonic()
    while (load := _load(ask(Request(name="loads", path="/v1/loads")).response)) and any(load):
        _, busy = load
        if time.monotonic() - start > (_BUSY_S if busy else _SETTLE_S):
            break
        time.sleep(0.03)
    return load or (None, None)


def _load(response: object) -> tuple[int, int] | None:
    """Return KV tokens in use and requests at work over all ranks, None where they are not said."""
    used = busy = 0
    match response:
        case {"loads": [*ranks]} if ranks:
            for rank in ranks:
                match rank:
                    case {"num_used_tokens": int(tokens), "num_running_reqs": int(run), "num_waiting_reqs": int(wait)}:
                        used, busy = used + tokens, busy + run + wait
                    case _:
                        return None
            return used, busy
        case _:
            return None


def _judge(_observed: Observed, looks: Sequence[_Seen]) -> Judgement:
    after = looks[2:]
    rss = steadiness([float(look.rss) for look in after])
    told = [look.kv_tokens for look in looks if look.kv_tokens is not None]
    told = told if len(told) == len(looks) else []
    rest = min(told[:2], default=0)
    held = bool(told) and min(told[-_LAST:]) > rest
    busy = min(look.busy or 0 for look in after[-_LAST:])
    evidence: dict[str, object] = {
        "rss": [look.rss for look in after],
        "growth": rss.growth,
        "kv_tokens": [look.kv_tokens for look in after],
    }
    faults = []
    if held and not busy:
        faults.append(f"{told[-1] - rest} KV tokens are in use by nobody that were free when the server was ready")
    if rss.verdict == "grows":
        faults.append(
            f"its processes grow by {_mib(rss.per_round)} with each round of {_TOGETHER} requests that were the same"
        )
    if faults:
        return failed(
            "memory-grows", "; ".join(faults), "it will run out: see which requests it forgets to clean up", **evidence
        )
    if busy:
        return inconclusive(f"the server is still at work on {busy} requests, and none was waited for", "", **evidence)
    level = f"its processes stay at {_mib(after[-1].rss)} ({_mib(rss.growth)} more after {_ROUNDS} rounds)"
    kv = f"{told[-1]} KV tokens in use at rest" if told else "it does not say how many KV tokens are in use"
    return passed(f"{level}; {kv}", **evidence)


def _mib(size: float | None) -> str:
    return f"{(size or 0) / 2**20:.1f} MiB"


MEMORY_STEADY = Probe(
    name="memory-steady",
    proves="the same work again and again takes no more memory",
    needs=(Need.OWN, Need.NATIVE),
    requests=_ask,
    look=_look,
    judge=by_looks(_Seen, _judge, least=2 + _ROUNDS),
)
