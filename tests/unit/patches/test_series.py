"""Series on small trees: states, findings, and a tree that is patched as a whole or not at all."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from toy_series import WORDS, WORKER, Bench, edit

import sglforge
from sglforge.base import proc
from sglforge.base.treeid import tree_id
from sglforge.errors import ConfigError, PatchError, Severity
from sglforge.patches.apply import apply_series
from sglforge.patches.result import TopicState
from sglforge.patches.schema import schemas
from sglforge.patches.series import load_series


def test_a_series_is_applied_in_its_order(bench: Bench) -> None:
    both = edit("add-class-attribute", "a", "Worker") + edit("prepend-to-body", "b", "Worker.__init__")
    bench.topic(
        "one",
        both,
        a="limit = 0\n",
        b="self.limit = print('limit is on')\n",
        words=WORDS + 'evidence = "limit is on"\n',
    )
    bench.topic("two", edit("prepend-to-body", "c", "Worker.__init__"), c="self.limit = 2\n")
    result = bench.apply()
    text = (bench.tree / "pkg/worker.py").read_text()
    assert "class Worker:\n    limit = 0\n    def __init__" in text
    assert "size):\n        self.limit = 2\n        self.limit = print('limit is on')\n        self.size" in text
    assert [(topic.name, topic.state, topic.files, topic.evidence) for topic in result.topics] == [
        ("one", TopicState.APPLIED, ("pkg/worker.py",), "limit is on"),
        ("two", TopicState.APPLIED, ("pkg/worker.py",), ""),
    ]
    assert result.findings == ()
    assert result.require() == result.tree_id == tree_id(bench.tree)
    assert result.diff.count("\n+") == 4  # its header and three lines
    bench.series("two", "one")
    bench.fill({"pkg/worker.py": WORKER})
    bench.apply().require()
    assert "is on')\n        self.limit = 2\n" in (bench.tree / "pkg/worker.py").read_text()


def test_modes_and_other_files_are_kept(bench: Bench) -> None:
    worker = bench.tree / "pkg/worker.py"
    worker.chmod(0o751)
    os.link(worker, bench.tree.parent / "hard-link.py")
    before = bench.contents()
    bench.topic("one", edit("append-to-body", "p"), p="x = 1\n")
    bench.apply().require()
    assert worker.stat().st_mode & 0o777 == 0o751
    after = bench.contents()
    assert after.pop("pkg/worker.py") == before.pop("pkg/worker.py") + b"x = 1\n"
    assert after == before
    assert (bench.tree.parent / "hard-link.py").read_text() == WORKER


def test_a_topic_for_other_versions_is_said_and_left_out(bench: Bench) -> None:
    bench.topic("old", edit("append-to-body", "p"), versions="<1", p="x = 1\n")
    bench.topic("pre", edit("append-to-body", "p"), versions=">=1rc0,<1.1", p="y = 1\n")
    result = bench.apply("1.0rc1")
    assert [topic.state for topic in result.topics] == [TopicState.NOT_FOR_VERSION, TopicState.APPLIED]
    assert result.topics[0].message == "is for <1, this is 1.0rc1"
    assert (bench.tree / "pkg/worker.py").read_text() == WORKER + "y = 1\n"


def test_one_topic_alone(bench: Bench) -> None:
    bench.topic("good", edit("append-to-body", "p"), p="x = 1\n")
    bench.topic("gone", edit("append-to-body", "p", "Gone"), p="x = 1\n")
    assert [topic.name for topic in bench.apply(topic="good").topics] == ["good"]
    with pytest.raises(ConfigError) as caught:
        bench.apply(topic="god")
    assert caught.value.code == "unknown-topic"
    assert "good" in caught.value.hint


def test_a_second_time_is_recognised(bench: Bench) -> None:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.run"), p="# toy: to see it\nprint(batch)\n")
    bench.apply().require()
    before = bench.contents()
    result = bench.apply()
    assert result.topics[0].state is TopicState.CONFLICT
    assert [finding.code for finding in result.findings] == ["patch-already-there"]
    assert bench.contents() == before


FAULTS = {
    "patch-drifted": (edit("prepend-to-body", "p", "Worker.walk"), "x = 1\n", TopicState.DRIFTED),
    "patch-target-moved": (
        edit("prepend-to-body", "p", "Worker", file="old/worker.py"),
        "x = 1\n",
        TopicState.DRIFTED,
    ),
    "patch-anchor-ambiguous": (edit("append-to-body", "p", "f", file="pkg/twins.py"), "x = 1\n", TopicState.DRIFTED),
    "patch-target-unreadable": (edit("append-to-body", "p", file="pkg/data.bin"), "x = 1\n", TopicState.DRIFTED),
    "patch-corrupt": (edit("append-to-body", "p"), "x = (\n", TopicState.CORRUPT),
    "patch-path-unsafe": (edit("append-to-body", "p", file="pkg/link.py"), "x = 1\n", TopicState.CORRUPT),
    "patch-no-effect": (edit("append-to-body", "p", "Worker.run"), "x = 1\n", TopicState.REJECTED),
    "patch-does-not-compile": (edit("prepend-to-body", "p", "Worker"), "return 1\n", TopicState.REJECTED),
    "patch-undefined-name": (edit("prepend-to-body", "p", "Worker.run"), "log(batch)\n", TopicState.REJECTED),
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_is_found_and_the_tree_is_left_alone(bench: Bench, code: str) -> None:
    edits, payload, state = FAULTS[code]
    bench.fill({"pkg/twins.py": "def f(): pass\ndef f(): pass\n", "pkg/data.bin": b"\xff\x00"})
    (bench.tree.parent / "outside.py").write_text("secret = 1\n")
    (bench.tree / "pkg/link.py").symlink_to(bench.tree.parent / "outside.py")
    bench.topic("fine", edit("append-to-body", "p", "f", file="pkg/other.py"), p="y = 1\n")
    bench.topic("wrong", edit("append-to-body", "ok") + edits, ok="ok = 1\n", p=payload)
    before = bench.contents()
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.APPLIED, state]
    assert (result.tree_id, result.diff) == (None, "")
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.subject) == (code, Severity.ERROR, "toy/wrong")
    assert finding.hint
    assert finding.where is not None
    assert bench.contents() == before
    assert (bench.tree.parent / "outside.py").read_text() == "secret = 1\n"
    with pytest.raises(PatchError) as caught:
        result.require()
    assert (caught.value.code, caught.value.findings) == (code, result.findings)


def test_every_fault_is_found_in_one_pass(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "p", "Gone"), p="x = 1\n")
    bench.topic("b", edit("append-to-body", "p"), p="x = (\n")
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.DRIFTED, TopicState.CORRUPT]
    with pytest.raises(PatchError, match="2 faults") as caught:
        result.require()
    assert len(caught.value.findings) == 2


def test_a_gone_anchor_is_looked_for_in_the_whole_tree(bench: Bench) -> None:
    bench.fill({"pkg/moved.py": "x = 1\nclass Worker:\n    async def walk(self): pass\n"})
    bench.topic("a", edit("append-to-body", "p", "Worker.walk"), p="x = 1\n")
    (finding,) = bench.apply().findings
    assert finding.detail == ("defined in: pkg/moved.py:3",)
    assert finding.where == f"{bench.folder / 'a' / 'patch.toml'}:9"


def test_a_moved_file_is_found_by_its_name(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "p", file="python/worker.py"), p="x = 1\n")
    assert "pkg/worker.py" in bench.apply().findings[0].message


def test_a_later_topic_that_undoes_an_earlier_one_is_a_conflict(bench: Bench) -> None:
    from sglforge.patches.edits import text_digest

    body = "        self.limit = 1\n        self.size = size"
    replaced = edit("replace-body", "q", "Worker.__init__", replaces=text_digest(body))
    bench.topic("one", edit("prepend-to-body", "p", "Worker.__init__"), p="self.limit = 1\n")
    bench.topic("two", replaced, q="self.size = 0\n")
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.CONFLICT, TopicState.APPLIED]
    assert [(finding.code, finding.subject) for finding in result.findings] == [("patch-conflict", "toy/one")]
    assert (bench.tree / "pkg/worker.py").read_text() == WORKER


def test_a_link_inside_the_tree_edits_the_file_behind_it(bench: Bench) -> None:
    (bench.tree / "alias").symlink_to("pkg", target_is_directory=True)
    bench.topic("a", edit("append-to-body", "p", file="alias/worker.py"), p="x = 1\n")
    bench.topic("b", edit("append-to-body", "p"), p="y = 1\n")
    bench.apply().require()
    assert (bench.tree / "alias").is_symlink()
    assert (bench.tree / "pkg/worker.py").read_text() == WORKER + "x = 1\ny = 1\n"


@pytest.mark.parametrize("target", ["link.py", "gone.py"])
def test_a_link_that_leads_nowhere_is_refused(bench: Bench, target: str) -> None:
    (bench.tree / "pkg/link.py").symlink_to(target)
    bench.topic("a", edit("append-to-body", "p", file="pkg/link.py"), p="x = 1\n")
    assert bench.apply().findings[0].code == "patch-path-unsafe"


@pytest.mark.parametrize("file", ["/etc/passwd", "../tree/pkg/worker.py", "pkg/../../x.py", ".", "a\\\\b.py"])
@pytest.mark.parametrize("key", ["file", "payload"])
def test_paths_that_leave_are_refused_when_the_topic_is_read(bench: Bench, key: str, file: str) -> None:
    bench.topic("a", edit("append-to-body", "p"), p="x = 1\n")
    path = bench.folder / "a" / "patch.toml"
    lines = [f'{key} = "{file}"' if line.startswith(f"{key} =") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines))
    with pytest.raises(PatchError) as caught:
        bench.load()
    (finding,) = caught.value.findings
    assert caught.value.code == "patch-corrupt"
    assert finding.where == f"{path}:{lines.index(f'{key} = {chr(34)}{file}{chr(34)}') + 1}"


def test_a_payload_that_is_a_link_out_of_the_topic_is_refused(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "p"))
    (bench.folder / "a/payload/p.py").symlink_to(bench.tree / "pkg/worker.py")
    with pytest.raises(PatchError, match="corrupt"):
        bench.load()


def test_no_tree_is_an_error_of_its_own(bench: Bench, tmp_path: Path) -> None:
    bench.topic("a", edit("append-to-body", "p"), p="x = 1\n")
    with pytest.raises(PatchError) as caught:
        apply_series(bench.load(), tmp_path / "nowhere", version="1.0")
    assert caught.value.code == "tree-missing"


def test_no_series_is_none_but_topics_without_one_are_forgotten(bench: Bench) -> None:
    assert load_series(bench.root, "toy") is None
    bench.topic("a", edit("append-to-body", "p"), p="x = 1\n")
    (bench.folder / "series.toml").unlink()
    with pytest.raises(PatchError) as caught:
        load_series(bench.root, "toy")
    assert "`a` is not in the series" in caught.value.findings[0].message


def test_what_is_no_version_chooses_no_topics(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "p"), p="x = 1\n")
    with pytest.raises(PatchError) as caught:
        bench.apply("main")
    assert caught.value.code == "tree-version-unknown"


def test_every_fault_of_a_series_is_told_with_file_and_line(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "missing") + edit("append-to-body", "binary"))
    (bench.folder / "a/payload/binary.py").write_bytes(b"\xff")
    bench.topic("b", edit("prepend-to-bod", "p", "x..y"), p="x\n")
    bench.topic("c", edit("append-to-body", "p"), p="x\n", words=WORDS + "colour = 1\n")
    bench.topic("d", edit("append-to-body", "p"), versions="about 1", p="x\n")
    bench.topic("e", "edits = nothing\n")
    bench.topic("f", "")
    bench.series("a", "b", "c", "d", "e", "gone", "a")
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert caught.value.code == "patch-corrupt"
    assert caught.value.exit_code == 6
    told = [
        (Path(str(finding.where)).relative_to(bench.folder).as_posix(), finding.message)
        for finding in caught.value.findings
    ]
    places = [place for place, _ in told]
    assert places == [
        "series.toml",
        "series.toml",
        "a/patch.toml:13",
        "a/payload/binary.py",
        "b/patch.toml:9",
        "c/patch.toml:7",
        "d/patch.toml:7",
        "e/patch.toml:8",
        "gone/patch.toml",
    ]
    assert "`f` is not in the series" in told[0][1]
    assert "`a` is listed twice" in told[1][1]
    assert "missing.py" in told[2][1]
    assert caught.value.findings[4].hint == "did you mean `prepend-to-body`?"
    assert "`gone` has no patch.toml" in told[8][1]


def test_a_topic_edits_something(bench: Bench) -> None:
    bench.topic("a", "edits = []\n")
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert "edits" in caught.value.findings[0].message


def test_the_digest_is_of_what_is_done_not_of_the_words(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "p"), p="x = 1\n")
    bench.topic("b", edit("append-to-body", "p"), versions="<2", p="y = 1\n")
    first, later = bench.load().digest("1.0"), bench.load().digest("2.0")
    assert len(first) == 64
    assert first != later
    patch, payload = bench.folder / "a/patch.toml", bench.folder / "a/payload/p.py"
    patch.write_text(patch.read_text().replace('reason = "r"', 'reason = "another"'))
    assert bench.load().digest("1.0") == first
    payload.write_bytes(payload.read_bytes().replace(b"\n", b"\r\n"))
    assert bench.load().digest("1.0") == first
    payload.write_text("x = 2\n")
    assert bench.load().digest("1.0") != first
    payload.write_text("x = 1\n")
    bench.series("b", "a")
    assert bench.load().digest("1.0") != first
    bench.series("a", "b")
    (bench.folder / "b/payload/p.py").write_text("y = 2\n")
    assert bench.load().digest("2.0") == later


def test_each_topic_has_a_digest_of_what_it_does(bench: Bench) -> None:
    bench.topic("a", edit("append-to-body", "p"), p="x = 1\n")
    bench.topic("b", edit("append-to-body", "p"), versions="<2", p="y = 1\n")
    first = bench.load().topic_digests("1.0")
    assert list(first) == ["a", "b"]
    assert bench.load().topic_digests("2.0") == {"a": first["a"]}
    patch = bench.folder / "a/patch.toml"
    patch.write_text("# a remark\n" + patch.read_text().replace('reason = "r"', 'reason = "another"'))
    assert bench.load().topic_digests("1.0") == first
    (bench.folder / "a/payload/p.py").write_text("x = 2\n")
    changed = bench.load().topic_digests("1.0")
    assert (changed["a"] != first["a"], changed["b"]) == (True, first["b"])
    bench.series("b", "a")
    assert list(bench.load().topic_digests("1.0")) == ["b", "a"]


def test_a_disk_that_refuses_leaves_the_tree_as_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.topic("a", edit("append-to-body", "p", "f", file="pkg/other.py") + edit("append-to-body", "p"), p="x = 1\n")
    before, replaced = bench.contents(), Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if Path(target).name == "worker.py":
            raise OSError(28, "No space left on device", str(target))
        return replaced(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PatchError) as caught:
        bench.apply()
    assert caught.value.code == "patch-not-written"
    assert bench.contents() == before


KILLED = """
import os, signal, sys
from pathlib import Path
from sglforge.patches.apply import apply_series
from sglforge.patches.series import load_series
replaced, done = Path.replace, []
def kill(self, target):
    if len(done) == {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(target)
    return replaced(self, target)
Path.replace = kill
series = load_series(Path(sys.argv[1]), "toy")
apply_series(series, Path(sys.argv[2]), version="1.0")
"""


@pytest.mark.parametrize("after", [0, 1])
def test_a_kill_leaves_each_file_old_or_new(bench: Bench, after: int) -> None:
    bench.topic("a", edit("append-to-body", "p", "f", file="pkg/other.py") + edit("append-to-body", "p"), p="x = 1\n")
    before = bench.contents()
    env = dict(os.environ) | {"PYTHONPATH": str(Path(sglforge.__file__).parents[1])}
    program = KILLED.format(after=after)
    done = proc.run([sys.executable, "-c", program, bench.root, bench.tree], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    now = {name: content for name, content in bench.contents().items() if not name.endswith(".tmp")}
    new = {"pkg/other.py": b"def f():\n    pass\n    x = 1\n", "pkg/worker.py": WORKER.encode() + b"x = 1\n"}
    assert now.keys() == before.keys()
    assert all(now[name] in {before[name], new.get(name)} for name in now)
    assert sum(now[name] != before[name] for name in now) == after


def test_the_schemas_are_of_both_files() -> None:
    documents = schemas()
    assert sorted(documents) == ["patch", "series"]
    assert "edits" in str(documents["patch"]["required"])
