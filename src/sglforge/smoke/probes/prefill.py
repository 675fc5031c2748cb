"""The probe of two ways to the same numbers: token by token, and all at once."""

from __future__ import annotations

from dataclasses import replace

from sglforge.smoke.client import Request
from sglforge.smoke.generation import greedy
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, failed, inconclusive, passed, skipped
from sglforge.smoke.scores import number
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

_TOKENS = 64
# In nats. float32 on a CPU differs in the fifth decimal; bfloat16 kernels differ by a rounding step of the logits.
_EXACT_BOUND = 0.01
_BOUND = 0.5
_WRONG = 2.0
_SHARE = 0.1


def _ask(subject: Subject) -> Waves:
    request = greedy("decode", subject.long_prompt, _TOKENS)
    return ((replace(request, body={**(request.body or {}), "return_logprob": True, "logprob_start_len": 0}),),)


def _more(observed: Observed) -> Waves:
    """Send prompt and answer together as a prompt, and ask how likely each of its tokens is."""
    (prompt, output) = _decoded(observed)
    if len(observed.exchanges) > 1 or not prompt or not output:
        return ()
    body = {
        "input_ids": [*prompt, *(token for token, _ in output)],
        "sampling_params": {"temperature": 0, "max_new_tokens": 1},
        "return_logprob": True,
        "logprob_start_len": max(0, len(prompt) - 1),
    }
    return ((Request(name="prefill", path="/generate", body=body),),)


def _decoded(observed: Observed) -> tuple[list[int], list[tuple[int, float]]]:
    """Return the prompt's ids, and id and log-probability of each token that was decoded."""
    match observed.exchanges[0].answer.response if observed.exchanges else None:
        case {"meta_info": {"input_token_logprobs": list(before), "output_token_logprobs": list(after)}}:
            return [token for token, _ in _rows(before)], [(t, p) for t, p in _rows(after) if p is not None]
        case _:
            return [], []


def _rows(rows: list[object]) -> list[tuple[int, float | None]]:
    """Return token id and log-probability of SGLang's ``[logprob, token id, text]``."""
    return [
        (row[1], number(row[0])) for row in rows if isinstance(row, list) and len(row) > 1 and isinstance(row[1], int)
    ]


def _judge(observed: Observed) -> Judgement:
    _, output = _decoded(observed)
    tokens = observed.generations()["decode"].completion_tokens
    if len(output) < tokens:
        return skipped(f"the server returned log-probabilities for {len(output)} of {tokens} tokens")
    match observed.exchanges[-1].answer.response:
        case {"meta_info": {"input_token_logprobs": list(rows)}} if len(observed.exchanges) > 1:
            scored = dict(enumerate(_rows(rows)[-len(output) :]))
        case _:
            return inconclusive("the prompt with its answer got no log-probabilities")
    gaps: list[float] = []
    for place, (token, decoded) in enumerate(output):
        same, prefilled = scored.get(place, (None, None))
        if same != token or prefilled is None:
            return inconclusive(f"the prompt's token {place} has no log-probability of its own")
        gaps.append(abs(decoded - prefilled))
    return _weighed(observed.subject, gaps)


def _weighed(subject: Subject, gaps: list[float]) -> Judgement:
    bound, wrong = (_EXACT_BOUND, _EXACT_BOUND) if subject.exact else (_BOUND, _WRONG)
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    apart = sum(gap > bound for gap in gaps)
    said = f"largest difference {gaps[worst]:.4f} nats, at token {worst}; {apart} of {len(gaps)} above {bound}"
    if gaps[worst] > wrong or apart > _SHARE * len(gaps):
        return failed(
            "decode-differs-from-prefill",
            f"what was decoded token by token is not what a prefill of the same text says: {said}",
            "rows that decoding writes to the KV cache, or positions that it reads, are wrong",
            largest=gaps[worst],
        )
    if apart:
        return inconclusive(f"decoding and prefill differ more than rounding explains, in few places: {said}")
    return passed(f"{len(gaps)} tokens have the same log-probabilities both ways ({said})", largest=gaps[worst])


PREFILL_VS_DECODE = Probe(
    name="prefill-vs-decode",
    proves="tokens that were decoded one by one are as likely as a prefill of the same text says",
    needs=(Need.NATIVE,),
    requests=_ask,
    follow_up=_more,
    judge=_judge,
)
