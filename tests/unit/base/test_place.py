"""The fixed place of build steps: one path for all of them, and nothing of the host in the way."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from sglforge.base import proc
from sglforge.base.proc import Completed, ProcessError
from sglforge.base.sandbox.namespaces import PLACE
from sglforge.base.sandbox.step import Sandbox

NO_NAMESPACES = ("user", "net", "pid", "mount", "ipc", "uts")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own folder"
    folder.mkdir()
    return folder


def shell(sandbox: Sandbox, script: str, cwd: Path) -> str:
    done = sandbox(["sh", "-c", script], cwd=cwd, env={"PATH": os.environ["PATH"]}, timeout_s=60.0, check=False)
    return done.stdout + done.stderr


def placed(*folders: Path, **more: Path) -> Sandbox:
    sandbox = Sandbox(folders=folders, fixed={"work": folders[0], **more})
    if not sandbox.placed:
        shell(sandbox, ":", folders[0])
        pytest.skip(f"no fixed place here: {sandbox.reports[-1].isolation.why}")
    return sandbox


def test_a_step_sees_its_folder_at_the_place(own: Path) -> None:
    sandbox = placed(own)
    deep = own / "deep"
    deep.mkdir()
    assert sandbox.seen(deep / "file") == Path(PLACE, "work", "deep", "file")
    assert sandbox.seen(Path("/usr/bin/python")) == Path("/usr/bin/python")
    said = shell(sandbox, "pwd; realpath .; echo x > new; mkdir -p ../tmp && mv new ../tmp/; umask", deep)
    assert said.split() == [str(Path(PLACE, "work", "deep"))] * 2 + ["0022"]
    assert (own / "tmp" / "new").read_text() == "x\n"
    assert sandbox.reports[-1].isolation.place == "fixed"
    assert sandbox.prefix_maps() == ()
    assert not os.path.lexists(PLACE) or not Path(PLACE).samefile(own)


def test_paths_with_links_and_dots_are_seen_there_too(own: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(own)
    (own / "tool").symlink_to("/bin/sh")
    sandbox = placed(tmp_path / "link" / ".." / own.name)
    for path in (own / "tool", tmp_path / "link" / "tool"):
        assert sandbox.seen(path) == Path(PLACE, "work", "tool")
    assert shell(sandbox, "pwd -P", tmp_path / "link") == f"{PLACE}/work\n"


def test_a_folder_that_is_not_its_own_can_only_be_read(own: Path, tmp_path: Path) -> None:
    toolkit = tmp_path / "toolkit"
    toolkit.mkdir()
    (toolkit / "header").write_text("as it was")
    sandbox = placed(own, toolkit=toolkit)
    header = sandbox.seen(toolkit / "header")
    assert header == Path(PLACE, "toolkit", "header")
    said = shell(sandbox, f"cat {header}; (echo changed > {header}) 2> /dev/null; touch {header.parent}/new", own)
    assert said.startswith("as it was")
    assert "touch: cannot" in said
    assert (toolkit / "header").read_text() == "as it was"


def test_two_steps_at_once_have_the_place_each_for_itself(tmp_path: Path) -> None:
    meet = "touch here-{0}; i=0; while [ ! -e {1}/done-{0} ] && [ $((i += 1)) -lt 600 ]; do sleep 0.05; done; ls; pwd"
    together = threading.Barrier(2)

    def work(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        sandbox = placed(folder)
        threading.Timer(1.0, (tmp_path / f"done-{name}").touch).start()
        together.wait(30)
        return shell(sandbox, meet.format(name, tmp_path), folder)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, ("a", "b"))) == [f"here-{name}\n{PLACE}/work\n" for name in ("a", "b")]


def _file(path: Path) -> None:
    path.write_text("theirs")


def _full_folder(path: Path) -> None:
    (path / "work").mkdir(parents=True)
    (path / "work" / "setup.py").write_text("theirs")
    if os.geteuid() == 0:
        shutil.chown(path, 4321)
        shutil.chown(path / "work", 4321)


def _link_to_folder(path: Path) -> None:
    path.symlink_to("/etc")


def _link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


@contextmanager
def _in_the_way(make: Callable[[Path], None]) -> Iterator[None]:
    path = Path(PLACE)
    make(path)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.fixture
def place() -> Iterator[None]:
    """The path outside, which is one for the whole machine, in the hands of one test."""
    with FileLock(Path(tempfile.gettempdir(), f"sglforge-test-place-{os.geteuid()}.lock")):
        if os.path.lexists(PLACE):
            pytest.skip(f"somebody left {PLACE}")
        yield


@pytest.mark.usefixtures("place")
def test_what_lies_at_the_place_outside_is_neither_used_nor_touched(own: Path) -> None:
    """A link, a file, a folder of somebody else: the step never sees them. One test has all: there is one path."""
    for make in (_file, _full_folder, _link_to_folder, _link_to_nothing):
        with _in_the_way(make):
            before = sorted(map(str, Path(PLACE).rglob("*"))) if make is not _link_to_folder else []
            sandbox = placed(own)
            assert shell(sandbox, "pwd; ls ..; echo mine > written", own) == f"{PLACE}/work\nwork\n", make
            assert (own / "written").read_text() == "mine\n"
            after = sorted(map(str, Path(PLACE).rglob("*"))) if make is not _link_to_folder else []
            assert after == before
            assert not Path("/etc/written").exists()


@pytest.mark.usefixtures("place")
def test_a_workspace_that_lies_at_the_place_itself_has_no_fixed_place() -> None:
    own = Path(PLACE, "workspace")
    with _in_the_way(lambda path: (path / "workspace").mkdir(parents=True)):
        sandbox = Sandbox(folders=(own,), fixed={"work": own})
        assert shell(sandbox, "pwd", own) == f"{own}\n"
        assert sandbox.seen(own) == own
        assert sandbox.reports[-1].isolation.place == "real"


def test_a_folder_in_shared_memory_has_the_place_too() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as there:
        sandbox = placed(Path(there))
        assert shell(sandbox, "pwd; echo x > a", Path(there)) == f"{PLACE}/work\n"
        assert Path(there, "a").read_text() == "x\n"


@pytest.mark.parametrize("without", [NO_NAMESPACES, ("user", "mount")], ids=["no namespaces", "no mount namespace"])
def test_without_namespaces_paths_are_real_and_maps_stand_in(without: tuple[str, ...], own: Path) -> None:
    sandbox = Sandbox(folders=(own,), fixed={"work": own}, without=without)
    assert shell(sandbox, "pwd", own) == f"{own}\n"
    assert not sandbox.placed
    assert sandbox.seen(own / "a") == own / "a"
    assert sandbox.prefix_maps() == (f"-ffile-prefix-map={own}={PLACE}/work",)
    known = sandbox.reports[-1].isolation
    assert known.place == "real"
    assert any("mount" in reason for reason in known.why)
    assert len(sandbox.reports) == 1


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    own = tmp_path / "gone"
    sandbox = Sandbox(folders=(tmp_path,), fixed={"work": own})
    assert not sandbox.placed
    shell(sandbox, ":", tmp_path)
    assert any("No such file" in reason or "mount" in reason for reason in sandbox.reports[-1].isolation.why)


@needs_root
@pytest.mark.parametrize("without", [(), NO_NAMESPACES], ids=["namespaces", "none"])
def test_a_step_becomes_another_user_for_good(without: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder)
        os.chown(own, 65534, 65534)
        sandbox = Sandbox(folders=(own,), fixed={"work": own}, user=65534, without=without)
        script = "id -u; id -G; echo x > a; grep -E 'CapEff|NoNewPrivs' /proc/self/status; cat /etc/shadow 2>&1 | wc -l"
        said = shell(sandbox, script, own).split()
        assert said == ["65534", "65534", "CapEff:", "0000000000000000", "NoNewPrivs:", "1", "1"]
        assert (own / "a").stat().st_uid == 65534


AS_NOBODY = """
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])
"""


@needs_root
def test_a_plain_user_has_the_same_place() -> None:
    def run_as_nobody(argv: list[str], **more: object) -> Completed:
        return proc.run([sys.executable, "-c", AS_NOBODY, *argv], **more)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:  # those of pytest are closed to other users
        own = Path(folder)
        own.chmod(0o777)
        try:
            run_as_nobody([sys.executable, "-c", ""])
        except ProcessError:
            pytest.skip("a plain user does not reach this Python")
        sandbox = Sandbox(folders=(own,), fixed={"work": own}, run=run_as_nobody)  # type: ignore[arg-type]
        said = shell(sandbox, "pwd; id -u; echo x > a", own)
        known = sandbox.reports[-1].isolation
        assert said.split() == [str(sandbox.seen(own)), "65534"]
        assert known.place == "fixed" or known.why
        assert (own / "a").stat().st_uid == 65534
