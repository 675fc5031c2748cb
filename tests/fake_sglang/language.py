"""The tiny language model: the distribution of the next token is a pure function of the tokens before it.

So the scores of a prefill are those of the decode that led there, greedy decoding is the argmax, and nothing but the
tokens decides. What it says comes from `fake_sglang.corpus`: it goes on where it knows the text, and begins another
one where it does not.
"""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import asdict, dataclass
from functools import lru_cache
from string import ascii_lowercase

from fake_sglang.corpus import CAPITALS, OPENERS, STORIES, documents
from fake_sglang.tokens import ASSISTANT_ID, END_ID, VOCABULARY, as_symbols, call_text, encode

_END = chr(END_ID)
_GRAM = 10
_DECAY = 0.75
_LONG = 280
_ROUNDING = 0.03
_RUNNERS_UP = VOCABULARY - 1  # a prime, so that every step between them visits all
_WEATHER = ("18 degrees and sunny", "12 degrees and rainy", "7 degrees and foggy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What comes next: the most likely token, and how the others are ranked behind it."""

    best: int
    probability: float
    step: int
    shift: int
    rival: int | None = None

    def tied(self, *, together: bool) -> Distribution:
        """Return it with a letter that is as likely as the best token but for a rounding, which company changes."""
        one, *others = (token for _, token in self.top(_RUNNERS_UP))
        two = next(token for token in others if chr(token) in ascii_lowercase)
        best, rival = (two, one) if together else (one, two)
        ranked = {**asdict(self), "best": best, "probability": self.probability / 2, "rival": rival}
        return Distribution(**ranked)

    def logprob(self, token: int) -> float:
        """Return the log-probability of a token."""
        if token == self.rival:
            return math.log(self.probability) - _ROUNDING
        if token == self.best:
            return math.log(self.probability)
        place = (self._position(token) * self.step + self.shift) % _RUNNERS_UP
        return self._of_rank(place)

    def top(self, count: int) -> list[tuple[float, int]]:
        """Return log-probability and id of the most likely tokens, best first."""
        inverse = pow(self.step, -1, _RUNNERS_UP)
        found = [(math.log(self.probability), self.best)]
        for rank in range(min(count - 1, _RUNNERS_UP)):
            position = (rank - self.shift) * inverse % _RUNNERS_UP
            found.append((self._of_rank(rank), position + (position >= self.best)))
        if self.rival is not None:
            found = [found[0], (self.logprob(self.rival), self.rival), *(one for one in found if one[1] != self.rival)]
            del found[2]
        return found[:count]

    def sample(self, chance: float) -> int:
        """Return the token at this place of the cumulated distribution, 0 to 1."""
        if chance < self.probability:
            return self.best
        rank = int(math.log((1 - chance) / (1 - self.probability) or 1e-30) / math.log(_DECAY))
        return self.top(min(rank, _RUNNERS_UP - 1) + 2)[-1][1]

    def _of_rank(self, rank: int) -> float:
        return math.log((1 - self.probability) * (1 - _DECAY)) + rank * math.log(_DECAY)

    def _position(self, token: int) -> int:
        return token - (token > self.best)


def distribution(prefix: str) -> Distribution:
    """Return what comes after tokens, given as one character each."""
    return _around(prefix, _next(prefix))


def forced(prefix: str, token: int) -> Distribution:
    """Return the distribution when a grammar allows this token only."""
    return _around(prefix, token)


def number(prefix: str, limit: int) -> int:
    """Return a number below the limit that the prefix alone decides."""
    return zlib.crc32(prefix[-256:].encode("utf-8", "surrogatepass"), len(prefix)) % limit


def _around(prefix: str, best: int) -> Distribution:
    spread = number(prefix, 2**31)
    return Distribution(
        best=best,
        probability=0.8 + spread % 997 / 997 * 0.19,
        step=1 + spread % (_RUNNERS_UP - 1),
        shift=spread // 997 % _RUNNERS_UP,
    )


def _next(prefix: str) -> int:
    said = prefix.rpartition(chr(ASSISTANT_ID))
    if said[1] and (answer := _answer(said[0])).startswith(said[2]) and len(said[2]) < len(answer):
        return ord(answer[len(said[2])])
    known = _known(prefix)
    if known is not None:
        return known
    return ord(_begun(prefix))


def _known(prefix: str) -> int | None:
    """Return how the longest text that ends like the prefix goes on."""
    text, grams = _read()
    best, longest = None, 0
    for place in grams.get(prefix[-_GRAM:], ()):
        length = _GRAM
        while length < place and length < len(prefix) and text[place - length - 1] == prefix[-length - 1]:
            length += 1
        if length > longest:
            best, longest = place, length
    return None if best is None else ord(text[best])


def _begun(prefix: str) -> str:
    """Go on with the text that was begun a few tokens ago, or begin one."""
    for back in range(min(len(prefix), _openings()[1]), 0, -1):
        end = prefix[-back:]
        if end in _openings()[0]:
            opening = _opening(prefix[:-back])
            if opening.startswith(end) and len(opening) > back:
                return opening[back]
    return _opening(prefix)[0]


def _opening(before: str) -> str:
    """Return how the model begins after tokens that it cannot go on with."""
    spread = number(before, 2**31)
    sentences = _sentences()
    return OPENERS[spread % len(OPENERS)] + sentences[spread // 31 % len(sentences)][: _GRAM + 2]


@lru_cache(maxsize=1)
def _sentences() -> tuple[str, ...]:
    """Return the sentences that a story can be begun with and still be long."""
    starts = ((story, sentence) for story in STORIES for sentence in story.replace(". ", ".\n").split("\n"))
    return tuple(sentence for story, sentence in starts if len(story) - story.index(sentence) > _LONG)


@lru_cache(maxsize=1)
def _openings() -> tuple[frozenset[str], int]:
    """Return all beginnings of all openings, and the length of the longest."""
    whole = {opener + sentence[: _GRAM + 2] for opener in OPENERS for sentence in _sentences()}
    return frozenset(one[:length] for one in whole for length in range(1, len(one) + 1)), max(map(len, whole))


@lru_cache(maxsize=1)
def _read() -> tuple[str, dict[str, list[int]]]:
    """Return everything that was read, and where each run of characters goes on."""
    text = _END + _END.join(as_symbols(encode(document)) for document in documents()) + _END
    grams: dict[str, list[int]] = {}
    for place in range(_GRAM, len(text)):
        gram = text[place - _GRAM : place]
        if _END not in gram:
            grams.setdefault(gram, []).append(place)
    return text, grams


@lru_cache(maxsize=256)
def _answer(conversation: str) -> str:
    """Return what the assistant says to a rendered conversation, empty where the model just goes on."""
    *_, last = re.split("[\u0102-\u0105]", conversation)
    last = last.rstrip(_END)
    tools = re.search(r"Tools: (\w+)\(([\w, ]*)\)", conversation)
    words = re.findall(r"[A-Z][a-z]+", last)
    country = next((word for word in words if word in CAPITALS), None)
    if conversation.rfind(chr(ASSISTANT_ID + 1)) > conversation.rfind(chr(ASSISTANT_ID)):
        return f"It is {last}.{_END}"
    if tools and not country:
        values = {name: words[-1] if words else "Paris" for name in tools[2].split(", ") if name}
        return call_text({"name": tools[1], "arguments": values}) + _END
    if "weather" in last.lower():
        return f"It is {_WEATHER[number(last, len(_WEATHER))]}.{_END}"
    if country and "JSON" in last:
        return f'{{"city": "{CAPITALS[country][0]}", "country": "{country}"}}{_END}'
    if country and "capital" in last:
        return f"The capital of {country} is {CAPITALS[country][0]}.{_END}"
    if sums := re.search(r"(\d+) \+ (\d+)", last):
        return f"{sums[0]} = {int(sums[1]) + int(sums[2])}{_END}"
    return ""
