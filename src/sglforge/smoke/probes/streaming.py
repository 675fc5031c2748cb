"""The probe of streams."""

from __future__ import annotations

from sglforge.smoke.equality import Pair, questions, ties, unequal
from sglforge.smoke.generation import Generation, excerpt, greedy
from sglforge.smoke.probes.model import Judgement, Probe, Waves, differs, failed, passed
from sglforge.smoke.streams import Streamed, streamed, streaming
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

_TOKENS = 48


def _ask(subject: Subject) -> Waves:
    plain = greedy("plain", subject.long_prompt, _TOKENS)
    return (plain,), (streaming(greedy("stream", subject.long_prompt, _TOKENS)),)


def _stream(observed: Observed) -> Streamed:
    answers = (one.answer.response for one in observed.exchanges if one.request.name == "stream")
    return streamed(next(answers, None))


def _pairs(observed: Observed) -> list[Pair]:
    stream, plain = _stream(observed), observed.generations().get("plain")
    if plain is None:
        return []
    got = Generation(
        text=stream.text,
        output_ids=stream.ids,
        completion_tokens=len(stream.ids or ()),
        finish=stream.finish or "unknown",
        correct_drafts=None,
        verify_steps=None,
    )
    return [Pair(name="stream", prompt=observed.subject.long_prompt, got=got, expected=plain)]


def _judge(observed: Observed) -> Judgement:
    stream, plain = _stream(observed), observed.generations()["plain"]
    if not stream.texts:
        return failed("stream-broken", "the stream brought no text", "its route answers 200 and says nothing")
    if not stream.closed or stream.finish is None:
        missing = "its end" if not stream.closed else "a reason for its end"
        return failed(
            "stream-broken",
            f"the stream has brought {len(stream.texts)} pieces and not {missing}: {excerpt(stream.text)}",
            "clients wait for more, until their own time is up",
        )
    if stream.gap:
        sent, counted = stream.gap
        return failed(
            "tokens-lost",
            f"an event of the stream holds {sent} tokens and counts {counted}",
            "tokens are lost between the scheduler and the answer; without a stream they are not",
        )
    if pieces := stream.rewritten():
        return failed(
            "stream-broken",
            f"the stream takes back what it has said: {excerpt(pieces[0][-40:])} became {excerpt(pieces[1][-40:])}",
            "text that was sent cannot be called back: the detokenizer's state is wrong",
        )
    if len(stream.texts) < 2 and plain.completion_tokens > 2:
        return failed(
            "stream-broken",
            f"{plain.completion_tokens} tokens came in one piece at the end",
            "something gathers the stream: the server's stream interval, or a proxy in between",
        )
    pairs = _pairs(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "stream-differs",
            f"the stream says something else than the same request without it: "
            f"{pair.got.first_difference(pair.expected)}",
            texts=[pair.expected.text, pair.got.text],
        )
    return passed(f"{len(stream.texts)} pieces, together what comes without a stream{ties(observed, pairs)}")


STREAM = Probe(
    name="stream",
    proves="a stream brings every token, in pieces, once, and says that it ends",
    requests=_ask,
    follow_up=lambda observed: questions(observed, _pairs(observed)),
    judge=_judge,
)
