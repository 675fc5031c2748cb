"""Plain quilt series: `.patch` files are topics as they are, their DEP-3 headers say why they exist."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sglforge.base.toml import Document
from sglforge.config.parse import validate
from sglforge.errors import ConfigError, Finding, PatchError
from sglforge.patches.diffs import parse_diff
from sglforge.patches.faults import corrupt
from sglforge.patches.load import TOPIC_FILE, assemble
from sglforge.patches.model import PatchFile
from sglforge.patches.topic import Topic

QUILT_FILE = "series"
SUFFIXES = frozenset({".patch", ".diff"})
_COMMENT = re.compile(r"(?:^|\s)#.*")
_STRIP = re.compile(r"-p(\d+)")
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)")
_SUBJECT = re.compile(r"^\[[^]]*\]\s*")
_ALL_VERSIONS = ">=0.dev0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a quilt series: the patch, the folders to strip off its names, and where the line is."""

    patch: str
    strip: int
    where: str

    @property
    def name(self) -> str:
        """The topic's name: the patch's, without its suffix."""
        path = PurePosixPath(self.patch)
        return str(path.with_suffix("")) if path.suffix in SUFFIXES else self.patch


def read_series(folder: Path) -> Iterator[Entry | PatchError]:
    """Yield the patches of a quilt series in their order, or the fault of a line."""
    path = folder / QUILT_FILE
    if not os.path.lexists(path):
        return
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        hint = "make it a text file with a patch on each line, or remove it"
        yield corrupt(f"cannot read the quilt series: {error.strerror}", where=str(path), hint=hint)
        return
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        name, options = words[0], words[1:]
        strips = [int(match.group(1)) for option in options if (match := _STRIP.fullmatch(option))]
        if len(strips) < len(options) or len(strips) > 1:
            yield corrupt(f"`{line.strip()}`: only -pN is known after a patch's name", where=where)
        elif name in seen:
            yield corrupt(f"patch `{name}` is listed twice", where=where, hint="list it once")
        else:
            seen.add(name)
            yield Entry(patch=name, strip=strips[0] if strips else 1, where=where)


def load_patch(folder: Path, entry: Entry) -> Topic:
    """Read a patch as a topic.

    Raises PatchError ``patch-corrupt`` and ``patch-path-unsafe``.
    """
    path = folder / entry.patch
    if not path.resolve().is_relative_to(folder.resolve()):
        raise corrupt(f"the patch {entry.patch} lies outside the series' folder", where=entry.where)
    try:
        diff = parse_diff(path.read_bytes(), str(path), strip=entry.strip)
    except OSError as error:
        raise corrupt(f"cannot read the patch {entry.patch}: {error.strerror}", where=entry.where) from error
    fields = read_header(diff.header.decode(errors="replace"))
    data = {**_words(entry, fields), "edits": [{"kind": "diff", "payload": entry.patch, "strip": entry.strip}]}
    document = Document(path=path, data=data, text="")
    try:
        return assemble(entry.name, folder, validate(document, PatchFile), document)
    except ConfigError as error:
        raise PatchError(
            code="patch-corrupt", message=f"the header of {entry.patch} is corrupt", findings=error.as_findings()
        ) from error


def read_header(text: str) -> Mapping[str, str]:
    """Return the fields of a DEP-3 header by their lower-case names; free text is part of the description."""
    fields: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if line.rstrip() == "---":
            break
        if match := _FIELD.fullmatch(line.rstrip()):
            current = match.group(1).lower()
            fields.setdefault(current, match.group(2))
        elif line[:1] in {" ", "\t"} and current:
            fields[current] += "\n" + line.strip().removeprefix(".")
        elif line.strip() and not line.startswith("From "):
            current = ""
            fields["text"] = f"{fields.get('text', '')}{line}\n"
    return fields


def unlisted(folder: Path, entries: list[Entry]) -> Iterator[Finding]:
    """Yield a finding for each patch that the series does not list."""
    listed = {(folder / entry.patch).resolve() for entry in entries}
    for path in sorted(folder.rglob("*")):
        in_topic = any((parent / TOPIC_FILE).is_file() for parent in path.parents if parent.is_relative_to(folder))
        if path.suffix in SUFFIXES and path.resolve() not in listed and not in_topic:
            name = path.relative_to(folder)
            where = str(folder / QUILT_FILE)
            yield from corrupt(
                f"patch `{name}` is not in the series", where=where, hint="list it, or remove it"
            ).as_findings()


def _words(entry: Entry, fields: Mapping[str, str]) -> dict[str, object]:
    """Return what a header says in the words of a topic; what it does not say is said so."""
    subject = _SUBJECT.sub("", fields.get("description") or fields.get("subject") or "")
    first, _, rest = (subject or fields.get("text", "").strip() or entry.name).partition("\n")
    bug = next((value for name, value in fields.items() if name == "bug" or name.startswith("bug-")), "")
    origin = fields.get("origin") or fields.get("author") or fields.get("from") or "unknown: the patch does not say"
    words: dict[str, object] = {
        "description": first.strip() or entry.name,
        "origin": origin,
        "reason": rest.strip() or fields.get("text", "").strip() or first.strip() or entry.name,
        "reference": bug or origin,
        "forwarded": fields.get("forwarded") or bug or "no",
        "versions": fields.get("versions") or _ALL_VERSIONS,
    }
    if version := _version(fields.get("applied-upstream", "")):
        words["upstreamed-from"] = version
        if "versions" not in fields:
            words["versions"] = f"<{version}"
    return words


def _version(text: str) -> str:
    """Return the version that `Applied-Upstream` begins with; it may be a URL or a commit instead."""
    from packaging.version import InvalidVersion, Version

    word = text.replace(",", " ").split()[:1]
    try:
        return str(Version(word[0])) if word and "." in word[0] else ""
    except InvalidVersion:
        return ""
