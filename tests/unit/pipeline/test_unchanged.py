"""A build with nothing to do: what is remembered is believed while nothing has changed, and says no less."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from proven_mini import Proven, events, make_proven

from sglforge.base.files import digest, replace_link, write_text
from sglforge.base.workspace import Workspace
from sglforge.errors import Finding, Severity
from sglforge.host.facts import Cuda, Gpu, HostFacts
from sglforge.host.probe import probe
from sglforge.pipeline import building, noting, remembering, select, unchanged
from sglforge.pipeline.remembering import Remembered
from sglforge.pipeline.request import Outcome, Request


@dataclasses.dataclass
class Ways:
    """Builds of a proven catalog in this process; ``long`` counts those that planned anew."""

    proven: Proven
    capsys: pytest.CaptureFixture[str]
    long: int = 0

    def build(self, *words: str) -> tuple[int, dict[str, object], str]:
        code = self.proven.build(*words)
        out, talk = self.capsys.readouterr()
        return code, json.loads(out), talk

    def memory(self) -> list[Remembered]:
        return remembering._read(self.proven.workspace)

    def is_fast(self, *words: str) -> bool:
        before = self.long
        self.build(*words)
        return self.long == before


@pytest.fixture
def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ways:
    """Return a proven catalog that a build has remembered; what is younger than two seconds is believed here."""
    monkeypatch.setattr(remembering, "SETTLED_NS", 0)
    idle = remembering.IDLE_VARIABLES | {b"PYTEST_CURRENT_TEST"}
    monkeypatch.setattr(remembering, "IDLE_VARIABLES", idle)
    facts = probe(tmp_path)
    monkeypatch.setattr(unchanged, "probe", lambda _: facts)
    monkeypatch.setattr(select, "probe", lambda _: facts)
    made = Ways(proven=make_proven(tmp_path), capsys=capsys)
    plan_anew = building.build

    def counted(*words: object, **more: object) -> object:
        made.long += 1
        return plan_anew(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "build", counted)
    capsys.readouterr()
    code, document, _ = made.build()
    assert (code, document["verdict"], made.long) == (0, "pass", 1)
    return made


def told(document: Mapping[str, object]) -> dict[str, object]:
    """Return a document without what differs between any two runs."""
    smoke = document["smoke"]
    assert isinstance(smoke, dict)
    kept = {name: value for name, value in document.items() if name not in {"run", "seconds"}}
    return {**kept, "smoke": {**smoke, "age_seconds": 0}}


def happened(proven: Proven) -> list[dict[str, object]]:
    times = {"run", "seconds", "time", "why"}
    return [{name: value for name, value in event.items() if name not in times} for event in events(proven)]


def recorded(proven: Proven) -> dict[str, object]:
    document = json.loads((proven.mini.last_run / "run.json").read_text())
    result = told(document.pop("result"))
    return {**document, "result": result, "order": list(document), "files": _names(proven.mini.last_run)}


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("words", [(), ("-q",), ("-v",)])
def test_both_ways_say_and_record_the_same(ways: Ways, words: tuple[str, ...]) -> None:
    ways.proven.workspace.remembered.unlink()
    code, document, talk = ways.build(*words)
    happenings, record = happened(ways.proven), recorded(ways.proven)
    assert ways.long == 2
    again_code, again, again_talk = ways.build(*words)
    assert ways.long == 2
    assert (again_code, told(again), list(again)) == (code, told(document), list(document))
    shown = [line.partition("proven ")[0].partition("(0.")[0].partition("  0.")[0] for line in talk.splitlines()]
    assert [
        line.partition("proven ")[0].partition("(0.")[0].partition("  0.")[0] for line in again_talk.splitlines()
    ] == shown
    assert (happened(ways.proven), recorded(ways.proven)) == (happenings, record)


def test_the_events_are_streamed_as_well(ways: Ways, tmp_path: Path) -> None:
    assert ways.is_fast("--events", str(tmp_path / "stream"))
    assert (tmp_path / "stream").read_text() == (ways.proven.mini.last_run / "events.jsonl").read_text()


FILES = (
    "recipes/stacks/mini.toml",
    "recipes/targets/toy.toml",
    "recipes/packages/good.toml",
    "recipes/profiles/tiny.toml",
    "locks/mini.toy.lock.toml",
    "patches/good/series.toml",
    "patches/good/torch-symm-mem-guard/patch.toml",
    "templates/launch.sh.j2",
    "models/tiny/weights",
    "sources/good/backend.py",
    "sources/good/src/good/__init__.py",
)


@pytest.mark.parametrize("file", FILES)
def test_an_edit_of_any_file_is_planned_anew_also_when_its_size_and_time_are_put_back(ways: Ways, file: str) -> None:
    path = ways.proven.mini.catalog / file
    before = path.stat()
    assert ways.is_fast()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not ways.is_fast()


@pytest.mark.parametrize("folder", sorted({str(Path(file).parent) for file in FILES}))
def test_a_new_file_is_planned_anew_and_so_is_one_that_went(
    ways: Ways, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    nothing = Outcome(document={"verdict": "planned anew"})
    monkeypatch.setattr(building, "build", lambda *_, **__: nothing)
    new, old = ways.proven.mini.catalog / folder / "new", ways.proven.mini.catalog / FILES[0]
    new.write_text("")
    assert ways.build()[1]["verdict"] == "planned anew"
    new.unlink()
    assert ways.build()[1]["verdict"] == "pass"
    old.unlink()
    assert ways.build()[1]["verdict"] == "planned anew"


def test_every_file_that_planning_anew_opens_is_looked_at(ways: Ways) -> None:
    """Told by the interpreter itself: what is opened below the catalog."""
    opened: set[str] = set()
    listening = True

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if listening and event in {"open", "os.scandir", "os.listdir"} and isinstance(arguments[0], str | Path):
            opened.add(os.path.abspath(arguments[0]))  # noqa: PTH100 - the path may be any text

    sys.addaudithook(hear)
    ways.proven.workspace.remembered.unlink()
    assert not ways.is_fast()
    listening = False
    (memory,) = ways.memory()
    catalog = ways.proven.mini.catalog
    seen = [*(catalog / name for name in remembering.CATALOG), *map(Path, memory.more)]
    below = {Path(path) for path in opened if Path(path).is_relative_to(catalog)} - {catalog}
    assert {catalog / file for file in FILES} <= below
    assert [path for path in below if not any(path.is_relative_to(place) for place in seen)] == []


def test_an_edit_of_the_engine_is_planned_anew(ways: Ways, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tmp_path / "engine"
    engine.mkdir()
    (engine / "__init__.py").write_text("")
    monkeypatch.setattr("sglforge.__file__", str(engine / "__init__.py"))
    assert not ways.is_fast()
    assert ways.is_fast()
    (engine / "plan.py").write_text("")
    assert not ways.is_fast()


@pytest.mark.parametrize("name", ["PATH", "CC", "CUDA_HOME", "SGLANG_X", "SGLFORGE_STORES", "PYTHONPATH", "ANY_OTHER"])
def test_a_variable_counts(ways: Ways, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, os.environ.get(name, "") + os.pathsep + "/nowhere")
    assert not ways.is_fast()
    monkeypatch.undo()


def test_where_the_shell_is_does_not_count_and_bytes_that_are_no_text_do_no_harm(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in remembering.IDLE_VARIABLES:
        monkeypatch.setenv(os.fsdecode(name), "other")
    assert ways.is_fast()
    monkeypatch.setenv("ANY_OTHER", os.fsdecode(b"\xff"))
    assert not ways.is_fast()
    assert ways.is_fast()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(HostFacts) if field.name != "disk_gib"])
def test_any_other_fact_about_the_machine_is_another_machine(name: str) -> None:
    facts = HostFacts(disk_gib=9.0, env={"A": "b"})
    other: dict[str, object] = {"gpus": (Gpu(name="x"),), "cuda": Cuda(nvcc="13.0"), "env": {"A": "c"}}
    changed = dataclasses.replace(facts, **{name: other.get(name, "other")})  # type: ignore[arg-type]
    assert remembering.machine(changed) != remembering.machine(facts)


def test_another_machine_and_a_full_disk_are_planned_anew(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = unchanged.probe(ways.proven.mini.workspace)  # type: ignore[attr-defined]
    for change in ({"cores": 99}, {"disk_gib": 0.001}, {"disk_gib": None}):
        monkeypatch.setattr(unchanged, "probe", lambda _, change=change: dataclasses.replace(facts, **change))
        assert not ways.is_fast()
    monkeypatch.setattr(unchanged, "probe", lambda _: dataclasses.replace(facts, disk_gib=1e6))
    assert ways.is_fast()


def test_a_catalog_whose_name_is_no_text_is_built_as_any_other(tmp_path: Path) -> None:
    request = Request(
        argv=(), catalog_root=tmp_path / os.fsdecode(b"\xff"), workspace=Workspace(root=tmp_path / "workspace")
    )
    assert remembering.surroundings(request)


def test_the_python_that_runs_counts(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "3.99")
    assert not ways.is_fast()


def test_what_is_asked_for_counts(ways: Ways) -> None:
    assert ways.is_fast("--offline", "--jobs", "2", "--keep")
    assert not ways.is_fast("good")
    assert not ways.is_fast("--python", sys.executable)
    assert not ways.is_fast("--stack", "mini")


def spoilt(proven: Proven) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what may happen to what was built, installed and proven."""
    site, workspace = proven.site, proven.workspace
    (wheel,) = (workspace.store / "objects").glob("*/*.whl")
    (entry,) = (workspace.store / "entries").glob("*.json")
    (verdict,) = workspace.verdicts.glob("*.json")
    yield "a built file edited", lambda: (site / "good/__init__.py").write_text("x")
    yield "another file touched", lambda: os.utime(site / "toy/__init__.py", ns=(1, 1))
    yield "another file gone", (site / "toy/__init__.py").unlink
    yield "a RECORD edited", lambda: (site / "toy-1.0.dist-info/RECORD").write_text("")
    yield "a distribution added", (site / "new-1.0.dist-info").mkdir
    yield "a loose file added", lambda: (site / "loose.pth").write_text("")
    yield "no Python", (proven.environment / "venv/bin/python").unlink
    yield "another Python", lambda: (proven.environment / "venv/pyvenv.cfg").write_text("")
    link = workspace.environments / "mini.toy"
    yield "another name", link.unlink
    yield "a name of another", lambda: replace_link(link, Path("other"))
    yield "no receipt", (proven.environment / "receipt.json").unlink
    yield "a receipt that is none", lambda: (proven.environment / "receipt.json").write_text("{")
    receipt = json.loads((proven.environment / "receipt.json").read_text())
    receipt["built"][0]["files"]["good/__init__.py"][1:] = ["x", None, 1 << 99]
    yield "a receipt without numbers", lambda: write_text(proven.environment / "receipt.json", json.dumps(receipt))
    yield "no wheel", wheel.unlink
    yield "a wheel cut short", lambda: write_text(wheel, "w")
    yield "no entry", entry.unlink
    yield "an entry that is none", lambda: write_text(entry, "{}")
    yield "no proof", verdict.unlink
    failed = verdict.read_text().replace('"pass"', '"fail"')
    yield "a proof that failed", lambda: verdict.write_text(failed)


SPOILT = 19


@pytest.mark.parametrize("number", range(SPOILT))
def test_what_was_built_installed_and_proven_is_looked_at(
    ways: Ways, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt  # it would really build, install or prove

    assert ways.is_fast()
    happenings = list(spoilt(ways.proven))
    assert len(happenings) == SPOILT
    happenings[number][1]()
    monkeypatch.setattr(building, "build", stop)
    assert ways.proven.build() == 130, happenings[number][0]


def test_what_just_changed_is_not_believed(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change within the same tick of the clock would leave no trace."""
    monkeypatch.setattr(remembering, "SETTLED_NS", 2_000_000_000)
    ways.proven.workspace.remembered.unlink()
    (ways.proven.mini.catalog / "templates/launch.sh.j2").write_text("exec it\n")
    assert not ways.is_fast()
    assert not ways.proven.workspace.remembered.exists()


def test_what_changes_while_it_is_read_is_not_remembered(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    ways.proven.workspace.remembered.unlink()
    series, note = ways.proven.mini.catalog / "patches/good/series.toml", noting.note

    def meanwhile(*words: object, **more: object) -> None:
        series.write_text(series.read_text() + "\n")
        os.utime(series, ns=(1, 1))
        note(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "note", meanwhile)
    assert not ways.is_fast()
    assert not ways.proven.workspace.remembered.exists()


def test_builds_that_are_asked_other_things_do_not_push_each_other_out(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not ways.is_fast("--stack", "mini")
    assert ways.is_fast()
    assert ways.is_fast("--stack", "mini")
    for number in range(remembering.KEPT):
        monkeypatch.setattr(sys, "executable", f"/nowhere/python{number}")
        assert not ways.is_fast()
        assert ways.is_fast()
        assert len(ways.memory()) == min(3 + number, remembering.KEPT)
    monkeypatch.undo()


def test_no_variable_is_written_down(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANY_TOKEN", "verysecret")
    assert not ways.is_fast()
    assert ways.is_fast()
    assert "verysecret" not in ways.proven.workspace.remembered.read_text()


def test_a_document_with_another_byte_or_cut_short_is_ignored(ways: Ways) -> None:
    path, chance = ways.proven.workspace.remembered, random.Random(0)
    content = path.read_bytes()
    whole = ways.memory()
    assert whole
    for place in range(len(content) - 2):
        path.write_bytes(content[:place])
        assert ways.memory() == []
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :])
        assert ways.memory() in [[], whole]  # a blank that became another one
    path.write_bytes(b"[" * 100_000)
    assert not ways.is_fast()
    assert ways.is_fast()


HOSTILE: tuple[object, ...] = (None, 7, "../../../etc", "\x1b[2J", [], {}, [["x"]], "a" * 64)


def leaves(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of everything in a document."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from leaves(inner, (*path, key))


def test_a_document_that_somebody_made_up_neither_breaks_a_build_nor_leads_it_astray(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash is right; whoever can write it can also write receipts and proofs, so only harm is looked for."""
    path = ways.proven.workspace.remembered
    honest = json.loads(path.read_text())
    del honest["sha256"]
    finding = Finding(code="c", severity=Severity.INFO, message="m", detail=("d",))
    honest["builds"][0]["findings"] = [finding.to_json()]
    before = sorted(ways.proven.mini.root.rglob("*"))
    monkeypatch.setattr(building, "build", lambda *_, **__: Outcome(document={"verdict": "unknown"}))
    for place in leaves(honest):
        if place[2:4] == ("plan", "steps") and len(place) > 6:
            continue  # what is only shown
        for value in HOSTILE:
            document = copy.deepcopy(honest)
            inner: Any = document
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            path.write_text(json.dumps({**document, "sha256": digest(document)}))
            code, _, talk = ways.build()
            assert code == 0, (place, value, talk)
            assert "\x1b[2J" not in talk
    runs = ways.proven.workspace.runs
    after = [entry for entry in sorted(ways.proven.mini.root.rglob("*")) if not entry.is_relative_to(runs)]
    assert after == [entry for entry in before if not entry.is_relative_to(runs)]


def test_a_kill_while_it_is_written_leaves_one_that_is_whole(ways: Ways, tmp_path: Path) -> None:
    path = ways.proven.workspace.remembered
    whole = ways.memory()
    program = (
        "import sys; from pathlib import Path; from sglforge.base.files import write_text\n"
        "path, text = Path(sys.argv[1]), Path(sys.argv[2]).read_text()\n"
        "print('on', flush=True)\nwhile True: write_text(path, text)"
    )
    copied = tmp_path / "copied"
    copied.write_text(path.read_text())
    for round_ in range(8):
        with subprocess.Popen([sys.executable, "-c", program, path, copied], stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.readline()
            time.sleep(0.003 * round_)
            writer.send_signal(signal.SIGKILL)
        assert ways.memory() == whole
    assert ways.is_fast()


HEAVY = {
    "jinja2",
    "packaging",
    "pydantic",
    "pydantic_core",
    "rich",
    "tomllib",
    "urllib3",
    "logging",
    "concurrent.futures",
}


def test_the_short_way_loads_nothing_that_reads_recipes() -> None:
    program = "import sys, sglforge.cli, sglforge.pipeline.unchanged; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY & set(loaded) == set()
    assert [name for name in loaded if name.startswith(("sglforge.patches", "sglforge.config.model"))] == []
