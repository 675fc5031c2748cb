"""Sessions of sglforge: each installs it and calls one verb, or runs one of the project's own checks.

``nox -s build`` builds and proves a server; arguments after ``--`` go to the verb. All verbs share one
environment, ``.nox/sglforge``, which is made again when ``pyproject.toml`` changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
ENGINE = ROOT / ".nox" / "sglforge"
# These need the torch of a built environment: sessions kernels and speculation run them.
OTHER_TORCH = ("--ignore=tests/unit/kernels", "--ignore=tests/unit/models", "--ignore=tests/speculation")

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

VERBS = {
    "doctor": "Probe this machine and judge it against stack and target.",
    "lock": "Resolve sources and requirements to versions and hashes; writes locks/.",
    "fetch": "Fetch and verify everything a build needs; afterwards --offline works.",
    "patch": "Apply the patch series and check its contracts (--diff, --tree DIR).",
    "drift": "Try the patch series on the released versions of SGLang; print the matrix.",
    "plan": "Show what would be built and why (--explain).",
    "build": "Build, install, serve and prove; a second time, cite the stored proof.",
    "rebuild": "Build what is in the store again, elsewhere and as somebody else: the same bytes, or which differ.",
    "check": "Judge wheels and libraries by their binaries.",
    "install": "Install the built wheels into an environment.",
    "verify": "Compare the environment with its receipt, file by file.",
    "render": "Render a profile to a launch script.",
    "smoke": "Start the server, send real decode requests, judge the answers.",
    "store": "List, verify or clean the store of built wheels; ask why a wheel is in it (list, verify, gc, why KEY).",
    "tune": "Measure where speculation stops paying; recommend a threshold and write a profile with it.",
    "explain": "Print the page of a finding.",
}


def _verb_session(verb: str, summary: str) -> None:
    def session(session: nox.Session) -> None:
        engine = _engine(session)
        session.run(
            str(engine), verb, *session.posargs,
            external=True, stderr=None, interrupt_timeout=30, terminate_timeout=10,
        )  # fmt: skip

    session.__doc__ = summary
    nox.session(name=verb, venv_backend="none", default=False)(session)


for _name, _summary in VERBS.items():
    _verb_session(_name, _summary)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style, spelling, imports between layers, and shell scripts."""
    _install(session, "--group", "lint", "-e", ".")
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("lint-imports")
    session.run("typos")
    session.run("python", "docs/generate.py", "--check")
    session.run("shellcheck", ".ci/run")


@nox.session(default=False)
def types(session: nox.Session) -> None:
    """Check types strictly, tests included."""
    _install(session, "--group", "types", "-e", ".")
    session.run("mypy", *session.posargs)


@nox.session(default=False)
def tests(session: nox.Session) -> None:
    """Run unit, golden and property tests."""
    _install(session, "--group", "tests", "-e", ".")
    session.run("pytest", "-n", "2", "-m", "not integration", *OTHER_TORCH, *session.posargs)


@nox.session(default=False)
def kernels(session: nox.Session) -> None:
    """Test the CPU kernels and the shipped models with the torch of the built environment (after build)."""
    _test_in_environment(session, _environment_python(session), "tests/unit/kernels", "tests/unit/models")


@nox.session(default=False)
def speculation(session: nox.Session) -> None:
    """Prove the speculation threshold on SGLang 0.5.9 (after build -- --stack release-0.5.9); all with -- --sweep.

    SGLFORGE_STACK names another stack of a patched release.
    """
    stack = os.environ.get("SGLFORGE_STACK", "release-0.5.9")
    python = _environment_python(session, "--stack", stack, "--target", "cpu")
    _test_in_environment(session, python, "tests/speculation")


@nox.session(default=False)
def models(session: nox.Session) -> None:
    """Train the tiny models again (minutes), or judge the shipped ones: -- --check."""
    session.run(_environment_python(session), "-P", "models/make.py", *session.posargs, external=True)


@nox.session(default=False)
def integration(session: nox.Session) -> None:
    """Run the tests that build, install and serve for real (minutes; -- -m integration adds the nightly ones)."""
    _install(session, "--group", "tests", "-e", ".")
    session.run(
        "pytest", "-n", "2", "--dist", "loadfile", "-m", "integration and not nightly", *OTHER_TORCH, *session.posargs,
        interrupt_timeout=30, terminate_timeout=10,
    )  # fmt: skip


@nox.session(default=False)
def torture(session: nox.Session) -> None:
    """Let faults happen in 1000 rounds of real runs, audit, repeat (-- --rounds N --seed S --jobs J --json FILE)."""
    _install(session, "-e", ".")
    session.run(
        "python", "-m", "torture", *session.posargs, env={"PYTHONPATH": str(ROOT / "tests")},
        interrupt_timeout=30, terminate_timeout=10,
    )  # fmt: skip


@nox.session(default=False)
def cases(session: nox.Session) -> None:
    """Judge case files, one line each: our own, or those of the folders after --."""
    _install(session, "-e", ".")
    session.run("python", "-m", "cases", *session.posargs, env={"PYTHONPATH": str(ROOT / "tests")})


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Write the generated reference and check links; with -- --check only look."""
    _install(session, "-e", ".")
    session.run("python", "docs/generate.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure against peers, side by side; the raw figures go to benchmarks/results/ (after build)."""
    _install(session, "-e", ".", "fromager", "ninja>=1.13", "nox[uv]", "uvicorn")
    session.run("python", "-m", "benchmarks.run", *session.posargs, interrupt_timeout=30, terminate_timeout=10)


def _engine(session: nox.Session) -> Path:
    """Return the command ``sglforge`` of the shared environment, made first if it is not current."""
    command = ENGINE / "bin" / "sglforge"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode()).hexdigest()
    stamp = ENGINE / "current"
    if command.exists() and stamp.exists() and stamp.read_text() == wanted:
        return command
    uv = _uv()
    environment = _index_environment(session)
    if uv:
        session.run(
            uv,
            "venv",
            "--quiet",
            "--clear",
            "--python",
            sys.executable,
            str(ENGINE),
            external=True,
            env=environment,
        )
        session.run(
            uv, "pip", "install", "--quiet", "--python", str(ENGINE / "bin" / "python"), "-e", str(ROOT),
            external=True, env=environment,
        )  # fmt: skip
    else:
        session.run(sys.executable, "-m", "venv", "--clear", str(ENGINE), external=True)
        session.run(str(ENGINE / "bin" / "python"), "-m", "pip", "install", "--quiet", "-e", str(ROOT), external=True)
    stamp.write_text(wanted)
    return command


def _environment_python(session: nox.Session, *selection: str) -> str:
    """Return the interpreter of the environment that ``nox -s build`` made."""
    words = ("verify", "--json", "--quiet", *selection)
    printed = session.run(str(_engine(session)), *words, external=True, silent=True)
    return str(json.loads(str(printed))["environment"]["python"])


def _test_in_environment(session: nox.Session, python: str, *paths: str) -> None:
    """Run tests with the interpreter of a built environment, and our own test tools beside what is in it."""
    _install(session, "--group", "tests")
    tools = Path(
        session.virtualenv.location,
        "lib",
        f"python{sys.version_info.major}.{sys.version_info.minor}",
        "site-packages",
    )
    # A warning of a foreign extension module that is made an error crashes its interpreter at the end.
    session.run(
        python, "-P", "-m", "pytest", "-W", "ignore", *paths, *session.posargs,
        env={"PYTHONPATH": str(tools)}, external=True,
    )  # fmt: skip


def _install(session: nox.Session, *arguments: str) -> None:
    session.install("--quiet", *arguments, env=_index_environment(session))


def _uv() -> str | None:
    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv")
    return os.fsdecode(find_uv_bin())


def _index_environment(session: nox.Session) -> dict[str, str | None]:
    """Tell uv what pip's own configuration says about indexes and certificates; uv does not read it."""
    printed = session.run(
        sys.executable,
        "-m",
        "pip",
        "config",
        "list",
        external=True,
        silent=True,
        log=False,
        success_codes=range(256),
    )
    wanted = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "cert": "SSL_CERT_FILE",
        "constraint": "UV_CONSTRAINT",
    }
    # pip takes the best version of all indexes, uv by itself only those of the first that has the project.
    found: dict[str, str | None] = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in str(printed or "").splitlines():
        name, _, value = line.partition("=")
        if variable := wanted.get(name.rpartition(".")[2]):
            words = json.loads(f'"{value.strip(chr(39))}"').split()
            found[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(words)
    return {name: value for name, value in found.items() if name not in os.environ}
