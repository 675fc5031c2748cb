"""Finding files: real pages from a loopback server, real folders, as pip lays them out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from sglforge.base.index_locations import IndexLocations
from sglforge.errors import FetchError
from sglforge.sources.index import find_files, search
from sglforge.sources.model import IndexFile

WHEEL = "toy_pack-1.0-py3-none-any.whl"
SDIST = "toy_pack-1.0.tar.gz"
HASH = "ab" * 32
PAGE = f"""<!DOCTYPE html><html><body>
<a href="../../files/{WHEEL}#sha256={HASH}">{WHEEL}</a>
<a href="../../files/{SDIST}">{SDIST}</a>
<a href="../../files/toy_pack-1.0%2Bcu130-py3-none-any.whl">local</a>
<a href="../../files/toy_pack-2.0-py3-none-any.whl">newer</a>
<a href="../../files/toy_pack-1.0.exe">neither</a>
</body></html>"""


def only(*find_links: str) -> IndexLocations:
    return IndexLocations(find_links=find_links, no_index=True)


def dead_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/simple"


def test_an_html_index_gives_names_urls_and_hashes(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/simple/toy-pack/").respond_with_data(PAGE, content_type="text/html")
    locations = IndexLocations(index_url=httpserver.url_for("/simple"))
    assert find_files(locations, "Toy.Pack", "1.0.0") == [
        IndexFile(name=WHEEL, url=httpserver.url_for(f"/files/{WHEEL}"), sha256=HASH),  # type: ignore[arg-type]
        IndexFile(name=SDIST, url=httpserver.url_for(f"/files/{SDIST}"), sha256=None),
    ]


def test_a_json_index_is_understood(httpserver: HTTPServer) -> None:
    page = {
        "meta": {"api-version": "1.1"},
        "name": "toy-pack",
        "versions": ["1.0"],
        "files": [{"filename": WHEEL, "url": f"/f/{WHEEL}", "hashes": {"sha256": HASH.upper()}, "size": 1}],
    }
    httpserver.expect_request("/simple/toy-pack/").respond_with_json(
        page, content_type="application/vnd.pypi.simple.v1+json"
    )
    (file,) = find_files(IndexLocations(index_url=httpserver.url_for("/simple/")), "toy-pack", "1.0")
    assert (file.name, file.url, file.sha256) == (WHEEL, httpserver.url_for(f"/f/{WHEEL}"), HASH)


def test_a_local_version_is_another_version(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/simple/toy-pack/").respond_with_data(PAGE, content_type="text/html")
    locations = IndexLocations(index_url=httpserver.url_for("/simple"))
    (file,) = find_files(locations, "toy-pack", "1.0+cu130")
    assert file.name == "toy_pack-1.0+cu130-py3-none-any.whl"
    assert "%2B" in file.url


@pytest.mark.parametrize("form", ["url", "url with slash", "path"])
def test_a_file_index_with_pages(form: str, tmp_path: Path) -> None:
    root = tmp_path / "an index" / "simple"
    (root / "toy-pack").mkdir(parents=True)
    (root / "toy-pack" / "index.html").write_text(PAGE)
    index = {"url": root.as_uri(), "url with slash": root.as_uri() + "/", "path": str(root)}[form]
    files = find_files(IndexLocations(index_url=index), "toy_pack", "1.0")
    assert [file.url for file in files] == [
        (tmp_path / "an index" / "files" / name).as_uri() for name in (WHEEL, SDIST)
    ]


def test_a_file_index_of_plain_folders(tmp_path: Path) -> None:
    folder = tmp_path / "simple" / "toy-pack"
    folder.mkdir(parents=True)
    (folder / WHEEL).write_bytes(b"x")
    (folder / "notes.txt").write_text("x")
    locations = IndexLocations(index_url=dead_url(), extra_index_urls=((tmp_path / "simple").as_uri(),))
    assert [file.name for file in find_files(locations, "toy-pack", "1.0")] == [WHEEL]


def test_find_links_may_be_a_folder_a_page_or_a_file(tmp_path: Path, httpserver: HTTPServer) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / WHEEL).write_bytes(b"x")
    page = tmp_path / "deep" / "er" / "page.html"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE)
    httpserver.expect_request("/a/b/links.html").respond_with_data(PAGE, content_type="text/html")
    remote = httpserver.url_for("/a/b/links.html")
    for location, expected in (
        (str(links), (links / WHEEL).as_uri()),
        (links.as_uri(), (links / WHEEL).as_uri()),
        (str(links / WHEEL), (links / WHEEL).as_uri()),
        (str(page), (tmp_path / "files" / WHEEL).as_uri()),
        (remote, httpserver.url_for(f"/files/{WHEEL}")),
    ):
        assert find_files(only(location), "toy-pack", "1.0")[0].url == expected, location


def test_what_is_on_this_machine_comes_first_and_is_enough(tmp_path: Path, httpserver: HTTPServer) -> None:
    (tmp_path / WHEEL).write_bytes(b"x")
    locations = IndexLocations(index_url=httpserver.url_for("/simple"), find_links=(str(tmp_path),))
    assert next(search(locations, "toy-pack", "1.0")).url.startswith("file:")
    assert httpserver.log == []


def test_a_location_that_is_down_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"x")
    locations = IndexLocations(index_url=dead_url(), find_links=(str(tmp_path),))
    assert [file.name for file in find_files(locations, "toy-pack", "1.0")] == [WHEEL]
    with pytest.raises(FetchError) as caught:
        find_files(IndexLocations(index_url=dead_url()), "toy-pack", "1.0")
    assert caught.value.code == "network-unreachable"


def test_nowhere_lists_where_it_was_looked_for_without_credentials(tmp_path: Path, httpserver: HTTPServer) -> None:
    httpserver.expect_request("/simple/toy-pack/").respond_with_data("", status=404)
    index = httpserver.url_for("/simple").replace("http://", "http://me:secret@")
    locations = IndexLocations(index_url=index, find_links=(str(tmp_path),))
    with pytest.raises(FetchError) as caught:
        find_files(locations, "toy-pack", "1.0")
    assert caught.value.code == "not-on-index"
    assert caught.value.context == {
        tmp_path.as_uri(): "0 files",
        httpserver.url_for("/simple/toy-pack/"): "0 files",
    }
    assert httpserver.log[0][0].authorization is not None


def test_no_index_asks_no_index(httpserver: HTTPServer, tmp_path: Path) -> None:
    locations = IndexLocations(index_url=httpserver.url_for("/simple"), find_links=(str(tmp_path),), no_index=True)
    with pytest.raises(FetchError, match="not-on-index"):
        find_files(locations, "toy-pack", "1.0")
    assert httpserver.log == []


def test_offline_asks_nothing_on_the_network(httpserver: HTTPServer, tmp_path: Path) -> None:
    locations = IndexLocations(index_url=httpserver.url_for("/simple"), find_links=(str(tmp_path),))
    with pytest.raises(FetchError, match="offline-missing"):
        list(search(locations, "toy-pack", "1.0", offline=True))
    assert httpserver.log == []


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("{not json", "application/vnd.pypi.simple.v1+json"),
        ('{"a": 1}', "application/vnd.pypi.simple.v1+json"),
        ('<meta name="pypi:repository-version" content="9.0">', "text/html"),
    ],
)
def test_a_page_that_is_no_index_is_said(httpserver: HTTPServer, body: str, content_type: str) -> None:
    httpserver.expect_request("/simple/toy-pack/").respond_with_data(body, content_type=content_type)
    with pytest.raises(FetchError, match="index-unreadable"):
        find_files(IndexLocations(index_url=httpserver.url_for("/simple")), "toy-pack", "1.0")


def test_a_page_cannot_name_files_of_this_machine(httpserver: HTTPServer) -> None:
    page = f'<a href="file:///etc/{WHEEL}">x</a>'
    httpserver.expect_request("/simple/toy-pack/").respond_with_data(page, content_type="text/html")
    with pytest.raises(FetchError, match="not-on-index"):
        find_files(IndexLocations(index_url=httpserver.url_for("/simple")), "toy-pack", "1.0")
