"""Probes of the chat route: the template, and calls of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sglforge.smoke.client import Request
from sglforge.smoke.generation import excerpt
from sglforge.smoke.json_shape import violations
from sglforge.smoke.probes.model import Judgement, Need, Probe, Waves, failed, inconclusive, passed, skipped
from sglforge.smoke.streams import streamed, streaming
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Exchange, Observed

ROUTE = "/v1/chat/completions"
_TOKENS = 64
_LONG_TOKENS = 512
_TOOL_TOKENS = 200
_ANY_QUESTION = "Say hello in one short sentence."
# What a template puts around messages; a model that has ended its turn prints none of it.
_TEMPLATE_WORD = re.compile(r"<\|[A-Za-z_ ]{1,40}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<\uff5c[^>]{1,40}\uff5c>")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """The message of an answer, and what the answer counts."""

    content: str
    reasoning: str
    tool_calls: tuple[Mapping[str, object], ...]
    finish: str | None
    tokens: int | None


def _asked(subject: Subject, name: str, question: str, tokens: int, **more: object) -> Request:
    body = {
        "model": subject.model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": tokens,
        **more,
    }
    return Request(name=name, path=ROUTE, body=body)


def _message(exchange: Exchange) -> _Message | None:
    match exchange.answer.response:
        case {"choices": [{"message": dict(message), **choice}, *_], **rest}:
            usage, calls = rest.get("usage"), message.get("tool_calls")
            tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
            finish = choice.get("finish_reason")
            return _Message(
                content=str(message.get("content") or ""),
                reasoning=str(message.get("reasoning_content") or message.get("reasoning") or ""),
                tool_calls=tuple(call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else (),
                finish=finish if isinstance(finish, str) else None,
                tokens=tokens if isinstance(tokens, int) else None,
            )
        case _:
            return None


def _no_template(exchange: Exchange) -> Judgement | None:
    """Return that there is nothing to judge where the model has no chat template, or the route is not there."""
    said = str(exchange.answer.response).lower()
    if exchange.status == 404 or (exchange.status == 400 and "template" in said):
        return skipped(f"this server has no chat: {exchange.status} {said[:120]}")
    return None


def _refused(exchange: Exchange) -> Judgement:
    return failed(
        "request-failed",
        f"request {exchange.request.name} was answered with {exchange.status}: {str(exchange.answer.response)[:300]}",
        "the server refuses a plain chat; its log says why",
    )


def _ask_chat(subject: Subject) -> Waves:
    facts = subject.expectations.chat if subject.expectations else []
    questions = [fact.prompt for fact in facts] or [_ANY_QUESTION]
    plain = tuple((_asked(subject, f"chat-{n}", question, _TOKENS),) for n, question in enumerate(questions))
    return (*plain, (streaming(_asked(subject, "chat-stream", questions[0], _TOKENS)),))


def _more_chat(observed: Observed) -> Waves:
    """Ask for more tokens where no answer to a known question ended within those it had."""
    subject, facts = observed.subject, observed.subject.expectations.chat if observed.subject.expectations else []
    messages = [_message(one) for one in observed.exchanges if not one.request.stream]
    if (
        not facts
        or len(observed.exchanges) != len(facts) + 1
        or any(m is None or m.finish != "length" for m in messages)
    ):
        return ()
    return ((_asked(subject, "chat-long", facts[0].prompt, subject.room_for(_LONG_TOKENS)),),)


def _endless(exchange: Exchange) -> Judgement | None:
    """Return the judgement on the answer that had more tokens; a model that still thinks may be about to end."""
    message = _message(exchange)
    if exchange.status != 200 or message is None:
        return _refused(exchange)
    if message.finish != "length" or message.reasoning.strip():
        return None
    return failed(
        "never-stops",
        f"no chat ends by itself: not within {_TOKENS} tokens, and {exchange.request.name} not within "
        f"{message.tokens or 'its'} tokens: {excerpt(message.content)}",
        "the server does not know, or ignores, the token that ends the model's turn",
        text=message.content,
    )


def _judge_chat(observed: Observed) -> Judgement:
    asked = {exchange.request.name: exchange for exchange in observed.exchanges}
    long, stream = asked.pop("chat-long", None), asked.pop("chat-stream", None)
    plain = list(asked.values())
    if not plain or stream is None:
        return inconclusive("not every question was asked", "judge a transcript as smoke wrote it")
    if nothing := _no_template(plain[0]):
        return nothing
    facts = observed.subject.expectations.chat if observed.subject.expectations else []
    texts = []
    for number, exchange in enumerate(plain):
        message = _message(exchange)
        if exchange.status != 200 or message is None:
            return _refused(exchange)
        if fault := _message_fault(exchange.request.name, message):
            return fault
        texts.append(message.content)
        if number < len(facts) and facts[number].contains not in message.content:
            return failed(
                "fact-wrong",
                f"asked {excerpt(facts[number].prompt)} in a chat, the model says {excerpt(message.content)}, without "
                f"{facts[number].contains!r}",
                "if it is right outside of a chat, the template is not the one that the model was trained with",
                texts=texts,
            )
    came = streamed(stream.answer.response)
    if observed.subject.exact and came.text != texts[0]:
        return failed(
            "stream-differs",
            f"in a stream the chat says {excerpt(came.text)}, without one {excerpt(texts[0])}",
            texts=[texts[0], came.text],
        )
    if stream.status != 200:
        return _refused(stream)
    if not came.closed or not (came.text or texts[0] == ""):
        return failed("stream-broken", f"the chat's stream does not end: {excerpt(came.text)}")
    if long and (endless := _endless(long)):
        return endless
    return passed(f"{len(texts)} answers: {excerpt(texts[0] or '(reasoning only)')}", texts=texts)


def _message_fault(name: str, message: _Message) -> Judgement | None:
    if not message.content.strip() and not message.reasoning.strip():
        return failed(
            "empty-completion",
            f"the answer to {name} is empty ({message.tokens} tokens, finish reason {message.finish})",
            "the template ends the model's turn before it begins, or a parser has taken everything away",
        )
    if leaked := _TEMPLATE_WORD.search(message.content):
        return failed(
            "chat-template-leak",
            f"the answer to {name} holds {leaked[0]!r}, a word of the template: {excerpt(message.content)}",
            "the stop tokens of the model are not those of its template, or special tokens are printed",
            text=message.content,
        )
    if message.finish not in {"stop", "length"}:
        return failed("request-failed", f"the answer to {name} ends for the reason {message.finish!r}")
    return None


def _ask_tool(subject: Subject) -> Waves:
    tool = subject.known.tool
    if tool is None:
        raise LookupError(Need.TOOL)
    function = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    tools = [{"type": "function", "function": function}]
    return ((_asked(subject, "tool", tool.prompt, _TOOL_TOKENS, tools=tools),),)


def _judge_tool(observed: Observed) -> Judgement:
    (exchange,), tool = observed.exchanges, observed.subject.known.tool
    if tool is None:
        raise LookupError(Need.TOOL)
    if nothing := _no_template(exchange):
        return nothing
    message = _message(exchange)
    if exchange.status != 200 or message is None:
        return _refused(exchange)
    if not message.tool_calls:
        if message.finish == "length":
            return inconclusive(f"no call was closed within {_TOOL_TOKENS} tokens: {excerpt(message.content)}")
        as_text = tool.name in message.content
        return failed(
            "tool-call-as-text" if as_text else "tool-not-called",
            f"the model answers {excerpt(message.content)}, and tool_calls is empty",
            "it calls the tool, but nobody reads it: set tool-call-parser to the parser of this model"
            if as_text
            else "the tools do not reach the model: its template has no place for them, or is not used",
            text=message.content,
        )
    function = message.tool_calls[0].get("function")
    name, arguments = (
        (function.get(key) for key in ("name", "arguments")) if isinstance(function, dict) else (None,) * 2
    )
    if name != tool.name:
        return failed("tool-call-invalid", f"the model calls {name!r}, a tool that it was not given")
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        return failed(
            "tool-call-invalid", f"the arguments of the call are no JSON ({error}): {excerpt(str(arguments))}"
        )
    schema = json.loads(tool.parameters)
    if broken := list(violations(value, schema)) if isinstance(schema, dict) else []:
        return failed("tool-call-invalid", f"the arguments of the call break their schema: {broken[0]}")
    if tool.contains not in json.dumps(value, ensure_ascii=False):
        return failed("fact-wrong", f"the call's arguments are {value}, without {tool.contains!r}")
    return passed(f"{name}({value})", arguments=value)


CHAT = Probe(
    name="chat",
    proves="the chat template is the model's: answers are right, end, and hold no word of the template",
    requests=_ask_chat,
    follow_up=_more_chat,
    judge=_judge_chat,
    judges_refusals=True,
)
TOOL_CALL = Probe(
    name="tool-call",
    proves="a tool is called, with arguments that keep to its schema, and the call is not left in the text",
    needs=(Need.EXPECTATIONS, Need.TOOL),
    requests=_ask_tool,
    judge=_judge_tool,
    judges_refusals=True,
)
