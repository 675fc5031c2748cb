"""What git says when a repository cannot be asked, in our words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglforge.base.download import redact
from sglforge.errors import FetchError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")
_SHOWN_LINES = 6
_NETWORK_HINT = "check the network and git's own settings (proxy, insteadOf): git ls-remote {url}"
_FULL_DISK = r"No space left on device|Disk quota exceeded"
_LACKING = r"could not fetch [0-9a-f]+ from promisor remote"
_CUT_OFF = r"shallow roots are not allowed|shallow update not allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One way to fail: what git's words for it contain, and ours; ``passing``: it may work in a moment."""

    words: str
    code: str
    message: str
    hint: str
    passing: bool = False


_KINDS = (
    _Kind(
        words=_FULL_DISK,
        code="disk-full",
        message="there is no room for what {url} has",
        hint="free some space, or use another workspace (--workspace DIR, SGLFORGE_HOME)",
    ),
    _Kind(
        words=r"dubious ownership|unsafe repository",
        code="git-owner-differs",
        message="git does not read {url}: it belongs to another user",
        hint="if you trust it: git config --global --add safe.directory FOLDER",
    ),
    _Kind(
        words=r"transport '[^']*' not allowed|protocol is not allowed",
        code="git-transport-refused",
        message="{url} is reached in a way that is not allowed here",
        hint="use https, ssh, git or a folder; --offline allows folders only",
    ),
    _Kind(
        words=r"Could not resolve (?:host|proxy)|[Nn]ame or service not known|Temporary failure in name resolution"
        r"|unable to look up",
        code="network-unreachable",
        message="the host of {url} is not known here",
        hint=_NETWORK_HINT,
        passing=True,
    ),
    _Kind(
        words=r"certificate|SSL routines|gnutls_handshake|TLS connect error|SSL_connect",
        code="tls-failed",
        message="the host of {url} cannot be trusted",
        hint="name the certificates that this network uses: git config --global http.sslCAInfo FILE",
    ),
    _Kind(
        words=r"Operation too slow|[Tt]imed out|Timeout was reached",
        code="git-timeout",
        message="{url} is silent",
        hint="repeat it; if it stays silent, " + _NETWORK_HINT,
        passing=True,
    ),
    _Kind(
        words=r"Connection refused|Network is unreachable|No route to host|Failed to connect|Could ?n.t connect"
        r"|Host is down|Connection reset",
        code="network-unreachable",
        message="the host of {url} cannot be reached",
        hint=_NETWORK_HINT,
        passing=True,
    ),
    _Kind(
        words=r"Authentication failed|could not read (?:Username|Password)|Permission denied \(|error: 40[13]\b"
        r"|Host key verification failed|HTTP Basic: Access denied",
        code="git-auth-failed",
        message="{url} asks who you are, and did not accept the answer",
        hint="check the address, and give git a credential helper or a key that works: git ls-remote {url}",
    ),
    _Kind(
        words=r"[Rr]epository (?:'[^']*' )?(?:not found|does not exist)|does not appear to be a git repository"
        r"|error: 404|no such repository|Could not find repository",
        code="git-repository-missing",
        message="there is no repository {url}",
        hint="correct `url` in the stack; a private repository looks the same to those who may not read it",
    ),
    _Kind(
        words=r"mismatched algorithms|unsupported object format|hash algorithm",
        code="git-failed",
        message="{url} names its objects by SHA-256, and mirrors hold repositories with SHA-1 names",
        hint="use a repository in git's usual format",
    ),
    _Kind(
        words=rf"{_CUT_OFF}|{_LACKING}",
        code="git-incomplete",
        message="{url} is a shallow or a partial clone, and lacks what is asked for",
        hint="make it whole, in its folder: git fetch --unshallow, or git fetch --refetch --no-filter",
    ),
    _Kind(
        words=r"early EOF|RPC failed|hung up unexpectedly|unexpected disconnect|error: 5\d\d|error: 429",
        code="git-failed",
        message="{url} broke off",
        hint="repeat it; " + _NETWORK_HINT,
        passing=True,
    ),
)


def is_passing(said: str) -> bool:
    """Tell whether what git said may be another answer in a moment."""
    kind = _kind(said)
    return kind is not None and kind.passing


def named(said: str, url: str, *, command: str) -> FetchError:
    """Return the error for what git said about a repository; nothing secret of a URL is in it.

    Args:
        said: The standard error of git, in English.
        url: The repository's URL.
        command: What git was asked for, ``fetch``.
    """
    shown = redact(url)
    kind = _kind(said)
    lines = [line for line in _clean(said).splitlines() if line.strip()][-_SHOWN_LINES:]
    context = {"url": shown, "git says": "; ".join(lines)}
    if kind is None:
        return FetchError(
            code="git-failed",
            message=f"git {command} of {shown} failed",
            context=context,
            hint=f"try it by hand: git ls-remote {shown}",
        )
    return FetchError(
        code=kind.code, message=kind.message.format(url=shown), context=context, hint=kind.hint.format(url=shown)
    )


def _kind(said: str) -> _Kind | None:
    return next((kind for kind in _KINDS if re.search(kind.words, said)), None)


def _clean(said: str) -> str:
    return _URL.sub(lambda match: redact(match[0]), said)


def is_full_disk(said: str) -> bool:
    """Say whether git complains that the disk, or a quota, is full."""
    return re.search(_FULL_DISK, said) is not None


def is_cut_off(said: str) -> bool:
    """Say whether git left refs out because the origin lacks what lies behind them; it calls that a success."""
    return re.search(_CUT_OFF, said) is not None


def lacks_a_base(said: str) -> bool:
    """Say whether git got changes of files that the mirror does not hold."""
    return re.search(_LACKING, said) is not None
