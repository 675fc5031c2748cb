"""A package that leaks all it can: other folders, users, clocks, umasks and file systems give the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sglforge.artifacts.differences import differences
from sglforge.base import proc, runrecord
from sglforge.base.files import digest
from sglforge.base.ids import BuildKey
from sglforge.base.proc import Completed
from sglforge.base.sandbox.namespaces import PLACE
from sglforge.base.workspace import Workspace
from sglforge.build.again import another_user
from sglforge.build.execute import BuildPython, execute
from sglforge.build.pep517 import SOURCE_DATE_EPOCH, build_wheel
from sglforge.build.store import StoredWheel
from sglforge.config.model import PackageRecipe, PathSource
from sglforge.plan import Step
from sglforge.provision.uv import Uv
from sglforge.sources.paths import copy_folder, digest_folder, level

TOY = Path(__file__).parents[2] / "packages" / "compiled-toy"
NO_NAMESPACES = ("user", "net", "pid", "mount", "ipc", "uts")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

ANOTHER_DAY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static const time_t shift = 400L * 24 * 3600;

int clock_gettime(clockid_t clock, struct timespec *now) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (!result && clock == CLOCK_REALTIME) now->tv_sec += shift;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
  int result = real(now, zone);
  if (!result) now->tv_sec += shift;
  return result;
}

time_t time(time_t *where) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (where) *where = now.tv_sec;
  return now.tv_sec;
}
"""

Build = Callable[..., StoredWheel]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def step(catalog: Path) -> Step:
    parts = {"source": {"digest": digest_folder(catalog / "toy")}, "target": {"name": "cpu"}}
    return Step(
        package="toy",
        recipe=PackageRecipe(name="toy", description="A toy.", import_name="compiled_toy"),
        source=PathSource(kind="path", path="toy"),
        locked=None,
        build_requires=(),
        key=BuildKey(digest(parts)),
        key_parts=parts,
        local_version="cpu.t0123",
        state="miss",
        why="never built here",
    )


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    copy_folder(TOY, tmp_path / "catalog" / "toy")
    return tmp_path / "catalog"


@pytest.fixture
def build(python: BuildPython, uv: Uv) -> Build:
    def run(catalog: Path, root: Path, **more: object) -> StoredWheel:
        workspace = Workspace(root=root)
        return execute(
            step(catalog),
            catalog_root=catalog,
            archive=None,
            series=None,
            python=python,
            workspace=workspace,
            record=runrecord.start(workspace.runs),
            uv=uv,
            **more,  # type: ignore[arg-type]
        )

    return run


def seen(wheel: StoredWheel) -> Mapping[str, object]:
    with zipfile.ZipFile(wheel.path) as archive:
        found: dict[str, object] = json.loads(archive.read("compiled_toy/seen.json"))
        return found


def require_place(wheel: StoredWheel) -> None:
    sandbox = wheel.provenance["sandbox"]
    assert isinstance(sandbox, dict)
    if sandbox["place"] != "fixed":
        pytest.skip(f"no fixed place here: {sandbox['why']}")


def told(one: StoredWheel, other: StoredWheel) -> str:
    return "\n".join(line for file in differences(one.path, other.path) for line in file.lines(changes=9))


def on_another_day(folder: Path) -> Callable[..., Completed]:
    """Return what runs programs 400 days later, as far as they ask the C library."""
    (folder / "clock.c").write_text(ANOTHER_DAY)
    library = folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "clock.c", "-ldl"], check=True)

    def run(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, **more: object) -> Completed:
        return proc.run(argv, env={**(env or os.environ), "LD_PRELOAD": str(library)}, **more)  # type: ignore[arg-type]

    now = run([sys.executable, "-c", "import time; print(time.time())"]).stdout
    assert float(now) > os.stat(library).st_mtime + 399 * 24 * 3600  # noqa: PTH116
    return run


def test_two_builds_under_other_conditions_give_the_same_bytes(
    build: Build, catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(catalog, tmp_path / "one")
    require_place(first)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:  # another file system: another order of names
        away = Path(elsewhere, "a much longer path than the other one", "workspace")
        copy_folder(catalog / "toy", away.parent / "toy")
        for path in sorted((away.parent / "toy").rglob("*"), reverse=True):
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.utime(path, (1e9, 1e9))
        user = another_user(Path(sys.executable))[0]
        for name, value in {"LC_ALL": "C", "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "USER": "x"}.items():
            monkeypatch.setenv(name, value)
        processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(processors)})
        try:
            with umask(0o077):
                second = build(away.parent, away, user=user, run=on_another_day(tmp_path))
        finally:
            os.sched_setaffinity(0, processors)
        require_place(second)
        assert seen(first) == seen(second)
        assert first.sha256 == second.sha256, told(first, second)


def test_what_a_package_sees_is_at_the_place_and_works(build: Build, catalog: Path, tmp_path: Path) -> None:
    wheel = build(catalog, tmp_path / "one")
    require_place(wheel)
    found = seen(wheel)
    work = f"{PLACE}/work"
    assert found["here"] == f"{work}/source"
    assert found["prefix"] == f"{work}/env"
    assert found["executable"] == f"{work}/env/bin/python"
    text = json.dumps(found)
    assert str(tmp_path) not in text
    assert "relocatable = true" in str(found["config"])
    assert found["times"] == dict.fromkeys(("csrc", "csrc/area.c", "include/shape.h"), SOURCE_DATE_EPOCH)
    assert found["modes"] == {
        "csrc": "0o40755",
        "csrc/area.c": "0o100644",
        "new file": "0o100644",
        "new folder": "0o40755",
    }
    walked = found["walked"]
    assert isinstance(walked, list)
    generated = next(entry for entry in walked if entry[0] == "./generated")
    assert generated[1:] == sorted(generated[1:])
    with zipfile.ZipFile(wheel.path) as archive:
        library = archive.read("compiled_toy/libtoy.so")
    assert f"{work}/source/csrc/area.c".encode() in library
    assert f"{work}/source/include/shape.h".encode() in library
    assert b"Jan  1 1980 00:00:00 Tue Jan  1 00:00:00 1980" in library
    assert str(tmp_path).encode() not in library


def test_two_builds_at_the_same_time_give_the_same_bytes(build: Build, catalog: Path, tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def work(name: str) -> StoredWheel:
        together.wait(30)
        return build(catalog, tmp_path / name / "workspace")

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, ("one", "the other one"))
    require_place(first)
    assert first.sha256 == second.sha256, told(first, second)


def test_without_a_fixed_place_compilers_write_it_all_the_same(
    catalog: Path, python: BuildPython, uv: Uv, tmp_path: Path
) -> None:
    """The library, not what Python wrote down of paths."""
    libraries = {}
    for name, without in {"fixed": (), "real": NO_NAMESPACES, "elsewhere": NO_NAMESPACES}.items():
        scratch = tmp_path / name
        copy_folder(catalog / "toy", scratch / "source")
        level(scratch / "source", time_s=SOURCE_DATE_EPOCH)
        wheel = build_wheel(
            scratch / "source",
            scratch / "built",
            package="toy",
            requires=(),
            python=python.path,
            python_minor=python.minor,
            uv=uv,
            scratch=scratch,
            log=tmp_path / "log",
            without=without,
            environment={"CFLAGS": "-fno-plt"},
        )
        with zipfile.ZipFile(wheel) as archive:
            libraries[name] = archive.read("compiled_toy/libtoy.so")
            here = json.loads(archive.read("compiled_toy/seen.json"))["here"]
        assert (here == str(scratch / "source")) or name == "fixed"
        assert str(tmp_path).encode() not in libraries[name]
        assert bytes(Path(PLACE, "work", "source", "csrc", "area.c")) in libraries[name]
    assert libraries["real"] == libraries["elsewhere"] == libraries["fixed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_a_python_that_others_cannot_run_is_run_by_the_same_user(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(sys.executable)
    user, words = another_user(closed / "python")
    assert user is None
    assert words.startswith("the same user (nobody cannot run")


def test_who_is_not_root_stays_who_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert another_user(Path(sys.executable)) == (None, "the same user (only root builds as somebody else)")
