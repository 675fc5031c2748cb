"""Byte tokens: the id of a token is its byte, special tokens come after; and the chat template over them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

END = "<|end|>"
SPECIALS = (END, "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|reserved_0|>", "<|reserved_1|>")
BYTES = 256
VOCABULARY = BYTES + len(SPECIALS)
END_ID = BYTES
ASSISTANT_ID = BYTES + SPECIALS.index("<|assistant|>")

Message = dict[str, Any]


def encode(text: str) -> list[int]:
    """Return the tokens of a text; special tokens are recognised where they are spelled out."""
    ids: list[int] = []
    while text:
        places = [(text.find(special), number) for number, special in enumerate(SPECIALS) if special in text]
        place, number = min(places, default=(len(text), -1))
        ids += text[:place].encode()
        if number >= 0:
            ids.append(BYTES + number)
        text = text[place + len(SPECIALS[number]) :] if number >= 0 else ""
    return ids


def decode(ids: Iterable[int], *, specials: bool = False) -> str:
    """Return the text of tokens, without special ones unless they are asked for."""
    parts, run = [], bytearray()
    for token in ids:
        if token < BYTES:
            run.append(token)
        elif specials:
            parts += [run.decode(errors="replace"), SPECIALS[token - BYTES]]
            run.clear()
    return "".join(parts) + run.decode(errors="replace")


def as_symbols(ids: Sequence[int]) -> str:
    """Return tokens as a string of one character each, for searching and comparing."""
    return "".join(map(chr, ids))


def render_chat(messages: Sequence[Message], tools: Sequence[Message] = ()) -> str:
    """Render a conversation, with the assistant's mark at the end."""
    system = "\n".join(text_of(message) for message in messages if message["role"] in {"system", "developer"})
    listed = " ".join(_signature(tool["function"]) for tool in tools)
    rendered = ""
    if system or listed:
        tool_text = ("\n" if system else "") + f"Tools: {listed}" if listed else ""
        rendered = f"<|system|>{system}{tool_text}{END}"
    for message in messages:
        if message["role"] in {"user", "assistant", "tool"}:
            calls = "".join(call_text(call["function"]) for call in message.get("tool_calls") or ())
            rendered += f"<|{message['role']}|>{text_of(message)}{calls}{END}"
    return rendered + "<|assistant|>"


def text_of(message: Message) -> str:
    """Return the text of a message, whose content may come in parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def call_text(function: Message) -> str:
    """Write a call as the model does."""
    arguments = function["arguments"]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'<tool_call>\n{{"name": {json.dumps(function["name"])}, "arguments": {written}}}\n</tool_call>'


def _signature(function: Message) -> str:
    return f"{function['name']}({', '.join((function.get('parameters') or {}).get('properties', {}))})"
