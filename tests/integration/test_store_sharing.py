"""A wheel that one workspace has built is taken by another one, with nothing to fetch and nothing to build."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import call

pytestmark = pytest.mark.integration

PACKAGE = "torchvision"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a workspace that has built the package."""
    workspace = tmp_path_factory.mktemp("built")
    assert call("build", PACKAGE, "--target", "cpu", workspace=workspace).code == 0
    return workspace / "store"


@pytest.fixture
def served(built: Path) -> Iterator[str]:
    """The address of that store on a plain web server."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def wheels(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.glob("objects/*/*.whl")}


def test_a_folder_gives_a_wheel_offline(built: Path, tmp_path: Path) -> None:
    words = ("build", PACKAGE, "--target", "cpu", "--offline", "--store", built)
    first = call(*words, workspace=tmp_path)
    assert (first.code, f"from {built}" in first.talk) == (0, True)
    assert wheels(tmp_path / "store") == wheels(built)
    assert not (tmp_path / "sources").exists()
    assert call("store", "verify", workspace=tmp_path).document["verdict"] == "pass"
    again = call("build", PACKAGE, "--target", "cpu", "--offline", workspace=tmp_path)
    assert again.code == 0


def test_a_server_gives_a_wheel_and_one_that_is_not_there_is_a_warning(
    built: Path, served: str, tmp_path: Path
) -> None:
    stores = f"http://127.0.0.1:1/store {served}"
    done = call("build", PACKAGE, "--target", "cpu", workspace=tmp_path, env={"SGLFORGE_STORES": stores})
    assert done.code == 0
    assert "[store-not-used]" in done.talk
    assert f"from {served}" in done.talk
    assert wheels(tmp_path / "store") == wheels(built)
    listed = call("store", "list", workspace=tmp_path).document["entries"]
    assert isinstance(listed, list)
    assert [entry["package"] for entry in listed] == [PACKAGE]
    collected = call("store", "gc", "--keep-days", "0", workspace=tmp_path)
    assert (collected.code, collected.document["bytes"]) == (0, 0), "the plan of this catalog wants it"
