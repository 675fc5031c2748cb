"""What a compiler says that it read: the dependency files of gcc and nvcc."""

from __future__ import annotations

import re

_WORD = re.compile(r"(?:\\[ #\\]|\$\$|[^\s\\]|\\(?!\n))+")


def dependencies(text: str) -> tuple[str, ...]:
    r"""Return the files that a rule of a dependency file names behind its target, without repetitions.

    Spaces and ``#`` are written with a backslash before them, ``$`` twice (GNU make).

    Raises ValueError for a text that has no rule.
    """
    target, colon, rest = text.partition(": ")
    if not colon and not (text.rstrip().endswith(":") and "\n" not in text.strip()):
        raise ValueError("it has no rule")
    if not target.strip():
        raise ValueError("its rule has no target")
    words = _WORD.findall(rest.replace("\\\n", " "))
    return tuple(dict.fromkeys(_unescaped(word) for word in words if not word.endswith(":")))


def _unescaped(word: str) -> str:
    return re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$")
