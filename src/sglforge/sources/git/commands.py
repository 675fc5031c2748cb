"""The two ways in which git is called: reading a mirror, with nothing else at work, and asking its origin."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sglforge.base import git, proc
from sglforge.errors import FetchError
from sglforge.sources.git import faults

READ_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 1800.0
ASK_TIMEOUT_S = 120.0
TRANSFER_TIMEOUT_S = 3600.0
ATTEMPTS = 3
FIRST_PAUSE_S = 1.0
_COMMANDS = ("fetch", "ls-remote")
_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.unpackLimit": "1",
    "fetch.writeCommitGraph": "true",  # the nearest tag behind a commit is then found in a quarter of the time
}
_QUIET = tuple(word for key, value in _SETTINGS.items() for word in ("-c", f"{key}={value}"))
# below 1 kB/s for half a minute a server counts as dead
_IMPATIENT = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30")


def read(
    mirror: Path,
    *words: str | Path,
    stdin: str | None = None,
    more: Mapping[str, str] | None = None,
    timeout_s: float = READ_TIMEOUT_S,
) -> str:
    """Return what git says about a mirror; it asks nobody, and nothing of the user's configuration takes part.

    Args:
        mirror: The mirror.
        words: What git is asked for, the command first.
        stdin: What git reads.
        more: Variables of its environment besides.
        timeout_s: How long it may take.

    Raises FetchError ``git-missing``, ``git-timeout``, ``disk-full``, and ``mirror-damaged`` when git cannot read what
    it should.
    """
    done = attempt(mirror, *words, stdin=stdin, more=more, timeout_s=timeout_s)
    if done.returncode:
        raise damaged(mirror, done.stderr)
    return done.stdout


def attempt(
    mirror: Path,
    *words: str | Path,
    stdin: str | None = None,
    more: Mapping[str, str] | None = None,
    timeout_s: float = READ_TIMEOUT_S,
) -> proc.Completed:
    """Run git on a mirror as :func:`read` does, and return what came of it, also a failure.

    Raises FetchError ``git-missing`` and ``git-timeout``.
    """
    environment = {**git.sealed_environment(), **(more or {})}
    argv = ("git", f"--git-dir={mirror}", *_QUIET, *words)
    try:
        return proc.run(argv, env=environment, stdin=stdin, timeout_s=timeout_s, check=False)
    except proc.ProcessError as error:
        if error.code == "program-missing":
            raise _missing(error) from error
        raise FetchError(
            code="git-timeout",
            message=f"git needs more than {timeout_s:.0f} s to read a mirror",
            where=str(mirror),
            hint="repeat it when the machine has less to do",
        ) from error


def ask(
    mirror: Path,
    *words: str,
    url: str,
    offline: bool,
    stdin: str | None = None,
    timeout_s: float = TRANSFER_TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
    run: proc.Runner = proc.run,
) -> str:
    """Return what git says after it asked the origin of a mirror; what may pass is tried three times.

    Args:
        mirror: The mirror.
        words: What git is asked for: ``fetch`` or ``ls-remote``, with options.
        url: Where the origin is, for messages.
        offline: Whether only repositories on this machine may be asked.
        stdin: What git reads.
        timeout_s: How long it may take.
        sleep: How to pause between attempts.
        run: How to run git.

    Raises FetchError, one code for each way to fail: see :mod:`sglforge.sources.git.faults`.
    """
    environment = git.network_environment(offline=offline)
    argv = ("git", f"--git-dir={mirror}", *_QUIET, *_IMPATIENT, *words)
    command = next(word for word in words if word in _COMMANDS)
    tried = 0
    while True:
        tried += 1
        try:
            done = run(argv, env=environment, stdin=stdin, timeout_s=timeout_s, check=False)
        except proc.ProcessError as error:
            if error.code == "program-missing":
                raise _missing(error) from error
            raise faults.named("timed out", url, command=command) from error
        if not done.returncode and not faults.is_cut_off(done.stderr):
            return done.stdout
        if tried >= ATTEMPTS or not faults.is_passing(done.stderr):
            raise faults.named(done.stderr, url, command=command)
        sleep(FIRST_PAUSE_S * 2 ** (tried - 1))


def damaged(mirror: Path, said: str) -> FetchError:
    """Return the error for a mirror in which something cannot be read, or written because the disk is full."""
    last = [line for line in said.splitlines() if line.strip()][-3:]
    if faults.is_full_disk(said):
        return FetchError(
            code="disk-full",
            message="there is no room to work with a mirror of a git repository",
            where=str(mirror),
            context={"git says": "; ".join(last)},
            hint="free some space, or use another workspace (--workspace DIR, SGLFORGE_HOME)",
        )
    return FetchError(
        code="mirror-damaged",
        message="a mirror of a git repository cannot be read any more",
        where=str(mirror),
        context={"git says": "; ".join(last)},
        hint="nox -s fetch makes it again",
    )


def _missing(error: proc.ProcessError) -> FetchError:
    return FetchError(
        code="git-missing",
        message="git is needed for sources that are git repositories, and is not there",
        context={"cause": error.message},
        hint="install git",
    )
