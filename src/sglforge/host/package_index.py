"""Package locations as pip's own configuration states them, and how uv is told the same."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from sglforge.base import proc
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import ProcessError, Runner
from sglforge.errors import ConfigError

TIMEOUT_S = 60.0
COMMAND = "install"
"""The pip command whose section counts beside [global]."""

_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})


def read(python: Path | None = None, run: Runner = proc.run) -> IndexLocations:
    """Return what pip is configured to use, by files and by PIP_ variables.

    ``python`` is an interpreter that has pip; by default the running one, else the one that its virtual
    environment was made with. Where none has pip, its files are read as pip reads them.

    Raises ConfigError ``pip-configuration-invalid``.
    """
    for interpreter in [python] if python else _interpreters():
        try:
            done = run((interpreter, "-P", "-m", "pip", "config", "list"), timeout_s=TIMEOUT_S, check=False)
        except ProcessError:
            continue
        if done.returncode == 0:
            return locations(_listed(done.stdout))
        if "No module named pip" not in done.stderr:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise _invalid(said[-1] if said else f"pip ended with status {done.returncode}")
    from sglforge.host.pip_files import read_files

    return locations(read_files())


def locations(settings: Mapping[str, str]) -> IndexLocations:
    """Return the locations of pip's settings by full name: ``global.find-links``, ``:env:.cert``.

    As in pip, the command's section overrides [global], variables override both, and empty values do not
    count.

    Raises ConfigError ``pip-configuration-invalid``.
    """

    def value(key: str) -> str:
        names = (f":env:.{key}", f"{COMMAND}.{key}", f"global.{key}")
        return next((found for name in names if (found := settings.get(name, ""))), "")

    ca_bundle = value("cert")
    return IndexLocations(
        index_url=value("index-url") or None,
        extra_index_urls=tuple(value("extra-index-url").split()),
        find_links=tuple(_found(place) for place in value("find-links").split()),
        constraints=tuple(_local(path) for path in value("constraint").split()),
        ca_bundle=_local(ca_bundle) if ca_bundle else None,
        no_index=_boolean("no-index", value("no-index")),
        trusted_hosts=tuple(value("trusted-host").split()),
    )


def uv_environment(index: IndexLocations) -> dict[str, str]:
    """Return environment variables with which uv looks where pip would.

    uv prefers the first index that has a project; pip takes the best version of all. URLs may carry
    credentials: they go into the environment, which is not logged, never into a command line.
    """
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    if index.find_links:
        environment["UV_FIND_LINKS"] = ",".join(index.find_links)
    if index.index_url and not index.no_index:
        environment["UV_DEFAULT_INDEX"] = index.index_url
    if index.extra_index_urls and not index.no_index:
        environment["UV_INDEX"] = " ".join(index.extra_index_urls)
    if index.ca_bundle:
        environment["SSL_CERT_FILE"] = str(index.ca_bundle)
    if index.trusted_hosts:
        environment["UV_INSECURE_HOST"] = " ".join(index.trusted_hosts)
    return environment


def uv_arguments(index: IndexLocations, *, resolving: bool) -> list[str]:
    """Return the arguments of uv for what has no environment variable.

    Constraints decide what is resolved. Locked requirements are resolved already, and uv refuses constraints
    beside hashes: ``resolving`` is False then.
    """
    arguments = ["--no-index"] if index.no_index else []
    for path in index.constraints if resolving else ():
        arguments += ["--constraints", str(path)]
    return arguments


def _interpreters() -> Iterator[Path]:
    if find_spec("pip"):
        yield Path(sys.executable)
    base = getattr(sys, "_base_executable", None)
    if base and base != sys.executable:
        yield Path(base)


def _listed(text: str) -> dict[str, str]:
    """Return the settings that ``pip config list`` prints: ``name='value'`` in Python's notation."""
    settings = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and value.startswith(("'", '"')):
            settings[name] = str(ast.literal_eval(value))
    return settings


def _boolean(key: str, text: str) -> bool:
    word = text.strip().lower()
    if word and word not in _TRUE | _FALSE:
        raise _invalid(f"{key} is {text!r}, it must be yes or no")
    return word in _TRUE


def _local(path: str) -> Path:
    if "://" in path:
        raise _invalid("a constraint or certificate is a URL; here it must be a file")
    return Path(path).expanduser().absolute()


def _found(place: str) -> str:
    """Return a place of ``find-links`` with a local path made absolute."""
    if "://" in place:
        return place
    path = Path(place).expanduser().absolute()
    return str(path) if path.exists() else place


def _invalid(message: str) -> ConfigError:
    return ConfigError(
        code="pip-configuration-invalid",
        message=f"pip's configuration cannot be used: {message}",
        hint="python3 -m pip config debug   # shows every file and variable that pip reads",
    )
