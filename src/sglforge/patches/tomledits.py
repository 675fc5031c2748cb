"""Edits of TOML files: a value by its dotted key, with comments and layout kept."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sglforge.base.toml import Document
from sglforge.errors import PatchError
from sglforge.patches.faults import drifted
from sglforge.patches.model import TomlEdit
from sglforge.patches.textlines import TextLines, read_lines

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

Value = object
"""What TOML can hold, in the types of ``tomllib``."""
Data = MutableMapping[str, Value]

_BEYOND = "the file's layout is beyond what can be edited by key: carry the change as a diff"


def apply_toml(raw: bytes, file: str, edit: TomlEdit) -> bytes:
    """Return the edited bytes; every line but those of the value is the one it was.

    Raises PatchError ``patch-drifted``, ``patch-anchor-ambiguous``, ``patch-already-there``, ``patch-misplaced`` and
    ``patch-target-unreadable``.
    """
    source = read_lines(raw, file)
    target = _read(source, edit)
    wanted = target.changed()
    document = _kit(target)
    _change(document, target.keys, edit)
    after = document.as_string()
    if not same(_loaded(after), wanted):
        raise PatchError(
            code="patch-misplaced",
            message=f"with `{edit.key}` changed, {file} says something else than the edit asks for",
            hint=_BEYOND,
        )
    if lost := _comments(target.document.text) - _comments(after):
        raise PatchError(
            code="patch-misplaced",
            message=f"with `{edit.key}` changed, {file} loses a comment: {min(lost)}",
            hint=_BEYOND,
        )
    return _merged(source, after).raw


def _comments(text: str) -> Counter[str]:
    """Return the lines that are nothing but a comment: tables that lie out of order can lose some to tomlkit."""
    return Counter(line for line in text.split("\n") if line.startswith("#"))


def has_toml(raw: bytes, file: str, edit: TomlEdit) -> bool:
    """Tell whether a file says already what an edit would make it say."""
    try:
        _read(read_lines(raw, file), edit).changed()
    except PatchError as error:
        return error.code == "patch-already-there"
    return False


def key_path(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, as TOML reads it.

    Raises ValueError when it is none.
    """
    table: object = tomllib.loads(f"{key} = 0")
    parts: list[str] = []
    while isinstance(table, dict):
        if len(table) != 1:
            raise ValueError("not a dotted key")
        (name,) = table
        parts.append(name)
        table = table[name]
    return tuple(parts)


def same(one: object, other: object) -> bool:
    """Tell whether two values are equal and of one type, all the way down: 1 is neither 1.0 nor true."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return one == other


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A file, and what an edit is about in it."""

    document: Document
    keys: tuple[str, ...]
    edit: TomlEdit

    @property
    def named(self) -> str:
        return f"`{self.edit.key}` in {self.document.where(self.keys)}"

    def changed(self) -> Data:
        """Return what the file has to say after the edit."""
        data = _loaded(self.document.text)
        table = self._table(data)
        name, edit = self.keys[-1], self.edit
        match edit.operation:
            case "set":
                self._set(table, name)
            case "append":
                items = self._array(table, name)
                if any(same(item, edit.value) for item in items):
                    raise self._done(f"holds {edit.value!r} already")
                items.append(edit.value)
            case "remove":
                self._remove(table, name)
        return data

    def _set(self, table: Data, name: str) -> None:
        edit = self.edit
        if name in table:
            if same(table[name], edit.value):
                raise self._done(f"is {edit.value!r} already")
            self._hold_to_expected(table[name])
        elif edit.replaces is not None:
            raise drifted(f"{self.document.path} has no `{edit.key}`, which was {edit.replaces!r}")
        table[name] = edit.value

    def _remove(self, table: Data, name: str) -> None:
        edit = self.edit
        if edit.value is None:
            if name not in table:
                raise self._done("is gone already")
            self._hold_to_expected(table[name])
            del table[name]
            return
        items = self._array(table, name)
        places = [index for index, item in enumerate(items) if same(item, edit.value)]
        if not places:
            raise self._done(f"lacks {edit.value!r} already")
        if len(places) > 1:
            raise PatchError(
                code="patch-anchor-ambiguous",
                message=f"{self.named} holds {edit.value!r} {len(places)} times",
                hint="set the whole array, with `replaces`",
            )
        del items[places[0]]

    def _hold_to_expected(self, there: Value) -> None:
        if not same(there, self.edit.replaces):
            expected = "a new key" if self.edit.replaces is None else repr(self.edit.replaces)
            raise drifted(
                f"{self.named} is {there!r}, the topic expects {expected}",
                hint="read what upstream changed, then set `replaces` to what is there",
            )

    def _array(self, table: Data, name: str) -> list[Value]:
        items = table.get(name)
        if isinstance(items, list):
            return items
        raise drifted(f"{self.named} is {'not an array' if name in table else 'missing'}")

    def _table(self, data: Data) -> Data:
        """Return the key's table; one that lacks is made for a new key, as TOML does."""
        for key in self.keys[:-1]:
            if key not in data and self.edit.operation == "set" and self.edit.replaces is None:
                data[key] = {}
            inner = data.get(key)
            if not isinstance(inner, dict):
                raise drifted(f"{self.named}: `{key}` is {'not a table' if key in data else 'missing'}")
            data = inner
        return data

    def _done(self, how: str) -> PatchError:
        return PatchError(
            code="patch-already-there",
            message=f"{self.named} {how}",
            hint="patch a fresh tree; if the tree is fresh, upstream has the change and the topic can be dropped",
        )


def _read(source: TextLines, edit: TomlEdit) -> _Target:
    try:
        text = b"\n".join(source.bare).decode() + ("\n" if source.raw.endswith(b"\n") else "")
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(source.file, str(error)) from error
    return _Target(document=Document(path=Path(source.file), data=data, text=text), keys=key_path(edit.key), edit=edit)


def _loaded(text: str) -> Data:
    return tomllib.loads(text)


def _kit(target: _Target) -> TOMLDocument:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    file, text = str(target.document.path), target.document.text
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise _unreadable(file, str(error)) from error
    if document.as_string() != text:
        raise _unreadable(file, "its layout does not survive a round trip")
    return document


def _change(document: TOMLDocument, keys: Sequence[str], edit: TomlEdit) -> None:
    table: MutableMapping[str, object] = document
    for key in keys[:-1]:
        if key not in table:
            table[key] = {}
        inner = table[key]
        table = inner if isinstance(inner, dict) else table
    name = keys[-1]
    items = table.get(name)
    match edit.operation:
        case "set":
            new = name not in table
            table[name] = edit.value
            if new:
                _move_up(table, name)
        case "append" if isinstance(items, list):
            items.append(edit.value)
        case "remove" if edit.value is None:
            del table[name]
        case "remove" if isinstance(items, list):
            index = next(index for index, item in enumerate(items) if same(_plain(item), edit.value))
            del items[index]
        case _:
            pass


def _move_up(table: MutableMapping[str, object], name: str) -> None:
    """Move a new key above the comments and blank lines that end its table: they belong to the next one."""
    from tomlkit.container import Container
    from tomlkit.items import Comment, Table, Whitespace

    container = table.value if isinstance(table, Table) else table
    if not isinstance(container, Container):
        return
    body = container.body
    index = next(index for index, (key, _) in enumerate(body) if key is not None and key.key == name)
    start = index
    while start and isinstance(body[start - 1][1], Comment | Whitespace):
        start -= 1
    if start:
        body.insert(start, body.pop(index))


def _plain(item: object) -> object:
    unwrap = getattr(item, "unwrap", None)
    return unwrap() if unwrap else item


def _merged(source: TextLines, after: str) -> TextLines:
    """Return the file with the lines that changed, and every other line as it was, its end included."""
    new = [line.encode() for line in after.removesuffix("\n").split("\n")]
    old = source.bare
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    tail = zip(reversed(old[start:]), reversed(new[start:]), strict=False)
    same_tail = next((i for i, (a, b) in enumerate(tail) if a != b), min(len(old), len(new)) - start)
    return source.spliced(start, len(old) - same_tail, new[start : len(new) - same_tail])


def _unreadable(file: str, why: str) -> PatchError:
    return PatchError(
        code="patch-target-unreadable",
        message=f"{file} cannot be edited as TOML: {why}",
        hint="carry the change as a diff",
    )
