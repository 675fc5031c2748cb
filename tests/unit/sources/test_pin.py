"""Pinning: which files a lock gets, with which hashes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from sglforge.base.index_locations import IndexLocations
from sglforge.config.model import SdistSource, WheelSource
from sglforge.errors import LockError
from sglforge.sources.pin import pin

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
ABI = MINOR.replace(".", "")
WHEEL = WheelSource(kind="wheel", project="toy", version="1.0")
SDIST = SdistSource(kind="sdist", project="toy", version="1.0")


def offer(server: HTTPServer, *names: str, stated: bool = True) -> IndexLocations:
    links = ""
    for name in names:
        fragment = f"#sha256={hashlib.sha256(name.encode()).hexdigest()}" if stated else ""
        links += f'<a href="/f/{name}{fragment}">{name}</a>'
        server.expect_request(f"/f/{name}").respond_with_data(name.encode())
    server.expect_request("/simple/toy/").respond_with_data(links, content_type="text/html")
    return IndexLocations(index_url=server.url_for("/simple"))


def pinned(source: WheelSource | SdistSource, locations: IndexLocations, *minors: str) -> list[str]:
    locked = pin(source, minors or (MINOR,), locations)
    assert (locked.kind, locked.project, locked.version) == (source.kind, "toy", "1.0")
    for file in locked.files:
        assert file.sha256 == hashlib.sha256(file.name.encode()).hexdigest()
    return [file.name for file in locked.files]


def test_a_pure_wheel_serves_every_python(httpserver: HTTPServer) -> None:
    locations = offer(httpserver, "toy-1.0-py3-none-any.whl", "toy-1.0.tar.gz")
    assert pinned(WHEEL, locations, "3.11", "3.12") == ["toy-1.0-py3-none-any.whl"]
    assert [request.path for request, _ in httpserver.log] == ["/simple/toy/"]


def test_each_python_gets_its_best_wheel(httpserver: HTTPServer) -> None:
    names = ["toy-1.0-cp311-none-any.whl", "toy-1.0-cp312-none-any.whl", "toy-1.0-py3-none-any.whl"]
    locations = offer(httpserver, *names, "toy-1.0-cp311-none-win_amd64.whl")
    assert pinned(WHEEL, locations, "3.11", "3.12") == names[:2]


def test_an_index_without_hashes_costs_a_download(httpserver: HTTPServer) -> None:
    locations = offer(httpserver, "toy-1.0-py3-none-any.whl", stated=False)
    assert pinned(WHEEL, locations) == ["toy-1.0-py3-none-any.whl"]


def test_an_sdist_is_pinned_as_a_file(httpserver: HTTPServer) -> None:
    locations = offer(httpserver, "toy-1.0-py3-none-any.whl", "toy-1.0.tar.gz")
    assert pinned(SDIST, locations) == ["toy-1.0.tar.gz"]


def test_no_wheel_for_a_python_lists_what_there_is(httpserver: HTTPServer) -> None:
    locations = offer(httpserver, "toy-1.0-cp39-none-any.whl")
    with pytest.raises(LockError) as caught:
        pin(WHEEL, [MINOR], locations)
    assert caught.value.code == "no-wheel-for-python"
    assert caught.value.context["offered"] == "toy-1.0-cp39-none-any.whl"


def test_no_sdist_is_said(httpserver: HTTPServer) -> None:
    with pytest.raises(LockError, match="no-sdist"):
        pin(SDIST, [MINOR], offer(httpserver, "toy-1.0-py3-none-any.whl"))


def test_one_name_with_two_contents_is_not_locked(httpserver: HTTPServer, tmp_path: Path) -> None:
    (tmp_path / "toy-1.0-py3-none-any.whl").write_bytes(b"rebuilt by somebody")
    index = offer(httpserver, "toy-1.0-py3-none-any.whl")
    both = IndexLocations(index_url=index.index_url, find_links=(str(tmp_path),))
    with pytest.raises(LockError) as caught:
        pin(WHEEL, [MINOR], both)
    assert caught.value.code == "ambiguous-file"
    assert len(caught.value.context) == 2
