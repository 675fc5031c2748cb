"""Trees in which topics are edited, and topics written anew from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toy_series import WORKER, Bench, edit

from sglforge.base import git, proc
from sglforge.errors import PatchError
from sglforge.patches import worktree
from sglforge.patches.edits import text_digest
from sglforge.patches.refresh import refresh
from sglforge.patches.worktree import WorkTree

HEADER = "Description: change the middle\nOrigin: upstream, https://example.com/1\n---\n"
CHANGE = "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+b2\n c\n"
DIFF = '\n[[edits]]\nkind = "diff"\npayload = "payload/p.py"\n'
TEXT = """
[[edits]]
kind = "text"
file = "pkg/y.txt"
operation = "insert-after"
anchor = "a"
payload = "payload/t.py"
"""


def opened(bench: Bench, topic: str, version: str = "1.0") -> tuple[WorkTree, list[str]]:
    """Make the bench's tree one for editing a topic."""
    faults = worktree.make(bench.tree, bench.load(), topic, version)
    tree = worktree.read(bench.tree)
    assert tree is not None
    assert not tree.is_edited()
    return tree, [fault.code for fault in faults]


def taken_over(bench: Bench, tree: WorkTree, scratch: Path) -> Mapping[str, str]:
    """Write the topic anew; return the files that were written, and hold that a second time writes none."""
    base, goal = worktree.drafts(tree, scratch / "base")
    written = refresh(bench.load().named(tree.topic), base, goal, tree.version)
    for path, content in written.items():
        path.write_bytes(content)
    base, goal = worktree.drafts(tree, scratch / "again")
    assert refresh(bench.load().named(tree.topic), base, goal, tree.version) == {}
    return {path.relative_to(bench.folder).as_posix(): content.decode() for path, content in written.items()}


def topics(bench: Bench) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in bench.folder.rglob("*") if path.is_file()}


ALL_KINDS = (
    edit("add-class-attribute", "a", "Worker")
    + edit("prepend-to-body", "b", "Worker.run")
    + edit("replace-body", "c", "Worker.__init__", replaces=text_digest("self.size = size"))
    + TEXT
)
CODE = {"a": "limit = 0\n", "b": "# toy\nif batch:\n    print('''x\n  y''')\n", "c": "self.size = 1\n", "t": "new\n"}


@pytest.mark.parametrize("kind", ["edits", "diff", "quilt"])
def test_an_unedited_tree_changes_nothing(bench: Bench, tmp_path: Path, kind: str) -> None:
    bench.fill({"pkg/y.txt": "a\nb\nc\n"})
    if kind == "quilt":
        bench.folder.mkdir(parents=True)
        (bench.folder / "series").write_text("one.patch\n")
        (bench.folder / "one.patch").write_text(HEADER + CHANGE)
    elif kind == "diff":
        bench.topic("one", DIFF, p=HEADER + CHANGE)
    else:
        bench.topic("one", ALL_KINDS, **CODE)
    before = topics(bench)
    tree, faults = opened(bench, "one")
    assert faults == []
    assert taken_over(bench, tree, tmp_path) == {}
    assert topics(bench) == before


def test_head_is_the_tree_before_the_topic_and_after_the_earlier_ones(bench: Bench) -> None:
    for name in ("one", "two", "three"):
        bench.topic(name, edit("append-to-body", "p"), p=f"{name} = 1\n")
    bench.series("one", "two", "three")
    tree, _ = opened(bench, "two")
    done = proc.run(["git", "diff", "HEAD", "--unified=0"], cwd=tree.folder, env=git.own_environment())
    assert done.stdout.endswith("@@ -10,0 +11 @@ one = 1\n+two = 1\n")
    done = proc.run(["git", "show", "HEAD:pkg/worker.py"], cwd=tree.folder, env=git.own_environment())
    assert done.stdout == WORKER + "one = 1\n"


def test_line_endings_and_bytes_of_any_kind_go_into_the_repository_as_they_are(bench: Bench, tmp_path: Path) -> None:
    bench.fill({"pkg/y.txt": b"a\r\nb\nc\xff\r\n", ".gitattributes": "*.txt text eol=lf\n", ".gitignore": "pkg/\n"})
    bench.topic("one", edit("append-to-body", "p"), p="x = 1\n")
    tree, _ = opened(bench, "one")
    base, goal = worktree.drafts(tree, tmp_path / "base")
    assert (tmp_path / "base/pkg/y.txt").read_bytes() == b"a\r\nb\nc\xff\r\n"
    assert goal.since(base) == ("pkg/worker.py",)


def test_what_was_edited_in_payloads_goes_back_into_them(bench: Bench, tmp_path: Path) -> None:
    bench.fill({"pkg/y.txt": "a\nb\nc\n", "pkg/worker.py": WORKER.replace("    ", "\t")})
    bench.topic("one", ALL_KINDS, **CODE)
    tree, _ = opened(bench, "one")
    worker = (bench.tree / "pkg/worker.py").read_text()
    worker = worker.replace("limit = 0", "limit = 1\n\tother = 2").replace("\t\t\tprint('''x\n", "\t\t\tprint('''z\n")
    bench.fill({"pkg/worker.py": worker, "pkg/y.txt": "a\nnew 1\nnew 2\nb\nc\n"})
    assert tree.is_edited()
    assert taken_over(bench, tree, tmp_path) == {
        "one/payload/a.py": "limit = 1\nother = 2\n",
        "one/payload/b.py": "# toy\nif batch:\n    print('''z\n  y''')\n",
        "one/payload/t.py": "new 1\nnew 2\n",
    }


def test_payloads_that_stand_side_by_side_are_told_apart(bench: Bench, tmp_path: Path) -> None:
    both = edit("prepend-to-body", "a", "Worker.run") + edit("prepend-to-body", "b", "Worker.run")
    bench.topic("one", both, a="x = 1\nx = 2\n", b="y = 1\ny = 2\n")  # the second goes above the first
    tree, _ = opened(bench, "one")
    text = (bench.tree / "pkg/worker.py").read_text()
    for old, new in (("y = 1", "# y\n        y = 1"), ("y = 2", "y = 2\n        z = 3"), ("x = 2", "x = 3")):
        text = text.replace(old, new)
    bench.fill({"pkg/worker.py": text})
    assert taken_over(bench, tree, tmp_path) == {
        "one/payload/a.py": "x = 1\nx = 3\n",
        "one/payload/b.py": "# y\ny = 1\ny = 2\nz = 3\n",
    }


@pytest.mark.parametrize("place", ["above", "below"])
def test_a_comment_between_two_payloads_goes_where_it_stays(bench: Bench, tmp_path: Path, place: str) -> None:
    both = edit("append-to-body", "a", "Worker") + edit("append-to-body", "b", "Worker")
    bench.topic("one", both, a="x = 1\n", b="y = 1\n")
    tree, _ = opened(bench, "one")
    new = "# of y\n    y = 1" if place == "above" else "y = 1\n    # of y"
    bench.fill({"pkg/worker.py": (bench.tree / "pkg/worker.py").read_text().replace("y = 1", new)})
    assert taken_over(bench, tree, tmp_path) == {"one/payload/b.py": new.replace("    ", "") + "\n"}


def test_names_of_parameters_become_ours_again(bench: Bench, tmp_path: Path) -> None:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.run") + "parameters = { rows = 1 }\n", p="print(rows)\n")
    tree, _ = opened(bench, "one")
    text = (bench.tree / "pkg/worker.py").read_text()
    assert "print(batch)" in text
    bench.fill({"pkg/worker.py": text.replace("print(batch)", "if batch:\n            print(len(batch))")})
    assert taken_over(bench, tree, tmp_path) == {"one/payload/p.py": "if rows:\n    print(len(rows))\n"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("self.size = size", "self.size = 2", "pkg/worker.py:6 is in no payload"),
        ("class Worker:", "class Runner:", "is in no payload"),
        ("print(batch)", "print(", "cannot be read as Python"),
        ("        print(batch)", "      print(batch)", "indented by 4 spaces"),
    ],
)
def test_what_is_outside_of_payloads_is_said(bench: Bench, tmp_path: Path, old: str, new: str, words: str) -> None:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.run"), p="if batch:\n    print(batch)\n")
    tree, _ = opened(bench, "one")
    text = (bench.tree / "pkg/worker.py").read_text()
    bench.fill({"pkg/worker.py": text.replace(old, new)})
    before = topics(bench)
    with pytest.raises(PatchError) as caught:
        taken_over(bench, tree, tmp_path)
    assert words in caught.value.message or any(words in place for place in caught.value.context.values())
    assert topics(bench) == before


def test_a_new_file_is_in_no_payload(bench: Bench, tmp_path: Path) -> None:
    bench.topic("one", edit("append-to-body", "p"), p="x = 1\n")
    tree, _ = opened(bench, "one")
    bench.fill({"pkg/new.py": "", "pkg/__pycache__/x.pyc": b"\0"})
    with pytest.raises(PatchError) as caught:
        taken_over(bench, tree, tmp_path)
    assert (caught.value.code, caught.value.context) == (
        "patch-not-expressible",
        {"1": "pkg/new.py came, went or got another mode"},
    )


def test_a_diff_is_made_again_with_its_header(bench: Bench, tmp_path: Path) -> None:
    bench.fill({"python/sglang/y.txt": "a\nb\nc\n", "python/sglang/z.txt": "z\n"})
    theirs = HEADER + CHANGE.replace("pkg/", "sglang/")
    bench.topic("one", DIFF, p=theirs)
    tree, _ = opened(bench, "one")
    bench.fill({"python/sglang/y.txt": "a\nb3\nc\n", "python/sglang/new.txt": "n"})
    (bench.tree / "python/sglang/z.txt").unlink()
    written = taken_over(bench, tree, tmp_path)["one/payload/p.py"]
    assert written.startswith(HEADER + "diff --git a/sglang/y.txt b/sglang/y.txt\n--- a/sglang/y.txt\n")
    assert "+b3\n" in written
    assert "+++ b/sglang/new.txt\n@@ -0,0 +1 @@\n+n\n\\ No newline at end of file\n" in written
    assert "--- a/sglang/z.txt\n+++ /dev/null\n" in written


def test_files_of_a_diff_that_were_not_edited_and_those_left_out_stay_as_they_are(bench: Bench, tmp_path: Path) -> None:
    bench.fill({"pkg/y.txt": "a\nb\nc\n", "pkg/z.txt": "a\nb\nc\n"})
    other, left_out = CHANGE.replace("y.txt", "z.txt"), CHANGE.replace("pkg/y.txt", "test/t.txt")
    bench.topic("one", DIFF + 'exclude = ["test/*"]\n', p=left_out + other + CHANGE)
    tree, _ = opened(bench, "one")
    bench.fill({"pkg/y.txt": "a\nb3\nc\n"})
    made = "diff --git a/pkg/y.txt b/pkg/y.txt\n" + CHANGE.replace("+b2", "+b3")
    assert taken_over(bench, tree, tmp_path) == {"one/payload/p.py": left_out + other + made}


def test_a_diff_of_which_nothing_is_left_is_refused(bench: Bench, tmp_path: Path) -> None:
    bench.fill({"pkg/y.txt": "a\nb\nc\n"})
    bench.topic("one", DIFF, p=CHANGE)
    tree, _ = opened(bench, "one")
    bench.fill({"pkg/y.txt": "a\nb\nc\n"})
    with pytest.raises(PatchError, match="nothing is left of the diff"):
        taken_over(bench, tree, tmp_path)


def test_a_diff_that_drifted_is_opened_as_far_as_it_applies(bench: Bench, tmp_path: Path) -> None:
    bench.fill({"pkg/y.txt": "a\nB\nc\n", "pkg/z.txt": "a\nb\nc\n"})
    bench.topic("one", DIFF, p=HEADER + CHANGE + CHANGE.replace("y.txt", "z.txt"))
    tree, faults = opened(bench, "one")
    assert faults == ["patch-neither-applied-nor-applicable"]
    assert (bench.tree / "pkg/z.txt").read_text() == "a\nb2\nc\n"
    bench.fill({"pkg/y.txt": "a\nB2\nc\n"})
    taken_over(bench, tree, tmp_path)
    proc.run(["git", "checkout", "--quiet", "--", "."], cwd=bench.tree, env=git.own_environment())
    assert bench.apply().findings == ()
    assert (bench.tree / "pkg/y.txt").read_text() == "a\nB2\nc\n"


def test_a_text_that_upstream_changed_gets_its_new_hash(bench: Bench, tmp_path: Path) -> None:
    replaced = edit("replace-body", "p", "Worker.run", replaces="0" * 64)
    bench.topic("one", edit("append-to-body", "q") + f"# why it is replaced\n{replaced}", p="return 1\n", q="x = 1\n")
    assert bench.apply().findings[0].code == "patch-drifted"
    tree, faults = opened(bench, "one")
    assert faults == []
    written = taken_over(bench, tree, tmp_path)
    wanted = (bench.folder / "one/patch.toml").read_text()
    assert written == {"one/patch.toml": wanted}
    assert f'replaces = "{text_digest("return batch[: self.size]")}"' in wanted
    assert "# why it is replaced" in wanted


def test_an_anchor_that_is_gone_is_told_and_can_be_corrected_meanwhile(bench: Bench, tmp_path: Path) -> None:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.walk"), p="x = 1\n")
    tree, faults = opened(bench, "one")
    assert faults == ["patch-drifted"]
    bench.fill({"pkg/worker.py": WORKER.replace("batch):\n", "batch):\n        x = 2\n")})
    with pytest.raises(PatchError) as caught:
        taken_over(bench, tree, tmp_path)
    assert "has no `Worker.walk`" in str(caught.value)
    path = bench.folder / "one/patch.toml"
    path.write_text(path.read_text().replace("Worker.walk", "Worker.run"))
    assert taken_over(bench, tree, tmp_path / "second") == {"one/payload/p.py": "x = 2\n"}


def test_a_link_that_was_changed_is_refused(bench: Bench, tmp_path: Path) -> None:
    (bench.tree / "pkg/link.py").symlink_to("worker.py")
    bench.topic("one", edit("append-to-body", "p"), p="x = 1\n")
    tree, _ = opened(bench, "one")
    (bench.tree / "pkg/link.py").unlink()
    (bench.tree / "pkg/link.py").symlink_to("other.py")
    with pytest.raises(PatchError, match="is a link that was changed"):
        taken_over(bench, tree, tmp_path)


def test_commits_in_the_tree_do_not_matter(bench: Bench, tmp_path: Path) -> None:
    bench.topic("one", edit("append-to-body", "p"), p="x = 1\n")
    tree, _ = opened(bench, "one")
    bench.fill({"pkg/worker.py": WORKER + "x = 2\n"})
    identity = ["-c", "user.name=Toy", "-c", "user.email=toy@example.com"]
    proc.run(["git", *identity, "commit", "-qam", "mine"], cwd=bench.tree, env=git.own_environment())
    assert taken_over(bench, tree, tmp_path) == {"one/payload/p.py": "x = 2\n"}


STATEMENTS = st.lists(
    st.sampled_from(["y = 2", "if y:", "    z = '''a", "  b'''", "    pass", "# c", "", "y = [", "1]", "s = 'é'"]),
    max_size=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STATEMENTS, st.sampled_from(["    ", "  ", "\t"]))
def test_any_payload_is_read_back_or_refused(bench: Bench, lines: list[str], unit: str) -> None:
    """Put other lines where a payload stands; what comes back gives that file byte for byte."""
    from sglforge.patches.checkout import open_checkout
    from sglforge.patches.draft import Draft
    from sglforge.patches.fate import edited

    bench.fill({"pkg/worker.py": WORKER.replace("    ", unit)})
    if not bench.folder.exists():
        bench.topic("one", edit("prepend-to-body", "p", "Worker.run"), p="x = 1\n")
    topic = bench.load().named("one")
    base = Draft(checkout=open_checkout(bench.tree))
    new = "".join(f"{unit * 2}{line}\n" if line.strip() else "\n" for line in lines)
    raw = WORKER.replace("    ", unit).replace("batch):\n", f"batch):\n{new}").encode()
    goal = base.with_bytes("pkg/worker.py", raw)
    try:
        written = refresh(topic, base, goal, "1.0")
    except PatchError as error:
        assert error.code in {"patch-not-expressible", "patch-target-unreadable"}  # noqa: PT017 - either may be
        return
    payloads = {
        name: dataclasses.replace(payload, text=written[Path(payload.where)].decode())
        if Path(payload.where) in written
        else payload
        for name, payload in topic.payloads.items()
    }
    after = edited(dataclasses.replace(topic, payloads=payloads), base, "1.0").read("pkg/worker.py")
    assert after is not None
    assert after.raw == raw
