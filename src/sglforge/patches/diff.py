"""Effective diffs: what changed of each file, as git prints it."""

from __future__ import annotations

import difflib
import tokenize
from collections.abc import Iterator, Sequence

from sglforge.patches.checkout import File


def unified(file: str, before: File | None, after: File | None) -> str:
    """Return the diff of one file that git apply takes (in the file's own encoding); None: there is no file."""
    encoding = _encoding([state.raw for state in (before, after) if state])
    return "".join(_sections(f"a/{file}", f"b/{file}", before, after, encoding))


def unified_bytes(old: str, new: str, before: File | None, after: File | None) -> bytes:
    """Return the diff of one file as bytes, with the names that it has in the diff."""
    sections = _sections(old.encode().decode("latin-1"), new.encode().decode("latin-1"), before, after, "latin-1")
    return "".join(sections).encode("latin-1")


def _sections(old: str, new: str, before: File | None, after: File | None, encoding: str) -> Iterator[str]:
    head = list(_head(before, after))
    lines = list(_lines(old, new, before, after, encoding))
    if head or lines:
        yield f"diff --git {old} {new}\n"
        yield from head
        yield from lines


def _head(before: File | None, after: File | None) -> Iterator[str]:
    """Yield git's lines about a file that is new, gone or of another mode."""
    match before, after:
        case File(), File():
            if before.executable != after.executable:
                yield f"old mode {_mode(before)}\nnew mode {_mode(after)}\n"
        case None, File():
            yield f"new file mode {_mode(after)}\n"
        case File(), None:
            yield f"deleted file mode {_mode(before)}\n"
        case _:
            pass


def _lines(old: str, new: str, before: File | None, after: File | None, encoding: str) -> Iterator[str]:
    first, second = (_with_ends(state.raw.decode(encoding)) if state else [] for state in (before, after))
    names = (old if before else "/dev/null", new if after else "/dev/null")
    for line in difflib.unified_diff(first, second, *names):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _with_ends(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _encoding(contents: Sequence[bytes]) -> str:
    """Return the encoding that the files declare as Python does, else UTF-8, else one that takes every byte."""
    lines = iter(next(filter(None, contents), b"").splitlines(keepends=True)[:2])
    try:
        encoding = tokenize.detect_encoding(lambda: next(lines, b""))[0].removesuffix("-sig")
        for content in contents:
            content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return "latin-1"
    return encoding


def _mode(file: File) -> str:
    return "100755" if file.executable else "100644"
