"""Define the byte tokenizer and the chat template, and write the files that carry them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIALS = (END, PAD, *(f"<|{role}|>" for role in ROLES), "<|reserved_0|>", "<|reserved_1|>")
BYTES = 256
VOCAB_SIZE = BYTES + len(SPECIALS)
END_ID = BYTES + SPECIALS.index(END)
PAD_ID = BYTES + SPECIALS.index(PAD)

# A tool is shown as `name(argument, argument)`, so that the prompt does not depend on how a server
# dumps the schema: with or without the "function" wrapper, with or without empty fields.
CHAT_TEMPLATE = """\
{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' %}
{%- if system or tools %}
    {{- '<|system|>' + system }}
    {%- if tools %}
        {{- '\\n' if system }}{{ 'Tools:' }}
        {%- for tool in tools %}
            {%- set function = tool.function if tool.function is defined else tool %}
            {{- ' ' + function.name + '(' + function.parameters.properties | join(', ') + ')' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|end|>' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {{- '<|' + message.role + '|>' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {%- set function = call.function if call.function is defined else call %}
        {{- '<tool_call>\\n{"name": ' + function.name | tojson }}
        {{- ', "arguments": ' + function.arguments | tojson + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
"""


def _dump_json(value: object, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def render_chat(
    messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None, prompt: bool = False
) -> str:
    """Render a conversation with the chat template.

    Args:
        messages: role/content messages; an assistant's may hold tool_calls.
        tools: function schemas, wrapped in {"type": "function"} or not.
        prompt: end with the assistant's mark, for the model to go on.
    """
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # The settings of `apply_chat_template` in transformers.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _dump_json
    template = environment.from_string(CHAT_TEMPLATE)
    return template.render(messages=messages, tools=tools or None, add_generation_prompt=prompt)


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each byte in a byte-level vocabulary.

    Printable Latin-1 stands for itself; the other bytes get the code points from 256 on, in order.
    Source: the byte-level alphabet of GPT-2, as the `ByteLevel` parts of the tokenizers library use it.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    symbols: list[str] = []
    shifted = 0
    for byte in range(BYTES):
        if byte in printable:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(256 + shifted))
            shifted += 1
    return symbols


def tokenizer_document() -> dict[str, Any]:
    """Return the content of tokenizer.json: token id = byte value, then the special tokens, no merges."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": BYTES + number, "content": content, **flags} for number, content in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {symbol: byte for byte, symbol in enumerate(byte_symbols())},
            "merges": [],
        },
    }


def write_tokenizer(directory: Path, *, max_length: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja.

    The class name is the one that transformers 4 and 5 both know.

    Args:
        directory: the model's directory, which exists.
        max_length: longest input, tokens.
    """
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer_document(), indent=1) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
