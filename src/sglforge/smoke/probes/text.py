"""Probes of single continuations: they come, they repeat, they are right, they keep to a grammar."""

from __future__ import annotations

import json

from sglforge.smoke.equality import Pair, questions, ties, unequal
from sglforge.smoke.generation import excerpt, greedy
from sglforge.smoke.json_shape import unchecked, violations
from sglforge.smoke.probes.model import (
    Judgement,
    Need,
    Probe,
    Waves,
    differs,
    failed,
    inconclusive,
    passed,
)
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed

_SHORT_TOKENS = 16
_REPEAT_TOKENS = 64
_REPEATS = 3
_FACT_TOKENS = 32
_JSON_TOKENS = 160


def _ask_single(subject: Subject) -> Waves:
    return ((greedy("single", subject.long_prompt, _SHORT_TOKENS),),)


def _judge_single(observed: Observed) -> Judgement:
    one = observed.generations()["single"]
    if one.completion_tokens < 1 or not one.text:
        return failed(
            "empty-completion",
            f"the completion is empty ({one.completion_tokens} tokens, finish reason {one.finish})",
            text=one.text,
        )
    came = one.completion_tokens if one.output_ids is None else len(one.output_ids)
    wanted = _SHORT_TOKENS if one.finish == "length" and one.counted else one.completion_tokens
    if not came == one.completion_tokens == wanted:
        return failed(
            "tokens-lost",
            f"{wanted} tokens should have come (finish reason {one.finish}); "
            f"the server counts {one.completion_tokens} and sent {came}",
            text=one.text,
        )
    return passed(f"{one.completion_tokens} tokens: {excerpt(one.text)}", text=one.text, tokens=one.completion_tokens)


def _ask_repeats(subject: Subject) -> Waves:
    return tuple((greedy(f"repeat-{turn}", subject.long_prompt, _REPEAT_TOKENS),) for turn in range(_REPEATS))


def _repeated(observed: Observed) -> list[Pair]:
    answers = observed.generations()
    return [
        Pair(
            name=f"repeat-{turn}",
            prompt=observed.subject.long_prompt,
            got=answers[f"repeat-{turn}"],
            expected=answers["repeat-0"],
        )
        for turn in range(1, _REPEATS)
        if {"repeat-0", f"repeat-{turn}"} <= answers.keys()
    ]


def _judge_repeats(observed: Observed) -> Judgement:
    pairs = _repeated(observed)
    for pair, equality in unequal(observed, pairs):
        return differs(
            equality,
            "greedy-not-repeatable",
            f"the same greedy request changed (request {pair.name}): {pair.got.first_difference(pair.expected)}",
            "something is read that the request does not own: stale cache rows, uninitialised memory",
            texts=[pair.expected.text, pair.got.text],
        )
    tokens = observed.generations()["repeat-0"].completion_tokens
    return passed(f"{_REPEATS} times the same {tokens} tokens{ties(observed, pairs)}")


def _ask_facts(subject: Subject) -> Waves:
    return tuple(
        (greedy(f"fact-{number}", fact.prompt, _FACT_TOKENS),) for number, fact in enumerate(subject.known.facts)
    )


def _judge_facts(observed: Observed) -> Judgement:
    facts = observed.subject.known.facts
    answers = observed.generations()
    texts = [answers[f"fact-{number}"].text for number in range(len(facts))]
    wrong = [
        f"{excerpt(fact.prompt)} -> {excerpt(text)}, without {fact.contains!r}"
        for fact, text in zip(facts, texts, strict=True)
        if fact.contains not in text
    ]
    if wrong:
        return failed(
            "fact-wrong",
            f"{len(wrong)} of {len(facts)} known answers are wrong: {wrong[0]}",
            "the model is not the one that the profile means, or its numbers go wrong on the way",
            wrong=wrong,
        )
    return passed(f"{len(facts)} of {len(facts)} known answers", texts=texts)


def _ask_json(subject: Subject) -> Waves:
    smoke = subject.known
    return ((greedy("json", smoke.json_prompt, _JSON_TOKENS, json_schema=smoke.json_schema),),)


def _judge_json(observed: Observed) -> Judgement:
    one = observed.generations()["json"]
    schema: object = json.loads(observed.subject.known.json_schema)
    try:
        value = json.loads(one.text)
    except (ValueError, RecursionError) as error:
        if one.finish == "length" and one.text.lstrip().startswith(("{", "[", '"')):
            return inconclusive(
                f"the JSON was not closed within {_JSON_TOKENS} tokens: {excerpt(one.text)}",
                "give a prompt that this model answers shortly, or a schema without free text",
                text=one.text,
            )
        return failed(
            "json-invalid",
            f"constrained by a schema, but no JSON came ({error}): {excerpt(one.text)}",
            text=one.text,
        )
    if not isinstance(schema, dict):  # true and false are schemas too
        return passed(f"JSON: {one.text}", text=one.text)
    if broken := list(violations(value, schema)):
        return failed("json-invalid", f"the JSON breaks its schema: {broken[0]}", text=one.text, violations=broken)
    if unknown := sorted(unchecked(schema)):
        return inconclusive(
            f"the JSON keeps to what was checked of its schema, but nobody checked {', '.join(unknown)}",
            "use a plainer schema in the profile",
            text=one.text,
        )
    return passed(f"JSON that keeps to its schema: {one.text}", text=one.text)


DECODE_SINGLE = Probe(
    name="decode-single",
    proves="one request decodes as many tokens as it asks for",
    requests=_ask_single,
    judge=_judge_single,
)
GREEDY_REPEAT = Probe(
    name="greedy-repeat",
    proves="greedy decoding gives the same tokens each time, also from a cached prefix",
    requests=_ask_repeats,
    follow_up=lambda observed: questions(observed, _repeated(observed)),
    judge=_judge_repeats,
)
FACTS = Probe(
    name="facts",
    proves="the model says what it is known to say: right weights, right numbers",
    needs=(Need.EXPECTATIONS, Need.FACTS),
    requests=_ask_facts,
    judge=_judge_facts,
)
JSON_SCHEMA = Probe(
    name="json-schema",
    proves="constrained decoding ends with JSON that keeps to the schema",
    needs=(Need.EXPECTATIONS,),
    requests=_ask_json,
    judge=_judge_json,
)
