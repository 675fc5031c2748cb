"""An entry of a store: what one build key stands for, as ``entries/<build key>.json`` says it.

An entry names the wheel by its hash and keeps what the key was computed from. Its own hash is in it, so that a byte
that was changed in it, by a disk or a hand, is noticed whenever it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sglforge.base.files import digest
from sglforge.base.ids import BuildKey, Sha256

SCHEMA = 1
LIMIT_BYTES = 4 * 1024 * 1024
HEX = re.compile(r"[0-9a-f]{64}")
WHEEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.whl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a build key stands for: name, size in bytes and hash of the wheel; where it comes from.

    ``key_parts`` is what the key is the digest of; ``provenance`` is what :mod:`sglforge.artifacts.provenance` says,
    but for these two.
    """

    key: BuildKey
    name: str
    size: int
    sha256: Sha256
    key_parts: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @property
    def package(self) -> str:
        """The package's name in the recipes; empty where the provenance lacks it."""
        return str(self.provenance.get("package", ""))

    @property
    def document(self) -> dict[str, Any]:
        """The provenance document that the entry was made of."""
        wheel = {"name": self.name, "size": self.size, "sha256": self.sha256}
        return {**self.provenance, "wheel": wheel, "key-parts": self.key_parts}

    @property
    def fits_its_key(self) -> bool:
        """Whether the key is the digest of the parts that are stated."""
        return str(digest(self.key_parts)) == self.key


def entry(key: BuildKey, document: Mapping[str, Any]) -> Entry:
    """Return the entry of a provenance document that has ``wheel`` (name, size, sha256) and ``key-parts``.

    Raises ValueError for a document that describes no wheel.
    """
    provenance = {name: value for name, value in document.items() if name not in {"wheel", "key-parts"}}
    return _entry(key, document.get("wheel"), document.get("key-parts", {}), provenance)


def dump(entry: Entry) -> bytes:
    """Return an entry as the content of its file."""
    body = _body(entry)
    return (json.dumps({**body, "sha256": digest(body)}, indent=1, ensure_ascii=False) + "\n").encode()


def parse(data: bytes, key: BuildKey) -> Entry:
    """Return the entry in a file's content.

    Raises ValueError, which says what is wrong, for anything but a whole and unchanged entry of this key.
    """
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"it is longer than {LIMIT_BYTES} bytes")
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it is not an entry of schema {SCHEMA}")
    if document.pop("sha256", None) != _digest(document):
        raise ValueError("it was changed: its hash is another one")
    if document.get("key") != key:
        raise ValueError(f"it is the entry of another key, {str(document.get('key'))[:64]!r}")
    return _entry(key, document.get("wheel"), document.get("key-parts"), document.get("provenance"))


def is_key(name: str) -> bool:
    """Say whether a name can be that of a build key, or a hash."""
    return HEX.fullmatch(name) is not None


def _body(entry: Entry) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "key": entry.key,
        "wheel": {"name": entry.name, "size": entry.size, "sha256": entry.sha256},
        "key-parts": dict(entry.key_parts),
        "provenance": dict(entry.provenance),
    }


def _entry(key: BuildKey, wheel: object, key_parts: object, provenance: object) -> Entry:
    if not (isinstance(wheel, dict) and isinstance(key_parts, dict) and isinstance(provenance, dict)):
        raise ValueError("it describes no wheel")  # noqa: TRY004 - the fault of a file, not of a caller
    name, size, sha256 = wheel.get("name"), wheel.get("size"), wheel.get("sha256")
    if not (isinstance(name, str) and WHEEL_NAME.fullmatch(name)):
        raise ValueError(f"{str(name)[:80]!r} is not the name of a wheel")
    if type(size) is not int or size < 0:
        raise ValueError("the size of its wheel is not a number of bytes")
    if not (isinstance(sha256, str) and is_key(sha256)):
        raise ValueError("the hash of its wheel is not a sha256")
    return Entry(key=key, name=name, size=size, sha256=Sha256(sha256), key_parts=key_parts, provenance=provenance)


def _digest(document: Mapping[str, object]) -> str:
    try:
        return digest(document)
    except (RecursionError, ValueError):  # lone surrogates cannot be written as UTF-8
        return ""


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
