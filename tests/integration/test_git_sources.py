"""Git repositories from lock to wheel, with a catalog of toys that no package registry is needed for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from calling import argv
from git_catalog import BACKEND, PYPROJECT, Mini, make_mini, toy_files, write_sdist, write_wheel
from git_repositories import make_repository
from toy_series import Bench, edit

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PLAIN = PYPROJECT.replace("requires = []", 'requires = ["toy-backend"]').replace('backend-path = ["."]\n', "")


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    return make_mini(tmp_path, "one", "two")


def good(mini: Mini, *words: str) -> dict[str, object]:
    called = mini.call(*words)
    assert called.code == 0, called.talk
    return dict(called.document)


def topic(mini: Mini, package: str, file: str) -> None:
    """Give a package a series of one topic, which is for the function ``answer``."""
    bench = Bench(root=mini.root, tree=mini.root)
    bench.topic("x", edit("prepend-to-body", "more", "answer", file=file), more="print(7)\n")
    shutil.move(mini.root / "patches/toy", mini.root / "patches" / package)


def keys(mini: Mini) -> dict[str, str]:
    steps = good(mini, "plan")["steps"]
    assert isinstance(steps, list)
    return {step["package"]: step["key"] for step in steps}


def provenance(mini: Mini, package: str) -> dict[str, object]:
    """Return what lies beside the newest wheel of a package in the store, wherever the store keeps it."""
    found: list[dict[str, object]] = []
    for path in (mini.workspace / "store").rglob("*.json"):
        document = json.loads(path.read_text())
        found.append(document.get("provenance", document))
    return max((one for one in found if one["package"] == package), key=lambda one: str(one["started"]))


def wheel_of(mini: Mini, package: str) -> Path:
    """Return the newest wheel of a package in the store."""
    return max((mini.workspace / "store").rglob(f"{package}-*.whl"), key=lambda path: path.stat().st_mtime)


def test_a_commit_that_leaves_the_paths_alone_rebuilds_nothing(mini: Mini) -> None:
    mini.repository.commit({"docs": "after the tag"})
    good(mini, "lock")
    before = keys(mini)
    good(mini, "build", "one")
    mini.repository.commit({"docs": "something else", "two/src/two/__init__.py": "ANSWER = 43\n"})
    moved = good(mini, "lock", "--update")["commits"]
    assert isinstance(moved, list)
    assert (moved[0]["commits"], moved[0]["changed"]) == (1, ["two"])
    after = keys(mini)
    assert after["one"] == before["one"]
    assert after["two"] != before["two"]
    steps = good(mini, "build", "one")["steps"]
    assert isinstance(steps, list)
    assert steps[0]["state"] == "hit"


def test_the_wheel_says_what_was_seen_and_the_store_which_commit(mini: Mini) -> None:
    good(mini, "lock")
    good(mini, "build", "one")
    head = mini.repository.git("rev-parse", "HEAD")
    told = provenance(mini, "one")
    source = told["source"]
    assert isinstance(source, dict)
    assert told["kind"] == "source build (git)"
    assert (source["commit"], source["described"], source["url"]) == (head, "v1.0", mini.repository.url)
    assert source["paths"] == {"one": mini.repository.id_of(head, "one")}
    with zipfile.ZipFile(wheel_of(mini, "one")) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("sglforge.json")]
        assert "commit" not in json.loads(wheel.read(name))["source"]


def test_a_series_is_applied_at_the_root_and_the_package_built_below(mini: Mini) -> None:
    topic(mini, "one", "one/src/one/__init__.py")
    good(mini, "lock")
    patched = mini.call("patch", "--diff")
    assert patched.code == 0, patched.talk
    assert "print(7)" in json.dumps(patched.document)
    good(mini, "build", "one")
    with zipfile.ZipFile(wheel_of(mini, "one")) as wheel:
        assert b"print(7)" in wheel.read("one/__init__.py")


def test_a_lock_without_the_commit_can_be_planned_and_neither_fetched_nor_built(mini: Mini) -> None:
    good(mini, "lock")
    path = mini.root / "locks/toys.cpu.lock.toml"
    text = path.read_text()
    begin, end = text.index('[sources."one"]'), text.index('[sources."two"]')
    path.write_text(text[:begin] + text[end:])
    assert set(keys(mini)) == {"one", "two"}
    for words in (("fetch",), ("build", "one")):
        called = mini.call(*words)
        assert (called.code, called.codes) == (3, {"git-not-pinned"})
        assert "nox -s lock -- --stack toys --target cpu" in called.talk


def test_a_stack_that_names_other_paths_than_its_lock_is_stale(mini: Mini) -> None:
    good(mini, "lock")
    stack = mini.root / "recipes/stacks/toys.toml"
    stack.write_text(stack.read_text().replace('source-paths = ["one"]', 'source-paths = ["one", "two"]'))
    called = mini.call("plan")
    assert (called.code, called.codes) == (3, {"lock-stale"})
    good(mini, "lock")
    good(mini, "plan")


C_SETUP = """\
import sys
import sysconfig
from subprocess import run


def compile(module):
    flags = ["-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}", "-I../include"]
    if run(["gcc", *flags, f"src/{module}/native.c", "-o", f"src/{module}/native.so"]).returncode:
        sys.exit(1)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_an_include_that_was_not_declared_fails_loudly(mini: Mini) -> None:
    """The header is in the repository, beside the package: with it declared it builds, without it does not."""
    backend = BACKEND.replace("    pyproject =", "    __import__('native_build').compile('three')\n    pyproject =")
    mini.repository.commit(
        {
            **toy_files("three"),
            "three/toy_backend.py": backend,
            "three/native_build.py": C_SETUP,
            "three/src/three/native.c": '#include "answer.h"\nint answer(void) { return ANSWER; }\n',
            "include/answer.h": "#define ANSWER 42\n",
        }
    )
    mini.recipe("three", 'toolchain = ["host-compiler"]')
    mini.git_stack("three")
    good(mini, "lock")
    called = mini.call("build", "three")
    assert (called.code, called.codes) == (7, {"build-backend-failed"})
    assert "answer.h: No such file" in called.talk
    stack = mini.root / "recipes/stacks/toys.toml"
    stack.write_text(stack.read_text().replace('source-paths = ["three"]', 'source-paths = ["three", "include"]'))
    good(mini, "lock")
    before = keys(mini)
    good(mini, "build", "three")
    mini.repository.commit({"include/answer.h": "#define ANSWER 43\n"})
    good(mini, "lock", "--update")
    assert keys(mini) != before


def offline_words(mini: Mini, *words: str) -> list[str]:
    more = ["--stack", "toys", "--target", "cpu", "--catalog", str(mini.root), "--workspace", str(mini.workspace)]
    return ["unshare", "--map-root-user", "--net", *argv(*words, "--offline", "--json", *more)]


def test_without_a_network_everything_works_that_was_fetched(tmp_path: Path) -> None:
    """A git source through insteadOf, a source archive and a wheel from a folder, then no network at all."""
    if subprocess.run(["unshare", "--map-root-user", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel makes no network namespace for us")
    mini = make_mini(tmp_path, "one")
    url = "https://nowhere.invalid/org/engine.git"
    (mini.home / "gitconfig").write_text(f'[url "{mini.repository.url}"]\n\tinsteadOf = {url}\n')
    module = make_repository(tmp_path / "module.git")
    module.commit({"data.txt": "from the submodule\n"})
    mini.repository.git("submodule", "--quiet", "add", module.url, "one/src/one/module")
    text = (mini.repository.path / ".gitmodules").read_text().replace(module.url, "https://nowhere.invalid/module.git")
    mini.repository.commit({".gitmodules": text})
    with (mini.home / "gitconfig").open("a") as configuration:
        configuration.write(f'[url "{module.url}"]\n\tinsteadOf = https://nowhere.invalid/module.git\n')
    write_wheel(mini.links, "toy-backend", "1.0", {"toy_backend.py": BACKEND})
    source = tmp_path / "plain"
    (source / "src/plain").mkdir(parents=True)
    (source / "src/plain/__init__.py").write_text("X = 1\n")
    (source / "pyproject.toml").write_text(PLAIN.format(name="plain"))
    write_sdist(mini.links, "plain", "1.0", source)
    write_wheel(mini.links, "packed", "1.0", {"packed/__init__.py": "def answer():\n    return 42\n"})
    mini.recipe("plain", 'build-requires = ["toy-backend"]')
    mini.recipe("packed")
    mini.stack(
        f'[packages.one.source]\nkind = "git"\nurl = "{url}"\nref = "main"\nsubdirectory = "one"\n'
        'source-paths = ["one"]\n\n[packages]\n'
        'plain.source = { kind = "sdist", project = "plain", version = "1.0" }\n'
        'packed.source = { kind = "wheel", project = "packed", version = "1.0" }\n'
    )
    topic(mini, "packed", "packed/__init__.py")
    good(mini, "lock")
    good(mini, "fetch")
    for name in ("upstream", "module.git"):
        (tmp_path / name).rename(tmp_path / f"{name}-moved")
    for words in (("plan",), ("fetch",), ("patch",), ("build", "one", "plain", "packed")):
        done = subprocess.run(
            offline_words(mini, *words), env={**os.environ, **mini.env()}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
        assert "Traceback" not in done.stderr
    with zipfile.ZipFile(wheel_of(mini, "one")) as wheel:
        assert wheel.read("one/module/data.txt") == b"from the submodule\n"


def test_what_was_not_fetched_is_told_offline(mini: Mini) -> None:
    good(mini, "lock")
    shutil.rmtree(mini.workspace / "sources")
    moved = mini.repository.path.with_name("moved")
    mini.repository.path.rename(moved)
    called = mini.call("build", "one", "--offline")
    assert (called.code, called.codes) == (5, {"offline-missing"})
    assert "nox -s fetch -- --stack toys --target cpu" in called.talk


def test_update_and_walk_back_from_the_command_line(mini: Mini) -> None:
    topic(mini, "one", "one/src/one/__init__.py")
    first = mini.repository.git("rev-parse", "HEAD")
    good(mini, "lock")
    before = mini.lock_text()
    mini.repository.commit({"one/src/one/__init__.py": "OTHER = 42\n"})
    mini.repository.commit({"docs": "x"})
    called = mini.call("lock", "--update", "--walk-back", "2")
    assert (called.code, called.codes) == (3, {"no-commit-applies"})
    assert mini.lock_text() == before
    called = mini.call("lock", "--update", "one", "--walk-back")
    assert called.code == 0, called.talk
    commits = called.document["commits"]
    assert isinstance(commits, list)
    assert (commits[0]["new"], commits[0]["skipped"][0]["commits"]) == (first, 2)
    assert mini.lock_text() == before
    for words in (("--walk-back",), ("--update", "nothing"), ("--update", "--walk-back", "0")):
        called = mini.call("lock", *words)
        assert called.code == 2
        assert mini.lock_text() == before


def test_a_commit_that_its_origin_has_lost_names_the_way_on(mini: Mini) -> None:
    good(mini, "lock")
    mini.repository.git("checkout", "--quiet", "--orphan", "other")
    mini.repository.commit({"one/more.txt": "more"})
    mini.repository.git("branch", "--force", "main", "other")
    mini.repository.git("tag", "--force", "v1.0")
    mini.repository.git("reflog", "expire", "--expire=now", "--all")
    mini.repository.git("gc", "--quiet", "--prune=now")
    shutil.rmtree(mini.workspace)
    called = mini.call("fetch")
    assert (called.code, called.codes) == (5, {"git-ref-missing"})
    assert "nox -s lock -- --stack toys --target cpu" in called.talk
    assert "--update one" in called.talk
    good(mini, "lock", "--update", "one")
    good(mini, "fetch")


def test_a_lock_that_contradicts_its_commit_is_mended_where_it_is(mini: Mini) -> None:
    good(mini, "lock")
    before = mini.lock_text()
    mini.repository.commit({"one/later.txt": "later"})
    tree = mini.repository.id_of("v1.0", "one")
    lock = mini.root / "locks/toys.cpu.lock.toml"
    lock.write_text(before.replace(tree, mini.repository.id_of("main", "one")))
    assert mini.call("fetch").codes == {"lock-invalid"}
    good(mini, "lock")
    assert mini.lock_text() == before


def test_a_lock_with_two_commits_of_one_repository_is_refused(mini: Mini) -> None:
    good(mini, "lock")
    before = mini.lock_text()
    mini.repository.commit({"one/later.txt": "later", "two/later.txt": "later"})
    good(mini, "lock", "--update")
    after = mini.lock_text()
    second = '[sources."two"]'
    merged = after.partition(second)[0] + second + before.partition(second)[2]
    (mini.root / "locks/toys.cpu.lock.toml").write_text(merged)
    for verb in ("plan", "fetch", "build"):
        called = mini.call(verb)
        assert (called.code, called.codes) == (3, {"lock-invalid"})
    good(mini, "lock")
    assert mini.lock_text() == after
