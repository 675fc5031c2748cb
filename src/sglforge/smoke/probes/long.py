"""Probes of length: many tokens before the deadline that the server's own speed sets, and prompts near the limit."""

from __future__ import annotations

from dataclasses import replace

from sglforge.config.model import FactProbe
from sglforge.smoke.equality import Pair, questions, ties, unequal
from sglforge.smoke.generation import excerpt, generation, greedy, prompt_of
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, differs, failed, inconclusive, passed
from sglforge.smoke.probes.quality import degenerate
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

_MEASURED_TOKENS = 32
_LONG_TOKENS = 384
# A later token costs hardly more than an early one; what is this much slower, and later than any answer may be, hangs.
_PATIENCE = 5.0
_CLOCK_S = 1e-4
# Other engines may end a text where it ends; less than this shows nothing of a long one.
_FEWEST_TOKENS = 8

_SAMPLE_CHARACTERS = 400
_SHARE = 0.6
_EXACT_TOKENS = 1000
_MOST_TOKENS = 32_000
_ANSWER_TOKENS = 16
_SENTENCE = "Entry {number}: the wind came from the west, the sea was calm, and no ship was seen. "


def _ask_long(subject: Subject) -> Waves:
    return ((greedy("speed", subject.long_prompt, _MEASURED_TOKENS, ignore_eos=True),),)


def _speed(observed: Observed) -> float | None:
    """Return the seconds per token of the first request."""
    for exchange in observed.exchanges:
        one = generation(exchange.answer.response)
        if exchange.request.name == "speed" and one and one.completion_tokens:
            return max(exchange.answer.seconds, _CLOCK_S) / one.completion_tokens
    return None


def _more_long(observed: Observed) -> Waves:
    speed = _speed(observed)
    if speed is None or len(observed.exchanges) > 1:
        return ()
    tokens = observed.subject.room_for(_LONG_TOKENS)
    deadline = _PATIENCE * speed * tokens
    request = greedy("long", observed.subject.long_prompt, tokens, ignore_eos=True)
    return ((replace(request, timeout_s=round(deadline, 1)),),)


def _judge_long(observed: Observed) -> Judgement:
    speed, last, tokens = _speed(observed), observed.exchanges[-1], observed.subject.room_for(_LONG_TOKENS)
    if speed is None:
        return _unanswered(last, observed)
    if last.request.name != "long":
        return inconclusive("the long request was not sent", "judge a transcript as smoke wrote it")
    one = observed.generations().get("long")
    if last.status == "timeout":
        return failed(
            "decode-hang",
            f"timeout: {_MEASURED_TOKENS} tokens came at {1 / speed:.0f} tokens per second, {tokens} did not "
            f"come within {last.answer.seconds:.0f} s; health is {observed.health}",
            "decoding stops on the way: the log's last `Decode batch` line tells how far it came",
        )
    if one is None:
        return _unanswered(last, observed)
    sent = one.completion_tokens if one.output_ids is None else len(one.output_ids)
    if observed.subject.api == "sglang" and not sent == one.completion_tokens == tokens:
        return failed(
            "tokens-lost",
            f"{tokens} tokens were asked for; the server counts {one.completion_tokens} and sent {sent} "
            f"(finish reason {one.finish})",
        )
    if one.completion_tokens < _FEWEST_TOKENS:
        return inconclusive(f"{one.completion_tokens} of {tokens} tokens came (finish reason {one.finish})")
    rate = one.completion_tokens / last.answer.seconds if last.answer.seconds else 0.0
    return passed(f"{one.completion_tokens} tokens at {rate:.0f} per second", tokens=sent, tokens_per_second=rate)


def _unanswered(exchange: Exchange, observed: Observed) -> Judgement:
    if exchange.status == "timeout":
        return failed(
            "decode-hang",
            f"timeout: no answer to request {exchange.request.name} within {exchange.answer.seconds:.0f} s; "
            f"health is {observed.health}",
        )
    dead = observed.ended is not None or exchange.status == "disconnected"
    return failed(
        "server-died" if dead else "request-failed",
        f"request {exchange.request.name} was answered with {exchange.status} ({observed.ended or 'it still runs'}): "
        f"{str(exchange.answer.response)[:200]}",
        "read its log",
    )


def _filler(characters: int) -> str:
    text, number = "", 0
    while len(text) < characters:
        text += _SENTENCE.format(number=number)
        number += 1
    return text[:characters]


def _ask_context(subject: Subject) -> Waves:
    return ((greedy("sample", _filler(_sample(subject)), 1),),)


def _sample(subject: Subject) -> int:
    """Return the characters of a text whose tokens are counted; it must fit."""
    return subject.room_for(_SAMPLE_CHARACTERS)


def _more_context(observed: Observed) -> Waves:
    """Ask a prompt near the limit twice, then one above it, then whether the server still decodes."""
    if len(observed.exchanges) != 1:
        return questions(observed, _pairs(observed))
    characters, limit = _characters_per_token(observed), observed.subject.longest_prompt
    if characters is None or limit is None:
        return ()
    most = _EXACT_TOKENS if observed.subject.exact else _MOST_TOKENS
    before = _filler(int(min(_SHARE * limit, most) * characters))
    inside = before + observed.subject.long_prompt
    over = _filler(int(1.2 * limit * characters) + _SAMPLE_CHARACTERS)
    asked = [greedy(f"inside-{turn}", inside, _ANSWER_TOKENS) for turn in range(2)]
    if far := _far(observed.subject):
        asked.append(greedy("far", before + far.prompt, _ANSWER_TOKENS))
    return (*((one,) for one in asked), (greedy("over", over, 1),), (greedy("after", observed.subject.long_prompt, 4),))


def _far(subject: Subject) -> FactProbe | None:
    return subject.expectations.far if subject.expectations else None


def _characters_per_token(observed: Observed) -> float | None:
    characters, tokens = _sample(observed.subject), _prompt_tokens(observed.exchanges[0])
    return characters / tokens if tokens and 0 < tokens <= 2 * characters else None


def _pairs(observed: Observed) -> list[Pair]:
    answers = observed.generations()
    prompts = {exchange.request.name: prompt_of(exchange.request) for exchange in observed.exchanges}
    if not {"inside-0", "inside-1"} <= answers.keys():
        return []
    return [Pair(name="inside-1", prompt=prompts["inside-1"], got=answers["inside-1"], expected=answers["inside-0"])]


def _judge_context(observed: Observed) -> Judgement:
    limit = observed.subject.longest_prompt
    answers = observed.generations()
    exchanges = {exchange.request.name: exchange for exchange in observed.exchanges}
    if "over" not in exchanges and all(exchange.ok for exchange in observed.exchanges):
        return inconclusive("the server does not say how long a prompt may be", "ask it with a native /server_info")
    tokens = _prompt_tokens(exchanges.get("inside-0"))
    for name in ("sample", "inside-0", "inside-1", "far"):
        if name in exchanges and name not in answers:
            return _unanswered(exchanges[name], observed)
    for name in ("inside-0", "inside-1"):
        if name in answers and (fault := degenerate(answers[name])) and fault.broken:
            return failed(
                "degenerate-output",
                f"behind a prompt of {tokens} tokens no text comes: {fault.message}",
                "if probe degenerate passes, only long prompts are wrong: their kernels, or positions that far",
                text=answers[name].text,
            )
    pairs = _pairs(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "long-context-wrong",
            f"a prompt of {tokens} tokens is answered differently the second time, when its prefix is cached: "
            f"{pair.got.first_difference(pair.expected)}",
            "the rows of a long prefix are wrong, in the cache or when they are written in chunks",
            texts=[pair.expected.text, pair.got.text],
        )
    far = _far(observed.subject)
    if far and "far" in answers and far.contains not in answers["far"].text:
        return failed(
            "long-context-wrong",
            f"behind a prompt of {tokens} tokens {excerpt(far.prompt)} is answered with "
            f"{excerpt(answers['far'].text)}, without {far.contains!r}",
            "attention goes wrong at positions that far; or this model never knew it there: try a smaller context",
            text=answers["far"].text,
        )
    if (over := exchanges.get("over")) is None:
        return inconclusive("the prompt above the limit was not sent", "judge a transcript as smoke wrote it")
    if "after" not in answers:
        return failed(
            "overlong-not-refused",
            f"after a prompt above the limit of {limit} tokens (answered with {over.status}) the "
            f"server does not decode any more ({observed.ended or f'health is {observed.health}'})",
            "a client can end it with one request: set a limit in front of it until this is mended",
        )
    if over.status == 200 or not isinstance(over.status, int) or over.status >= 500:
        return failed(
            "overlong-not-refused",
            f"a prompt above the limit of {limit} tokens is answered with {over.status}: "
            f"{excerpt(str(over.answer.response)[:200])}",
            "a clean refusal is a status of 400 to 499",
        )
    return passed(
        f"{tokens} tokens twice, the same answer; more than {limit} are refused with {over.status}"
        + ties(observed, pairs),
        prompt_tokens=tokens,
    )


def _prompt_tokens(exchange: Exchange | None) -> int | None:
    match exchange.answer.response if exchange else None:
        case {"meta_info": {"prompt_tokens": int(tokens)}} | {"usage": {"prompt_tokens": int(tokens)}}:
            return tokens
        case _:
            return None


DECODE_LONG = Probe(
    name="decode-long",
    proves="a long answer comes whole, in the time that the server's own speed allows",
    requests=_ask_long,
    follow_up=_more_long,
    judge=_judge_long,
    judges_silence=True,
)
LONG_CONTEXT = Probe(
    name="long-context",
    proves="a prompt near the limit is answered with text, the same twice, and one above it is refused cleanly",
    needs=(Need.NATIVE,),
    requests=_ask_context,
    follow_up=_more_context,
    judge=_judge_context,
    judges_silence=True,
)
