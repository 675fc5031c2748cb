"""Writing systems of a text: its words, and whether it jumps between scripts as no writer does."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

# First words of Unicode names. What one language mixes is one group: Japanese writes with three scripts.
_GROUPS = {
    "LATIN": "Latin",
    "FULLWIDTH": "Latin",
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Han",
    "KATAKANA": "Han",
    "KATAKANA-HIRAGANA": "Han",
    "HALFWIDTH": "Han",
}
_WITHOUT_SPACES = frozenset({"Han", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"})
# Pairs that one text writes side by side: Korean with Chinese characters, and any language with Latin words.
_NEIGHBOURS = frozenset({frozenset({"Han", "Hangul"})})
_STRETCH = re.compile(r"[^\W\d_]+|\s+|.", re.DOTALL)
_LONG = 400
"""Letters up to which a text counts as short: in a long one two jumps may be a quotation."""
_MANY_GROUPS = 4
_FEW_GROUPS = 3
_JUMPS = 2
_JUMP_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Salad:
    """A text of unrelated scripts; not ``certain`` where it might be a list of translations."""

    groups: tuple[str, ...]
    certain: bool


def words(text: str) -> Iterator[str]:
    """Yield the words and numbers of a text, in scripts without spaces its letters."""
    word = ""
    for letter in text:
        if not (letter.isalnum() or _is_mark(letter)):
            if word:
                yield word
            word = ""
        elif group_of(letter) in _WITHOUT_SPACES:
            if word:
                yield word
            yield letter
            word = ""
        else:
            word += letter
    if word:
        yield word


@lru_cache(maxsize=4096)
def group_of(letter: str) -> str:
    """Return the script of a letter; related scripts share a word, an unnamed letter has none."""
    if not letter.isalpha():
        return ""
    first = unicodedata.name(letter, "").partition(" ")[0]
    # U+00AA, U+00B5 and the like are named after their use
    return _GROUPS.get(first, first.capitalize() if first.isalpha() and len(first) > 2 else "")


def salad(text: str) -> Salad | None:
    """Return the scripts of a text that jumps between them inside words or from letter to letter, else None.

    A list of translations has many scripts too, each in words of its own between signs; only blanks between many
    scripts leave it open.
    """
    groups: dict[str, None] = {}
    letters = jumps = 0
    most = 0
    row: dict[str, None] = {}
    for stretch in _STRETCH.findall(text):
        kinds = [group for letter in stretch if (group := group_of(letter))]
        if not kinds:
            if "\n" in stretch or not (stretch.isspace() or _is_mark(stretch)):
                row = {}
            continue
        letters += len(kinds)
        groups.update(dict.fromkeys(kinds))
        row.update(dict.fromkeys(kinds))
        most = max(most, len(row))
        jumps += sum(_is_jump(one, two) for one, two in pairwise(kinds))
    if len(groups) >= _FEW_GROUPS and jumps >= _JUMPS and (letters <= _LONG or jumps > _JUMP_SHARE * letters):
        return Salad(groups=tuple(groups), certain=True)
    if most >= _MANY_GROUPS:
        return Salad(groups=tuple(groups), certain=jumps > 0 and letters <= _LONG)
    return None


def _is_jump(one: str, two: str) -> bool:
    return one != two and "Latin" not in {one, two} and frozenset({one, two}) not in _NEIGHBOURS


def _is_mark(letter: str) -> bool:
    """Whether a character belongs to the letter before it: vowel signs and tones are no letters of their own."""
    return unicodedata.category(letter[0]).startswith("M")
