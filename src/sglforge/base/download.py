"""The one door for downloads."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from sglforge.base.files import sha256_file
from sglforge.base.ids import Sha256
from sglforge.errors import FetchError

if TYPE_CHECKING:
    import urllib3

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are there and the bytes of the whole file, None when the server does not say."""

_Answer = TypeVar("_Answer")

CHUNK_BYTES = 64 * 1024
PAGE_LIMIT_BYTES = 64 * 1024 * 1024
SLOWEST_BYTES_PER_S = 1000
CONNECT_TIMEOUT_S = 10.0
UNREACHABLE_ATTEMPTS = 2
MAX_REDIRECTS = 10
_REFUSED_HINT = "look at what serves this address: it is another file than expected, or too slow to be of use"
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 20.0
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
NOT_THERE_STATUSES = frozenset({404, 410})

NETWORK_HINT = (
    "check the network, the proxy variables and the index that `python -m pip config list` names; "
    "what was fetched once is used without a network by --offline"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A text that was read: ``url`` is where it was found in the end, after redirects."""

    url: str
    text: str
    content_type: str


def download(
    url: str,
    destination: Path,
    *,
    sha256: Sha256 | None,
    ca_bundle: Path | None = None,
    trusted_hosts: tuple[str, ...] = (),
    progress: Progress | None = None,
    timeout_s: float = 30.0,
    attempts: int = 4,
    sleep: Callable[[float], None] = time.sleep,
    limit_bytes: int | None = None,
    deadline_s: float | None = None,
) -> Sha256:
    """Fetch one file (http, https or file) and give it its name only when it is whole and right.

    Bytes are collected in ``.<name>.part`` beside the destination. An attempt that breaks off is continued
    with a Range request where a hash or a validator can tell that the pieces belong together; with a hash, so
    is what an earlier, killed run left behind.

    Args:
        url: Where the file is; a user and password in it are sent to that host only and never shown.
        destination: The final path.
        sha256: The hash that is accepted; None accepts what comes.
        ca_bundle: Certificates for https; None: those of the platform (``SSL_CERT_FILE``).
        trusted_hosts: ``host`` or ``host:port`` whose certificate is not checked.
        progress: Told the bytes so far and in total.
        timeout_s: The longest silence of a server; below 1 kB a second for twice as long, it counts as silent.
        attempts: How often a broken or refused transfer is tried.
        sleep: How to pause between attempts.
        limit_bytes: How long the file may be; a longer one is given up as soon as that is known.
        deadline_s: How long all of it may take, however busy the server is; None: as long as it sends something.

    Returns:
        The hash of the file.

    Raises FetchError ``network-unreachable``, ``tls-failed``, ``http-status``, ``download-truncated``,
    ``download-refused`` (too long, too slow), ``hash-mismatch``, ``file-unreadable``, ``unsupported-url``,
    ``disk-full`` or ``not-writable``.
    """
    route = _Route(
        ca_bundle=ca_bundle,
        trusted_hosts=trusted_hosts,
        timeout_s=timeout_s,
        attempts=attempts,
        sleep=sleep,
        limit_bytes=limit_bytes,
        clock=None if deadline_s is None else Clock(deadline_s),
    )
    with _disk_faults(destination.parent), _part(destination) as part:
        if sha256 and destination.is_file() and sha256_file(destination) == sha256:
            return sha256  # another run was faster
        if sha256 is None:
            part.truncate(0)
        continued = part.tell() > 0
        while True:
            _collect(url, part, route, progress, checked=sha256 is not None)
            part.flush()
            found = sha256_file(Path(part.name))
            if sha256 in {None, found}:
                os.fsync(part.fileno())
                Path(part.name).replace(destination)
                return found
            part.truncate(0)
            if not continued:
                raise _mismatch(url, sha256, found)
            continued = False  # what was left behind was not the beginning of this file: once more from zero


def read_text(
    url: str,
    *,
    accept: str = "*/*",
    ca_bundle: Path | None = None,
    trusted_hosts: tuple[str, ...] = (),
    timeout_s: float = 30.0,
    attempts: int = 4,
    sleep: Callable[[float], None] = time.sleep,
) -> Page | None:
    """Read a page (http, https or file) of at most 64 MiB; None when there is none (404, 410, no such file).

    Arguments and errors are those of :func:`download`; ``accept`` is the Accept header.
    """
    parts = _split(url)
    if parts.scheme == "file":
        return _read_file(url)
    route = _Route(
        ca_bundle=ca_bundle, trusted_hosts=trusted_hosts, timeout_s=timeout_s, attempts=attempts, sleep=sleep
    )

    def attempt() -> Page | None:
        with _answer(url, {"Accept": accept, "Accept-Encoding": "gzip"}, route) as (response, final_url):
            if response.status in NOT_THERE_STATUSES:
                return None
            _require_ok(response, url)
            data = response.read(PAGE_LIMIT_BYTES + 1, decode_content=True)
            if len(data) > PAGE_LIMIT_BYTES:
                raise _Trouble(code="http-status", message="sends a page of more than 64 MiB", url=url)
            content_type = response.headers.get("Content-Type", "text/html")
            return Page(url=final_url, text=_decode(data, content_type), content_type=content_type)

    return _persist(attempt, route)


def read_bytes(
    url: str,
    *,
    limit_bytes: int,
    deadline_s: float,
    timeout_s: float = 10.0,
    attempts: int = 1,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Read a small file (http, https) of at most ``limit_bytes`` within ``deadline_s``; None when there is none.

    Arguments and errors are those of :func:`download`.
    """
    route = _Route(
        ca_bundle=None,
        trusted_hosts=(),
        timeout_s=timeout_s,
        attempts=attempts,
        sleep=sleep,
        limit_bytes=limit_bytes,
        clock=Clock(deadline_s),
    )

    def attempt() -> bytes | None:
        with _answer(url, {"Accept-Encoding": "identity"}, route) as (response, _):
            if response.status in NOT_THERE_STATUSES:
                return None
            _require_ok(response, url)
            data = response.read(limit_bytes + 1, decode_content=False)
            _require_length(len(data), url, route)
            return data

    return _persist(attempt, route)


def redact(url: str) -> str:
    """Return a URL without what may be secret in it: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def local_path(url: str) -> Path:
    """Return the path of a ``file:`` URL."""
    return Path(unquote(urlsplit(url).path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """How hosts are reached, and how patiently."""

    ca_bundle: Path | None
    trusted_hosts: tuple[str, ...]
    timeout_s: float
    attempts: int
    sleep: Callable[[float], None]
    limit_bytes: int | None = None
    clock: Clock | None = None


class Clock:
    """A deadline for a whole transfer: a server that keeps sending a byte now and then never meets a timeout."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._end

    @contextlib.contextmanager
    def watch(self, sockets: list[socket.socket]) -> Iterator[None]:
        """Shut down the sockets that are in the list when the time is up; they are closed in the end."""
        timer = threading.Timer(max(self._end - time.monotonic(), 0.0), _shut_down, [sockets])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            for connection in sockets:
                connection.close()


def _shut_down(sockets: list[socket.socket]) -> None:
    for connection in sockets:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Trouble(Exception):  # noqa: N818 - a trouble becomes an error when nothing is tried any more
    """One attempt did not work; ``attempts`` bounds how often this kind is tried (None: as any other)."""

    def __init__(
        self,
        *,
        code: str,
        message: str,
        url: str,
        hint: str = "",
        attempts: int | None = 1,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.url, self.hint = code, message, redact(url), hint
        self.attempts, self.pause_s = attempts, pause_s

    def error(self, tried: int) -> FetchError:
        """Return the error that a user sees."""
        context = {"url": self.url} | ({"attempts": str(tried)} if tried > 1 else {})
        host = urlsplit(self.url).hostname or self.url
        return FetchError(code=self.code, message=f"{host} {self.message}", context=context, hint=self.hint)


def _persist(attempt: Callable[[], _Answer], route: _Route) -> _Answer:
    """Call until it works or the trouble is of a kind that waiting does not cure."""
    tried = 0
    while True:
        tried += 1
        try:
            return attempt()
        except _Trouble as trouble:
            over = route.clock is not None and route.clock.is_over
            if over or tried >= min(trouble.attempts or route.attempts, route.attempts):
                raise trouble.error(tried) from trouble
            pause_s = trouble.pause_s or FIRST_PAUSE_S * 2 ** (tried - 1)
            route.sleep(min(pause_s, LONGEST_PAUSE_S))


def _collect(url: str, part: BinaryIO, route: _Route, progress: Progress | None, *, checked: bool) -> None:
    """Bring the part file to its full length; ``checked``: a hash will tell whether its pieces fit."""
    if _split(url).scheme == "file":
        part.truncate(0)
        _copy_file(url, part, progress)
        return
    validator: list[str] = []  # of the transfer that an attempt of this run began

    def attempt() -> None:
        if not (checked or validator):
            part.truncate(0)
        _receive(url, part, route, progress, validator)

    _persist(attempt, route)


def _receive(url: str, part: BinaryIO, route: _Route, progress: Progress | None, validator: list[str]) -> None:
    have = part.seek(0, os.SEEK_END)
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if validator:
            headers["If-Range"] = validator[0]
    with _answer(url, headers, route) as (response, _):
        content_range = response.headers.get("Content-Range", "")
        if response.status == 416 and have:
            if content_range == f"bytes */{have}":
                return
            part.truncate(0)
            raise _truncated(url, "has another file than the one that was begun")
        _require_ok(response, url)
        if have and not (response.status == 206 and content_range.startswith(f"bytes {have}-")):
            part.truncate(0)  # the server does not continue: this is the whole file again
            have = 0
            if response.status == 206:
                raise _truncated(url, "continues at another place than asked")
        etag = response.headers.get("ETag", "")
        validator[:] = [etag] if etag.startswith('"') else []
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        _require_length(total or 0, url, route)
        for chunk in _pieces(response, url, route):
            part.write(chunk)
            have += len(chunk)
            _require_length(have, url, route)
            if progress:
                progress(have, total)
        part.flush()


def _pieces(response: urllib3.BaseHTTPResponse, url: str, route: _Route) -> Iterator[bytes]:
    """Yield what comes as it comes; a server that sends now and then a byte is given up like a silent one."""
    window_s = 2 * route.timeout_s
    since, got = time.monotonic(), 0
    while chunk := response.read1(CHUNK_BYTES, decode_content=False):
        yield chunk
        got += len(chunk)
        if (passed := time.monotonic() - since) > window_s:
            if got < SLOWEST_BYTES_PER_S * passed:
                raise _truncated(url, f"sends less than {SLOWEST_BYTES_PER_S} bytes a second")
            since, got = time.monotonic(), 0


@contextlib.contextmanager
def _answer(url: str, headers: Mapping[str, str], route: _Route) -> Iterator[tuple[urllib3.BaseHTTPResponse, str]]:
    """Send a GET request, follow redirects, and name whatever goes wrong until the block ends."""
    from urllib3 import exceptions

    answered = False
    with contextlib.ExitStack() as stack:
        try:
            response, final_url = _request(url, headers, route, stack)
            answered = True
            yield response, final_url
            _require_time(url, route)
        except exceptions.HTTPError as error:
            _require_time(url, route, error)
            raise _trouble(error, url, route, answered=answered) from error


def _trouble(error: urllib3.exceptions.HTTPError, url: str, route: _Route, *, answered: bool) -> _Trouble:
    from urllib3 import exceptions

    match error:
        case exceptions.SSLError() | exceptions.ProxyError():
            return _secure_trouble(error, url)
        case exceptions.NewConnectionError():
            return _unreachable(url, f"cannot be reached: {_reason(error)}")
        case exceptions.TimeoutError() if answered:
            return _truncated(url, f"was silent for {route.timeout_s:.0f} s")
        case exceptions.TimeoutError():
            return _unreachable(url, "does not answer")
        case exceptions.ProtocolError() if answered:
            return _truncated(url, "closed the connection before the end")
        case exceptions.ProtocolError():
            return _unreachable(url, "closed the connection without an answer", attempts=None)
        case _:
            return _unreachable(url, f"cannot be asked: {_reason(error)}", attempts=1)


def _require_time(url: str, route: _Route, error: Exception | None = None) -> None:
    """Refuse a transfer whose time is up, however it ended."""
    if route.clock and route.clock.is_over:
        message = f"takes longer than {route.clock.seconds:.0f} s"
        raise _Trouble(code="download-refused", message=message, url=url, hint=_REFUSED_HINT) from error


def _require_length(length: int, url: str, route: _Route) -> None:
    if route.limit_bytes is not None and length > route.limit_bytes:
        message = f"sends more than the {route.limit_bytes} bytes that are accepted"
        raise _Trouble(code="download-refused", message=message, url=url, hint=_REFUSED_HINT)


def _request(
    url: str, headers: Mapping[str, str], route: _Route, stack: contextlib.ExitStack
) -> tuple[urllib3.BaseHTTPResponse, str]:
    import urllib3

    timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, route.timeout_s), read=route.timeout_s)
    credentials: tuple[tuple[str, str], dict[str, str]] | None = None
    for _ in range(MAX_REDIRECTS):
        parts = _split(url, remote=True)
        origin = (parts.scheme, parts.netloc.rpartition("@")[2])
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            credentials = (origin, urllib3.make_headers(basic_auth=login))
        secret = credentials[1] if credentials and credentials[0] == origin else {}
        bare = urlunsplit((*origin, parts.path or "/", parts.query, ""))
        pool = stack.enter_context(_pool(parts, route))
        if route.clock:
            _limit_time(pool, bare, route.clock, stack)
        response = pool.request(
            "GET",
            bare,
            headers={"User-Agent": "sglforge", **headers, **secret},
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=timeout,
        )
        stack.callback(response.close)
        location = response.get_redirect_location()
        if not location:
            return response, bare
        url = urljoin(bare, location)
    raise _Trouble(code="http-status", message=f"redirects more than {MAX_REDIRECTS} times", url=url)


def _limit_time(manager: urllib3.PoolManager, url: str, clock: Clock, stack: contextlib.ExitStack) -> None:
    """Have every connection that is made for a URL end when the time is up."""
    sockets: list[socket.socket] = []
    stack.enter_context(clock.watch(sockets))
    pool = manager.connection_from_url(url)
    plain: Any = pool.ConnectionCls

    def connect(self: object) -> socket.socket:
        made: socket.socket = plain._new_conn(self)  # noqa: SLF001 - where urllib3 opens its connections
        sockets.append(made.dup())
        if clock.is_over:
            _shut_down(sockets)
        return made

    vars(pool)["ConnectionCls"] = type("TimedConnection", (plain,), {"_new_conn": connect})


def _pool(parts: SplitResult, route: _Route) -> urllib3.PoolManager:
    """Return the connections for one URL, through the proxy that the environment names."""
    from urllib.request import getproxies, proxy_bypass

    import urllib3

    host = parts.hostname or ""
    trusted = host in route.trusted_hosts or f"{host}:{parts.port}" in route.trusted_hosts
    settings: dict[str, Any] = {}
    if trusted:
        settings["cert_reqs"] = "CERT_NONE"
    elif route.ca_bundle:
        settings["ca_certs"] = str(route.ca_bundle)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2], proxies):
        return urllib3.PoolManager(**settings)
    proxy_parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    headers = None
    if proxy_parts.username is not None:
        login = f"{unquote(proxy_parts.username)}:{unquote(proxy_parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=login)
    return urllib3.ProxyManager(redact(proxy_parts.geturl()), proxy_headers=headers, **settings)


def _require_ok(response: urllib3.BaseHTTPResponse, url: str) -> None:
    from http import HTTPStatus

    status = response.status
    if status in {200, 206}:
        return
    words = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown status"
    hint = {
        401: "the index asks who you are: put the credentials into pip's configuration (pip config set)",
        403: "the index refuses: check the credentials in pip's configuration",
        404: "the file is not there any more, or the index is another one than the lock was made with",
        407: "the proxy asks who you are: put the credentials into the proxy variables",
    }.get(status, "the server has a problem: try again later" if status >= 500 else "")
    raise _Trouble(
        code="http-status",
        message=f"answers {status} {words}",
        url=url,
        hint=hint,
        attempts=None if status in RETRIED_STATUSES else 1,
        pause_s=_retry_after_s(response),
    )


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float:
    from urllib3 import Retry
    from urllib3.exceptions import InvalidHeader

    with contextlib.suppress(InvalidHeader):
        return Retry().get_retry_after(response) or 0.0
    return 0.0


def _truncated(url: str, message: str) -> _Trouble:
    hint = "run it again: it continues where it stopped"
    return _Trouble(code="download-truncated", message=message, url=url, hint=hint, attempts=None)


def _unreachable(url: str, message: str, *, attempts: int | None = UNREACHABLE_ATTEMPTS) -> _Trouble:
    return _Trouble(code="network-unreachable", message=message, url=url, hint=NETWORK_HINT, attempts=attempts)


def _secure_trouble(error: Exception, url: str) -> _Trouble:
    from urllib3 import exceptions

    cause = getattr(error, "original_error", error)
    if not isinstance(cause, exceptions.SSLError):
        return _unreachable(url, f"cannot be reached through the proxy: {_reason(cause)}")
    hint = "name the certificates that this network uses: pip config set global.cert FILE, or SSL_CERT_FILE"
    return _Trouble(code="tls-failed", message=f"cannot be trusted: {_reason(cause)}", url=url, hint=hint)


def _reason(error: BaseException) -> str:
    """Return the cause in words, without object addresses and URLs."""
    seen: BaseException = error
    while inner := seen.__cause__ or seen.__context__:
        seen = inner
    if isinstance(seen, OSError) and seen.strerror:
        return seen.strerror
    return str(seen).rpartition(": ")[2] or type(seen).__name__


def _mismatch(url: str, expected: str | None, found: str) -> FetchError:
    return FetchError(
        code="hash-mismatch",
        message=f"{Path(urlsplit(url).path).name} is not the file that is accepted; it was not kept",
        context={"url": redact(url), "expected sha256": expected or "", "got sha256": found},
        hint="the file was replaced, or a proxy changed it; compare from another network before you lock it",
    )


def _split(url: str, *, remote: bool = False) -> SplitResult:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        parts, valid = urlsplit(""), False
    if valid or (parts.scheme == "file" and not remote):
        return parts
    raise FetchError(
        code="unsupported-url",
        message=f"cannot fetch from {redact(url)}",
        hint="http, https and file URLs are understood",
    )


def _decode(data: bytes, content_type: str) -> str:
    from email.message import Message

    header = Message()
    header["Content-Type"] = content_type
    try:
        return data.decode(header.get_content_charset("utf-8"), errors="replace")
    except LookupError:
        return data.decode(errors="replace")


def _read_file(url: str) -> Page | None:
    path = local_path(url)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    return Page(url=url, text=text, content_type="text/html")


def _copy_file(url: str, part: BinaryIO, progress: Progress | None) -> None:
    path = local_path(url)
    try:
        source = path.open("rb")
        total = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    done = 0
    with source:
        while chunk := source.read(1024 * 1024):
            part.write(chunk)
            done += len(chunk)
            if progress:
                progress(done, total)


def _unreadable(path: Path, error: OSError) -> FetchError:
    return FetchError(
        code="file-unreadable",
        message=f"cannot read {path}: {error.strerror}",
        hint="correct the folder that pip's configuration names (pip config list)",
    )


@contextlib.contextmanager
def _part(destination: Path) -> Iterator[BinaryIO]:
    """Open the part file for this process alone; remove it when nothing in it is worth keeping."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    path = destination.with_name(f".{destination.name}.part")
    while True:
        stream = path.open("a+b")
        fcntl.flock(stream, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                break
        stream.close()  # the run that held it has finished and moved it away
    with stream:
        try:
            yield stream
        except OSError as error:
            if error.errno in DISK_FULL:
                path.unlink(missing_ok=True)
            raise
        finally:
            if os.fstat(stream.fileno()).st_size == 0:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _disk_faults(folder: Path) -> Iterator[None]:
    """Name what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise FetchError(
            code="disk-full" if error.errno in DISK_FULL else "not-writable",
            message=f"cannot write to {folder}: {error.strerror}",
            hint="free some space, or use another workspace (--workspace DIR, SGLFORGE_HOME)",
        ) from error
