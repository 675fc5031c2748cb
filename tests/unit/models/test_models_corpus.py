"""The corpus and the tokenizer: what the models were taught, and how it becomes token ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tinymodels.corpus import (
    CAPITAL_SCHEMA,
    CAPITALS,
    STORIES,
    SYSTEM_MESSAGE,
    WEATHER_TOOL,
    capital_json,
    chats,
    documents,
)
from tinymodels.judge import LONG_LIMIT_TOKENS, STORY_OPENINGS, exercises, fits_schema
from tinymodels.tokenizer import END, END_ID, SPECIALS, VOCAB_SIZE, byte_symbols, render_chat, write_tokenizer
from transformers import AutoTokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    write_tokenizer(tmp_path, max_length=128)
    return AutoTokenizer.from_pretrained(tmp_path)


def test_text_is_ascii_and_every_document_is_closed_once() -> None:
    texts = documents()
    assert all(text.isascii() for text in texts)
    assert all(text.endswith(END) for text in texts)


def test_every_exercise_was_taught() -> None:
    texts = documents()
    for exercise in exercises():
        assert any(text.startswith(exercise.prompt + exercise.answer + END) for text in texts), exercise


def test_there_are_enough_capitals_and_long_stories() -> None:
    assert len({capital.country for capital in CAPITALS}) >= 12
    assert len({capital.city for capital in CAPITALS}) == len(CAPITALS)
    for opening, story in zip(STORY_OPENINGS, STORIES, strict=True):
        assert story.startswith(opening)
        assert len(story) - len(opening) > LONG_LIMIT_TOKENS


def test_json_of_a_capital_fits_the_schema() -> None:
    assert set(CAPITAL_SCHEMA["required"]) == set(CAPITAL_SCHEMA["properties"])
    assert all(fits_schema(capital_json(capital)) for capital in CAPITALS)


@pytest.mark.parametrize("text", ["", "[]", '{"city": "Oslo"}', '{"city": 1, "country": "Norway"}', '{"city": "Os'])
def test_other_json_does_not_fit_the_schema(text: str) -> None:
    assert not fits_schema(text)


def test_byte_symbols_are_those_of_the_tokenizers_library() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(byte_symbols()) == sorted(ByteLevel.alphabet())


def test_a_byte_is_its_own_token_id(tokenizer: Any) -> None:
    text = "Zürich 中\t\n\0~"
    assert tokenizer.encode(text) == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_follow_the_bytes(tokenizer: Any) -> None:
    assert tokenizer.encode("".join(SPECIALS)) == list(range(256, VOCAB_SIZE))
    assert tokenizer.eos_token_id == END_ID


def test_every_document_survives_the_round_trip(tokenizer: Any) -> None:
    for text in documents():
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_transformers_renders_chats_as_the_corpus_does(tokenizer: Any) -> None:
    for messages, tools in chats():
        for conversation in (messages, [SYSTEM_MESSAGE, *messages]):
            rendered = tokenizer.apply_chat_template(conversation, tools=tools or None, tokenize=False)
            assert rendered == render_chat(conversation, tools=tools)


def test_a_prompt_is_the_beginning_of_its_conversation() -> None:
    for messages, tools in chats():
        head = render_chat(messages[:1], tools=tools, prompt=True)
        assert render_chat(messages, tools=tools).startswith(head)


def test_a_tool_reads_the_same_with_and_without_its_wrapper() -> None:
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    bare = {**WEATHER_TOOL["function"], "strict": False}
    assert render_chat(messages, tools=[bare]) == render_chat(messages, tools=[WEATHER_TOOL])


def test_a_tool_call_is_json_between_its_tags() -> None:
    messages, tools = next((messages, tools) for messages, tools in chats() if tools)
    text = render_chat(messages[:2], tools=tools)
    inside = text.partition("<tool_call>\n")[2].partition("\n</tool_call>")[0]
    assert json.loads(inside) == {"name": "get_weather", "arguments": {"city": "Paris"}}
