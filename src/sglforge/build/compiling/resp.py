"""Redis's wire format (RESP2), as much of it as ccache speaks: commands are lists of byte strings.

From the protocol's specification: ``*<count>``, then ``$<length>`` and the bytes for each; answers are ``+text``,
``-error``, ``:number`` and ``$<length>`` with bytes, ``$-1`` for nothing.
"""

from __future__ import annotations

from typing import BinaryIO

MOST_BYTES = 2**30
MOST_WORDS = 64
_LINE = 2**16

Answer = bytes | int | str | None


class ProtocolError(Exception):
    """What came is not the protocol, or says that something went wrong."""


def read_command(stream: BinaryIO) -> list[bytes] | None:
    """Return a command's words; None at the end of the stream.

    Raises ProtocolError and OSError.
    """
    first = stream.readline(_LINE)
    if not first:
        return None
    count = _number(first, b"*")
    if not 0 < count <= MOST_WORDS:
        raise ProtocolError(f"a command of {count} words")
    return [_bulk(stream, stream.readline(_LINE)) or b"" for _ in range(count)]


def command(*words: bytes) -> bytes:
    """Return the bytes of a command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def read_answer(stream: BinaryIO) -> Answer:
    """Return an answer: bytes, a number, a text, or None for nothing.

    Raises ProtocolError, also for an error that the other side tells, and OSError.
    """
    line = stream.readline(_LINE)
    match line[:1]:
        case b"$":
            return _bulk(stream, line)
        case b":":
            return _number(line, b":")
        case b"+":
            return line[1:].strip().decode(errors="replace")
        case b"-":
            raise ProtocolError(line[1:].strip().decode(errors="replace"))
        case _:
            raise ProtocolError("no answer")


def answer(value: Answer) -> bytes:
    """Return the bytes of an answer."""
    match value:
        case None:
            return b"$-1\r\n"
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case int():
            return b":%d\r\n" % value
        case str():
            return b"+%b\r\n" % value.encode()


def error(text: str) -> bytes:
    """Return the bytes of an answer that says what went wrong."""
    return b"-ERR %b\r\n" % text.replace("\r", " ").replace("\n", " ").encode(errors="replace")


def _bulk(stream: BinaryIO, line: bytes) -> bytes | None:
    length = _number(line, b"$")
    if length < 0:
        return None
    if length > MOST_BYTES:
        raise ProtocolError(f"{length} bytes are too many")
    data = stream.read(length + 2)
    if len(data) < length + 2:
        raise ProtocolError("it ends in the middle")
    return data[:-2]


def _number(line: bytes, kind: bytes) -> int:
    text = line[1:].strip()
    if line[:1] != kind or not text.removeprefix(b"-").isdigit():
        raise ProtocolError(f"not the protocol: {line[:20]!r}")
    return int(text)
