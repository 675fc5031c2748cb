"""Diffs applied by git: exactly, to a copy of nothing but the files that they touch.

`patch` exits 0 with fuzz on context that has drifted, and leaves half-applied trees. `git apply` wants every line of
context and is atomic. It still looks for a hunk's lines elsewhere in the file, so a hunk that fits two places is
refused here. A file whose hunks have no context (`git diff -U0`) is changed on the lines that they state, or not.
"""

from __future__ import annotations

import dataclasses
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sglforge.base import git, proc
from sglforge.errors import PatchError
from sglforge.patches.checkout import File
from sglforge.patches.diffs import Diff, FileDiff, Hunk
from sglforge.patches.draft import Draft
from sglforge.patches.faults import drifted

_TIMEOUT_S = 60.0
_NEW_NAME = "give the file its new name in the diff if it is the same one, or leave it out with `exclude`"
_OTHER_NAME = "give the new file another name, or narrow the topic's `versions`"


def apply_diff(draft: Draft, diff: Diff) -> Draft:
    """Return the tree with a diff applied, every file of it or none.

    Raises PatchError ``patch-already-there``, ``patch-neither-applied-nor-applicable``, ``patch-target-moved``,
    ``patch-target-ambiguous``, ``patch-anchor-ambiguous``, ``patch-drifted``, ``patch-path-unsafe``
    and ``git-missing``.
    """
    places = _places(draft, diff)
    _check_new_names(draft, diff, places)
    with _scratch(draft, places) as scratch:
        if not scratch.apply(diff, diff.files):
            raise _refusal(draft, diff, places, scratch)
        _check_places(draft, diff, places)
        after = draft.with_files({place: scratch.read(name) for name, place in places.items()})
    if not after.since(draft):
        raise _already_there(diff, ", ".join(places.values()))
    return after


def has_diff(draft: Draft, diff: Diff) -> bool:
    """Tell whether a tree holds everything that a diff does: whether git can take it out again."""
    try:
        places = _places(draft, diff)
        with _scratch(draft, places) as scratch:
            return scratch.reverses(diff, diff.files) and _modes_are_there(draft, diff, places)
    except PatchError as error:
        if error.code in {"git-missing", "process-timeout"}:
            raise
        return False


def holds_diff(draft: Draft, diff: Diff) -> bool:
    """Tell whether the lines that a diff added are in a tree, wherever they stand, and its deleted files are not."""
    places = _places(draft, diff)
    for file in diff.files:
        state = draft.read(places[file.new]) if file.new else None
        if file.new is None:
            if file.old and draft.has(places[file.old]):
                return False
            continue
        lines = state.raw.split(b"\n") if state else []
        if state is None or not all(_positions(lines, run) for hunk in file.hunks for run in hunk.added):
            return False
    return True


def touched(draft: Draft, diff: Diff) -> tuple[str, ...]:
    """Return the files of a diff, as the tree calls them.

    Raises PatchError as :func:`apply_diff` does for names.
    """
    return tuple(dict.fromkeys(_places(draft, diff).values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scratch:
    """A folder with the touched files, named as the diff names them."""

    tree: Path

    def apply(self, diff: Diff, files: Sequence[FileDiff]) -> bool:
        return self._git(diff, files)

    def applies(self, diff: Diff, files: Sequence[FileDiff]) -> bool:
        return self._git(diff, files, "--check")

    def reverses(self, diff: Diff, files: Sequence[FileDiff]) -> bool:
        return self._git(diff, files, "--check", "--reverse")

    def read(self, name: str) -> File | None:
        path = self.tree / name
        if not path.is_file():
            return None
        return File(raw=path.read_bytes(), executable=bool(path.stat().st_mode & stat.S_IXUSR))

    def put(self, name: str, file: File) -> None:
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.raw)
        path.chmod(0o755 if file.executable else 0o644)

    def _git(self, diff: Diff, files: Sequence[FileDiff], *options: str) -> bool:
        """Tell whether git takes the files; those without context must stand on their lines, and have one section."""
        by_line = [file for file in files if file.by_line]
        rest = [file for file in files if not file.by_line]
        reverse = "--reverse" in options
        if any(not self._stands(file, diff, reverse=reverse) for file in by_line):
            return False
        if rest and by_line and not self._run(diff, by_line, "--unidiff-zero", "--check", *options):
            return False  # before anything is written: why it does not apply is asked of the same files
        return (not rest or self._run(diff, rest, *options)) and (
            not by_line or self._run(diff, by_line, "--unidiff-zero", *options)
        )

    def _stands(self, file: FileDiff, diff: Diff, *, reverse: bool) -> bool:
        """Tell whether all lines before (or after) a change of a file are where its hunks say."""
        name = file.new if reverse else file.old
        state = self.read(name) if name else None
        if state is None or sum(file.old in {other.old, other.new} for other in diff.files) > 1:
            return False
        return _astray(state.raw.split(b"\n"), file.hunks, reverse=reverse) is None

    def _run(self, diff: Diff, files: Sequence[FileDiff], *options: str) -> bool:
        text = self.tree.with_name("change.diff")
        text.write_bytes(b"".join(file.text for file in files))
        argv = ["git", "apply", "--whitespace=nowarn", f"-p{diff.strip}", *options, str(text)]
        try:
            done = proc.run(
                argv, cwd=self.tree, env=git.plain_environment(self.tree), timeout_s=_TIMEOUT_S, check=False
            )
        except proc.ProcessError as error:
            raise PatchError(
                code="git-missing" if error.code == "program-missing" else "process-timeout",
                message=error.message,
                hint=error.hint or "run it again on a machine that is less busy",
            ) from error
        return done.returncode == 0


@contextmanager
def _scratch(draft: Draft, places: Mapping[str, str]) -> Iterator[_Scratch]:
    with tempfile.TemporaryDirectory(prefix="sglforge-apply-") as folder:
        scratch = _Scratch(tree=Path(folder) / "tree")
        scratch.tree.mkdir()
        for name, place in places.items():
            if file := draft.read(place):
                scratch.put(name, file)
        yield scratch


def _places(draft: Draft, diff: Diff) -> dict[str, str]:
    """Return what the tree calls each file that a diff names."""
    places: dict[str, str] = {}
    for file in diff.files:
        for name in (file.old, file.new):
            if name is not None and name not in places:
                places[name] = draft.place(name)
    return places


def _check_new_names(draft: Draft, diff: Diff, places: Mapping[str, str]) -> None:
    """Refuse new files below a file, or in the place of a folder: a tree cannot hold both."""
    named = [places[file.new] for file in diff.files if file.new]
    for place in (place for place in named if not draft.has(place)):
        for parent in PurePosixPath(place).parents:
            above = parent.as_posix()
            if above in named or draft.has(above) or draft.checkout.has(above):
                raise drifted(f"{diff.where} makes {place}, and {above} is a file", hint=_OTHER_NAME)
        inside = any(name.startswith(f"{place}/") and draft.has(name) for name in draft.changed)
        if inside or (draft.checkout.root / place).is_dir():
            raise drifted(f"{diff.where} makes {place}, which is a folder of the tree", hint=_OTHER_NAME)


def _check_places(draft: Draft, diff: Diff, places: Mapping[str, str]) -> None:
    """Refuse a hunk that git found elsewhere than where it belongs, if it could belong to two places."""
    seen: set[str | None] = set()
    for file in diff.files:
        state = draft.read(places[file.old]) if file.old else None
        if state is None or file.old in seen:
            continue
        seen.add(file.old)
        lines = state.raw.split(b"\n")
        for hunk in file.hunks:
            found = _positions(lines, hunk.old)
            if hunk.old and hunk.start - 1 not in found and (len(found) > 1 or _positions(lines, hunk.new)):
                there = ", ".join(str(place + 1) for place in sorted({*found, *_positions(lines, hunk.new)}))
                raise PatchError(
                    code="patch-anchor-ambiguous",
                    message=f"the hunk of {diff.where}:{hunk.line} is for line {hunk.start} of {file.old}, and fits "
                    f"elsewhere, on lines {there}",
                    hint="make the diff again for this version, with more context (`git diff -U10`)",
                )


def _astray(lines: Sequence[bytes], hunks: Sequence[Hunk], *, reverse: bool = False) -> Hunk | None:
    """Return the first hunk that is not on the line that it states, None when each is.

    Lines that are gone have no place to come back to: a diff that only deletes some is never found to be made.
    """
    grown = 0
    for hunk in hunks:
        place = hunk.start - 1 + grown if reverse else hunk.start - 1
        wanted = hunk.new if reverse else hunk.old
        stated = hunk.start + grown - (not hunk.new)
        if not wanted or hunk.new_start != stated or list(lines[place : place + len(wanted)]) != list(wanted):
            return hunk
        grown += len(hunk.new) - len(hunk.old)
    return None


def _modes_are_there(draft: Draft, diff: Diff, places: Mapping[str, str]) -> bool:
    """Tell whether files have the modes that a diff gives them: git only warns when it finds another one."""
    for file in diff.files:
        state = draft.read(places[file.new]) if file.new and file.executable is not None else None
        if state is not None and state.executable != file.executable:
            return False
    return True


def _refusal(draft: Draft, diff: Diff, places: Mapping[str, str], scratch: _Scratch) -> PatchError:
    """Return why a diff does not apply."""
    if scratch.reverses(diff, diff.files):
        return _already_there(diff, ", ".join(dict.fromkeys(file.name for file in diff.files)))
    there: list[str] = []
    for file in diff.files:
        if scratch.reverses(diff, [file]):
            there.append(places[file.name])
        elif not scratch.applies(diff, [file]):
            return _neither(draft, diff, file, places)
    if there:
        return _already_there(diff, ", ".join(there))
    return _neither(draft, diff, diff.files[0], places)


def _neither(draft: Draft, diff: Diff, file: FileDiff, places: Mapping[str, str]) -> PatchError:
    if file.old is None:
        return drifted(f"{places[file.name]} is in the tree already, with another content than {diff.where} gives it")
    place = places[file.old]
    state = draft.read(place)
    if state is None:
        gone = draft.checkout.missing([file.old])
        return dataclasses.replace(gone, where=f"{diff.where}:{file.line}", hint=_NEW_NAME)
    lines = state.raw.split(b"\n")
    hunk = next((hunk for hunk in file.hunks if not _positions(lines, hunk.old)), None)
    if file.by_line:
        hunk = hunk or _astray(lines, file.hunks)
    about = f" (the hunk on line {hunk.line}, for line {hunk.start} there)" if hunk else ""
    return PatchError(
        code="patch-neither-applied-nor-applicable",
        message=f"{place} is neither what the diff starts from nor what it makes of it{about}",
        where=f"{diff.where}:{hunk.line if hunk else file.line}",
        hint=_ends_differ(state.raw, hunk)
        or _lacks_context(file)
        or "read what upstream changed there, then make the diff again for this version; `--edit` helps",
    )


def _ends_differ(raw: bytes, hunk: Hunk | None) -> str:
    """Return a hint when nothing but carriage returns keeps a hunk from fitting."""
    if hunk is None or _positions(raw.split(b"\n"), hunk.old):
        return ""
    lines = [line.removesuffix(b"\r") for line in raw.split(b"\n")]
    if not _positions(lines, tuple(line.removesuffix(b"\r") for line in hunk.old)):
        return ""
    return "only the line endings differ: keep the diff as it was made (`-text` in .gitattributes)"


def _lacks_context(file: FileDiff) -> str:
    """Return a hint when a hunk without context could go to nothing but the lines that it states."""
    if not any(hunk.bare for hunk in file.hunks) or file.new is None:
        return ""
    return (
        "a hunk without context (`git diff -U0`) goes to its own lines only: make the diff again, with `git diff -U3`"
    )


def _already_there(diff: Diff, files: str) -> PatchError:
    return PatchError(
        code="patch-already-there",
        message=f"what {diff.where} changes is in the tree: {files}",
        hint="patch a fresh tree; if the tree is fresh, upstream has the change and the topic can be dropped",
    )


def _positions(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    """Return the index of each place where lines stand one after the other; no lines stand nowhere."""
    count = len(wanted)
    if not count:
        return []
    wanted = list(wanted)
    starts = [index for index in range(len(lines) - count + 1) if lines[index] == wanted[0]]
    return [index for index in starts if list(lines[index : index + count]) == wanted]
