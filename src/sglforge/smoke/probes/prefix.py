"""The probe of the prefix cache: what it gives back belongs to the prompt."""

from __future__ import annotations

from sglforge.smoke.client import Request
from sglforge.smoke.equality import Pair, questions, ties, unequal
from sglforge.smoke.generation import greedy
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, differs, failed, inconclusive, passed
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

_TOKENS = 32
_SHARED = (
    "Notes of the harbour master. The first boat left before dawn with salt and rope, the second one waited for the "
    "tide, and the third did not leave at all. "
)


def _prompts(subject: Subject) -> tuple[str, str]:
    """Return two prompts that begin alike and go on differently."""
    first, *others = subject.prompts
    return f"{_SHARED}{first}", f"{_SHARED}{others[0] if others else 'The fourth boat'}"


def _ask(subject: Subject) -> Waves:
    """Ask each prompt with an empty cache, then the other one, which begins alike; then both again.

    Both ways round: the end that the longer prompt keeps for its own may be all that a model goes on from.
    """
    one, two = _prompts(subject)
    flush = (Request(name="flush", path="/flush_cache", body={}),)
    return (
        flush,
        (greedy("one-cold", one, _TOKENS),),
        (greedy("two-after-one", two, _TOKENS),),
        flush,
        (greedy("two-cold", two, _TOKENS),),
        (greedy("one-after-two", one, _TOKENS),),
        (greedy("two-again", two, _TOKENS),),
        (greedy("one-again", one, _TOKENS),),
    )


def _pairs(observed: Observed) -> list[Pair]:
    one, two = _prompts(observed.subject)
    answers = observed.generations()
    wanted = (
        ("two-after-one", "two-cold", two),
        ("one-after-two", "one-cold", one),
        ("two-again", "two-cold", two),
        ("one-again", "one-cold", one),
    )
    return [
        Pair(name=name, prompt=prompt, got=answers[name], expected=answers[cold])
        for name, cold, prompt in wanted
        if name in answers and cold in answers
    ]


def _judge(observed: Observed) -> Judgement:
    pairs = _pairs(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "prefix-cache-wrong",
            f"request {pair.name} takes its beginning from the cache and says something else than with an empty one: "
            f"{pair.got.first_difference(pair.expected)}",
            "the cache returns rows of another prompt: confirm with disable-radix-cache = true under [flags]",
            texts=[pair.expected.text, pair.got.text],
        )
    hits = {exchange.request.name: _cached(exchange) for exchange in observed.exchanges}
    if any(hits.get(name) is None for name in ("one-after-two", "one-again")):
        return inconclusive("the server does not say how many tokens came from its cache")
    if not hits["one-again"]:
        return failed(
            "prefix-never-hit",
            "the same prompt was prefilled whole each time: nothing came from the cache",
            "if this is meant, say disable-radix-cache = true under [flags] of the profile",
            hits=hits,
        )
    return passed(
        f"{hits['one-after-two']} and {hits['one-again']} tokens came from the cache, and changed no text"
        + ties(observed, pairs),
        hits=hits,
    )


def _cached(exchange: Exchange) -> int | None:
    match exchange.answer.response:
        case {"meta_info": {"cached_tokens": int(tokens)}}:
            return tokens
        case _:
            return None


PREFIX_HIT = Probe(
    name="prefix-hit",
    proves="a beginning that comes from the prefix cache is the prompt's own",
    needs=(Need.NATIVE, Need.OWN, Need.CACHE),
    requests=_ask,
    follow_up=lambda observed: questions(observed, _pairs(observed)),
    judge=_judge,
)
