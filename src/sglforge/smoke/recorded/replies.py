"""Read an answer: SGLang's /generate, OpenAI's chat and completions, their streams, a plain text, or short forms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from sglforge.smoke.recorded.document import Node, first, mapping, number, whole
from sglforge.smoke.recorded.model import Reply

TEXT_KEYS = ("text", "content", "output", "output_text", "completion_text", "generated_text", "answer")
_LOGPROB_KEYS = ("output_token_logprobs", "token_logprobs", "output_logprobs", "logprobs", "logprob")
_SAYS_NAN = re.compile(r"\b(nan|null|none|[+-]?inf(inity)?)\b", re.IGNORECASE)
_COUNTS_NAN = re.compile(r"(^|_)(nans?|non_?finite)(_|$)", re.IGNORECASE)
_NOT_A_NUMBER = {"nan", "none", "null", "inf", "-inf", "infinity", "-infinity", "+inf"}


def reply(value: object) -> Reply:
    """Return what an answer holds; an answer of an unknown form holds nothing."""
    match value:
        case str():
            return Reply(text=value)
        case list() if value and all(isinstance(part, str) for part in value):
            return Reply(text="".join(str(part) for part in value))
        case list() if value:
            return _joined([reply(part) for part in value])
        case Mapping():
            return _of_mapping(value)
        case _:
            return Reply()


def _of_mapping(node: Node) -> Reply:
    meta, usage = mapping(node.get("meta_info")), mapping(node.get("usage"))
    choice = _first_choice(node)
    message = mapping(first(choice, "message", "delta"))
    sources = (node, choice, message, meta, usage)
    tokens = _whole(sources, "completion_tokens", "tokens", "output_tokens", "num_tokens", "generated_tokens")
    verifications = _whole(sources, "spec_verify_ct", "verify_ct", "spec_verify_count")
    return Reply(
        text=_text(node, choice, message),
        finish=_finish(sources),
        tokens=tokens,
        prompt_tokens=_whole(sources, "prompt_tokens", "input_tokens"),
        ids=_ids(sources),
        logprobs=_logprobs(sources),
        verifications=verifications,
        right_drafts=_right_drafts(sources, tokens, verifications),
        accept_length=_number(
            sources, "spec_accept_length", "accept_length", "accept_len", "avg_spec_accept_length", "acceptance_length"
        ),
        accept_rate=_rate(sources),
        error=_error(node, meta),
        other_output=any(message.get(key) or node.get(key) for key in ("tool_calls", "reasoning_content", "refusal")),
    )


def _first_choice(node: Node) -> Node:
    choices = node.get("choices")
    return mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _text(node: Node, choice: Node, message: Node) -> str | None:
    for source in (message, choice, node):
        value = first(source, *TEXT_KEYS)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            parts = [mapping(part).get("text", part) for part in value]
            if parts and all(isinstance(part, str) for part in parts):
                return "".join(str(part) for part in parts)
    for key in ("chunks", "stream", "deltas"):
        if isinstance(value := node.get(key), list):
            return reply(value).text
    return "" if "content" in message else None


def _finish(sources: Iterable[Node]) -> str:
    for source in sources:
        match source.get("finish_reason", source.get("finish")):
            case {"type": str(kind)} | str(kind):
                return kind
            case _:
                continue
    return ""


def _ids(sources: Iterable[Node]) -> tuple[int, ...] | None:
    for source in sources:
        ids = first(source, "output_ids", "token_ids", "output_token_ids", "ids")
        if isinstance(ids, list) and ids and all(type(one) is int for one in ids):
            return tuple(ids)
    return None


def _logprobs(sources: Sequence[Node]) -> tuple[float | None, ...]:
    for source in sources:
        if (value := first(source, *_LOGPROB_KEYS)) is not None and (found := _values(value)):
            return found
    said = (value for source in sources for key, value in source.items() if _COUNTS_NAN.search(key))
    return (None,) if any(value is True or (number(value) or 0) > 0 for value in said) else ()


def _values(value: object) -> tuple[float | None, ...]:
    """Return the log-probabilities of sampled tokens, from SGLang's rows, OpenAI's objects or plain numbers."""
    if isinstance(value, Mapping):
        if isinstance(legacy := value.get("token_logprobs"), list):
            found = _values(legacy)
            # with echo the prompt comes first, and its first token has none
            return found[1:] if found[1:] and found[0] is None and None not in found[1:] else found
        return _values(value.get("content"))
    if isinstance(value, str):
        return (None,) if _SAYS_NAN.search(value) else ()
    if isinstance(value, int | float):
        return (float(value),)
    if not isinstance(value, list):
        return ()
    return tuple(_value(entry) for entry in value)


def _value(entry: object) -> float | None:
    if isinstance(entry, Mapping):
        entry = entry.get("logprob")
    if isinstance(entry, list):
        entry = entry[0] if entry else None
    return None if isinstance(entry, bool) or entry is None else _logprob(entry)


def _logprob(value: object) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    return None if str(value).strip().casefold() in _NOT_A_NUMBER else number(value)


def _right_drafts(sources: Iterable[Node], tokens: int | None, verifications: int | None) -> int | None:
    """Return how many draft tokens were right; a verification adds one of the model's own to those that were."""
    said = _whole(
        sources,
        "spec_num_correct_drafts",
        "spec_accept_token_num",
        "spec_accepted_tokens",
        "accepted_tokens",
        "num_accepted_tokens",
    )
    if said is None and tokens is not None and verifications is not None:
        return max(tokens - verifications, 0)
    return said


def _rate(sources: Iterable[Node]) -> float | None:
    said = _number(sources, "spec_accept_rate", "accept_rate", "acceptance_rate")
    accepted = _number(sources, "spec_num_correct_drafts", "accepted_tokens", "accepted", "num_accepted_tokens")
    drafted = _number(sources, "spec_draft_token_num", "draft_tokens", "drafted", "num_draft_tokens", "proposed")
    return accepted / drafted if said is None and accepted is not None and drafted else said


def _error(node: Node, meta: Node) -> str:
    """Return the words of an error that came instead of a completion, also in an answer with status 200."""
    said = first(node, "error", "detail")
    if said:
        return str(mapping(said).get("message", said))
    if str(node.get("object")) == "error":
        return str(node.get("message", "error"))
    match meta.get("finish_reason"):
        case {"type": "abort", "message": str(words), **rest} if (whole(rest.get("status_code")) or 0) not in {0, 499}:
            return words
        case _:
            return ""


def _joined(parts: list[Reply]) -> Reply:
    """Return the answer that the pieces of a stream make up."""
    texts = [part.text for part in parts if part.text is not None]
    # SGLang's own stream repeats what came before, OpenAI's does not
    grows = len(texts) > 1 and all(two.startswith(one) for one, two in pairwise(texts))
    return Reply(
        text=(texts[-1] if grows else "".join(texts)) if texts else None,
        finish=next((part.finish for part in reversed(parts) if part.finish), ""),
        tokens=next((part.tokens for part in reversed(parts) if part.tokens is not None), None),
        logprobs=tuple(value for part in parts for value in part.logprobs),
        error=next((part.error for part in parts if part.error), ""),
        other_output=any(part.other_output for part in parts),
    )


def _whole(sources: Iterable[Node], *names: str) -> int | None:
    return next((found for source in sources if (found := whole(first(source, *names))) is not None), None)


def _number(sources: Iterable[Node], *names: str) -> float | None:
    return next((found for source in sources if (found := number(first(source, *names))) is not None), None)
