"""A terminal of a given size that a program writes to, and what is on its screen in the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_PIECES = re.compile(r"\x1b\[(?P<arguments>[0-?]*)(?P<final>[@-~])|(?P<control>[\r\n])|(?P<text>[^\x1b\r\n]+)")


@dataclass(kw_only=True)
class Screen:
    """As much of a terminal as a live view uses: lines that wrap, the cursor up, lines erased."""

    columns: int
    lines: list[list[str]] = field(default_factory=lambda: [[]])
    row: int = 0
    column: int = 0

    def feed(self, text: str) -> None:
        for piece in _PIECES.finditer(text):
            if piece["final"]:
                self._command(piece["final"], piece["arguments"])
            elif piece["control"] == "\r":
                self.column = 0
            elif piece["control"] == "\n":
                self._down()
            else:
                self._write(piece["text"])

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")

    def _command(self, final: str, arguments: str) -> None:
        if final == "A":
            self.row = max(0, self.row - int(arguments or 1))
        elif final == "K" and arguments == "2":
            self.lines[self.row] = []

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _write(self, text: str) -> None:
        for char in text:
            if self.column == self.columns:
                self.column = 0
                self._down()
            line = self.lines[self.row]
            line += [" "] * (self.column + 1 - len(line))
            line[self.column] = char
            self.column += 1


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a program wrote to a terminal: every byte, the screen in the end, and how it ended."""

    raw: str
    screen: str
    code: int


def run_in_terminal(
    argv: Sequence[str],
    *,
    columns: int = 100,
    env: Mapping[str, str],
    resized: int | None = None,
    interrupt: Callable[[str], bool] = lambda _raw: False,
) -> Shown:
    """Run a program with a terminal as stderr; ``resized`` are its columns from the first output on.

    ``interrupt`` says, from what was written so far, when Ctrl-C is pressed.
    """
    ours, theirs = pty.openpty()
    _size(theirs, columns)
    with subprocess.Popen(
        ["env", "--default-signal=INT", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=env,
    ) as process:
        os.close(theirs)
        raw, pressed = b"", False
        while chunk := _read(ours):
            if resized and not raw:
                _size(ours, resized)
            raw += chunk
            if not pressed and interrupt(raw.decode(errors="replace")):
                pressed = True
                process.send_signal(signal.SIGINT)
        code = process.wait(timeout=60)
    os.close(ours)
    screen, text = Screen(columns=resized or columns), raw.decode(errors="replace")
    screen.feed(text)
    return Shown(raw=text, screen=screen.text, code=code)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # nobody has the other end any more
        return b""


def _size(descriptor: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
