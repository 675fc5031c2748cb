"""Verbs about the store: what is in it, whether it is whole, why something is in it, and what may go."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from sglforge.base.console import Console
from sglforge.base.ids import BuildKey
from sglforge.base.rubbish import Rubbish
from sglforge.build.audit import audit, repair
from sglforge.build.collect import DAY_S, Kept, collect
from sglforge.build.entry import Entry
from sglforge.build.store import entry_keys, entry_path, has_wheel, lookup, read_entry, writing
from sglforge.build.uses import in_use
from sglforge.errors import ConfigError, Finding, InstallError, Severity, verdict_of
from sglforge.keys.changes import changes, described
from sglforge.pipeline import damage
from sglforge.pipeline.references import Wanted, references
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.tidying import locked_hashes, tidy
from sglforge.pipeline.toolkits import locked_toolkits
from sglforge.provision.retire import environments, retire
from sglforge.provision.toolkit_retire import retire_toolkits

KEEP_DAYS = 14.0
SHORTEST_PREFIX = 4
SHOWN_CHARACTERS = 12


def store(request: Request, console: Console) -> Outcome:
    """Carry out what was asked for: list, verify, why or gc."""
    actions = {"list": _list, "verify": _verify, "why": _why, "gc": _gc}
    return actions[str(request.option("action", str))](request, console)


def _list(request: Request, _console: Console) -> Outcome:
    there = environments(request.workspace)
    rows = []
    for key in entry_keys(request.workspace):
        entry = _entry(request, key)
        path = entry_path(request.workspace.store, key)
        try:
            touched = path.stat().st_mtime
        except OSError:
            continue  # removed meanwhile
        rows.append(
            {
                "key": key,
                "state": "whole" if entry and has_wheel(request.workspace.store, entry) else "damaged",
                "package": entry.package if entry else None,
                "version": _version(entry) if entry else None,
                "bytes": entry.size if entry else None,
                "made": entry.provenance.get("started") if entry else None,
                "used": datetime.fromtimestamp(touched, tz=UTC).isoformat(timespec="seconds"),
                "environments": [found.label for found in there if key in found.keys],
            }
        )
    total = sum(int(row["bytes"]) for row in rows if isinstance(row["bytes"], int))
    lines = [_line(row) for row in rows]
    lines.append(f"{len(rows)} entries, {_size(total)}")
    document = {"schema": 1, "verdict": "pass", "findings": [], "entries": rows, "bytes": total}
    return Outcome(document=document, text="\n".join(lines))


def _line(row: Mapping[str, object]) -> str:
    made, used = (_plain(str(row[name] or "?"))[:16] for name in ("made", "used"))
    package = _plain(str(row["package"] or "(damaged)"))
    environments = ", ".join(map(str, _words(row["environments"]))) or "-"
    return (
        f"{str(row['key'])[:SHOWN_CHARACTERS]}  {package:<16} {row['version'] or '':<28} {_size(row['bytes']):>9}  "
        f"made {made}  used {used}  {environments}"
    )


def _verify(request: Request, console: Console) -> Outcome:
    with console.step("verify store") as step:
        found = audit(request.workspace, progress=step.progress)
        beside = damage.look(request.workspace)
        findings = (*found.findings, *(one.finding for one in beside))
        broken = (*found.broken, *(one.broken for one in beside))
        if request.flag("repair") and broken:
            repair(request.workspace, found)
            for one in beside:
                damage.repair(one)
            findings = tuple(_dropped(finding) for finding in findings)
        step.say(f"{found.entries} entries, {found.objects} wheels, {_size(found.hashed_bytes)} hashed")
        step.failed = verdict_of(findings) == "fail"
    document = {
        **opening(findings, console),
        "entries": found.entries,
        "objects": found.objects,
        "bytes": found.hashed_bytes,
        "repaired": [str(path) for path in broken] if request.flag("repair") else [],
    }
    verdict = verdict_of(findings)
    return Outcome(
        document=document,
        text=f"{verdict}  {request.workspace.store}",
        exit_code=InstallError.exit_code if verdict == "fail" else 0,
    )


def _dropped(finding: Finding) -> Finding:
    if finding.severity is not Severity.ERROR:
        return finding
    return replace(
        finding,
        severity=Severity.WARNING,
        message=f"{finding.message}; it was dropped",
        hint="nox -s build makes it again",
    )


def _why(request: Request, console: Console) -> Outcome:
    prefix = str(request.option("key", str))
    known = references(request, console)
    key = _one_key(prefix, {*entry_keys(request.workspace), *(found.step.key for found in known.wanted)})
    entry, planned = _entry(request, key), [found for found in known.wanted if found.step.key == key]
    parts = entry.key_parts if entry else planned[0].step.key_parts if planned else {}
    package = entry.package if entry else planned[0].step.package if planned else ""
    others = [found for found in known.wanted if found.step.package == package and found.step.key != key]
    differences = {
        found.label: [_plain(change.text) for change in changes(parts, found.step.key_parts)] for found in others
    }
    document = {
        "schema": 1,
        "verdict": "pass",
        "findings": [],
        "key": key,
        "package": package or None,
        "state": _state(request, key),
        "wheel": entry.document["wheel"] if entry else None,
        "key_parts": dict(parts),
        "made": entry.provenance.get("started") if entry else None,
        "references": list(known.of(key)),
        "running": key in in_use(request.workspace),
        "others": [
            {"label": found.label, "key": found.step.key, "differs": differences[found.label]} for found in others
        ],
    }
    return Outcome(document=document, text="\n".join(_why_lines(document, parts, entry, others, differences)))


def _why_lines(
    document: Mapping[str, object],
    parts: Mapping[str, object],
    entry: Entry | None,
    others: Iterable[Wanted],
    differences: Mapping[str, list[str]],
) -> list[str]:
    lines = [f"{_plain(str(document['package'] or '(unknown package)'))}  {document['key']}  {document['state']}"]
    if entry:
        lines.append(
            f"wheel  {entry.name}, {_size(entry.size)}, made {_plain(str(entry.provenance.get('started', '?')))}"
        )
    lines.append("built from")
    lines += [f"  {_plain(line)}" for line in described(parts)] or ["  (nothing is stated)"]
    named = _words(document["references"])
    lines.append("wanted by" if named or document["running"] else "wanted by nothing: gc removes it once it is old")
    lines += [f"  {line}" for line in named]
    lines += ["  a running command"] if document["running"] else []
    for found in others:
        lines.append(f"the plan of {found.label} wants {found.step.key[:SHOWN_CHARACTERS]} instead")
        lines += [f"  {line}" for line in differences[found.label]]
    return lines


def _gc(request: Request, console: Console) -> Outcome:
    days = request.option("keep_days", float)
    keep_s = (KEEP_DAYS if days is None else days) * DAY_S
    dry_run = request.flag("dry_run")
    now = time.time()
    locked = locked_hashes(request.catalog_root)
    toolkits, known = locked_toolkits(request), references(request, console)
    with console.step("collect") as step:
        removed: list[Rubbish] = []
        with writing(request.workspace, waiting=partial(_say, console)):
            live = in_use(request.workspace)
            removed += retire(request.workspace, keep_s=keep_s, now=now, live=live, dry_run=dry_run)
            removed += tidy(request.workspace, locked=locked, live=live, keep_s=keep_s, now=now, dry_run=dry_run)
            if toolkits is not None:
                keep = toolkits | live
                removed += retire_toolkits(request.workspace, keep=keep, keep_s=keep_s, now=now, dry_run=dry_run)
        gone = {item.path for item in removed}

        def kept() -> Kept:
            """Return what must stay, with the environments that are there at that moment."""
            left = tuple(found for found in environments(request.workspace) if found.folder not in gone)
            return Kept(keys=replace(known, environments=left).keys(), packages=known.unplanned)

        collected = collect(
            request.workspace, kept, keep_s=keep_s, now=now, dry_run=dry_run, waiting=partial(_say, console)
        )
        removed += collected.removed
        freed = sum(item.size for item in removed)
        step.say(f"{'would free' if dry_run else 'freed'} {_size(freed)}, {len(removed)} things")
    document = {
        "schema": 1,
        "verdict": "pass",
        "findings": [],
        "dry_run": dry_run,
        "keep_days": keep_s / DAY_S,
        "removed": [item.to_json() for item in removed],
        "bytes": freed,
        "kept": dict(collected.kept),
        "unplanned": dict(known.unplanned),
    }
    return Outcome(document=document, text="\n".join(_gc_lines(request, removed, collected.kept, dry_run=dry_run)))


def _gc_lines(
    request: Request, removed: Iterable[Rubbish], kept: Mapping[BuildKey, str], *, dry_run: bool
) -> list[str]:
    word = "would remove" if dry_run else "removed"
    root = request.workspace.root
    items = list(removed)
    lines = [
        f"{word}  {item.kind:<12} {_size(item.size):>9}  {item.path.relative_to(root)}  ({item.why})" for item in items
    ]
    lines.append(f"{word} {len(items)} things, {_size(sum(item.size for item in items))}; kept {len(kept)} entries")
    return lines


def _say(console: Console, note: str) -> None:
    console.line(f"  ..  {note}")


def _one_key(prefix: str, candidates: Iterable[BuildKey]) -> BuildKey:
    """Return the one key that begins so.

    Raises InstallError ``store-key-unknown`` and ``store-key-ambiguous``, ConfigError ``usage``.
    """
    if len(prefix) < SHORTEST_PREFIX:
        raise ConfigError(
            code="usage",
            message=f"`{prefix}` is too short to name a build key",
            hint=f"give at least {SHORTEST_PREFIX} of its characters: nox -s store -- list",
        )
    found = sorted(key for key in candidates if key.startswith(prefix.lower()))
    if not found:
        raise InstallError(
            code="store-key-unknown",
            message=f"nothing in the store, and no plan of this catalog, has a key that begins with {prefix}",
            hint="nox -s store -- list, or nox -s plan -- --explain",
        )
    if len(found) > 1:
        raise InstallError(
            code="store-key-ambiguous",
            message=f"{len(found)} keys begin with {prefix}",
            context={"keys": ", ".join(key[:20] for key in found[:10])},
            hint="give more characters",
        )
    return found[0]


def _entry(request: Request, key: BuildKey) -> Entry | None:
    try:
        return read_entry(request.workspace.store, key)
    except (OSError, ValueError):
        return None


def _state(request: Request, key: BuildKey) -> str:
    if lookup(request.workspace, key):
        return "in the store"
    return "damaged" if entry_path(request.workspace.store, key).exists() else "not built"


def _version(entry: Entry) -> str:
    return entry.name.split("-")[1] if entry.name.count("-") >= 4 else "?"


def _size(size: object) -> str:
    if not isinstance(size, int):
        return "?"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _plain(text: str) -> str:
    """Return text without what would steer a terminal: an entry may come from somebody else."""
    return "".join(character if character.isprintable() else "?" for character in text)
