"""Text files of any kind as physical lines that join to the very bytes they came from."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sglforge.errors import PatchError
from sglforge.patches.faults import corrupt

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLines:
    """A text file: its name in messages, its byte order mark, and its lines with their ends."""

    file: str
    mark: bytes
    lines: tuple[bytes, ...]

    @property
    def raw(self) -> bytes:
        """The file's bytes."""
        return self.mark + b"".join(self.lines)

    @property
    def bare(self) -> tuple[bytes, ...]:
        """The lines without their ends."""
        return tuple(without_end(line) for line in self.lines)

    def positions(self, wanted: Sequence[bytes]) -> list[int]:
        """Return the index of each place where lines stand one after the other; ends of lines do not count."""
        bare, count = self.bare, len(wanted)
        return [index for index in range(len(bare) - count + 1) if bare[index : index + count] == tuple(wanted)]

    def spliced(self, start: int, end: int, new: Sequence[bytes]) -> TextLines:
        """Return the file with other lines in the place of those from ``start`` to ``end``.

        The new lines end as their neighbours do; a final newline is neither added nor taken.
        """
        newline = self._ending(start)
        added = [line + newline for line in new]
        before, after = list(self.lines[:start]), list(self.lines[end:])
        open_end = bool(self.lines) and not self.lines[-1].endswith(b"\n")
        if open_end and not after:
            if added:
                added[-1] = without_end(added[-1])
            elif before:
                before[-1] = without_end(before[-1])
        if before and added and not before[-1].endswith(b"\n"):
            before[-1] += newline
        return TextLines(file=self.file, mark=self.mark, lines=(*before, *added, *after))

    def _ending(self, index: int) -> bytes:
        for line in (*self.lines[index : index + 1], *self.lines[max(index - 1, 0) : index], *self.lines[:1]):
            for newline in (b"\r\n", b"\n"):
                if line.endswith(newline):
                    return newline
        return b"\n"


def read_lines(raw: bytes, file: str) -> TextLines:
    """Take a text file apart.

    Raises PatchError ``patch-target-unreadable`` when it is no text that holds ASCII as such.
    """
    if b"\0" in raw or raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise PatchError(
            code="patch-target-unreadable",
            message=f"{file} cannot be read as text: it is binary, or UTF-16",
            hint="a file that is no plain text cannot be edited",
        )
    mark = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
    return TextLines(file=file, mark=mark, lines=tuple(_LINE.findall(raw.removeprefix(mark))))


def lines_for(text: str, source: TextLines, what: str) -> tuple[bytes, ...]:
    """Return a text of ours as lines for a file; what is not ASCII goes only into a file that is UTF-8.

    Raises PatchError ``patch-corrupt``.
    """
    if not text.isascii():
        try:
            source.raw.decode()
        except UnicodeDecodeError as error:
            raise corrupt(
                f"{what} is not ASCII, and {source.file} is not UTF-8",
                hint="write it in ASCII, or carry the change as a diff",
            ) from error
    return tuple(text.removesuffix("\n").encode().split(b"\n"))


def without_end(line: bytes) -> bytes:
    """Return a line without its end."""
    return line.removesuffix(b"\n").removesuffix(b"\r")
