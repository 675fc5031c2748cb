"""Judge a generated text: is it language, code or data, or what a broken model leaves behind?

Pure and deterministic. Two severities: a ``broken`` text is none that a sound model writes; a ``suspicious`` one is
what a small model may do in greedy decoding (a sentence three times), so nothing can be concluded from it.
Each threshold has its reason where it stands; all of them spare tables, code, lists, refrains, digests and drawings.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sglforge.smoke import scripts

Reason = Literal["empty", "run", "cycle", "few-phrases", "unprintable", "script-salad", "token-run"]

_TAIL = 4000
"""Characters at the end of a text that are searched for a cycle: about 1000 tokens, more than a probe asks for."""
_LONGEST = 40_000
"""Characters at the end that are looked at: 10,000 tokens. What goes wrong stays wrong, so the end is enough."""
_EXCERPT = 60

# A run of one character. Rules of tables and headings are long and harmless, a model that is stuck writes hundreds.
_RULE_CHARACTERS = frozenset("-_=*~#+.|/\\ \t\n:") | {chr(code) for code in range(0x2500, 0x25A0)}
_WHOLE_RUN = 12  # the text is nothing else: "...", "-----" and "!!!" are answers, this is none
_WHOLE_RUN_MARKS = 6  # ... and no rule, letter or digit: token 0 of many vocabularies is "!"
_WHOLE_RUN_AT_LIMIT = 4  # ... and it went on until it was cut off: nobody asks for four tokens of one sign
_TAIL_RUN_MARKS = 12  # after a healthy beginning: people write "Yes!!!!", not twelve
_TAIL_RUN_ALNUM = 80  # a digest of zeros has 64 digits, padding in base64 dozens of letters
_TAIL_RUN_RULE = 160  # wider than the rules and borders of plain text
_TAIL_BLANKS = 64  # blank space up to the limit: a grammar or a model that only knows the line break

# A cycle at the end: repetitions that make it broken, by the length of what is repeated. Half of it is suspicious.
_CYCLES: tuple[tuple[int, int], ...] = (
    (3, 10),  # "ha ha ha ha"
    (8, 7),  # "Row, row, row", "la la la la"
    (40, 6),  # a short line as refrain comes three times in a row, not six
    (_TAIL, 5),  # a sentence: small greedy models say it two or three times
)
_WHOLE_CYCLE = 5  # the text is nothing else: "no no no" is an answer, five times the same is none
_CYCLE_SHARE = 0.3  # the end counts, if it is no mere ornament of a long text
_CYCLE_LENGTH = 200  # ... or long enough to be no ornament
_SYMBOLS_ONLY = 3  # the whole text is this often the same signs without a letter or digit
_SYMBOLS_LENGTH = 10
_SEPARATOR = 2  # characters between repetitions, missing after the last: a blank, or an empty line
_DIGIT_CYCLE = (24, 160)  # rows of zeros, 101010, periods of fractions: data; repetitions and characters
_RULE_CYCLE = (24, 320)  # borders, empty cells, patterns of a drawing

# Phrases of four words: prose has more than 0.9 different ones, code and records 0.3 and more.
_PHRASE = 4
_WINDOW = 160
_BROKEN_PHRASES = 0.18
_SUSPICIOUS_PHRASES = 0.24

_BAD_SHARE = 0.05  # letters cut in two at the end are not counted, escape sequences of a terminal are below
_BAD_COUNT = 3

_TOKEN_RUN = 16  # one token id to the end, and for half of the text
_TOKEN_CYCLE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Degeneration:
    """Why a text is degenerate: a word for the reason, a sentence, and the part of the text that shows it."""

    reason: Reason
    severity: Literal["broken", "suspicious"]
    message: str
    evidence: str

    @property
    def broken(self) -> bool:
        """Whether no sound model writes this."""
        return self.severity == "broken"


def degeneration(
    text: str, *, token_ids: Sequence[int] | None = None, finish: str = "", at_limit: bool = False
) -> Degeneration | None:
    """Return what is degenerate in a text, the worst first, None when nothing is.

    ``finish`` is the server's finish reason; ``at_limit`` says that the text was cut off by its length, which
    ``finish == "length"`` says as well. Space around the text does not matter, unless the text ran into its limit
    with it.
    """
    at_limit = at_limit or finish == "length"
    body = text.strip()[-_LONGEST:].lstrip()
    if not body:
        return _empty(text, token_ids)
    found = [
        one
        for one in (
            _blank_tail(text, body, at_limit),
            _unprintable(body),
            _token_cycle(token_ids),
            _cycle(body, at_limit),
            _salad(body),
            _few_phrases(body),
        )
        if one
    ]
    return next((one for one in found if one.broken), found[0] if found else None)


def _broken(reason: Reason, message: str, evidence: str) -> Degeneration:
    return Degeneration(reason=reason, severity="broken", message=message, evidence=_excerpt(evidence))


def _suspicious(reason: Reason, message: str, evidence: str) -> Degeneration:
    return Degeneration(reason=reason, severity="suspicious", message=message, evidence=_excerpt(evidence))


def _excerpt(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."


def _empty(text: str, token_ids: Sequence[int] | None) -> Degeneration:
    what = f"nothing but {len(text)} blank characters" if text else "empty"
    after = f" after {len(token_ids)} tokens" if token_ids else ""
    return _broken("empty", f"the text is {what}{after}", text)


def _blank_tail(text: str, body: str, at_limit: bool) -> Degeneration | None:
    blanks = len(text) - len(text.rstrip())
    if not at_limit or blanks < _TAIL_BLANKS:
        return None
    return _broken("run", f"blank space is repeated {blanks} times at the end, up to the limit", body[-_EXCERPT:])


def _unprintable(body: str) -> Degeneration | None:
    """Find characters that no text has; up to three at the end may be a letter that the limit cut in two."""
    whole = body.rstrip("\ufffd") if len(body) - len(body.rstrip("\ufffd")) <= _BAD_COUNT else body
    bad = [letter for letter in whole if _is_bad(letter)]
    if len(bad) < _BAD_COUNT:
        return None
    names = ", ".join(f"U+{ord(letter):04X}" for letter in dict.fromkeys(bad[:8]))
    message = f"{len(bad)} of {len(whole)} characters are no text ({names})"
    if len(bad) > _BAD_SHARE * len(whole):
        return _broken("unprintable", message, repr(body)[1:-1])
    return _suspicious("unprintable", message, repr(body)[1:-1]) if "\ufffd" in bad else None


def _is_bad(letter: str) -> bool:
    if letter in "\n\r\t\f\x1b":
        return False
    return letter == "\ufffd" or unicodedata.category(letter) in {"Cc", "Cn", "Cs"}


def _token_cycle(token_ids: Sequence[int] | None) -> Degeneration | None:
    """Find one token, or a few, that fill the second half of the text."""
    ids = tuple(token_ids or ())
    if len(ids) < _TOKEN_RUN:
        return None
    for period, length in _periods(ids):
        if period > _TAIL // 100 or 2 * length < len(ids):
            continue
        if period == 1 and length >= _TOKEN_RUN:
            return _broken("token-run", f"token {ids[-1]} is repeated {length} times to the end", str(ids[-1]))
        if length >= _TOKEN_CYCLE * period:
            unit = ids[-period:]
            return _broken(
                "token-run", f"{period} tokens are repeated {length // period} times to the end: {unit}", str(unit)
            )
    return None


def _periods(items: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yield (period, length) of every end of a sequence that repeats itself, shortest first, no multiples.

    With the Z function of the reversed sequence: how far it agrees with itself, moved by each period; linear time.
    """
    back = items[::-1]
    size = len(back)
    same = [0] * size
    left = right = 0
    seen: list[tuple[int, int]] = []
    for place in range(1, size):
        count = min(right - place, same[place - left]) if place < right else 0
        while place + count < size and back[count] == back[place + count]:
            count += 1
        same[place] = count
        if place + count > right:
            left, right = place, place + count
        if count >= place and not any(place % shorter == 0 and length >= count + place for shorter, length in seen):
            seen.append((place, count + place))
            yield seen[-1]


def _cycle(body: str, at_limit: bool) -> Degeneration | None:
    """Find what the text ends with again and again."""
    tail = body[-_TAIL:]
    doubt: Degeneration | None = None
    for period, length in _periods(tail):
        share = length / len(tail)
        unit = tail[-length:][:period]
        found = _run(unit, length, share, at_limit) if period == 1 else _repeated(unit, length, share)
        if found and found.broken:
            return found
        doubt = doubt or found
    return doubt


def _run(letter: str, length: int, share: float, at_limit: bool) -> Degeneration | None:
    message = f"{letter!r} is repeated {length} times" + ("" if share == 1 else " at the end")
    rule = letter in _RULE_CHARACTERS
    whole = _WHOLE_RUN if rule or letter.isalnum() else _WHOLE_RUN_AT_LIMIT if at_limit else _WHOLE_RUN_MARKS
    if share == 1 and length >= whole:
        return _broken("run", message, letter * length)
    limit = _TAIL_RUN_RULE if rule else _TAIL_RUN_ALNUM if letter.isalnum() else _TAIL_RUN_MARKS
    if length >= limit:
        return _broken("run", message, letter * length)
    return None


def _repeated(unit: str, length: int, share: float) -> Degeneration | None:
    period = len(unit)
    # the blanks after the last one were stripped
    times = (length + min(_SEPARATOR, period - 1)) // period
    message = f"{_excerpt(unit)!r} is repeated {times} times" + ("" if share == 1 else " at the end")
    words = any(letter.isalpha() for letter in unit)
    if share == 1 and not words and not any(letter.isdigit() for letter in unit):
        drawing = all(letter in _RULE_CHARACTERS for letter in unit)
        if times >= (_DIGIT_CYCLE[0] if drawing else _SYMBOLS_ONLY) and length >= _SYMBOLS_LENGTH:
            return _broken("cycle", message, unit * times)
    if not words:
        data = any(letter.isdigit() for letter in unit)
        need, size = _DIGIT_CYCLE if data else _RULE_CYCLE
        return _broken("cycle", message, unit * times) if times >= need and length >= size else None
    if share < _CYCLE_SHARE and length < _CYCLE_LENGTH:
        return None
    need = next(times for longest, times in _CYCLES if period <= longest)
    if share == 1:
        no_words = period <= _EXCERPT and length >= _SYMBOLS_LENGTH and _is_no_text(unit)
        need = _SYMBOLS_ONLY if no_words else need if period <= _CYCLES[0][0] else min(need, _WHOLE_CYCLE)
    if times >= need:
        return _broken("cycle", message, unit * times)
    if 2 * times > need and times > 2:
        return _suspicious("cycle", message, unit * times)
    return None


_NO_TEXT = re.compile(r"\\[nrt]|<[|/]?[\w|]+>|\[(?:PAD|UNK|CLS|SEP|MASK)\]|[\W_]")


def _is_no_text(unit: str) -> bool:
    """Whether a unit holds only signs, special tokens and line breaks written out, as logs and reports quote them."""
    # the unit may start in the middle of a token
    return any(not _NO_TEXT.sub("", (unit + unit)[start : start + len(unit)]) for start in range(len(unit)))


def _salad(body: str) -> Degeneration | None:
    found = scripts.salad(body)
    if found is None:
        return None
    make = _broken if found.certain else _suspicious
    return make("script-salad", f"{len(found.groups)} scripts mixed without sense: {', '.join(found.groups)}", body)


def _few_phrases(body: str) -> Degeneration | None:
    """Find a stretch that says the same few phrases in changing order."""
    words = [word for line in body.splitlines() if not line.lstrip().startswith("|") for word in scripts.words(line)]
    if len(words) < _WINDOW:
        return None
    starts = {*range(0, len(words) - _WINDOW + 1, _WINDOW // 4), len(words) - _WINDOW}
    windows = [window for start in sorted(starts) if not _is_data(window := words[start : start + _WINDOW])]
    lowest, window = min(((_distinct(window), window) for window in windows), default=(1.0, []))
    if lowest >= _SUSPICIOUS_PHRASES:
        return None
    phrase, times = Counter(zip(*(window[offset:] for offset in range(_PHRASE)), strict=False)).most_common(1)[0]
    said = " ".join(phrase)
    message = f"few phrases are repeated: {said!r} {times} times within {_WINDOW} words"
    make = _broken if lowest < _BROKEN_PHRASES else _suspicious
    return make("few-phrases", message, " ".join(window))


def _is_data(window: Sequence[str]) -> bool:
    """Whether most words are numbers: a matrix may hold the same ones everywhere."""
    return 2 * sum(word.isdigit() for word in window) > len(window)


def _distinct(words: Sequence[str]) -> float:
    phrases = list(zip(*(words[offset:] for offset in range(_PHRASE)), strict=False))
    return len(set(phrases)) / len(phrases)
