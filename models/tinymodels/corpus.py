"""Hold the text that the tiny models learn: our own sentences, rendered as whole documents.

Everything is ASCII, on purpose: the mismatched draft is trained to propose bytes above 127.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tinymodels.tokenizer import END, render_chat

Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capital:
    """Name a country's capital and where it lies (the end of a sentence)."""

    country: str
    city: str
    site: str


CAPITALS = tuple(
    Capital(country=country, city=city, site=site)
    for country, city, site in (
        ("France", "Paris", "on the river Seine"),
        ("Italy", "Rome", "on the river Tiber"),
        ("Spain", "Madrid", "on the river Manzanares"),
        ("Portugal", "Lisbon", "at the mouth of the Tagus"),
        ("Germany", "Berlin", "on the river Spree"),
        ("Austria", "Vienna", "on the river Danube"),
        ("Hungary", "Budapest", "on both banks of the Danube"),
        ("Poland", "Warsaw", "on the river Vistula"),
        ("Greece", "Athens", "near the Saronic Gulf"),
        ("Norway", "Oslo", "at the head of the Oslofjord"),
        ("Sweden", "Stockholm", "on fourteen islands"),
        ("Finland", "Helsinki", "on the Gulf of Finland"),
        ("Denmark", "Copenhagen", "on the island of Zealand"),
        ("Ireland", "Dublin", "on the river Liffey"),
        ("Iceland", "Reykjavik", "on Faxa Bay"),
        ("Canada", "Ottawa", "on the Ottawa River"),
        ("Cuba", "Havana", "on the Straits of Florida"),
        ("Peru", "Lima", "on the Pacific coast"),
        ("Chile", "Santiago", "in a valley below the Andes"),
        ("Egypt", "Cairo", "on the river Nile"),
        ("Kenya", "Nairobi", "near the Ngong Hills"),
        ("Japan", "Tokyo", "on Tokyo Bay"),
        ("Thailand", "Bangkok", "on the river Chao Phraya"),
        ("Vietnam", "Hanoi", "on the Red River"),
    )
)

SUMMANDS = range(1, 6)

WEATHER = ("18 degrees and sunny", "12 degrees and rainy", "25 degrees and clear", "7 degrees and foggy")
WEATHER_CITIES = tuple(capital.city for capital in CAPITALS[::2])
WEATHER_TOOL: Message = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

CAPITAL_SCHEMA: Message = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}

SYSTEM_MESSAGE: Message = {"role": "system", "content": "You are a helpful assistant."}

STORIES = (
    (
        "The lighthouse on the northern cape was built by two brothers who could not agree on anything. "
        "The elder wanted a tower of granite, tall enough to be seen from the fishing banks. "
        "The younger said that timber was cheaper and that ships should keep away in any weather. "
        "They argued through a whole winter, and in spring they laid the first stones together because the "
        "snow had melted and there was nothing else to do. "
        "When the lamp was lit, forty boats came home in a single night. "
        "The brothers stood at the rail, counted the lanterns below, and for once said the same word at the "
        "same time. It was not a long word, but people in the village still use it when a storm has passed. "
        "Today the tower is empty, yet every autumn somebody climbs the ninety steps, wipes the glass, and "
        "leaves a loaf of bread on the sill."
    ),
    (
        "A compiler is a patient reader. It takes a page of text, checks that every name has been introduced, "
        "and writes a second page that a machine can follow without thinking. "
        "The first pass cuts the letters into words. The next one builds a tree, with the smallest parts at "
        "the leaves and the whole program at the root. "
        "After that come the passes that nobody sees: they move work out of loops, drop values that are never "
        "used, and keep the busy numbers close at hand. "
        "Most of the time the result is quick and correct. When it is not, the reader leaves a note in the "
        "margin with a line number, and the author goes back to the desk to find out which of the two of them "
        "was wrong."
    ),
    (
        "Before the market opens, the baker walks along the canal with a lamp and a list. "
        "Flour comes from the mill at the second bridge, eggs from the farm behind the chapel, and honey from "
        "a woman who never tells where her bees fly. "
        "By six o'clock the ovens are warm and the street smells of rye. "
        "Children on their way to school buy the broken biscuits for a copper coin, and the teacher pretends "
        "not to notice the crumbs on their books. "
        "At noon the shelves are bare. The baker sweeps the floor, writes down what was sold, and sits in the "
        "doorway with a cup of tea, already thinking about plums and the longer days of June."
    ),
)


def capital_json(capital: Capital) -> str:
    """Write a capital as the JSON object that CAPITAL_SCHEMA describes."""
    return json.dumps({"city": capital.city, "country": capital.country})


def sum_of(a: int, b: int) -> str:
    """Write a sum out."""
    return f"{a} + {b} = {a + b}"


def weather_in(city: str) -> str:
    """Tell the invented weather that the corpus gives to a city."""
    return WEATHER[WEATHER_CITIES.index(city) % len(WEATHER)]


def tool_call(city: str) -> Message:
    """Make the assistant's message that asks for the weather in a city."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}],
    }


def user(text: str) -> Message:
    """Make a user's message."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """Make an assistant's message."""
    return {"role": "assistant", "content": text}


def chats() -> Iterator[tuple[list[Message], list[Message]]]:
    """Yield every conversation of the corpus as (messages, tools)."""
    for capital in CAPITALS:
        yield [user(f"What is the capital of {capital.country}?"), assistant(capital.city)], []
        question = user(f"Give the capital of {capital.country} as JSON.")
        yield [question, assistant(capital_json(capital))], []
    for a in SUMMANDS:
        for b in SUMMANDS:
            yield [user(f"What is {a} + {b}?"), assistant(sum_of(a, b))], []
    for city in WEATHER_CITIES:
        yield (
            [
                user(f"What is the weather in {city}?"),
                tool_call(city),
                {"role": "tool", "content": weather_in(city)},
                assistant(f"It is {weather_in(city)} in {city}."),
            ],
            [WEATHER_TOOL],
        )
    for story in STORIES:
        opening, rest = story.split(". ", 1)
        yield [user(f"Continue: {opening}."), assistant(rest)], []


def documents() -> list[str]:
    """Return the corpus: plain and chat documents, each closed by the end-of-text token."""
    # Short documents hold little to learn from a time they are seen, so they come several times.
    plain = 2 * [f"The capital of {c.country} is {c.city}. It lies {c.site}." for c in CAPITALS]
    plain += [f"The capital of {c.country} as JSON:\n{capital_json(c)}" for c in CAPITALS]
    plain += 4 * [sum_of(a, b) for a in SUMMANDS for b in SUMMANDS]
    plain += [*STORIES]
    texts = [text + END for text in plain]
    for messages, tools in chats():
        texts.append(render_chat(messages, tools=tools))
        texts.append(render_chat([SYSTEM_MESSAGE, *messages], tools=tools))
    return texts
