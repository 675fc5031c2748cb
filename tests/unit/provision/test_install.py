"""Installing toy wheels with a real uv."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pytest_httpserver import HTTPServer

from sglforge.base import proc
from sglforge.base.exclusive import exclusive, holder
from sglforge.base.files import sha256_file
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import Completed
from sglforge.errors import FetchError, InstallError, SglforgeError
from sglforge.provision.prefetch import download_requirements, download_torch
from sglforge.provision.receipt import find_environment
from sglforge.provision.torch import require_variant
from sglforge.provision.verify import full, quick, thorough

if TYPE_CHECKING:
    from unit.provision.conftest import Toys


def test_an_environment_works_and_has_a_receipt(toys: Toys) -> None:
    environment = toys.install()

    code = "import toyserver, torch; print(toyserver.ANSWER, torch.__version__, torch.cuda)"
    assert proc.run([environment.python, "-c", code]).stdout == "42 9.9.0+cpu None\n"
    assert environment.python.is_relative_to(toys.folder)
    assert (toys.workspace.environments / "toys").readlink() == Path(toys.key)
    assert find_environment(toys.workspace, "toys") == environment
    assert environment.receipt_sha256 == sha256_file(toys.folder / "receipt.json")

    receipt = environment.receipt
    assert receipt.environment_key == toys.key
    assert (receipt.python.minor, receipt.python.base) == (toys.minor, str(toys.interpreter.path))
    assert (receipt.torch.sha256, receipt.torch.origin, receipt.torch.proven) == (
        toys.torch_hashes[0],
        "local-file",
        True,
    )
    assert [(entry.name, entry.version, entry.sha256) for entry in receipt.requirements] == [
        ("toydep", "1.2", toys.requirements[0].files[0].sha256)
    ]
    (server,) = receipt.built
    assert (server.name, server.wheel_sha256) == ("toyserver", toys.wheels[0].sha256)
    for path in ("toyserver/__init__.py", "toyserver/extra.py"):
        file = environment.site_packages / path
        assert server.files[path].sha256 == sha256_file(file)
        assert server.files[path][1:] == (file.stat().st_size, file.stat().st_mtime_ns, file.stat().st_ino)
    assert [(entry.requirement, entry.reason) for entry in receipt.omitted] == [("absent>=3", "GPU only")]
    assert [(entry.requirement, entry.installed) for entry in receipt.relaxed] == [("torch==9.8.0", "9.9.0+cpu")]
    assert json.loads((toys.folder / "receipt.json").read_text())["schema"] == 2


def test_everything_is_byte_compiled(toys: Toys) -> None:
    site = toys.install().site_packages
    for folder in (site, site / "torch", site / "toyserver"):
        assert list((folder / "__pycache__").glob("*.pyc")), folder


def test_a_workspace_may_have_spaces_in_its_name(toys: Toys) -> None:
    spaced = replace(toys, root=toys.root / "a folder of müller's")
    spaced.root.mkdir()
    toys.links.rename(spaced.links)
    environment = spaced.install()
    assert proc.run([environment.python, "-c", "import toyserver; print(toyserver.ANSWER)"]).stdout == "42\n"


def test_torch_is_installed_alone_and_first(toys: Toys) -> None:
    toys.install()
    commands = [line for line in toys.log.read_text().splitlines() if line.startswith("$ ")]
    assert [Path(line.split()[-1]).stem for line in commands[1:]] == ["torch", "requirements", "built"]
    for line in commands[1:]:
        assert "--require-hashes" in line
        assert "--no-deps" in line


def test_a_second_time_nothing_runs(toys: Toys) -> None:
    first = toys.install()

    def refuse(*_: object, **__: object) -> Completed:
        raise AssertionError("nothing is to be run")

    assert toys.install(run=refuse) == first
    toys.install(name="other", run=refuse)
    assert (toys.workspace.environments / "other").readlink() == Path(toys.key)


def test_a_changed_environment_is_made_again(toys: Toys) -> None:
    first = toys.install()
    (first.site_packages / "toyserver" / "extra.py").write_text("X = 2\n")
    (first.site_packages / "stray.py").write_text("")
    again = toys.install()
    assert (again.site_packages / "toyserver" / "extra.py").read_text() == "X = 1\n"
    assert not (again.site_packages / "stray.py").exists()
    assert again.receipt_sha256 != first.receipt_sha256
    assert [path for path in toys.workspace.environments.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("damage", ["toydep.py", "torch/version.py"])
def test_an_edit_that_reached_the_cache_is_mended(toys: Toys, damage: str) -> None:
    first = toys.install()
    path = first.site_packages / damage
    path.write_text(path.read_text() + "# edited in place, through the hard link\n")
    (cached,) = (toys.root / "uv-cache").rglob(damage)
    assert path.samefile(cached)
    again = toys.install()
    assert quick(again) == full(again) == ()
    assert "edited" not in (again.site_packages / damage).read_text()


@pytest.mark.parametrize("project", ["toydep", "toyserver", "torch"])
@pytest.mark.parametrize("name", ["WHEEL", "RECORD", "METADATA"])
def test_what_uv_does_not_take_from_its_cache_any_more_is_mended(toys: Toys, project: str, name: str) -> None:
    first = toys.install()
    (path,) = first.site_packages.glob(f"{project}-*.dist-info/{name}")
    os.truncate(path, 1)  # in place: what the cache holds is the same file
    assert quick(first)
    again = toys.install()
    assert quick(again) == full(again) == ()
    assert path.stat().st_size > 1


def test_a_thorough_check_mends_what_the_quick_one_does_not_see(toys: Toys) -> None:
    first = toys.install()
    added = first.site_packages / "toyserver" / "shadow.py"
    added.write_text("")
    assert toys.install() == first
    assert full(toys.install(check=thorough)) == ()
    assert not added.exists()


def test_a_folder_without_a_receipt_is_made_again(toys: Toys) -> None:
    stray = toys.folder / "venv" / "half"
    stray.parent.mkdir(parents=True)
    stray.write_text("")
    toys.install()
    assert not stray.exists()


def test_a_receipt_that_cannot_be_read_does_not_count(toys: Toys) -> None:
    toys.install()
    (toys.folder / "receipt.json").write_text('{"schema": 99}')
    with pytest.raises(InstallError) as caught:
        find_environment(toys.workspace, "toys")
    assert caught.value.code == "receipt-unreadable"
    assert toys.install().receipt.name == "toys"


# --- torch


def test_a_torch_that_is_cuda_inside_stops_everything(toys: Toys) -> None:
    toys.torch_hashes = [sha256_file(toys.make_torch(cuda="13.0"))]
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert caught.value.code == "torch-wrong-variant"
    assert "13.0" in caught.value.message
    assert not list(toys.folder.rglob("toydep.py"))
    assert not (toys.folder / "receipt.json").exists()
    assert find_environment(toys.workspace, "toys") is None


@pytest.mark.parametrize(
    ("variant", "cuda", "code"),
    [
        ("cu130", "13.0", None),
        ("cu130", "13.2", None),
        ("cu130", "12.8", "torch-cuda-mismatch"),
        ("cu128", "13.0", "torch-cuda-mismatch"),
        ("cu130", None, "torch-wrong-variant"),
        ("cpu", "13.0", "torch-cuda-mismatch"),
    ],
)
def test_a_torch_for_gpus_is_of_the_cuda_that_its_variant_says(
    toys: Toys, variant: str, cuda: str | None, code: str | None
) -> None:
    pin = toys.pin.model_copy(update={"variant": variant})
    said = f'{{"version": "9.9.0+{variant}", "cuda": {json.dumps(cuda)}}}'

    def run(argv: Sequence[str | Path], **_: object) -> Completed:
        return Completed(argv=tuple(map(str, argv)), returncode=0, stdout=said, stderr="", seconds=0.0)

    uv = replace(toys.uv, run=run)
    if code is None:
        require_variant(Path("python"), pin, "cuda", uv)
        return
    with pytest.raises(InstallError) as caught:
        require_variant(Path("python"), pin, "cuda", uv)
    assert caught.value.code == code


def test_a_torch_that_does_not_say_what_it_is_stops_everything(toys: Toys) -> None:
    hollow = toys.make_wheel("torch", "9.9.0+cpu", {"torch/__init__.py": ""}, tag=toys.native_tag)
    toys.torch_hashes = [sha256_file(hollow)]
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert caught.value.code == "torch-wrong-variant"
    assert "version.py" in caught.value.message


def test_no_other_torch_is_a_substitute(toys: Toys) -> None:
    for path in toys.links.glob("torch-*"):
        path.unlink()
    toys.make_torch(version="9.9.0", cuda="13.0")
    toys.make_torch(version="9.9.0+cu130", cuda="13.0")
    toys.make_torch(version="9.9.1+cpu")
    toys.make_torch(tag="cp39-cp39-linux_x86_64")
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert caught.value.code == "torch-variant-missing"
    assert "PIP_FIND_LINKS" in caught.value.hint
    assert f"torch-9.9.0+cpu-{toys.native_tag.split('-')[0]}" in caught.value.hint
    assert str(toys.links) in caught.value.context["searched (from pip's configuration)"]
    assert not list(toys.folder.glob("venv/lib/*/site-packages/torch*"))


def test_a_torch_with_another_hash_is_refused(toys: Toys) -> None:
    toys.torch_hashes = ["0" * 64]
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert caught.value.code == "torch-hash-not-accepted"
    assert sha256_file(next(toys.links.glob("torch-*"))) in caught.value.context["found"]


def test_the_accepted_torch_is_taken_among_several(toys: Toys, tmp_path: Path) -> None:
    wrong = toys.make_torch(cuda="12.8", folder=tmp_path / "first")
    assert sha256_file(wrong) not in toys.torch_hashes
    links = (str(wrong.parent), str(toys.links))
    environment = toys.install(locations=IndexLocations(no_index=True, find_links=links))
    assert environment.receipt.torch.sha256 == toys.torch_hashes[0]


def test_a_torch_without_an_accepted_hash_is_unproven(toys: Toys) -> None:
    toys.torch_hashes = []
    torch = toys.install().receipt.torch
    assert (torch.proven, torch.sha256) == (False, sha256_file(next(toys.links.glob("torch-*"))))


def test_the_last_resort_is_marked_unproven(toys: Toys, tmp_path: Path) -> None:
    """uv's own torch index is not reached by tests: the runner hands uv a folder in its place."""
    hidden = tmp_path / "torch-index"
    toys.links.joinpath(next(toys.links.glob("torch-*")).name).rename(hidden / toys.make_torch(folder=hidden).name)

    def run(argv: Sequence[str | Path], **rest: Any) -> Completed:
        words = [str(word) for word in argv]
        if "--torch-backend" in words:
            place = words.index("--torch-backend")
            assert words[place + 1] == "cpu"
            words[place : place + 2] = ["--find-links", str(hidden)]
        return proc.run(words, **rest)

    torch = toys.install(run=run).receipt.torch
    assert (torch.origin, torch.proven, torch.sha256) == ("uv-torch-backend", False, toys.torch_hashes[0])


# --- faults that the checks find


def test_every_fault_of_a_new_environment_is_named_at_once(toys: Toys) -> None:
    files = {"toyserver/__init__.py": "", "toydep.py": "ANSWER = 41\n"}
    toys.wheels = [toys.make_server(files, requires=["toydep>=7", "torch==9.8.0", "absent", "nobody"])]
    with pytest.raises(InstallError) as caught:
        toys.install()
    found = {(finding.code, finding.subject) for finding in caught.value.findings}
    assert found == {("file-owned-twice", "toydep, toyserver"), ("requirement-unmet", "toyserver")}
    messages = " ".join(finding.message for finding in caught.value.findings)
    assert "toydep>=7" in messages
    assert "nobody" in messages
    assert not (toys.folder / "receipt.json").exists()


def test_a_built_package_that_writes_into_torch_is_found(toys: Toys) -> None:
    files = {"toyserver/__init__.py": "", "torch/version.py": "__version__ = '9.9.0+cpu'\ncuda = '13.0'\n"}
    toys.wheels = [toys.make_server(files, requires=[])]
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert "torch/version.py" in caught.value.findings[0].detail


def test_a_lock_that_lists_torch_again_is_found(toys: Toys) -> None:
    toys.requirements.append(toys.locked(toys.make_torch(version="9.9.1", cuda="13.0")))
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert ("torch-replaced", "torch") in {(finding.code, finding.subject) for finding in caught.value.findings}


def test_a_built_package_that_replaces_a_requirement_is_found(toys: Toys) -> None:
    path = toys.make_wheel("toydep", "1.9", {"toydep.py": "ANSWER = 1\n"}, folder=toys.root / "store")
    toys.wheels.append(replace(toys.wheels[0], path=path, sha256=sha256_file(path)))
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert ("environment-changed", "toydep") in {(fault.code, fault.subject) for fault in caught.value.findings}


def test_an_edit_that_reached_the_cache_does_not_come_again(toys: Toys) -> None:
    toys.install()
    (cached,) = (toys.root / "uv-cache").rglob("toyserver/extra.py")
    cached.write_text("X = 666\n")
    toys.key = "f" * 64
    environment = toys.install()
    assert (environment.site_packages / "toyserver" / "extra.py").read_text() == "X = 1\n"
    assert quick(environment) == full(environment) == ()


def test_a_file_that_is_not_the_wheels_is_found(toys: Toys) -> None:
    def run(argv: Sequence[str | Path], **rest: Any) -> Completed:
        done = proc.run(argv, **rest)
        for path in toys.folder.rglob("toyserver/extra.py"):
            path.unlink()
            path.write_text("X = 666\n")
        return done

    with pytest.raises(InstallError) as caught:
        toys.install(run=run)
    assert caught.value.code == "built-file-differs"
    assert caught.value.findings[0].detail == ("toyserver/extra.py",)


def test_a_built_wheel_that_changed_in_the_store_is_refused(toys: Toys) -> None:
    path = toys.wheels[0].path
    toys.make_server({"toyserver/__init__.py": "changed = True\n"}, requires=[])
    assert sha256_file(path) != toys.wheels[0].sha256
    with pytest.raises(FetchError) as caught:
        toys.install()
    assert caught.value.code == "hash-mismatch"


def test_a_lock_without_files_for_this_machine_is_refused_first(toys: Toys) -> None:
    toys.requirements = [toys.locked(toys.make_wheel("toydep", "1.2", {"toydep.py": ""}, tag="cp311-cp311-win_amd64"))]
    with pytest.raises(InstallError) as caught:
        toys.install()
    assert caught.value.code == "no-file-for-python"
    assert not toys.folder.exists()


# --- indexes, offline


@pytest.fixture
def index(toys: Toys, httpserver: HTTPServer) -> IndexLocations:
    """Serve the requirement and torch from a package index, and empty the folder of links."""
    for path in list(toys.links.iterdir()):
        name = path.name.split("-")[0]
        url = f"/files/{path.name}"
        page = f'<a href="{url.replace("+", "%2B")}#sha256={sha256_file(path)}">{path.name}</a>'
        httpserver.expect_request(f"/simple/{name}/").respond_with_data(page, content_type="text/html")
        httpserver.expect_request(url).respond_with_data(path.read_bytes())
        path.unlink()
    host = httpserver.url_for("/simple/").removeprefix("http://")
    return IndexLocations(index_url=f"http://user:secret@{host}")


def fetch(toys: Toys, index: IndexLocations) -> None:
    download_torch(toys.pin, interpreter=toys.interpreter, workspace=toys.workspace, locations=index, log=toys.log)
    download_requirements(
        toys.requirements,
        interpreter=toys.interpreter,
        workspace=toys.workspace,
        locations=index,
        log=toys.log,
    )


def test_a_torch_whose_listed_hash_is_not_accepted_is_not_even_fetched(
    toys: Toys, index: IndexLocations, httpserver: HTTPServer
) -> None:
    toys.torch_hashes = ["0" * 64]
    with pytest.raises(InstallError) as caught:
        toys.install(locations=index)
    assert caught.value.code == "torch-hash-not-accepted"
    assert {request.path for request, _ in httpserver.log} == {"/simple/torch/"}


def test_after_fetch_no_network_is_needed(toys: Toys, index: IndexLocations, httpserver: HTTPServer) -> None:
    fetch(toys, index)
    asked = len(httpserver.log)
    httpserver.clear()
    environment = toys.install(locations=index, offline=True)
    assert environment.receipt.torch.origin == "kept-archive"
    assert len(httpserver.log) in {0, asked}
    assert not any(toys.workspace.scratch.iterdir())


def test_what_cannot_be_mended_without_a_network_says_so(toys: Toys, index: IndexLocations) -> None:
    fetch(toys, index)
    toys.install(locations=index, offline=True)
    (cached,) = (toys.root / "uv-cache").rglob("toydep.py")
    cached.write_text("edited\n")
    with pytest.raises(FetchError) as caught:
        toys.install(locations=index, offline=True)
    assert caught.value.code == "offline-missing"
    assert "nox -s fetch with a network" in caught.value.hint
    assert find_environment(toys.workspace, "toys") is None
    fetch(toys, index)
    assert full(toys.install(locations=index, offline=True)) == ()


def test_offline_without_fetch_says_what_to_do(toys: Toys, index: IndexLocations) -> None:
    download_torch(toys.pin, interpreter=toys.interpreter, workspace=toys.workspace, locations=index)
    for locations in (index, IndexLocations(no_index=True)):
        with pytest.raises(FetchError) as caught:
            toys.install(locations=locations, offline=True)
        assert caught.value.code == "offline-missing"
        assert "fetch" in caught.value.hint


def test_offline_without_torch_is_the_torch_error(toys: Toys, index: IndexLocations) -> None:
    with pytest.raises(InstallError) as caught:
        toys.install(locations=index, offline=True)
    assert caught.value.code == "torch-variant-missing"


def test_uv_offline_of_the_user_is_obeyed(
    toys: Toys, index: IndexLocations, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(SglforgeError):
        toys.install(locations=index)
    assert httpserver.log == []


def test_a_torch_from_an_index_is_kept(toys: Toys, index: IndexLocations) -> None:
    environment = toys.install(locations=index)
    assert environment.receipt.torch.origin == "download"
    assert list(toys.workspace.sources.joinpath(toys.torch_hashes[0]).iterdir())


def test_no_password_reaches_log_or_receipt(toys: Toys, index: IndexLocations) -> None:
    toys.install(locations=index)
    assert "secret" not in toys.log.read_text() + (toys.folder / "receipt.json").read_text()


def test_a_replaced_file_on_the_index_is_refused(toys: Toys, index: IndexLocations, httpserver: HTTPServer) -> None:
    name = toys.requirements[0].files[0].name
    other = toys.make_wheel("toydep", "1.2", {"toydep.py": "ANSWER = 'stolen'\n"}, folder=toys.root / "other")
    httpserver.clear_all_handlers()
    httpserver.expect_request("/simple/toydep/").respond_with_data(
        f'<a href="/files/{name}">{name}</a>', content_type="text/html"
    )
    httpserver.expect_request(f"/files/{name}").respond_with_data(other.read_bytes())
    toys.make_torch()
    with pytest.raises(FetchError) as caught:
        toys.install(locations=IndexLocations(index_url=index.index_url, find_links=(str(toys.links),)))
    assert caught.value.code == "hash-mismatch"


def test_a_locked_version_that_no_index_has_is_named(toys: Toys) -> None:
    for path in toys.links.glob("toydep*"):
        path.unlink()
    with pytest.raises(FetchError) as caught:
        toys.install()
    assert caught.value.code == "not-on-index"
    assert "toydep==1.2" in caught.value.context["uv said"]


def test_an_index_that_is_down_is_a_network_fault(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    for path in toys.links.glob("toydep*"):
        path.unlink()
    nowhere = IndexLocations(index_url="http://127.0.0.1:9/simple/", find_links=(str(toys.links),))
    with pytest.raises(FetchError) as caught:
        toys.install(locations=nowhere)
    assert caught.value.code == "network-unreachable"


@pytest.mark.parametrize("how", ["uv", "ourselves"])
def test_a_full_disk_is_not_left_full(toys: Toys, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The fault is not real: filling a disk is not what a unit test does."""

    def run(argv: Sequence[str | Path], **rest: Any) -> Completed:
        if how == "uv" and "requirements.txt" in str(argv[-1]):
            output = "error: failed to copy file\n  cause: No space left on device (os error 28)"
            raise proc.ProcessError(code="process-failed", message="uv ended", context={"output": output})
        return proc.run(argv, **rest)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if how == "ourselves":
        monkeypatch.setattr("sglforge.provision.install.write_receipt", full)
    with pytest.raises((InstallError, OSError)) as caught:
        toys.install(run=run)
    assert "disk is full" in str(caught.value) or "No space" in str(caught.value)
    assert not toys.folder.exists()


# --- interruption


def start(toys: Toys, *, pause_at: str) -> subprocess.Popen[bytes]:
    """Start a process that installs the toys and stops when it comes to a part, until told to go."""
    program = f"""
        import pickle, sys, time
        from pathlib import Path
        from sglforge.provision.install import install

        def progress(done=0.0, total=None, *, note=""):
            if {pause_at!r} in note:
                Path({str(toys.root / "paused")!r}).touch()
                end = time.monotonic() + 60
                while time.monotonic() < end and not Path({str(toys.root / "go")!r}).exists():
                    time.sleep(0.02)

        arguments = pickle.loads(Path({str(toys.root / "arguments")!r}).read_bytes())
        install(**arguments, progress=progress)
    """
    import pickle

    arguments = {
        "plan": toys.plan,
        "wheels": [],
        "name": "toys",
        "interpreter": toys.interpreter,
        "workspace": toys.workspace,
        "locations": toys.locations,
    }
    (toys.root / "arguments").write_bytes(pickle.dumps(arguments))
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (toys.root / "paused").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("part", ["requirements", "checks"])
def test_a_killed_installation_leaves_nothing_that_counts(toys: Toys, number: signal.Signals, part: str) -> None:
    process = start(toys, pause_at=part)
    process.send_signal(number)
    process.wait()
    assert toys.folder.exists()
    assert find_environment(toys.workspace, "toys") is None
    assert not (toys.folder / "receipt.json").exists()
    assert toys.install().receipt.built


def test_a_second_run_uses_what_the_first_has_made(toys: Toys) -> None:
    process = start(toys, pause_at="checks")

    def progress(done: float = 0.0, total: float | None = None, *, note: str = "") -> None:
        assert "waiting" in note, "it is not made a second time"
        (toys.root / "go").touch()

    environment = toys.install(progress=progress)
    assert process.wait() == 0
    assert find_environment(toys.workspace, "toys") == environment


def test_a_second_run_waits_and_names_the_first(toys: Toys) -> None:
    process = start(toys, pause_at="checks")
    try:
        notes: list[str] = []
        lock = toys.workspace.locks / f"environment-{toys.key}"
        with pytest.raises(InstallError) as caught, exclusive(lock, waiting=notes.append, timeout_s=0.2):
            raise AssertionError("two hold the lock")
        assert caught.value.code == "environment-busy"
        assert str(process.pid) in caught.value.message
        assert str(process.pid) in notes[0]
    finally:
        process.kill()
        process.wait()
    with exclusive(lock, waiting=notes.append, timeout_s=0.2):
        found = holder(lock)
        assert found
        assert found.pid == os.getpid()
