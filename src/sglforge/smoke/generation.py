"""Requests for a greedy continuation, and what SGLang answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from sglforge.smoke.client import Request

_EXCERPT = 80
_MOST_TOKENS = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A continuation as ``/generate`` returns it, or, without token ids and counts of drafts, ``/v1/completions``.

    ``correct_drafts`` (draft tokens that the model confirmed, without its own) and ``verify_steps`` are
    ``spec_num_correct_drafts`` and ``spec_verify_ct`` of ``meta_info`` in SGLang 0.5.23; None if it does not
    speculate. ``counted`` is false where an engine sends no ``usage``: ``completion_tokens`` are then the words of the
    text, an estimate that is right about none and many only.
    """

    text: str
    output_ids: tuple[int, ...] | None
    completion_tokens: int
    finish: str
    correct_drafts: int | None
    verify_steps: int | None
    counted: bool = True

    @property
    def right_drafts(self) -> int | None:
        """How many draft tokens were right, None if it does not speculate.

        Releases before ``spec_num_correct_drafts`` tell the verifications only: each adds one token of the model's
        own to those that were drafted.
        """
        if self.correct_drafts is None and self.verify_steps is not None:
            return max(self.completion_tokens - self.verify_steps, 0)
        return self.correct_drafts

    def same_as(self, other: Generation) -> bool:
        """Whether both are the same tokens (the same text where the server does not return tokens)."""
        if self.output_ids is None or other.output_ids is None:
            return self.text == other.text
        return self.output_ids == other.output_ids

    def first_difference(self, other: Generation) -> str:
        """Say where two continuations part."""
        ours: tuple[object, ...] = self.output_ids or tuple(self.text)
        theirs: tuple[object, ...] = other.output_ids or tuple(other.text)
        unit = "token" if self.output_ids else "character"
        for place, (one, two) in enumerate(zip(ours, theirs, strict=False)):
            if one != two:
                return f"{unit} {place} is {one!r} instead of {two!r}"
        return f"{len(ours)} {unit}s instead of {len(theirs)}"


def excerpt(text: str) -> str:
    """Return the beginning of a text, quoted, for a message of one line."""
    return repr(text) if len(text) <= _EXCERPT else f"{text[:_EXCERPT]!r}..."


def greedy(name: str, prompt: str, max_new_tokens: int, **sampling: object) -> Request:
    """Return a request for the greedy continuation of a prompt."""
    parameters = {"temperature": 0, "max_new_tokens": max_new_tokens, **sampling}
    return Request(name=name, path="/generate", body={"text": prompt, "sampling_params": parameters})


def prompt_of(request: Request) -> str:
    """Return the prompt of a request for a continuation, nothing where it has none."""
    match request.body:
        case {"text": str(prompt)} | {"prompt": str(prompt)}:
            return prompt
        case _:
            return ""


def generation(response: object) -> Generation | None:
    """Return the continuation in an answer, None when it is not one."""
    match response:
        case {"text": str(text), "meta_info": {"completion_tokens": tokens} as meta, **rest} if _is_count(tokens):
            return Generation(
                text=text,
                output_ids=_ids(rest),
                completion_tokens=tokens,
                finish=_finish(meta),
                correct_drafts=_count(meta, "spec_num_correct_drafts"),
                verify_steps=_count(meta, "spec_verify_ct"),
            )
        case {
            "choices": [{"text": str(text), **choice}, *_],
            "usage": {"completion_tokens": tokens},
        } if _is_count(tokens):
            return _completion(text, choice, tokens)
        case {"choices": [{"text": str(text), **choice}, *_], **rest} if rest.get("usage") is None:
            return _completion(text, choice, None)
        case _:
            return None


def _completion(text: str, choice: Mapping[object, object], tokens: int | None) -> Generation:
    """Return what ``/v1/completions`` answered; without a count of tokens it is estimated."""
    return Generation(
        text=text,
        output_ids=None,
        completion_tokens=(len(text.split()) or len(text[:1])) if tokens is None else tokens,
        finish=str(choice.get("finish_reason") or "unknown"),
        correct_drafts=None,
        verify_steps=None,
        counted=tokens is not None,
    )


def _ids(response: Mapping[object, object]) -> tuple[int, ...] | None:
    ids = response.get("output_ids")
    return tuple(ids) if isinstance(ids, list) and all(isinstance(token, int) for token in ids) else None


def _finish(meta: Mapping[str, object]) -> str:
    match meta.get("finish_reason"):
        case {"type": str(kind)} | str(kind):
            return kind
        case _:
            return "unknown"


def _count(meta: Mapping[str, object], name: str) -> int | None:
    value = meta.get(name)
    return value if _is_count(value) else None


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MOST_TOKENS
