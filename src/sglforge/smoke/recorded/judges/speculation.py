"""Judge speculation: a draft that does nothing, and a fault while graphs of the draft are replayed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sglforge.errors import Finding
from sglforge.smoke.recorded.model import Event, Opinion, Record, fault, question
from sglforge.smoke.recorded.serverlog import LINE_LIMIT, STEPS_PER_LINE, Batch, LogView, view

MIN_TOKENS = 200
"""Tokens that it takes to judge a draft."""
MIN_LENGTH = 1.2
"""Tokens a verification: a draft of another model gives 1.02, one that fits 2 to 4; 1.0 is no draft at all."""
_SURE_LENGTH = 1.1
_SURE_STEPS = 2 * STEPS_PER_LINE
"""With 1.1 and less, so many verifications are enough: a draft that reaches 1.2 is above it in 98 of 100 cases."""
_WORKS = 1.5
"""A line with this length shows a draft that works; others without gain are batches above a threshold."""
_USUAL_DRAFTS = 3
_COUNTS = frozenset({"ok", "unknown"})
_FATAL = re.compile(
    r"illegal memory access|Segmentation fault|SIGSEGV|device-side assert|AcceleratorError|misaligned address"
    r"|Fatal Python error|unspecified launch failure|CUDA error",
    re.IGNORECASE,
)
_DRAFT_GRAPH = re.compile(
    r"(?:draft|eagle|verify|mtp|spec).{0,60}graph[ _](?:runner|replay|padding)"
    r"|replay\w*.{0,40}(?:draft|verify)|(?:draft|verify)\w*.{0,40}replay",
    re.IGNORECASE,
)
_PADDING = re.compile(r"raw_bs=(\d+).{0,20}?graph_bs=(\d+)")
_NO_GRAPHS = ("--disable-cuda-graph", "--disable-decode-cuda-graph")
_GRAPH_SIZES = ("--cuda-graph-bs-decode", "--cuda-graph-bs", "--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")
_LINE = 240


def judge(record: Record) -> Opinion:
    """Judge the gain of speculation and the replay of its graphs."""
    log = view(record.log)
    findings = [found for found in (_graph_replay(record), _no_gain(record, log)) if found]
    return Opinion(findings=tuple(findings))


def _no_gain(record: Record, log: LogView) -> Finding | None:
    """Weigh the counters of the answers first: they are of these requests; else the lines of the log."""
    if (record.option("--speculative-algorithm") or "").upper() == "NGRAM":
        return None  # finds drafts only in what it has seen: nothing is gained on fresh text
    counted = [event for event in record.events if event.outcome in _COUNTS and _length(record, event) is not None]
    lines = [batch for batch in log.batches if _line_length(record, batch) is not None]
    if counted:
        return _by_answers(record, counted, lines)
    return _by_log(record, lines, log) if lines else None


def _drafts_per_step(record: Record) -> int:
    """Return how many tokens are drafted for a verification, 3 where the command line does not say."""
    tokens, steps = (record.option(f"--speculative-num-{name}") or "" for name in ("draft-tokens", "steps"))
    return max(1, int(tokens) - 1) if tokens.isdigit() else int(steps) if steps.isdigit() else _USUAL_DRAFTS


def _length(record: Record, event: Event) -> float | None:
    reply = event.reply
    if reply.verifications and reply.right_drafts is not None:
        return 1 + reply.right_drafts / reply.verifications
    if reply.verifications == 0 and reply.right_drafts is not None:
        return 1.0 if not reply.right_drafts else None
    if reply.accept_length is None and reply.accept_rate is not None:
        return 1 + reply.accept_rate * _drafts_per_step(record)
    return reply.accept_length


def _by_answers(record: Record, counted: Sequence[Event], lines: Sequence[Batch]) -> Finding | None:
    tokens = sum(event.reply.tokens or 0 for event in counted)
    checks = sum(event.reply.verifications or 0 for event in counted)
    right = sum(event.reply.right_drafts or 0 for event in counted)
    lengths = [length for event in counted if (length := _length(record, event)) is not None]
    length = 1 + right / checks if checks else sum(lengths) / len(lengths)
    if length >= MIN_LENGTH:
        return None
    said = f"accept length {length:.2f} over {tokens} tokens"
    if checks:
        said += f" ({right} draft tokens were right in {checks} verifications)"
    if tokens < MIN_TOKENS:
        return _too_few(said)
    return _nothing(said, [batch.line for batch in lines], record)


def _line_length(record: Record, batch: Batch) -> float | None:
    if record.threshold is not None and batch.running is not None and batch.running > record.threshold:
        return None
    if batch.accept_length is not None:
        return batch.accept_length
    if batch.accept_rate is None:
        return None
    return 1 + batch.accept_rate * _drafts_per_step(record)


def _by_log(record: Record, lines: Sequence[Batch], log: LogView) -> Finding | None:
    lengths = [length for batch in lines if (length := _line_length(record, batch)) is not None]
    length = sum(lengths) / len(lengths)
    # a length of 0 stands for nothing measured yet
    if length >= MIN_LENGTH or max(lengths) >= _WORKS or (not length and lines[0].accept_rate is None):
        return None
    answered = sum(event.reply.tokens or 0 for event in record.completions if event.answered)
    tokens = max(log.tokens_per_line * len(lines), answered)
    said = f"accept length {length:.2f} in {len(lines)} lines of the log, about {tokens:.0f} tokens"
    if tokens >= MIN_TOKENS or (length < _SURE_LENGTH and tokens >= _SURE_STEPS):
        return _nothing(said, [batch.line for batch in lines], record)
    return _too_few(said)


def _nothing(said: str, lines: Sequence[str], record: Record) -> Finding:
    quantised = record.option("--quantization") is not None or record.option("--speculative-draft-model-quantization")
    hint = (
        "the text is right all the same, only slower than without a draft. Either the draft's weights were not loaded "
        "(speculative-draft-model-quantization = 'unquant' if the target is quantised and the draft is not), or the "
        "draft was made for another model; look for weights that were not initialised in the log"
    )
    return fault(
        "spec-no-gain",
        f"the draft does nothing: {said}; 1.0 is no draft at all",
        hint,
        *lines[:5],
        *(
            ["the command line sets a quantisation, which applies to the draft too unless told otherwise"]
            * bool(quantised)
        ),
    )


def _too_few(said: str) -> Finding:
    return question(
        f"whether the draft gains anything is open: {said}, and it takes {MIN_TOKENS} tokens to judge it",
        f"record an answer of {MIN_TOKENS} tokens and more with its spec_verify_ct",
    )


def _graph_replay(record: Record) -> Finding | None:
    """Find a fatal fault of the GPU beside the replay of a graph of the draft or the verification."""
    if any(record.option(name) is not None for name in _NO_GRAPHS):
        return None
    lines = [line[:LINE_LIMIT] for line in record.log.splitlines()]
    fatal = next((line.strip() for line in lines if _FATAL.search(line)), "")
    if not fatal:
        return None
    replay = [line.strip() for line in lines if _DRAFT_GRAPH.search(line) and "capture" not in line.casefold()]
    if not replay:
        return None
    padded = next((match for line in reversed(replay) if (match := _PADDING.search(line))), None)
    sizes = next((f"{name} {' '.join(_values(record.argv, name))}" for name in _GRAPH_SIZES if name in record.argv), "")
    padding = f"; {padded[1]} requests were padded to a graph of {padded[2]}" if padded else ""
    return fault(
        "spec-graph-replay",
        f"the server fell while it replayed a CUDA graph of the draft or its verification{padding}: {fatal[:_LINE]}",
        "start without the graphs of the draft to be sure (SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH=1 for one of them, "
        "--disable-cuda-graph for all): an eager draft does not crash. Then run more requests than the largest graph "
        "holds, of different lengths, so that batches shrink and are padded",
        replay[-1][:_LINE],
        *([f"captured sizes: {sizes}"] if sizes else []),
    )


def _values(argv: Sequence[str], name: str) -> list[str]:
    values = []
    for word in argv[argv.index(name) + 1 :]:
        if word.startswith("--"):
            break
        values.append(word)
    return values
