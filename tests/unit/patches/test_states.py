"""What becomes of topics: upstream already, half there, or in each other's way."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from toy_series import WORKER, Bench, edit

from sglforge.base import git, proc
from sglforge.errors import PatchError, Severity
from sglforge.patches.edits import text_digest
from sglforge.patches.result import TopicState

BOTH = edit("add-class-attribute", "a", "Worker") + edit("prepend-to-body", "b", "Worker.run")
CODE = {"a": "limit = 0\n", "b": "print(batch)\n"}
UPSTREAM = WORKER.replace("class Worker:\n", "class Worker:\n    limit = 0  # theirs\n").replace(
    "batch):\n", "batch):\n        print( batch )\n"
)
TEXT = """
[[edits]]
kind = "text"
file = "CMakeLists.txt"
operation = "insert-after"
anchor = "project(x)"
payload = "payload/cmake.py"
"""
TOML = """
[[edits]]
kind = "toml"
file = "pyproject.toml"
operation = "append"
key = "project.dependencies"
value = "new"
"""
FILES = {"CMakeLists.txt": "project(x)\n", "pyproject.toml": "[project]\ndependencies = []\n"}


def test_a_topic_whose_every_edit_is_upstream_can_be_dropped(bench: Bench) -> None:
    bench.fill({"pkg/worker.py": UPSTREAM})
    bench.topic("one", BOTH, **CODE)
    bench.topic("two", edit("append-to-body", "c"), c="x = 1\n")
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.UPSTREAMED, TopicState.APPLIED]
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.subject) == ("patch-upstreamed", Severity.INFO, "toy/one")
    assert "can be dropped" in finding.message
    assert result.require()
    assert (bench.tree / "pkg/worker.py").read_text() == UPSTREAM + "x = 1\n"


@pytest.mark.parametrize("there", ["a", "b"])
def test_a_topic_of_which_half_is_upstream_is_a_conflict(bench: Bench, there: str) -> None:
    text = WORKER.replace("class Worker:\n", "class Worker:\n    limit = 0\n") if there == "a" else None
    bench.fill({"pkg/worker.py": text or WORKER.replace("batch):\n", "batch):\n        print(batch)\n")})
    bench.topic("one", BOTH, **CODE)
    result = bench.apply()
    assert result.topics[0].state is TopicState.CONFLICT
    assert result.findings[0].code == "patch-already-there"
    assert "1 of 2 edits are in the tree" in result.findings[0].message


def test_our_own_comments_tell_a_patched_tree_from_upstream(bench: Bench) -> None:
    bench.topic("one", BOTH, a="limit = 0\n", b="# toy: because\nprint(batch)\n")
    bench.apply().require()
    assert bench.apply().topics[0].state is TopicState.CONFLICT


def test_the_record_of_a_wheel_tells_a_patched_tree_from_upstream(bench: Bench) -> None:
    bench.topic("one", BOTH, **CODE)
    bench.fill({"pkg/worker.py": UPSTREAM})
    for raw, state in ((UPSTREAM, TopicState.UPSTREAMED), (WORKER, TopicState.CONFLICT)):
        digest = base64.urlsafe_b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")
        bench.fill({"toy-1.0.dist-info/RECORD": f"pkg/other.py,,\npkg/worker.py,sha256={digest},9\n"})
        assert bench.apply().topics[0].state is state


def test_edits_of_every_kind_are_made_and_recognised(bench: Bench, tmp_path: Path) -> None:
    bench.fill(FILES)
    before = bench.contents()
    bench.topic("one", TEXT + TOML + BOTH, cmake="set(A 1)\n", **CODE)
    result = bench.apply()
    assert result.findings == ()
    assert result.topics[0].files == ("CMakeLists.txt", "pyproject.toml", "pkg/worker.py")
    assert (bench.tree / "CMakeLists.txt").read_text() == "project(x)\nset(A 1)\n"
    assert (bench.tree / "pyproject.toml").read_text() == '[project]\ndependencies = ["new"]\n'
    after = bench.contents()
    assert bench.apply().topics[0].state is TopicState.UPSTREAMED
    (tmp_path / "effective.diff").write_text(result.diff)
    for option, contents in (("--reverse", before), ("--verbose", after)):
        argv = ["git", "apply", "--whitespace=nowarn", option, str(tmp_path / "effective.diff")]
        proc.run(argv, cwd=bench.tree, env=git.plain_environment(bench.tree))
        assert bench.contents() == contents


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("kind", ["python", "text", "toml"])
def test_two_topics_on_one_anchor_work_in_both_orders(bench: Bench, kind: str, order: tuple[str, str]) -> None:
    bench.fill(FILES)
    for name in ("one", "two"):
        edits = {
            "python": edit("prepend-to-body", "p", "Worker.run"),
            "text": TEXT.replace("cmake", "p"),
            "toml": TOML.replace('"new"', f'"{name}"'),
        }
        bench.topic(name, edits[kind], p=f'x = "{name}"\n')
    bench.series(*order)
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.APPLIED] * 2
    assert all(name in result.diff for name in order)


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_two_topics_that_replace_one_function_are_a_conflict(bench: Bench, order: tuple[str, str]) -> None:
    replaced = edit("replace-body", "p", "Worker.run", replaces=text_digest("return batch[: self.size]"))
    for name in ("one", "two"):
        bench.topic(name, replaced, p=f'return "{name}"\n')
    bench.series(*order)
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.APPLIED, TopicState.CONFLICT]
    (finding,) = result.findings
    assert (finding.code, finding.subject) == ("patch-conflict", f"toy/{order[1]}")
    assert f"applies alone, and not after {order[0]}" in finding.message


def test_two_topics_with_the_same_edit_are_a_conflict(bench: Bench) -> None:
    for name in ("one", "two"):
        bench.topic(name, edit("prepend-to-body", "p", "Worker.run"), p="print(batch)\n")
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.APPLIED, TopicState.CONFLICT]
    assert result.findings[0].code == "patch-conflict"


def test_a_topic_that_needs_an_earlier_one_drifts_without_it(bench: Bench) -> None:
    bench.topic("one", edit("append-to-body", "p"), p="new = 1\n")
    beside = edit("insert-after", "p") + '[edits.statement]\ntype = "assign"\nname = "new"\n'
    bench.topic("two", beside, p="x = new\n")
    assert [topic.state for topic in bench.apply().topics] == [TopicState.APPLIED] * 2
    bench.fill({"pkg/worker.py": WORKER})
    assert bench.apply(topic="two").topics[0].state is TopicState.DRIFTED


@pytest.mark.parametrize(
    ("edits", "line", "words"),
    [
        ('\n[[edits]]\nkind = "tom"\n', 9, "did you mean `toml`"),
        ('\n[[edits]]\nkind = "python"\noperation = "insert"\n', 9, "did you mean `insert-after`"),
        ('\n[[edits]]\nkind = "text"\nfile = "a"\nanchor = ""\n', 12, "at least 1 character"),
        (TOML.replace('"append"', '"add"'), 12, "none of set, append, remove"),
        (TOML.replace("project.dependencies", "a b"), 13, "not a dotted key"),
        (TOML.replace('value = "new"', "colour = 1"), 14, "unknown key `colour`"),
        ('\n[[edits]]\npayload = "x"\n', 9, "lacks the key `kind`"),
        ('\n[[edits]]\nkind = "python"\n', 9, "lacks the key `operation`"),
    ],
)
def test_what_is_written_wrong_is_told_with_its_line(bench: Bench, edits: str, line: int, words: str) -> None:
    bench.topic("one", edits)
    with pytest.raises(PatchError) as caught:
        bench.load()
    told = [(finding.where, f"{finding.message} {finding.hint}") for finding in caught.value.findings]
    assert any(where == f"{bench.folder}/one/patch.toml:{line}" and words in message for where, message in told), told
