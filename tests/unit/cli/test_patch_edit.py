"""`patch --edit` and `patch --refresh` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglforge import cli
from sglforge.base import files

PATCH = """\
description = "d"
origin = "sglforge"
reason = "r"
reference = "x"
forwarded = "no"
versions = "==1.*"
superseded = "s"
superseded-from = "2"

[[edits]]
kind = "python"
file = "sglang/worker.py"
anchor = "run"
operation = "prepend-to-body"
payload = "payload/p.py"
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    folder = tmp_path / "catalog"
    (folder / "recipes").mkdir(parents=True)
    topic = folder / "patches/sglang/one"
    (topic / "payload").mkdir(parents=True)
    (topic / "patch.toml").write_text(PATCH)
    (topic / "payload/p.py").write_text("x = 1\n")
    (folder / "patches/sglang/series.toml").write_text('topics = ["one"]\n')
    tree = tmp_path / "tree/sglang"
    tree.mkdir(parents=True)
    (tree / "version.py").write_text('__version__ = "1.0"\n')
    (tree / "worker.py").write_text("def run():\n    pass\n")
    return folder


def call(capsys: pytest.CaptureFixture[str], catalog: Path, *words: str) -> tuple[int, dict[str, object]]:
    where = ["--catalog", str(catalog), "--workspace", str(catalog.parent / "home")]
    code = cli.run(["patch", "--json", *words, *where])
    return code, json.loads(capsys.readouterr().out)


def test_a_topic_is_edited_in_a_tree_and_taken_over(capsys: pytest.CaptureFixture[str], catalog: Path) -> None:
    tree_option = ("--tree", str(catalog.parent / "tree"))
    code, document = call(capsys, catalog, "--edit", "one", *tree_option)
    assert (code, document["verdict"]) == (0, "pass")
    tree = Path(str(document["tree"]))
    assert (tree / "sglang/worker.py").read_text() == "def run():\n    x = 1\n    pass\n"
    assert (catalog.parent / "tree/sglang/worker.py").read_text() == "def run():\n    pass\n"
    code, document = call(capsys, catalog, "--refresh", "one")
    assert (code, document["written"]) == (0, [])
    (tree / "sglang/worker.py").write_text("def run():\n    x = 2\n    pass\n")
    code, document = call(capsys, catalog, "--edit", "one", *tree_option)
    assert (code, _codes(document)) == (2, ["edit-in-progress"])
    payload = catalog / "patches/sglang/one/payload/p.py"
    code, document = call(capsys, catalog, "--refresh", "one")
    assert (code, document["written"]) == (0, [str(payload)])
    assert payload.read_text() == "x = 2\n"
    code, document = call(capsys, catalog, "--edit", "one", *tree_option)
    assert code == 0
    assert (tree / "sglang/worker.py").read_text() == "def run():\n    x = 2\n    pass\n"


@pytest.mark.parametrize("words", [("--edit", "two"), ("--topic", "two")])
def test_the_version_is_that_of_the_package(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], catalog: Path
) -> None:
    """A tree of SGLang 1.0 says nothing of the version of another package."""
    other = catalog / "patches/vision/two"
    (other / "payload").mkdir(parents=True)
    (other / "patch.toml").write_text(
        PATCH.replace("sglang/worker.py", "eye/worker.py").replace("==1.*", "==1.*,!=1.0")
    )
    (other / "payload/p.py").write_text("x = 1\n")
    (other.parent / "series.toml").write_text('topics = ["two"]\n')
    recipe = catalog / "recipes/packages/vision.toml"
    recipe.parent.mkdir()
    recipe.write_text('name = "vision"\ndescription = "d"\nimport-name = "eye"\n')
    options = ("--package", "vision", "--tree", str(catalog.parent / "tree"))
    code, document = call(capsys, catalog, *words, *options)
    assert (code, _codes(document)) == (6, ["tree-version-unknown"])
    assert "of vision" in str(document["findings"])
    eye = catalog.parent / "tree/eye"
    eye.mkdir()
    (eye / "version.py").write_text('__version__ = "1.1"\n')
    (eye / "worker.py").write_text("def run():\n    pass\n")
    assert call(capsys, catalog, *words, *options)[0] == 0


def test_what_does_not_fit_is_offered_as_a_diff(capsys: pytest.CaptureFixture[str], catalog: Path) -> None:
    _, document = call(capsys, catalog, "--edit", "one", "--tree", str(catalog.parent / "tree"))
    tree = Path(str(document["tree"]))
    (tree / "sglang/worker.py").write_text("def run():\n    x = 1\n    go()\n")
    code, document = call(capsys, catalog, "--refresh", "one")
    assert (code, _codes(document)) == (6, ["patch-not-expressible"])
    carried = tree.with_name("edited.patch")
    assert str(carried) in json.dumps(document)
    assert "+    go()\n" in carried.read_text()
    assert (catalog / "patches/sglang/one/payload/p.py").read_text() == "x = 1\n"


def test_edits_that_do_not_apply_are_warnings(capsys: pytest.CaptureFixture[str], catalog: Path) -> None:
    (catalog.parent / "tree/sglang/worker.py").write_text("def walk():\n    pass\n")
    code, document = call(capsys, catalog, "--edit", "one", "--tree", str(catalog.parent / "tree"))
    assert (code, document["verdict"], _codes(document)) == (0, "warn", ["patch-drifted"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--refresh", "one"], "nothing-to-refresh"),
        (["--edit", "on", "--tree", "tree"], "unknown-topic"),
        (["--refresh", "on"], "unknown-topic"),
        (["--edit", "one", "--refresh", "one"], "usage"),
        (["--edit", "one", "--tree", "newer"], "nothing-to-patch"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], catalog: Path, words: list[str], code: str
) -> None:
    (catalog.parent / "newer/sglang").mkdir(parents=True)
    (catalog.parent / "newer/sglang/version.py").write_text('__version__ = "2.0"\n')
    words = [str(catalog.parent / word) if word in {"tree", "newer"} else word for word in words]
    status, document = call(capsys, catalog, *words)
    assert (status, _codes(document)) == (2, [code])
    assert not list((catalog.parent / "home").glob("edits/*/*"))


def edited(capsys: pytest.CaptureFixture[str], catalog: Path) -> Path:
    """Return a tree for editing in which something was edited."""
    _, document = call(capsys, catalog, "--edit", "one", "--tree", str(catalog.parent / "tree"))
    tree = Path(str(document["tree"]))
    (tree / "sglang/worker.py").write_text("def run():\n    x = 3\n    pass\n")
    return tree


def said(document: dict[str, object]) -> dict[str, str]:
    findings = document["findings"]
    assert isinstance(findings, list)
    (finding,) = findings
    return dict(finding)


@pytest.mark.parametrize("kind", ["python", "diff"])
def test_what_is_no_python_is_corrected_in_the_tree(
    kind: str, capsys: pytest.CaptureFixture[str], catalog: Path
) -> None:
    if kind == "diff":
        topic = catalog / "patches/sglang/one"
        words = PATCH.partition("[[edits]]")[0]
        (topic / "patch.toml").write_text(f'{words}[[edits]]\nkind = "diff"\npayload = "payload/p.py"\n')
        hunk = "@@ -1,2 +1,3 @@\n def run():\n+    x = 1\n     pass\n"
        (topic / "payload/p.py").write_text(f"--- a/sglang/worker.py\n+++ b/sglang/worker.py\n{hunk}")
    before = (catalog / "patches/sglang/one/payload/p.py").read_text()
    tree = edited(capsys, catalog)
    (tree / "sglang/worker.py").write_text("def run():\n    x = (\n    pass\n")
    code, document = call(capsys, catalog, "--refresh", "one")
    finding = said(document)
    assert (code, finding["code"]) == (6, "patch-target-unreadable")
    assert "(line 2)" in finding["message"]
    assert finding["where"] == str(tree / "sglang/worker.py")
    assert "correct the file in the tree" in finding["hint"]
    assert (catalog / "patches/sglang/one/payload/p.py").read_text() == before
    (tree / "sglang/worker.py").write_text("def run():\n    x = 4\n    pass\n")
    assert call(capsys, catalog, "--refresh", "one")[0] == 0


@pytest.mark.parametrize(
    ("lose", "words"),
    [
        (".git", "no `.git`"),
        (".git/sglforge.json", "record"),
        (".git/objects", "repository is damaged"),
        (".git/HEAD", "repository is damaged"),
    ],
)
def test_a_tree_without_its_repository_is_told_by_both(
    lose: str, words: str, capsys: pytest.CaptureFixture[str], catalog: Path
) -> None:
    tree = edited(capsys, catalog)
    files.remove(tree / lose)
    for option in (("--refresh", "one"), ("--edit", "one", "--tree", str(catalog.parent / "tree"))):
        code, document = call(capsys, catalog, *option)
        finding = said(document)
        assert (code, finding["code"]) == (2, "edit-tree-broken"), option
        assert words in finding["message"]
        assert f"remove {tree.parent}" in finding["hint"]
        assert finding["hint"].endswith("--edit one")
    assert "x = 3" in (tree / "sglang/worker.py").read_text()


def test_a_tree_that_was_removed_is_made_again(capsys: pytest.CaptureFixture[str], catalog: Path) -> None:
    tree = edited(capsys, catalog)
    files.remove(tree)
    code, document = call(capsys, catalog, "--refresh", "one")
    assert (code, said(document)["code"]) == (2, "nothing-to-refresh")
    assert "was removed" in said(document)["message"]
    assert call(capsys, catalog, "--edit", "one", "--tree", str(catalog.parent / "tree"))[0] == 0
    files.remove(tree)
    (tree.parent / "edited.patch").write_text("work")
    code, document = call(capsys, catalog, "--edit", "one", "--tree", str(catalog.parent / "tree"))
    assert (code, said(document)["code"]) == (2, "edit-in-progress")
    assert "edited.patch" in said(document)["message"]


def _codes(document: dict[str, object]) -> list[str]:
    findings = document["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings]
