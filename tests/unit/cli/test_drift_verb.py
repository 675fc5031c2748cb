"""The verb `drift`, and `patch --drift`, on a catalog of our own with wheels in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from toy_series import WORKER, Bench, edit

from sglforge.base.files import sha256_file
from sglforge.config.lockfile import LockedFile
from sglforge.config.releases import Release, dump_releases, merged, read_releases, releases_path

NEXT = WORKER.replace("def run", "def go")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A catalog with the series of `toy`, its releases in a folder that pip is told of, and a workspace."""

    bench: Bench
    wheels: Path
    workspace: Path

    def release(self, version: str, worker: str) -> Path:
        path = self.wheels / f"toy-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("pkg/worker.py", worker)
            wheel.writestr("pkg/data.bin", version)
        return path

    def lock(self, *versions: str) -> None:
        path = releases_path(self.bench.root, "toy")
        path.parent.mkdir(exist_ok=True)
        found = []
        for version in versions:
            wheel = self.wheels / f"toy-{version}-py3-none-any.whl"
            found.append(Release(version=version, file=LockedFile(name=wheel.name, sha256=sha256_file(wheel))))
        path.write_text(dump_releases(merged("toy", (), found)))

    @property
    def record(self) -> Path:
        return self.bench.folder / "drift.json"

    def call(self, *words: str | Path, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, object], str]:
        package = [] if "--package" in words else ["--package", "toy"]
        argv = [*words, *package, "--catalog", self.bench.root, "--workspace", self.workspace, "--json"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        done = subprocess.run(
            [sys.executable, "-m", "sglforge", *map(str, argv)],
            env={**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
            | dict(env or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    bench = Bench(root=tmp_path / "catalog", tree=tmp_path / "unused")
    place = Place(bench=bench, wheels=tmp_path / "wheels", workspace=tmp_path / "workspace")
    place.wheels.mkdir()
    (bench.root / "recipes").mkdir(parents=True)
    bench.topic("always", edit("append-to-body", "a"), a="x = 1\n")
    bench.topic("run-first", edit("prepend-to-body", "b", "Worker.run"), b="batch = list(batch)\n", versions=">=1,<3")
    place.release("1.0", WORKER)
    place.release("1.0.post1", WORKER + "y = 0\n")
    place.release("2.0", NEXT)
    place.release("3.0", NEXT)
    place.lock("1.0", "1.0.post1", "2.0", "3.0")
    return place


def states(document: Mapping[str, object]) -> dict[tuple[str, str], str]:
    cells = document["cells"]
    assert isinstance(cells, list)
    return {(cell["topic"], cell["version"]): cell["state"] for cell in cells}


def codes(document: Mapping[str, object]) -> list[str]:
    findings = document["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings]


FINAL = {
    ("always", "1.0.post1"): "applied",
    ("always", "2.0"): "applied",
    ("always", "3.0"): "applied",
    ("run-first", "1.0.post1"): "applied",
    ("run-first", "2.0"): "drifted",
    ("run-first", "3.0"): "not-for-version",
}


def test_a_drifted_topic_is_an_error_until_it_is_recorded(place: Place) -> None:
    code, document, talk = place.call("drift")
    assert (code, document["verdict"], codes(document)) == (6, "fail", ["patch-drifted"])
    assert "2.0: pkg/worker.py has no `Worker.run`" in talk
    assert states(document) == FINAL
    ids = {entry["version"]: entry["tree_id"] for entry in document["versions"]}  # type: ignore[attr-defined]
    assert ids["2.0"] is None
    assert len(ids["3.0"]) == 40
    code, document, _ = place.call("drift", "--update")
    assert (code, codes(document), document["expected"]) == (0, [], str(place.record))
    code, document, _ = place.call("drift", "--offline")
    assert (code, document["verdict"]) == (0, "pass")
    assert states(document) == FINAL


def test_what_was_recorded_and_is_not_so_is_unexpected(place: Place) -> None:
    place.call("drift", "--update")
    place.release("2.0", WORKER)
    place.lock("1.0.post1", "2.0", "3.0")
    code, document, talk = place.call("drift")
    assert (code, codes(document)) == (6, ["drift-unexpected"])
    assert "run-first on 2.0: expected drifted, it is applied" in talk
    assert "--update" in talk


def test_a_new_topic_has_to_be_recorded(place: Place) -> None:
    place.call("drift", "all", "--update")
    place.bench.topic("zzz", edit("append-to-body", "z"), z="z = 1\n", versions=">=3")
    code, document, _ = place.call("drift", "3.0")
    assert (code, codes(document)) == (6, ["drift-unexpected"])
    assert place.call("drift", "3.0", "--topic", "always")[0] == 0
    assert place.call("drift", "3.0", "--update")[0] == 0
    recorded = json.loads(place.record.read_text())["topics"]
    assert recorded["zzz"] == {"3.0": "applied"}
    assert len(recorded["always"]) == 4


def test_versions_are_named_with_commas_or_spaces(place: Place) -> None:
    for words in (["drift", "2.0,1.0"], ["drift", "1.0", "2.0"], ["patch", "--drift", "1.0,2.0"]):
        _, document, _ = place.call(*words)
        assert [entry["version"] for entry in document["versions"]] == ["1.0", "2.0"]  # type: ignore[attr-defined]
    assert len(place.call("drift", "all")[1]["versions"]) == 4  # type: ignore[arg-type]
    assert states(place.call("patch", "--drift")[1]) == FINAL


def test_other_files_for_the_record_and_the_picture(place: Place, tmp_path: Path) -> None:
    record, picture = tmp_path / "states.json", tmp_path / "drift.svg"
    code, _, _ = place.call("drift", "--expect", record, "--update", "--svg", picture)
    assert code == 0
    assert picture.read_text().startswith("<svg ")
    assert json.loads(record.read_text())["package"] == "toy"
    assert not place.record.exists()
    assert place.call("drift", "--expect", record)[0] == 0


def test_a_file_that_cannot_be_used_is_told_before_anything_is_fetched(place: Place, tmp_path: Path) -> None:
    broken, file = tmp_path / "broken.json", tmp_path / "file"
    broken.write_text("[]")
    file.touch()
    cases: list[tuple[list[str | Path], str]] = [
        (["--expect", tmp_path / "missing.json"], "drift-file-invalid"),
        (["--expect", broken], "drift-file-invalid"),
        (["--expect", broken, "--update"], "drift-file-invalid"),
        (["--expect", tmp_path], "drift-file-invalid"),
        (["--expect", file / "below.json", "--update"], "output-not-written"),
        (["--svg", file / "below.svg"], "output-not-written"),
        (["--svg", tmp_path], "output-not-written"),
    ]
    for words, finding in cases:
        code, document, talk = place.call("drift", *words)
        assert (code, codes(document)) == (2, [finding]), words
        assert not place.workspace.exists(), words
        assert finding != "drift-file-invalid" or "--update" in talk
    place.record.write_text("[]")
    code, document, _ = place.call("drift")
    assert (code, codes(document)) == (6, ["drift-file-invalid"])
    assert not place.workspace.exists()


def test_options_that_do_not_go_together_are_told(place: Place) -> None:
    for *words, said in (
        ["drift", "--lock", "1.0", "--topic", "always", "--lock does not go with --topic"],
        ["drift", "2.0", "--lock", "1.0", "--lock does not go with versions to try"],
        ["drift", "--lock", "1.0", "--svg", "x", "--update", "--lock does not go with --svg and --update"],
        ["drift", "--lock", "1.0", "--expect", "x", "--lock does not go with --expect"],
        ["drift", "--lock", "1.0", "--offline", "--lock does not go with --offline"],
        ["patch", "--drift", "1.0", "--tree", ".", "--drift does not go with --tree"],
        ["patch", "--drift", "1.0", "--diff", "--drift does not go with --diff"],
        ["patch", "--drift", "--edit", "always", "--drift does not go with --edit"],
        ["patch", "--drift", "--refresh", "always", "--drift does not go with --refresh"],
        ["patch", "--edit", "always", "--diff", "--edit does not go with --diff"],
        ["patch", "--refresh", "always", "--diff", "--refresh does not go with --diff"],
        ["patch", "--refresh", "always", "--tree", ".", "--refresh does not go with --tree"],
        ["patch", "--update", "--update belongs to a drift matrix"],
    ):
        code, document, talk = place.call(*words)
        assert (code, codes(document)) == (2, ["usage"]), words
        assert said in talk, words


def test_the_hints_name_the_package_and_what_brings_a_release(place: Place) -> None:
    _, _, talk = place.call("drift", "1.0", "--offline", env={"PIP_FIND_LINKS": ""})
    assert "with a network: nox -s drift -- " in talk
    assert "--package toy 1.0" in talk
    place.call("drift", "--update")
    place.release("2.0", WORKER)
    place.lock("2.0")
    _, _, talk = place.call("drift", "2.0")
    assert "--package toy --update" in talk
    releases_path(place.bench.root, "toy").unlink()
    _, _, talk = place.call("drift")
    assert "--package toy --lock" in talk


def test_trees_are_kept_and_never_written(place: Place) -> None:
    place.call("drift", "all")
    trees = place.workspace / "trees"
    before = {path: path.stat().st_mtime_ns for path in trees.rglob("*")}
    assert len(list(trees.iterdir())) == 4
    for wheel in place.wheels.iterdir():
        wheel.unlink()
    for folder in (place.workspace / "sources").iterdir():
        for wheel in folder.iterdir():
            wheel.unlink()
    code, document, _ = place.call("drift", "all", "--offline", env={"PIP_FIND_LINKS": ""})
    assert (code, len(states(document))) == (6, 8)
    assert {path: path.stat().st_mtime_ns for path in trees.rglob("*")} == before


def test_a_file_that_is_not_the_locked_one_is_refused(place: Place) -> None:
    place.release("2.0", WORKER + "evil = 1\n")
    code, document, _ = place.call("drift", "2.0")
    assert (code, codes(document)) == (5, ["hash-mismatch"])
    assert not (place.workspace / "trees").exists()


def test_wrong_words(place: Place) -> None:
    for words, code, finding in (
        (["drift", "9.9"], 2, "unknown-release"),
        (["drift", "--topic", "runfirst"], 2, "unknown-topic"),
        (["drift", "--lock", "newest"], 2, "usage"),
        (["drift", "--lock", "1.0+cpu"], 2, "usage"),
        (["drift", "--package", "toys"], 2, "nothing-to-patch"),
        (["drift", "--package", "../toy", "--lock", "1.0"], 2, "nothing-to-patch"),
        (["patch", "--svg", "x.svg"], 2, "usage"),
        (["patch", "--drift", "1.0", "--tree", "."], 2, "usage"),
        (["drift", "1.0", "--offline"], 5, "offline-missing"),
    ):
        got, document, _ = place.call(*words, env={"PIP_FIND_LINKS": ""})
        assert (got, codes(document)) == (code, [finding]), words


def test_a_package_without_releases_says_how_to_lock_some(place: Place) -> None:
    releases_path(place.bench.root, "toy").unlink()
    code, document, talk = place.call("drift")
    assert (code, codes(document)) == (3, ["lock-missing"])
    assert "--lock" in talk
    code, document, _ = place.call("drift", "--lock", "1.0,3.0")
    assert (code, document["changed"]) == (0, True)
    assert [entry.version for entry in read_releases(releases_path(place.bench.root, "toy")).releases] == ["1.0", "3.0"]
    code, document, _ = place.call("drift", "--lock", "2.0", "3.0")
    assert (code, document["changed"]) == (0, True)
    assert place.call("drift", "--lock", "3.0")[1]["changed"] is False
    assert len(read_releases(releases_path(place.bench.root, "toy")).releases) == 3
    assert states(place.call("drift", "3.0")[1]) == {key: value for key, value in FINAL.items() if key[1] == "3.0"}
    code, document, _ = place.call("drift", "--lock", "9.9")
    assert (code, codes(document)) == (5, ["not-on-index"])
