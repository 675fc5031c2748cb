"""Source builds: toy projects that really build, and backends that misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from sglforge.artifacts.wheel import check_wheel
from sglforge.base.sandbox.step import Report, Sandbox, weakest
from sglforge.build.execute import BuildPython
from sglforge.build.pep517 import _warnings_in, build_wheel
from sglforge.config.lockfile import LockedRequirement
from sglforge.config.variables import OWN
from sglforge.errors import BuildError, FetchError
from sglforge.provision.uv import Uv

Build = Callable[..., Path]
AMBIENT = {"LC_CTYPE", "_PYPROJECT_HOOKS_BUILD_BACKEND", "_PYPROJECT_HOOKS_BACKEND_PATH_JSON"}
"""What Python and the caller of backends add."""


@pytest.fixture
def build(tmp_path: Path, python: BuildPython, uv: Uv) -> Build:
    def run(source: Path, *requires: LockedRequirement, timeout_s: float = 60.0, **more: Any) -> Path:
        scratch = tmp_path / f"scratch-{source.name}"
        scratch.mkdir()
        return build_wheel(
            source,
            tmp_path / "out",
            package=source.name,
            requires=requires,
            python=python.path,
            python_minor=python.minor,
            uv=uv,
            scratch=scratch,
            log=tmp_path / "build.log",
            timeout_s=timeout_s,
            **more,
        )

    return run


def where_seen(scratch: Path) -> Path:
    """Return where builds on this machine see their scratch folder, which may be yet to make."""
    with tempfile.TemporaryDirectory() as any_folder:
        there = Sandbox(folders=(), fixed={"work": Path(any_folder)}).seen(Path(any_folder))
        return scratch if there == Path(any_folder) else there


def project(folder: Path, backend: str) -> Path:
    """Write a project whose backend is the given code."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "odd_backend"\nbackend-path = ["."]\n'
    )
    (folder / "odd_backend.py").write_text(textwrap.dedent(backend))
    return folder


def test_a_backend_is_installed_by_hash_and_builds(
    build: Build, copy_of: Callable[[str], Path], toy_backend: LockedRequirement, tmp_path: Path
) -> None:
    wheel = build(copy_of("pure-toy"), toy_backend)
    assert wheel == tmp_path / "out" / "pure_toy-0.3-py3-none-any.whl"
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert check_wheel(wheel, python_minor=minor, project="pure-toy", import_name="pure_toy") == ()
    log = (tmp_path / "build.log").read_text()
    assert "--require-hashes" in log
    assert "build_wheel" in log


def test_a_backend_with_another_hash_is_not_installed(
    build: Build, copy_of: Callable[[str], Path], toy_backend: LockedRequirement
) -> None:
    file = toy_backend.files[0].model_copy(update={"sha256": "0" * 64})
    with pytest.raises(FetchError, match="hash-mismatch"):
        build(copy_of("pure-toy"), toy_backend.model_copy(update={"files": [file]}))


def test_what_a_backend_warns_of_is_in_its_log_and_nowhere_else(
    build: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = """
        import pathlib, warnings

        def get_requires_for_build_wheel(config_settings=None):
            warnings.warn("an old key")
            return []

        def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
            warnings.warn("an old key")
            pathlib.Path(wheel_directory, "odd-1-py3-none-any.whl").touch()
            return "odd-1-py3-none-any.whl"
    """
    assert build(project(tmp_path / "odd", backend)).is_file()
    assert (tmp_path / "build.log").read_text().count("warning: an old key\n") == 1
    assert capfd.readouterr().err == ""


def test_builds_in_two_threads_hear_their_own_warnings(tmp_path: Path) -> None:
    before, together = warnings.showwarning, threading.Barrier(2)

    def work(name: str) -> None:
        with _warnings_in(tmp_path / name):
            together.wait(10)
            warnings.warn(f"of {name}", stacklevel=1)
            together.wait(10)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, ("one", "two"))) == [None, None]
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == ["warning: of one\n", "warning: of two\n"]
    assert warnings.showwarning is before


def test_the_wheels_that_a_package_is_built_with_are_in_its_environment(
    build: Build, copy_of: Callable[[str], Path], toy_backend: LockedRequirement, tmp_path: Path
) -> None:
    base = build(copy_of("pure-toy"), toy_backend)
    source = project(
        tmp_path / "dependent",
        """
        import pathlib
        import pure_toy

        def get_requires_for_build_wheel(config_settings=None):
            return ["pure-toy >= 0.3"]

        def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
            pathlib.Path(wheel_directory, "odd-1-py3-none-any.whl").write_text(pure_toy.__file__)
            return "odd-1-py3-none-any.whl"
        """,
    )
    with pytest.raises(BuildError, match="No module named 'pure_toy'"):
        build(source)
    shutil.rmtree(tmp_path / "scratch-dependent")
    assert f"{where_seen(tmp_path / 'scratch-dependent')}/env/lib" in build(source, wheels=[base]).read_text()


@pytest.mark.parametrize("version", [None, "0.9"])
def test_what_the_lock_does_not_pin_is_named_before_anything_is_built(
    version: str | None, build: Build, copy_of: Callable[[str], Path], toy_backend: LockedRequirement
) -> None:
    pins = (toy_backend.model_copy(update={"version": version}),) if version else ()
    with pytest.raises(BuildError) as caught:
        build(copy_of("pure-toy"), *pins)
    assert caught.value.code == "build-requires-missing"
    assert f"toy-backend >= 1.0 (pinned: {version or 'nothing'})" in caught.value.message
    assert "build-requires" in caught.value.hint


def test_what_a_backend_asks_for_itself_must_be_pinned_too(build: Build, tmp_path: Path) -> None:
    source = project(
        tmp_path / "asks",
        """
        def get_requires_for_build_wheel(config_settings=None):
            return ["cmake>=3.30", "not; python_version < '3'", "= nonsense"]
        """,
    )
    with pytest.raises(BuildError) as caught:
        build(source)
    assert caught.value.code == "build-requires-missing"
    assert "cmake>=3.30 (pinned: nothing)" in caught.value.message
    assert "= nonsense (not a requirement)" in caught.value.message
    assert "python_version" not in caught.value.message


def test_a_failing_backend_shows_its_last_words_and_keeps_all_of_them(
    build: Build, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(BuildError) as caught:
        build(copy_of("failing-backend"))
    error = caught.value
    assert error.code == "build-backend-failed"
    assert error.message.endswith("RuntimeError: the compiler gave up")
    assert "identifier is undefined" in error.context["output"]
    assert "compiling unit 0" not in error.context["output"]
    assert error.log == str(tmp_path / "build.log")
    log = Path(error.log).read_text()
    assert "compiling unit 0\n" in log
    assert "identifier is undefined" in log


def test_a_backend_that_is_not_there_is_said(build: Build, tmp_path: Path) -> None:
    source = project(tmp_path / "absent", "")
    (source / "odd_backend.py").unlink()
    with pytest.raises(BuildError) as caught:
        build(source)
    assert caught.value.code == "build-backend-failed"
    assert "odd_backend" in caught.value.message


def test_a_backend_finds_no_network(build: Build, copy_of: Callable[[str], Path], httpserver: HTTPServer) -> None:
    httpserver.expect_request("/").respond_with_data("here I am")
    source = copy_of("network-backend")
    (source / "address.txt").write_text(httpserver.url_for("/"))
    with pytest.raises(BuildError) as caught:
        build(source)
    assert caught.value.code == "build-needs-network"
    assert "build steps have none" in caught.value.message
    assert "Connection refused" in caught.value.message
    assert "pinned source" in caught.value.hint
    assert httpserver.log == []


def test_a_backend_that_asks_no_proxy_finds_no_network_either(build: Build, copy_of: Callable[[str], Path]) -> None:
    source = copy_of("socket-backend")
    reports: list[Report] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        (source / "port.txt").write_text(str(server.getsockname()[1]))
        with pytest.raises(BuildError) as caught:
            build(source, reports=reports)
        if weakest(report.isolation for report in reports).network == "unchecked":
            pytest.skip(f"no way to close the network here: {reports[-1].isolation.why}")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert caught.value.code == "build-needs-network"


@pytest.mark.parametrize(
    "without",
    [(), ("landlock",), ("user", "net", "pid", "mount", "ipc", "uts")],
    ids=["all", "read-only", "landlock"],
)
def test_a_backend_writes_to_its_own_folders_only(
    without: tuple[str, ...], build: Build, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    source, place = copy_of("writing-backend"), tmp_path / "home of the user"
    place.mkdir()
    (source / "place.txt").write_text(str(place))
    reports: list[Report] = []
    with contextlib.suppress(BuildError):
        build(source, reports=reports, without=without)
    if weakest(report.isolation for report in reports).writes == "unchecked":
        pytest.skip(f"no way to refuse writes here: {reports[-1].isolation.why}")
    assert list(place.iterdir()) == []
    shutil.rmtree(tmp_path / "scratch-writing-backend")
    with pytest.raises(BuildError) as caught:
        build(source, without=without)
    assert caught.value.code == "build-writes-outside"
    assert f"writes to {place}/left-by-a-build.txt" in caught.value.message
    assert "$TMPDIR" in caught.value.hint
    assert "left-by-a-build.txt" in caught.value.context["output"]


@pytest.mark.parametrize("place", [".", "../{out}", "../{scratch}/home", "../{scratch}/tmp"])
def test_a_backend_may_write_to_each_of_its_own_folders(
    place: str, build: Build, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    source = copy_of("writing-backend").rename(tmp_path / "inside")
    real = {"out": "out", "scratch": "scratch-inside"}
    fixed = where_seen(tmp_path / "scratch-inside").name == "work"
    (source / "place.txt").write_text(place.format(**{"out": "built", "scratch": "work"} if fixed else real))
    assert build(source).is_file()
    assert (source / place.format(**real) / "left-by-a-build.txt").is_file()


def test_a_backend_changes_nothing_in_the_cache_of_uv(
    build: Build, toy_backend: LockedRequirement, copy_of: Callable[[str], Path], tmp_path: Path
) -> None:
    backend = """
        import toy_backend
        def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
            with open(toy_backend.__file__, "a") as file:
                file.write("raise SystemExit('changed by another build')")
            raise SystemExit(5)
    """
    with pytest.raises(BuildError, match="status 5"):
        build(project(tmp_path / "vandal", backend), toy_backend)
    assert build(copy_of("pure-toy"), toy_backend).is_file()


def test_a_backend_leaves_no_process(build: Build, copy_of: Callable[[str], Path]) -> None:
    source, seconds = copy_of("daemon-backend"), f"8{secrets.randbelow(10**8):08}"
    (source / "seconds.txt").write_text(seconds)
    assert build(source).is_file()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in read(path)]
    assert left == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_every_call_of_a_backend_is_measured(
    build: Build, copy_of: Callable[[str], Path], toy_backend: LockedRequirement
) -> None:
    reports: list[Report] = []
    build(copy_of("pure-toy"), toy_backend, reports=reports)
    assert len(reports) >= 2
    for report in reports:
        took = report.resources
        assert took.cpu_seconds > 0
        assert 0 < took.seconds < 60
        assert 5 < took.peak_rss_mib < 500


def test_a_kernel_without_any_of_it_still_builds(
    build: Build, copy_of: Callable[[str], Path], toy_backend: LockedRequirement
) -> None:
    reports: list[Report] = []
    nothing = ("user", "net", "pid", "mount", "ipc", "uts", "landlock")
    assert build(copy_of("pure-toy"), toy_backend, reports=reports, without=nothing).is_file()
    known = weakest(report.isolation for report in reports)
    assert (known.network, known.writes, known.processes) == ("unchecked", "unchecked", "ended")
    assert len(known.why) >= 2


def test_a_backend_sees_a_short_environment_and_a_home_of_its_own(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "not for builds")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CFLAGS", "-march=native")
    monkeypatch.setenv("CC", "gcc-99")
    monkeypatch.setenv("SSL_CERT_FILE", "/some/bundle.pem")
    source = project(
        tmp_path / "looks",
        """
        import json, os, pathlib, sys
        def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
            seen = {"environ": dict(os.environ), "prefix": sys.prefix}
            pathlib.Path("seen.json").write_text(json.dumps(seen))
            sys.exit(3)
        """,
    )
    with pytest.raises(BuildError, match="ended with status 3"):
        build(source, environment={"TOY_VERSION": "1.0", "HOME": "/root"})
    seen = json.loads((source / "seen.json").read_text())
    environ = seen["environ"]
    assert not environ.keys() & {"SECRET_TOKEN", "PYTHONPATH", "CFLAGS", "CC"}
    assert environ["TOY_VERSION"] == "1.0"
    # whatever is set for every build is refused in recipes
    assert environ.keys() - {"TOY_VERSION"} - AMBIENT <= OWN
    assert environ["SSL_CERT_FILE"] == "/some/bundle.pem"
    assert environ["SOURCE_DATE_EPOCH"] == "315532800"
    scratch = where_seen(tmp_path / "scratch-looks")
    assert (environ["HOME"], environ["TMPDIR"]) == (str(scratch / "home"), str(scratch / "tmp"))
    assert seen["prefix"] == str(scratch / "env")
    assert environ["PATH"].split(os.pathsep)[0] == str(scratch / "env" / "bin")


def test_a_backend_that_hangs_is_ended(build: Build, tmp_path: Path) -> None:
    source = project(
        tmp_path / "hangs",
        """
        import time
        def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
            time.sleep(60)
        """,
    )
    with pytest.raises(BuildError, match="was ended after 3 s"):
        build(source, timeout_s=3.0)


@pytest.mark.parametrize("pyproject", [None, "[build-system]\nrequires = 3\n", "[[[", '[build-system]\nx = ""'])
def test_what_is_no_project_is_said(pyproject: str | None, build: Build, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    if pyproject is not None:
        (source / "pyproject.toml").write_text(pyproject)
    with pytest.raises(BuildError) as caught:
        build(source)
    assert caught.value.code == "not-a-project"
