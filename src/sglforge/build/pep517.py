"""Build a source folder through its PEP 517 backend, in a pinned environment, without a network."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from sglforge.base.proc import Completed, ProcessError, Runner
from sglforge.base.proc import run as run_process
from sglforge.base.sandbox.step import Report, Sandbox
from sglforge.build.hooks import Hooks, give
from sglforge.config.lockfile import LockedRequirement
from sglforge.errors import BuildError
from sglforge.host.cuda.model import CudaToolkit

SOURCE_DATE_EPOCH = 315532800
"""1980-01-01, the first day that a zip archive can write down."""

TAIL_LINES = 20
ORDERED_FOLDERS = Path(__file__).with_name("ordered_folders.py")
COMPILER_FLAGS = ("CFLAGS", "CXXFLAGS")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What a build sees of the user's environment: anything else would decide about wheels behind their keys."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

NO_NETWORK: Mapping[str, str] = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    "no_proxy": "",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "CARGO_NET_OFFLINE": "true",
    "GIT_ALLOW_PROTOCOL": "file",
}
"""Turns away what asks politely (a proxy where nobody listens), with words that say why; the sandbox does the rest."""


class Uv(Protocol):
    """Runs uv with the user's package locations, offline or not; its failures are errors with a name."""

    def __call__(self, *words: str | Path, log: Path | None = None) -> Completed: ...


def build_wheel(
    source: Path,
    out_dir: Path,
    *,
    package: str,
    requires: Sequence[LockedRequirement],
    python: Path,
    python_minor: str,
    uv: Uv,
    scratch: Path,
    log: Path,
    environment: Mapping[str, str] = NO_VARIABLES,
    wheels: Sequence[Path] = (),
    toolkit: CudaToolkit | None = None,
    run: Runner = run_process,
    timeout_s: float = 7200.0,
    reports: list[Report] | None = None,
    without: Sequence[str] = (),
    user: int | None = None,
) -> Path:
    """Build a wheel from a source folder and return it.

    The build environment holds exactly the locked requirements, by hash. The backend sees a short list of
    environment variables, a home and a temporary folder of its own. It has no network, writes to nothing but the
    source, the folder of the wheel and ``scratch``, and leaves no process, as far as the kernel allows. It sees these
    folders at a fixed place, else compilers are told to write that place for the real one.

    Args:
        source: The folder with ``pyproject.toml``.
        out_dir: The folder for the wheel.
        package: Its name, for messages.
        requires: The pinned build environment.
        python: The interpreter to build with.
        python_minor: Its version, ``3.11``.
        uv: How to run uv.
        scratch: An empty folder for the build environment, home and temporary files.
        log: The file that gets every line that uv and the backend say.
        environment: More variables for the backend; those that every build gets go before them.
        wheels: Wheels that are installed in the build environment too, without what they depend on.
        toolkit: The CUDA toolkit that the backend finds by CUDA_HOME and on PATH, before any other.
        run: How to run the backend.
        timeout_s: The longest that one call of the backend may take.
        reports: Gets what is known of every call of the backend.
        without: Parts of the sandbox to leave out, for tests.
        user: The number of the user that the backend runs as, who is given the folders; None for who runs us.

    Raises BuildError ``not-a-project``, ``build-requires-missing``, ``build-needs-network``,
    ``build-writes-outside`` and ``build-backend-failed``, and what ``uv`` raises.
    """
    from build import BuildBackendException, BuildException, ProjectBuilder

    interpreter = scratch / "env" / "bin" / "python"
    installed = _versions(requires, wheels)
    out_dir.mkdir(parents=True, exist_ok=True)
    sandbox = Sandbox(
        folders=(source, out_dir, scratch),
        fixed=_places(scratch, source, out_dir, toolkit),
        user=user,
        run=run,
        without=tuple(without),
        reports=[] if reports is None else reports,
    )
    variables = step_variables(scratch, scratch / "env" / "bin", sandbox, environment, toolkit)
    _say_places(sandbox, log)
    call_hook = Hooks(
        sandbox=sandbox, scratch=scratch, package=package, variables=variables, log=log, timeout_s=timeout_s
    )

    try:
        builder = ProjectBuilder(source, python_executable=str(interpreter), runner=call_hook)
        _require(builder.build_system_requires, installed, python_minor, package)
        _make_environment(scratch, requires, wheels, python, uv, log)
        for folder in sandbox.folders:
            give(folder, user)
        with _warnings_in(log):
            _require(builder.get_requires_for_build("wheel"), installed, python_minor, package)
            return Path(builder.build("wheel", out_dir))
    except BuildBackendException as error:
        if isinstance(error.exception, BuildError):
            raise error.exception from None
        raise _backend_failed(error.exception, package, log) from error
    except BuildException as error:
        raise BuildError(
            code="not-a-project",
            message=f"{package} cannot be built: {error}",
            where=str(source / "pyproject.toml"),
            hint="correct its pyproject.toml (PEP 517, PEP 518)",
        ) from error


def _places(scratch: Path, source: Path, out_dir: Path, toolkit: CudaToolkit | None) -> dict[str, Path]:
    """Return the folders of a build by the names that they have at the fixed place; most lie in the first one.

    The CUDA toolkit is among them, read-only: headers write their own paths into what is compiled.
    """
    others = {"source": source, "built": out_dir, **({"cuda": toolkit.home} if toolkit else {})}
    return {"work": scratch, **{name: path for name, path in others.items() if not path.is_relative_to(scratch)}}


def _say_places(sandbox: Sandbox, log: Path) -> None:
    """Write down where the folders really are that a build speaks of."""
    with log.open("a", encoding="utf-8") as stream:
        stream.writelines(f"{sandbox.seen(folder)} is {folder}\n" for folder in sandbox.fixed.values())


def _make_environment(
    scratch: Path, requires: Sequence[LockedRequirement], wheels: Sequence[Path], python: Path, uv: Uv, log: Path
) -> None:
    """Make the build environment; it says nowhere where it lies, for the build sees it at another place."""
    folder, pins = scratch / "env", scratch / "build-requires.txt"
    uv("venv", "--quiet", "--no-project", "--relocatable", "--python", python, folder, log=log)
    # copies: a step may write to its environment, and links would lead into uv's cache
    install = ("pip", "install", "--quiet", "--python", folder, "--no-deps", "--no-build", "--link-mode", "copy")
    if requires:
        pins.write_text("".join(f"{pin_line(requirement)}\n" for requirement in requires), encoding="utf-8")
        uv(*install, "--require-hashes", "--requirement", pins, log=log)
    if wheels:
        uv(*install, *wheels, log=log)
    for packages in folder.glob("lib/python*/site-packages"):
        for told in packages.glob("*.dist-info/direct_url.json"):
            told.unlink()  # where a wheel lay
        shutil.copyfile(ORDERED_FOLDERS, packages / f"sglforge_{ORDERED_FOLDERS.name}")
        (packages / "sglforge.pth").write_text(f"import sglforge_{ORDERED_FOLDERS.stem}\n", encoding="ascii")


def pin_line(requirement: LockedRequirement) -> str:
    """Return a pinned requirement as pip and uv read it, with the hashes that are accepted."""
    hashes = " ".join(f"--hash=sha256:{file.sha256}" for file in requirement.files)
    return f"{requirement.name}=={requirement.version} {hashes}"


def step_variables(
    scratch: Path, programs: Path, sandbox: Sandbox, more: Mapping[str, str], toolkit: CudaToolkit | None
) -> dict[str, str]:
    """Return the whole environment of a step's processes.

    Args:
        scratch: Gets a home and a folder for temporary files.
        programs: The folder that is looked through first for programs.
        sandbox: Says where the step sees these folders.
        more: What its recipe sets.
        toolkit: The CUDA toolkit that it finds, None for none.
    """
    home, temporary = scratch / "home", scratch / "tmp"
    home.mkdir()
    temporary.mkdir()
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    maps = shlex.join(sandbox.prefix_maps())
    path = kept.pop("PATH", os.defpath)
    cuda = replace(toolkit, home=sandbox.seen(toolkit.home)).variables(path) if toolkit else {"PATH": path}
    return {
        **more,
        **({name: f"{more.get(name, '')} {maps}".strip() for name in COMPILER_FLAGS} if maps else {}),
        **kept,
        **NO_NETWORK,
        **cuda,
        "PATH": os.pathsep.join(filter(None, (str(sandbox.seen(programs)), cuda["PATH"]))),
        "HOME": str(sandbox.seen(home)),
        "TMPDIR": str(sandbox.seen(temporary)),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
    }


class _Ear:
    """`warnings` is one for the whole process: here each thread that builds hears its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[int, list[str]] = {}
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Yield the list of what this thread warns of; nobody else is told."""
        thread = threading.get_ident()
        with self._lock:
            if not self._heard:
                self._undo.enter_context(warnings.catch_warnings())
                warnings.simplefilter("always")
                warnings.showwarning = partial(self._show, before=warnings.showwarning)
            self._heard[thread] = []
        try:
            yield self._heard[thread]
        finally:
            with self._lock:
                del self._heard[thread]
                if not self._heard:
                    self._undo.close()

    def _show(self, message: Warning | str, *rest: Any, before: Callable[..., None], **more: Any) -> None:
        if (heard := self._heard.get(threading.get_ident())) is None:
            before(message, *rest, **more)
        else:
            heard.append(str(message))


_EAR = _Ear()


@contextlib.contextmanager
def _warnings_in(log: Path) -> Iterator[None]:
    """Write what a backend warns of into its log; `build` passes it on as warnings of this process."""
    with _EAR.listening() as said:
        try:
            yield
        finally:
            if texts := dict.fromkeys(f"warning: {text}\n" for text in said):
                with log.open("a", encoding="utf-8") as stream:
                    stream.writelines(texts)


def _versions(requires: Sequence[LockedRequirement], wheels: Sequence[Path]) -> dict[str, str]:
    """Return the version of everything in the build environment, by its normalised name."""
    from packaging.utils import canonicalize_name, parse_wheel_filename

    pinned = {str(canonicalize_name(requirement.name)): requirement.version for requirement in requires}
    return pinned | {str(name): str(version) for name, version, *_ in (parse_wheel_filename(w.name) for w in wheels)}


def _require(wanted: set[str], versions: Mapping[str, str], minor: str, package: str) -> None:
    """Hold what the project asks for against what is there."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    here = {"python_version": minor, "python_full_version": f"{minor}.0"}
    missing = []
    for text in sorted(wanted):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            missing.append(f"{text} (not a requirement)")
            continue
        if requirement.marker and not requirement.marker.evaluate(here):
            continue
        version = versions.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{text} (pinned: {version or 'nothing'})")
    if missing:
        raise BuildError(
            code="build-requires-missing",
            message=f"{package} needs for its build what the lock does not pin: {', '.join(missing)}",
            hint="add it to the recipe's `build-requires`, then `nox -s lock`",
        )


def _backend_failed(cause: Exception, package: str, log: Path) -> BuildError:
    """Return the error for a backend that failed, with the end of what it said."""
    said = cause.context.get("output", "") if isinstance(cause, ProcessError) else str(cause)
    how = cause.message if isinstance(cause, ProcessError) else f"it is not a working backend ({type(cause).__name__})"
    tail = [line for line in said.splitlines() if line.strip()][-TAIL_LINES:]
    return BuildError(
        code="build-backend-failed",
        message=f"the build backend of {package} failed: {tail[-1].strip() if tail else how}",
        context={"how": how, "output": "\n".join(tail)},
        hint=f"read {log}",
        log=str(log),
    )
