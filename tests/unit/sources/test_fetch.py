"""Fetching locked archives from a loopback index and from folders."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.config.lockfile import LockedArchive, LockedFile
from sglforge.errors import FetchError, LockError
from sglforge.sources.choose import choose
from sglforge.sources.fetch import fetch
from sglforge.sources.model import SourceArchive

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
ABI = MINOR.replace(".", "")
CONTENT = b"an archive, as far as fetching is concerned"
HASH = Sha256(hashlib.sha256(CONTENT).hexdigest())
WHEEL = "toy-1.0-py3-none-any.whl"


def locked(*names: str, sha256: str = HASH, kind: str = "wheel") -> LockedArchive:
    return LockedArchive.model_validate(
        {
            "kind": kind,
            "project": "toy",
            "version": "1.0",
            "files": [{"name": name, "sha256": sha256} for name in names or (WHEEL,)],
        }
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


def index(server: HTTPServer, *, stated: str = HASH, content: bytes = CONTENT) -> IndexLocations:
    page = f'<a href="/f/{WHEEL}{"#sha256=" + stated if stated else ""}">{WHEEL}</a>'
    server.expect_request("/simple/toy/").respond_with_data(page, content_type="text/html")
    server.expect_request(f"/f/{WHEEL}").respond_with_data(content)
    return IndexLocations(index_url=server.url_for("/simple"))


def get(source: LockedArchive, locations: IndexLocations, workspace: Workspace, **more: object) -> SourceArchive:
    return fetch(
        source,
        package="toy",
        python_minor=MINOR,
        locations=locations,
        workspace=workspace,
        **more,  # type: ignore[arg-type]
    )


def test_fetched_once_then_used_offline(httpserver: HTTPServer, workspace: Workspace) -> None:
    locations = index(httpserver)
    seen: list[int] = []
    archive = get(locked(), locations, workspace, progress=lambda done, _: seen.append(done))
    assert archive == SourceArchive(package="toy", path=workspace.sources / HASH / WHEEL, sha256=HASH)
    assert archive.path.read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    asked = len(httpserver.log)
    assert get(locked(), locations, workspace, offline=True) == archive
    assert get(locked(), locations, workspace) == archive
    assert len(httpserver.log) == asked


def test_offline_and_absent_says_what_to_do(httpserver: HTTPServer, workspace: Workspace) -> None:
    with pytest.raises(FetchError) as caught:
        get(locked(), index(httpserver), workspace, offline=True)
    assert caught.value.code == "offline-missing"
    assert "nox -s fetch" in caught.value.hint
    with pytest.raises(FetchError) as caught:
        get(locked(), index(httpserver), workspace, offline=True, command="nox -s drift -- 1.0")
    assert caught.value.hint.endswith(": nox -s drift -- 1.0")
    assert httpserver.log == []


def test_offline_takes_a_folder_of_this_machine(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / WHEEL).write_bytes(CONTENT)
    archive = get(locked(), IndexLocations(find_links=(str(tmp_path),)), workspace, offline=True)
    assert archive.path.read_bytes() == CONTENT


def test_a_damaged_archive_is_fetched_again_and_never_used(httpserver: HTTPServer, workspace: Workspace) -> None:
    locations = index(httpserver)
    path = get(locked(), locations, workspace).path
    path.write_bytes(b"damaged")
    assert get(locked(), locations, workspace).path.read_bytes() == CONTENT
    path.write_bytes(b"damaged")
    with pytest.raises(FetchError, match="offline-missing") as caught:
        get(locked(), locations, workspace, offline=True)
    assert "is damaged on this disk" in caught.value.message
    assert "never" not in caught.value.message
    assert caught.value.where == str(path)
    assert path.read_bytes() == b"damaged"
    assert get(locked(), locations, workspace).path.read_bytes() == CONTENT


def test_a_stated_hash_that_is_not_the_locked_one_is_not_even_fetched(
    httpserver: HTTPServer, workspace: Workspace, tmp_path: Path
) -> None:
    lock = tmp_path / "main.cpu.lock.toml"
    lock.write_text(f'format = 1\n\n[sources.toy]\nfiles = [\n  {{ name = "{WHEEL}", sha256 = "{HASH}" }},\n]\n')
    with pytest.raises(FetchError) as caught:
        get(locked(), index(httpserver, stated="0" * 64), workspace, lock=lock)
    assert caught.value.code == "hash-mismatch"
    assert caught.value.where == f"{lock}:5"
    assert caught.value.context == {"expected sha256": HASH, "got sha256": "0" * 64}
    assert [request.path for request, _ in httpserver.log] == ["/simple/toy/"]


@pytest.mark.parametrize("stated", ["", HASH])
def test_wrong_content_is_not_kept(stated: str, httpserver: HTTPServer, workspace: Workspace) -> None:
    with pytest.raises(FetchError) as caught:
        get(locked(), index(httpserver, stated=stated, content=b"other"), workspace)
    assert caught.value.code == "hash-mismatch"
    assert caught.value.context["got sha256"] == hashlib.sha256(b"other").hexdigest()
    assert [path for path in workspace.root.rglob("*") if path.is_file()] == []


def test_a_wrong_file_in_one_place_does_not_hide_the_right_one_in_another(
    httpserver: HTTPServer, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / WHEEL).write_bytes(b"rebuilt by somebody")
    locations = index(httpserver)
    both = IndexLocations(index_url=locations.index_url, find_links=(str(tmp_path),))
    assert get(locked(), both, workspace).path.read_bytes() == CONTENT


def test_a_wrong_file_and_an_index_that_is_down_are_both_said(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"rebuilt by somebody")
    both = IndexLocations(index_url="http://127.0.0.1:9/simple", find_links=(str(tmp_path),))
    with pytest.raises(FetchError) as caught:
        get(locked(), both, workspace)
    assert caught.value.code == "hash-mismatch"
    assert "127.0.0.1 cannot be reached" in caught.value.context["also"]


def test_offline_a_folder_with_another_file_is_not_enough(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "toy-1.0-1-py3-none-any.whl").write_bytes(CONTENT)
    with pytest.raises(FetchError, match="offline-missing"):
        get(locked(), IndexLocations(find_links=(str(tmp_path),)), workspace, offline=True)


def test_a_workspace_that_cannot_be_written_ends_the_search(httpserver: HTTPServer, workspace: Workspace) -> None:
    workspace.root.write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="not-writable"):
        get(locked(), index(httpserver), workspace)


def test_the_release_without_the_locked_file_is_said(httpserver: HTTPServer, workspace: Workspace) -> None:
    with pytest.raises(FetchError) as caught:
        get(locked("toy-1.0-1-py3-none-any.whl"), index(httpserver), workspace)
    assert caught.value.code == "not-on-index"
    assert "toy-1.0-1-py3-none-any.whl" in caught.value.message


def test_the_file_for_this_python_is_chosen() -> None:
    source = locked("toy-1.0-cp39-cp39-linux_x86_64.whl", WHEEL, f"toy-1.0-cp{ABI}-none-any.whl")
    assert choose(source, MINOR).name == f"toy-1.0-cp{ABI}-none-any.whl"
    assert choose(locked("toy-1.0.tar.gz", kind="sdist"), MINOR) == LockedFile(name="toy-1.0.tar.gz", sha256=HASH)


def test_no_file_for_this_python_is_said() -> None:
    name = "toy-1.0-cp39-cp39-linux_x86_64.whl"
    with pytest.raises(LockError) as caught:
        choose(locked(name), MINOR)
    assert caught.value.code == "no-file-for-python"
    assert name in caught.value.context["locked"]
