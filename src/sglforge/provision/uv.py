"""uv, run so that it behaves as pip would here, with its failures named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sglforge.base import proc
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Completed, ProcessError, Runner
from sglforge.errors import DoctorError, FetchError, InstallError, SglforgeError
from sglforge.host import programs
from sglforge.host.package_index import uv_arguments, uv_environment

TIMEOUT_S = 3600.0
TAIL_LINES = 12

# What a user may set for uv itself. Everything else that begins with UV_ would change what is installed.
_KEPT = frozenset(
    {
        "UV_CACHE_DIR",
        "UV_CONCURRENT_DOWNLOADS",
        "UV_CONCURRENT_INSTALLS",
        "UV_HTTP_RETRIES",
        "UV_HTTP_TIMEOUT",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_INSECURE_HOST",
        "UV_KEYRING_PROVIDER",
        "UV_NATIVE_TLS",
        "UV_SYSTEM_CERTS",
    }
)
_OTHER_PYTHONS = frozenset({"CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"})

_OFFLINE_WORDS = ("network connectivity is disabled", "network was disabled")
_HASH_WORDS = ("hash mismatch",)
_NETWORK_WORDS = (
    "client error (connect)",
    "dns error",
    "error sending request",
    "failed to fetch",
    "timed out",
)
_ABSENT_WORDS = ("no solution found",)
_DISK_WORDS = ("no space left on device", "disk quota exceeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """The uv program, the locations that pip's configuration states, the environment that uv runs in."""

    program: Path
    locations: IndexLocations
    environment: Mapping[str, str]
    offline: bool
    run: Runner = proc.run

    def __call__(self, *words: str | Path, log: Path | None = None) -> Completed:
        """Run one uv command to its end; ``uv pip`` is told what of pip's configuration has no variable.

        ``log`` is the file for the full output.

        Raises FetchError ``offline-missing``, ``not-on-index``, ``network-unreachable``, ``hash-mismatch`` and
        InstallError ``disk-full``, ``uv-failed``.
        """
        if words[:1] == ("pip",):
            told = uv_arguments(self.locations, resolving=words[1] == "compile")
            words = (*words[:2], *told, *words[2:])
        try:
            return self.run([self.program, *words], env=self.environment, log=log, timeout_s=TIMEOUT_S)
        except ProcessError as error:
            if error.code != "process-failed":
                raise
            raise self._named(error, locked=words[:2] == ("pip", "install")) from error

    def extended(self, extra: Mapping[str, str]) -> Uv:
        """Return the same uv with more environment variables."""
        return replace(self, environment={**self.environment, **extra})

    def _named(self, error: ProcessError, *, locked: bool) -> SglforgeError:
        """Turn the failure of a uv command into the fault behind it; ``locked``: versions were given exactly."""
        output = error.context.get("output", "")
        said = [line for line in output.splitlines() if line.strip()][-TAIL_LINES:]
        context = {"command": error.context.get("command", ""), "uv said": "\n".join(said)}
        folded = output.lower()

        def words(*needles: str) -> bool:
            return any(needle in folded for needle in needles)

        absent = locked and words(*_ABSENT_WORDS)
        if words(*_OFFLINE_WORDS) or (self.offline and absent):
            return FetchError(
                code="offline-missing",
                message="a file is needed that uv's cache does not hold, and the network may not be used",
                context=context,
                hint="run nox -s fetch with a network, as the same user, then repeat",
                log=error.log,
            )
        if words(*_HASH_WORDS):
            return FetchError(
                code="hash-mismatch",
                message="a package index offers a file that is not the one in the lock",
                context=context,
                hint="compare the index with the lock; nox -s lock makes a new one",
                log=error.log,
            )
        if words(*_DISK_WORDS):
            return InstallError(
                code="disk-full",
                message="the disk is full",
                context=context,
                hint="free space, or put the workspace elsewhere with --workspace",
                log=error.log,
            )
        if absent:
            return FetchError(
                code="not-on-index",
                message="no location that uv was told of has a locked file",
                context=context,
                hint="name an index that has it: python -m pip config set global.extra-index-url URL",
                log=error.log,
            )
        if words(*_NETWORK_WORDS):
            return FetchError(
                code="network-unreachable",
                message="uv could not reach a package index",
                context=context,
                hint="check the network and pip's configuration: python -m pip config list",
                log=error.log,
            )
        return InstallError(
            code="uv-failed",
            message="uv could not do what it was asked",
            context=context,
            hint="read what uv said; where its cache is damaged, uv cache clean, then repeat",
            log=error.log,
        )


def open_uv(locations: IndexLocations, *, offline: bool = False, run: Runner = proc.run) -> Uv:
    """Return uv, told what pip's configuration says; offline also where ``UV_OFFLINE`` is set.

    Raises DoctorError ``uv-missing``.
    """
    offline = offline or os.environ.get("UV_OFFLINE", "").lower() in {"1", "true", "yes", "on"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (name.startswith("UV_") or name in _OTHER_PYTHONS)
    }
    environment |= uv_environment(locations)
    environment |= {
        "NO_COLOR": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if offline:
        environment["UV_OFFLINE"] = "1"
    return Uv(program=find_uv(), locations=locations, environment=environment, offline=offline, run=run)


def find_uv() -> Path:
    """Return the uv that sglforge was installed with, else the one on PATH.

    Raises DoctorError ``uv-missing``.
    """
    if found := programs.locate("uv"):
        return found
    raise DoctorError(
        code="uv-missing",
        message="uv, which makes the environments, is neither beside sglforge nor on PATH",
        hint="python -m pip install uv",
    )
