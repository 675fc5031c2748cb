"""Unified diffs that a topic carries: taken apart, and refused where they are corrupt or leave the tree."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sglforge.base.ids import Sha256
from sglforge.errors import PatchError
from sglforge.patches.faults import corrupt, unsafe

if TYPE_CHECKING:
    from unidiff.patch import Hunk as ParsedHunk
    from unidiff.patch import PatchedFile

NOTHING = "/dev/null"
_LONGEST_NAME = 255
"""Bytes of a name on the file systems of Linux."""
_ESCAPE = re.compile(rb'\\([abfnrtv"\\]|[0-7]{3})')
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_SPECIAL_MODES = {"120000": "a link", "160000": "a submodule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One hunk: its line in the diff, the first line that it is about before and after, and the lines before and after.

    ``added`` are the runs of new lines. Lines are without their newlines. ``bare`` hunks have lines of the file and no
    context (`git diff -U0`).
    """

    line: int
    start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    added: tuple[tuple[bytes, ...], ...]
    bare: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """What a diff does to one file: its names without the stripped folders, None where there is no file.

    ``executable`` is what it makes of the right to run the file, None where it says nothing.
    """

    old: str | None
    new: str | None
    executable: bool | None
    line: int
    text: bytes
    hunks: tuple[Hunk, ...]

    @property
    def name(self) -> str:
        """The name to speak of it by."""
        return self.new or self.old or ""

    @property
    def by_line(self) -> bool:
        """Tell whether hunks go to the lines that they state and nowhere else: one below line 1 has no context."""
        return any(hunk.bare and hunk.start > 1 for hunk in self.hunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """A unified diff: its bytes, where it lies, how many folders are stripped off its names, its header."""

    raw: bytes
    where: str
    strip: int
    header: bytes
    files: tuple[FileDiff, ...]

    @property
    def sha256(self) -> Sha256:
        """The hash of what is applied; the words above it do not count."""
        return Sha256(hashlib.sha256(self.raw.removeprefix(self.header)).hexdigest())

    def without(self, names: frozenset[str]) -> Diff:
        """Return the diff without some of its files."""
        kept = tuple(file for file in self.files if file.name not in names)
        return Diff(raw=self.raw, where=self.where, strip=self.strip, header=self.header, files=kept)


def parse_diff(raw: bytes, where: str, *, strip: int = 1) -> Diff:
    """Take a diff apart.

    Raises PatchError ``patch-corrupt`` with the line, ``patch-path-unsafe`` for names that leave the tree.
    """
    lines = _split(raw.decode("latin-1"))
    patches = _patches(lines, where)
    starts = [_first_line(patch, lines) for patch in patches]
    files: list[FileDiff] = []
    for patch, start, end in zip(patches, starts, [*starts[1:], len(lines) + 1], strict=True):
        text = "".join(lines[start - 1 : end - 1]).encode("latin-1")
        old, new = _names(patch, strip, f"{where}:{start}")
        hunks = tuple(_hunk(hunk) for hunk in patch)
        mode = patch.target_mode if patch.target_mode != patch.source_mode else None
        executable = mode == "100755" if mode and new else None
        files.append(FileDiff(old=old, new=new, executable=executable, line=start, text=text, hunks=hunks))
    header = "".join(lines[: starts[0] - 1]).encode("latin-1")
    return Diff(raw=raw, where=where, strip=strip, header=header, files=tuple(files))


def _split(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


class _Lines:
    """Lines that remember how many of them were read, and where the last hunk began."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.number = 0
        self.hunk = 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.number += 1
            if line.startswith("@@ "):
                self.hunk = self.number
            yield line


def _patches(lines: Sequence[str], where: str) -> list[PatchedFile]:
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    reading = _Lines(lines)
    try:
        patches = list(PatchSet(reading))
    except UnidiffParseError as error:
        message = f"{str(error)[:1].lower()}{str(error)[1:].strip()}"
        about = f"the hunk on line {reading.hunk}: " if "hunk" in message.lower() and reading.hunk else ""
        raise _broken(
            f"the diff is corrupt on line {reading.number}: {about}{message}", where, reading.number
        ) from error
    if not patches:
        raise _broken("the diff is corrupt: it changes no file", where, 1)
    for patch in patches:
        _check(patch, lines, where)
    return patches


def _check(patch: PatchedFile, lines: Sequence[str], where: str) -> None:
    """Refuse what git would pass over or cannot carry."""
    start = patch.diff_line_no or 1
    if patch.is_binary_file:
        raise _broken(f"{patch.path} is a binary change, which a topic cannot carry", where, start)
    for mode in (patch.source_mode, patch.target_mode):
        if mode in _SPECIAL_MODES:
            raise _broken(f"{patch.path} is {_SPECIAL_MODES[mode]}, which a topic cannot carry", where, start)
    for hunk in patch:
        if not hunk.added and not hunk.removed:
            first = min((line.diff_line_no or start for line in hunk), default=start)
            raise _broken(f"the diff is corrupt on line {first - 1}: the hunk changes nothing", where, first - 1)
        if hunk.source_start and not hunk.source_length:
            first = min((line.diff_line_no or start for line in hunk), default=start)
            message = f"the hunk on line {first - 1} has no line of the file: nothing says where it goes"
            raise corrupt(
                message, where=f"{where}:{first - 1}", hint="make the diff again, with context (`git diff -U3`)"
            )
        last = max((line.diff_line_no or 0 for line in hunk), default=0)
        if last == len(lines) and not lines[-1].endswith("\n") and lines[-1][:1] in {" ", "+", "-"}:
            message = f"the last line ({last}) of the diff has no newline: the file was cut off or edited"
            hint = "make the diff again, or end it with a newline; no tool but git should write it"
            raise corrupt(message, where=f"{where}:{last}", hint=hint)
        rest = lines[last : last + 2]
        if rest and rest[0][:1] in {" ", "+", "-"} and not _ends_a_hunk(rest):
            message = f"the diff is corrupt on line {last + 1}: the hunk above it is longer than its header says"
            raise _broken(message, where, last + 1)


def _ends_a_hunk(rest: Sequence[str]) -> bool:
    """Tell whether a line that looks like one of a hunk begins another file, or the signature of a mail."""
    if rest[0].rstrip("\r\n") in {"-- ", "--"}:
        return True
    return rest[0].startswith("--- ") and len(rest) > 1 and rest[1].startswith("+++ ")


def _first_line(patch: PatchedFile, lines: Sequence[str]) -> int:
    number = patch.diff_line_no or 1
    return number - 1 if lines[number - 1].startswith("+++ ") else number


def _names(patch: PatchedFile, strip: int, where: str) -> tuple[str | None, str | None]:
    """Return the old and the new name of a file, without the folders that are stripped."""
    old, new = (_stripped(name, strip, where) for name in (patch.source_file, patch.target_file))
    for line in patch.patch_info or ():
        for prefix in ("rename from ", "copy from "):
            if line.startswith(prefix):
                old = _stripped(line.removeprefix(prefix), max(strip - 1, 0), where)
        for prefix in ("rename to ", "copy to "):
            if line.startswith(prefix):
                new = _stripped(line.removeprefix(prefix), max(strip - 1, 0), where)
    if old is None and new is None:
        raise corrupt("the diff is corrupt: it names no file", where=where)
    return old, new


def _stripped(quoted: str, strip: int, where: str) -> str | None:
    name = _unquoted(quoted.rstrip("\r\n"))
    if name == NOTHING:
        return None
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise unsafe(f"the diff names {name!r}, which is not a path inside the tree", where=where)
    if any(part.lower() == ".git" for part in path.parts):
        raise unsafe(f"the diff names {name!r}, which belongs to git", where=where)
    if any(len(part.encode(errors="surrogateescape")) > _LONGEST_NAME for part in path.parts):
        raise unsafe(f"the diff names {name[:40]!r}..., which is too long for a file", where=where)
    if len(path.parts) <= strip:
        message = f"{name!r} has fewer than {strip + 1} parts: nothing is left of it when {strip} are stripped"
        raise corrupt(message, where=where, hint="give the number of folders to strip, as for `patch -p`")
    return "/".join(path.parts[strip:])


def _unquoted(name: str) -> str:
    """Return a name as it is; git quotes those with special characters."""
    raw = name.encode("latin-1")
    if raw[:1] == raw[-1:] == b'"' and len(raw) > 1:
        raw = _ESCAPE.sub(_character, raw[1:-1])
    return raw.decode(errors="surrogateescape")


def _character(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    return bytes([int(code, 8)]) if code.isdigit() else _ESCAPED.get(code, code)


def _hunk(hunk: ParsedHunk) -> Hunk:
    added: list[list[bytes]] = []
    previous = False
    for line in hunk:
        if line.is_added:
            added = added if previous else [*added, []]
            added[-1].append(_bare(line.value))
        previous = line.is_added
    first = next((line.diff_line_no for line in hunk if line.diff_line_no), 1)
    return Hunk(
        line=first - 1,
        start=hunk.source_start,
        new_start=hunk.target_start,
        old=tuple(_bare(line.value) for line in hunk.source_lines()),
        new=tuple(_bare(line.value) for line in hunk.target_lines()),
        added=tuple(tuple(run) for run in added),
        bare=bool(hunk.source_length) and not any(line.is_context for line in hunk),
    )


def _bare(value: str) -> bytes:
    return value.removesuffix("\n").encode("latin-1")


def _broken(message: str, where: str, line: int) -> PatchError:
    return corrupt(message, where=f"{where}:{line}", hint="make the diff again, with `git diff`, and do not edit it")
