"""One step from source to store: re-packed wheels, source archives, folders, and what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sglforge.artifacts.wheel import check_wheel
from sglforge.base import runrecord
from sglforge.base.files import digest, sha256_file
from sglforge.base.ids import BuildKey
from sglforge.base.runrecord import RunRecord
from sglforge.base.workspace import Workspace
from sglforge.build.execute import BuildPython, execute
from sglforge.build.history import last_build
from sglforge.build.store import StoredWheel, lookup, verify
from sglforge.config.lockfile import LockedArchive, LockedFile, LockedRequirement
from sglforge.config.model import PackageRecipe, PathSource, SdistSource, Source, WheelSource
from sglforge.errors import BuildError, CheckError, FetchError, PatchError
from sglforge.patches.series import Series, load_series
from sglforge.plan import Step
from sglforge.provision.uv import Uv
from sglforge.sources.model import SourceArchive

PACKAGES = Path(__file__).parents[2] / "packages"
LABEL = "cpu.t0123abcd.p89abcdef"

Execute = Callable[..., StoredWheel]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "ws")


@pytest.fixture
def record(workspace: Workspace) -> RunRecord:
    return runrecord.start(workspace.runs)


@pytest.fixture
def do(python: BuildPython, workspace: Workspace, record: RunRecord, uv: Uv, tmp_path: Path) -> Execute:
    def run(step: Step, archive: Path | None = None, series: Series | None = None, **more: object) -> StoredWheel:
        fetched = archive and SourceArchive(package=step.package, path=archive, sha256=sha256_file(archive))
        return execute(
            step,
            catalog_root=PACKAGES.parent,
            archive=fetched or None,
            series=series,
            python=python,
            workspace=workspace,
            record=record,
            uv=uv,
            **more,  # type: ignore[arg-type]
        )

    return run


def step_of(source: Source, module: str, *requires: LockedRequirement, exclude: dict[str, str] | None = None) -> Step:
    locked = None
    if isinstance(source, WheelSource | SdistSource):
        file = LockedFile(name=f"{source.project}-{source.version}.tar.gz", sha256="0" * 64)
        locked = LockedArchive(kind=source.kind, project=source.project, version=source.version, files=[file])
    parts = {"source": source.model_dump(), "target": {"name": "cpu"}}
    return Step(
        package="toy",
        recipe=PackageRecipe(name="toy", description="A toy.", import_name=module, exclude=exclude or {}),
        source=source,
        locked=locked,
        build_requires=requires,
        key=BuildKey(digest(parts)),
        key_parts=parts,
        local_version=LABEL,
        state="miss",
        why="never built here",
    )


def path_step(name: str, module: str, *requires: LockedRequirement) -> Step:
    return step_of(PathSource(kind="path", path=f"packages/{name}"), module, *requires)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A released wheel, made by another hand than ours."""
    info = "toy-1.0.dist-info"
    wheel = tmp_path / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/__init__.py", "import os\n\n\ndef answer():\n    return 41\n")
        archive.writestr("toy/bench.so", b"\x7fELF")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/RECORD,,\n")
    return wheel


RELEASED = WheelSource(kind="wheel", project="toy", version="1.0")


def series_of(catalog: Path, file: str, operation: str, payload: str, anchor: str = "", more: str = "") -> Series:
    """Write and load a series of one topic with one edit."""
    topic = catalog / "patches" / "toy" / "the-topic"
    (topic / "payload").mkdir(parents=True)
    (topic / "payload" / "code.py").write_text(payload)
    (topic.parent / "series.toml").write_text('topics = ["the-topic"]\n')
    words = {
        "description": "A change.",
        "origin": "sglforge",
        "reason": "a test",
        "reference": "here",
        "forwarded": "no",
        "versions": "==1.0",
    }
    edit = {"kind": "python", "file": file, "operation": operation, "payload": "payload/code.py"}
    if anchor:
        edit["anchor"] = anchor
    lines = [f'{key} = "{value}"' for key, value in words.items()]
    lines += ["", "[[edits]]", *(f'{key} = "{value}"' for key, value in edit.items()), more]
    (topic / "patch.toml").write_text("\n".join(lines) + "\n")
    found = load_series(catalog, "toy")
    assert found is not None
    return found


@pytest.fixture
def series(tmp_path: Path) -> Series:
    """A series that changes the toy's answer."""
    return series_of(
        tmp_path / "catalog", "toy/__init__.py", "prepend-to-body", "return 42\n", "answer", "leaves = true"
    )


def events(record: RunRecord) -> list[tuple[str, str]]:
    lines = (record.folder / "events.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(event["phase"], event["outcome"]) for event in found if event["event"] == "build-phase"]


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


def test_a_wheel_is_patched_repacked_and_stored(
    do: Execute,
    upstream: Path,
    series: Series,
    workspace: Workspace,
    record: RunRecord,
    python: BuildPython,
) -> None:
    step = step_of(RELEASED, "toy", exclude={"toy/bench*.so": "a benchmark"})
    stored = do(step, upstream, series)
    assert stored.path.name == f"toy-1.0+{LABEL}-py3-none-any.whl"
    assert check_wheel(stored.path, python_minor=python.minor, project="toy", import_name="toy") == ()
    assert verify(stored) == ()
    with zipfile.ZipFile(stored.path) as archive:
        assert b"return 42" in archive.read("toy/__init__.py")
        assert "toy/bench.so" not in archive.namelist()
        inside = json.loads(archive.read(f"toy-1.0+{LABEL}.dist-info/sglforge.json"))
    said = stored.provenance
    assert inside["kind"] == said["kind"] == "re-packed wheel"
    assert "source build" not in json.dumps(said)
    assert inside["source"]["sha256"] == sha256_file(upstream)
    assert inside["patches"]["series"] == series.digest("1.0")
    assert len(inside["patches"]["tree-id"]) == 40
    assert [(t["name"], t["state"]) for t in inside["patches"]["topics"]] == [("the-topic", "applied")]
    assert inside["excluded"] == ["toy/bench*.so"]
    assert said["excluded"] == {"toy/bench*.so": "a benchmark"}
    assert inside["build-key"] == step.key
    assert not inside.keys() & {"started", "seconds"}
    assert said["key-parts"] == step.key_parts
    last = last_build(workspace, package="toy", target="cpu", python_minor=python.minor)
    assert last
    assert (last.key_parts, last.took.seconds) == (step.key_parts, said["seconds"])
    assert files_below(workspace.scratch) == []
    assert events(record) == [(phase, "done") for phase in ("unpack", "patch", "pack", "check", "store")]


def test_the_same_step_gives_the_same_wheel_and_a_second_run_does_nothing(
    do: Execute, upstream: Path, series: Series, workspace: Workspace, record: RunRecord
) -> None:
    step = step_of(RELEASED, "toy")
    first = do(step, upstream, series)
    ran = len(events(record))
    assert do(step, upstream, series) == first
    assert len(events(record)) == ran
    first.path.unlink()
    assert do(step, upstream, series).sha256 == first.sha256


def test_words_that_are_not_in_the_key_are_not_in_the_wheel(
    do: Execute, upstream: Path, series: Series, tmp_path: Path
) -> None:
    step = step_of(RELEASED, "toy", exclude={"toy/bench*.so": "a benchmark"})
    first = do(step, upstream, series)
    first.path.unlink()
    (topic,) = series.topics
    reworded = replace(topic, file=topic.file.model_copy(update={"description": "In other words."}))
    later = replace(topic, name="later", file=topic.file.model_copy(update={"versions": ">=2"}))
    again = do(
        replace(step, recipe=step.recipe.model_copy(update={"exclude": {"toy/bench*.so": "too big"}})),
        upstream,
        replace(series, topics=(reworded, later)),
    )
    assert again.sha256 == first.sha256
    assert again.provenance["excluded"] == {"toy/bench*.so": "too big"}
    assert "In other words." in json.dumps(again.provenance["patches"])
    assert "not-for-version" in json.dumps(again.provenance["patches"])


def test_a_folder_is_built_from_source(
    do: Execute, toy_backend: LockedRequirement, record: RunRecord, python: BuildPython
) -> None:
    stored = do(path_step("pure-toy", "pure_toy", toy_backend))
    assert stored.path.name == f"pure_toy-0.3+{LABEL}-py3-none-any.whl"
    assert check_wheel(stored.path, python_minor=python.minor, import_name="pure_toy") == ()
    assert stored.provenance["kind"] == "source build (path)"
    assert stored.provenance["source"] == {
        "path": "packages/pure-toy",
        "digest": stored.provenance["source"]["digest"],  # type: ignore[index]
    }
    assert stored.provenance["build-requires"] == ["toy-backend==1.0"]
    assert "build_wheel" in record.log("toy", "build").read_text()
    assert not (PACKAGES / "pure-toy" / "build").exists()


def test_a_folder_that_was_changed_since_the_plan_is_not_built(do: Execute, workspace: Workspace) -> None:
    step = path_step("pure-toy", "pure_toy")
    parts = {**step.key_parts, "source": {"kind": "path", "path": "packages/pure-toy", "digest": "0" * 64}}
    with pytest.raises(BuildError) as caught:
        do(replace(step, key_parts=parts))
    assert caught.value.code == "source-changed"
    assert lookup(workspace, step.key) is None


def test_nothing_is_built_without_the_wheels_that_it_is_built_with(do: Execute) -> None:
    step = replace(path_step("pure-toy", "pure_toy"), depends=("base",))
    with pytest.raises(BuildError, match="toy is built with base"):
        do(step)


def test_a_build_says_what_it_took_and_what_it_was_kept_from(
    do: Execute, toy_backend: LockedRequirement, record: RunRecord
) -> None:
    stored = do(path_step("pure-toy", "pure_toy", toy_backend))
    took, kept = stored.provenance["resources"], stored.provenance["sandbox"]
    assert isinstance(took, dict)
    assert took.keys() == {"seconds", "cpu_seconds", "peak_rss_mib"}
    assert min(took.values()) > 0
    assert isinstance(kept, dict)
    assert list(kept) == ["network", "writes", "processes", "place", "why"]
    lines = [json.loads(line) for line in (record.folder / "events.jsonl").read_text().splitlines()]
    phases = {line["phase"]: line for line in lines if line["event"] == "build-phase"}
    assert phases["build"]["resources"] == took
    assert phases["build"]["sandbox"] == kept
    assert "resources" not in phases["pack"]


def test_a_failed_build_says_it_too(do: Execute, record: RunRecord) -> None:
    with pytest.raises(BuildError):
        do(path_step("failing-backend", "toy"))
    last = json.loads((record.folder / "events.jsonl").read_text().splitlines()[-1])
    assert (last["phase"], last["outcome"]) == ("build", "failed")
    assert last["resources"]["cpu_seconds"] > 0


def test_nothing_of_a_released_wheel_runs(do: Execute, upstream: Path) -> None:
    said = do(step_of(RELEASED, "toy"), upstream).provenance
    assert (said["resources"], said["sandbox"]) == (None, None)


def test_two_workspaces_build_the_same_bytes(
    toy_backend: LockedRequirement, python: BuildPython, uv: Uv, tmp_path: Path
) -> None:
    step = path_step("pure-toy", "pure_toy", toy_backend)
    made = []
    for name in ("here", "a/deeper/place"):
        workspace = Workspace(root=tmp_path / name)
        stored = execute(
            step,
            catalog_root=PACKAGES.parent,
            archive=None,
            series=None,
            python=python,
            workspace=workspace,
            record=runrecord.start(workspace.runs),
            uv=uv,
        )
        made.append(stored.path.read_bytes())
    assert made[0] == made[1]


def test_an_sdist_is_patched_and_built_from_source(
    do: Execute, sdist_of: Callable[[str], Path], tmp_path: Path
) -> None:
    marked = series_of(tmp_path / "catalog", "toy_backend.py", "append-to-body", "MARKED = True\n")
    source = SdistSource(kind="sdist", project="toy-backend", version="1.0")
    stored = do(step_of(source, "toy_backend"), sdist_of("toy-backend"), marked)
    assert stored.provenance["kind"] == "source build (sdist)"
    with zipfile.ZipFile(stored.path) as archive:
        assert archive.read("toy_backend.py").endswith(b"MARKED = True\n")


def test_a_wheel_that_contradicts_itself_is_not_stored(do: Execute, workspace: Workspace, record: RunRecord) -> None:
    step = path_step("wrong-metadata", "other")
    with pytest.raises(CheckError) as caught:
        do(step)
    assert {finding.code for finding in caught.value.findings} == {
        "wheel-metadata",
        "wheel-record",
        "wheel-import",
    }
    assert lookup(workspace, step.key) is None
    assert files_below(workspace.scratch) == []
    assert events(record)[-1] == ("build", "failed")


def test_another_project_than_the_locked_one_is_not_stored(do: Execute, upstream: Path) -> None:
    other = WheelSource(kind="wheel", project="other", version="1.0")
    with pytest.raises(CheckError, match="it is of project toy, wanted is other"):
        do(step_of(other, "toy"), upstream)


def test_a_series_that_does_not_apply_ends_the_step(
    do: Execute, upstream: Path, series: Series, workspace: Workspace
) -> None:
    with zipfile.ZipFile(upstream, "w") as archive:
        archive.writestr("toy/__init__.py", "def another():\n    return 41\n")
        archive.writestr("toy-1.0.dist-info/METADATA", "Name: toy\nVersion: 1.0\n")
        archive.writestr("toy-1.0.dist-info/WHEEL", "Tag: py3-none-any\n")
    step = step_of(RELEASED, "toy")
    with pytest.raises(PatchError):
        do(step, upstream, series)
    assert lookup(workspace, step.key) is None
    assert files_below(workspace.scratch) == []


def test_a_hostile_archive_ends_the_step(do: Execute, upstream: Path, workspace: Workspace) -> None:
    with zipfile.ZipFile(upstream, "a") as archive:
        archive.writestr("../../evil.py", "")
    with pytest.raises(FetchError, match="unsafe-archive"):
        do(step_of(RELEASED, "toy"), upstream)
    assert files_below(workspace.scratch) == []
    assert not list(workspace.root.rglob("evil.py"))


def test_a_failed_build_cleans_up_and_keeps_its_log(do: Execute, workspace: Workspace, record: RunRecord) -> None:
    with pytest.raises(BuildError) as caught:
        do(path_step("failing-backend", "toy"))
    assert caught.value.log == str(record.log("toy", "build"))
    assert "compiling unit 0\n" in Path(caught.value.log).read_text()
    assert files_below(workspace.scratch) == []


def test_keep_keeps_the_working_folder_and_says_where(do: Execute, workspace: Workspace, record: RunRecord) -> None:
    with pytest.raises(BuildError):
        do(path_step("failing-backend", "toy"), keep=True)
    (folder,) = workspace.scratch.iterdir()
    assert (folder / "source" / "failing_backend.py").is_file()
    events = [json.loads(line) for line in (record.folder / "events.jsonl").read_text().splitlines()]
    assert [event["folder"] for event in events if event["event"] == "build-kept"] == [str(folder)]


def test_patched_folders_are_refused(do: Execute, series: Series) -> None:
    with pytest.raises(BuildError, match="source-not-buildable"):
        do(path_step("pure-toy", "pure_toy"), None, series)


def test_ctrl_c_leaves_nothing(do: Execute, workspace: Workspace) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    step = path_step("toy-backend", "toy_backend")
    with pytest.raises(KeyboardInterrupt):
        do(step, run=interrupted)
    assert files_below(workspace.scratch) == []
    assert lookup(workspace, step.key) is None


def test_a_full_disk_is_named(
    do: Execute, upstream: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is not real: filling a disk is not what a unit test does."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sglforge.build.execute.pack", full)
    with pytest.raises(BuildError, match="disk-full"):
        do(step_of(RELEASED, "toy"), upstream)
    assert files_below(workspace.scratch) == []
