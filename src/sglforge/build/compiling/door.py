"""The one way out of a build step's sandbox: a Unix socket behind which we ask the shared storage for objects.

A step has no network, and ccache in it still shares objects with other machines: it speaks Redis's protocol to this
socket, and we, outside, speak to the storage that the person named. What can be asked is four words (GET, EXISTS, SET,
DEL) about keys; no address, no other command, no data but objects passes. What others have put there is believed as
ccache believes it: by a person's choice, and the record says so.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from sglforge.build.compiling import resp
from sglforge.build.compiling.storage import KEY, READ_ONLY, Remote, Storage, StorageError

LONGEST_PATH = 107
"""Of a socket, in bytes (unix(7))."""
_ENDING = re.compile(r"[\s|]")
SHUT_FOR_S = 30.0
"""So long is a storage that failed not asked again: no unit should wait for one that is gone."""


@dataclass(slots=True, kw_only=True)
class Door:
    """A socket that a step may speak to. ``address`` is how ccache names it, ``folder`` what the sandbox must show.

    ``faults`` is how often the storage failed, ``fault`` what it was the last time.
    """

    folder: Path
    remote: Remote
    faults: int = 0
    fault: str = ""
    _shut_until: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def socket(self) -> Path:
        """The socket."""
        return self.folder / "s"

    @property
    def address(self) -> str:
        """The storage as ccache writes it."""
        return f"redis+unix:{self.socket}" + (READ_ONLY if self.remote.read_only else "")

    def answer(self, words: list[bytes], storage: Storage) -> bytes:
        """Return the answer to a command."""
        name = words[0].upper()
        if name in {b"AUTH", b"SELECT", b"PING", b"HELLO"}:
            return resp.answer("OK")
        if len(words) < 2 or not KEY.fullmatch(words[1]):
            return resp.error("no such key can be asked for")
        if time.monotonic() < self._shut_until:
            return resp.error(f"the storage failed a moment ago: {self.fault}")
        try:
            return self._ask(name, words, storage)
        except StorageError as error:
            with self._turn:
                self.faults += 1
                self.fault = str(error)
                self._shut_until = time.monotonic() + SHUT_FOR_S
            return resp.error(str(error))

    def _ask(self, name: bytes, words: list[bytes], storage: Storage) -> bytes:
        match name, len(words):
            case b"GET", 2:
                return resp.answer(storage.get(words[1]))
            case b"EXISTS", 2:
                return resp.answer(int(storage.has(words[1])))
            case b"SET" | b"DEL", _ if self.remote.read_only:
                return resp.error("the storage is only read")
            case b"SET", 3:
                storage.put(words[1], words[2])
                return resp.answer("OK")
            case b"DEL", 2:
                return resp.answer(int(storage.remove(words[1])))
            case _:
                return resp.error("only GET, EXISTS, SET and DEL pass here")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, door: Door) -> None:
        self.door = door
        super().__init__(str(door.socket), _Conversation)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away is none of our faults."""


class _Conversation(socketserver.StreamRequestHandler):
    server: _Server
    connection: socket.socket

    def handle(self) -> None:
        storage = self.server.door.remote.open()
        with contextlib.suppress(OSError):
            while True:
                try:
                    words = resp.read_command(cast("BinaryIO", self.rfile))
                except resp.ProtocolError as error:
                    self.connection.sendall(resp.error(str(error)))
                    return
                if words is None:
                    return
                self.connection.sendall(self.server.door.answer(words, storage))


@contextlib.contextmanager
def serving(remote: Remote, near: Path) -> Iterator[Door]:
    """Serve a door until the block ends; its folder is made in ``near``, or in /tmp where a path there does not do.

    A socket's path has a length, and ccache takes blanks and ``|`` as the end of a storage's address.
    """
    folder = near / "door"
    if len(bytes(folder / "s")) <= LONGEST_PATH and not _ENDING.search(str(folder)):
        folder.mkdir()
    else:
        folder = Path(tempfile.mkdtemp(prefix="sglforge-door-", dir="/tmp"))
    try:
        door = Door(folder=folder, remote=remote)
        with _Server(door) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
            thread.start()
            try:
                yield door
            finally:
                server.shutdown()
                thread.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
