"""Diffs that topics carry: what is refused when they are read, what git does with the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_series import WORDS, Bench

from sglforge.base import git, proc
from sglforge.errors import PatchError, Severity
from sglforge.patches.checkout import File, open_checkout
from sglforge.patches.diff import unified
from sglforge.patches.diffs import parse_diff
from sglforge.patches.draft import Draft
from sglforge.patches.gitapply import apply_diff, has_diff
from sglforge.patches.result import PatchResult, TopicState

OLD = "a\nb\nc\n"
CHANGE = "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+b2\n c\n"


def carry(bench: Bench, diff: str | bytes, more: str = "", name: str = "carried", versions: str = ">=1") -> None:
    """Add a topic that carries a diff."""
    edits = f'\n[[edits]]\nkind = "diff"\npayload = "change.patch"\n{more}'
    bench.topic(name, edits, versions=versions)
    (bench.folder / name / "change.patch").write_bytes(diff if isinstance(diff, bytes) else diff.encode())


def applied(bench: Bench, diff: str | bytes, more: str = "") -> PatchResult:
    carry(bench, diff, more)
    return bench.apply()


def refused(bench: Bench, diff: str | bytes, more: str = "") -> PatchError:
    carry(bench, diff, more)
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert caught.value.code == "patch-corrupt"
    return caught.value


def test_a_diff_is_applied_exactly(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    result = applied(bench, CHANGE)
    assert result.topics[0].files == ("pkg/y.txt",)
    assert (bench.tree / "pkg/y.txt").read_text() == "a\nb2\nc\n"
    assert result.diff == "diff --git a/pkg/y.txt b/pkg/y.txt\n" + CHANGE


MANY = """\
From 1234567890123456789012345678901234567890 Mon Sep 17 00:00:00 2001
From: Somebody <somebody@example.com>
Subject: [PATCH] several things

diff --git a/pkg/new file.txt b/pkg/new file.txt
new file mode 100755
index 0000000..1
--- /dev/null
+++ b/pkg/new file.txt
@@ -0,0 +1,2 @@
+one
+two
\\ No newline at end of file
diff --git a/pkg/gone.txt b/pkg/gone.txt
deleted file mode 100644
--- a/pkg/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/pkg/from.txt b/deep/er/to.txt
similarity index 80%
rename from pkg/from.txt
rename to deep/er/to.txt
--- a/pkg/from.txt
+++ b/deep/er/to.txt
@@ -1,3 +1,3 @@
 a
-b
+B
 c
diff --git a/pkg/run.sh b/pkg/run.sh
old mode 100644
new mode 100755
@@@
"""
MANY = MANY.replace("@@@", "-- \n2.39.5")
MANY_TREE = {"pkg/gone.txt": "x\n", "pkg/from.txt": OLD, "pkg/run.sh": "exit 0\n", "alone/keep.txt": "k\n"}


def test_files_come_go_move_and_change_their_mode(bench: Bench) -> None:
    bench.fill(MANY_TREE)
    result = applied(bench, MANY)
    assert result.findings == ()
    contents = bench.contents()
    assert contents["pkg/new file.txt"] == b"one\ntwo"
    assert contents["deep/er/to.txt"] == b"a\nB\nc\n"
    assert not {"pkg/gone.txt", "pkg/from.txt"} & contents.keys()
    assert os.access(bench.tree / "pkg/new file.txt", os.X_OK)
    assert os.access(bench.tree / "pkg/run.sh", os.X_OK)
    assert not os.access(bench.tree / "deep/er/to.txt", os.X_OK)
    again = bench.apply()
    assert again.topics[0].state is TopicState.UPSTREAMED


def test_the_effective_diff_can_be_taken_out_again(bench: Bench, tmp_path: Path) -> None:
    bench.fill(MANY_TREE)
    before = bench.contents()
    result = applied(bench, MANY)
    (tmp_path / "effective.diff").write_text(result.diff)
    argv = ["git", "apply", "--whitespace=nowarn", "--reverse", str(tmp_path / "effective.diff")]
    proc.run(argv, cwd=bench.tree, env=git.plain_environment(bench.tree))
    assert bench.contents() == before


def test_a_folder_goes_with_its_last_file(bench: Bench) -> None:
    bench.fill({"alone/x.txt": "x\n"})
    applied(bench, "--- a/alone/x.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n").require()
    assert not (bench.tree / "alone").exists()
    assert (bench.tree / "pkg").is_dir()


@pytest.mark.parametrize(
    ("diff", "line", "words"),
    [
        (CHANGE.replace("-1,3 +1,3", "-1,3 +1,9"), 7, "hunk is shorter than expected"),
        (CHANGE.replace("-1,3 +1,3", "-1,2 +1,2"), 7, "longer than its header says"),
        (CHANGE.replace("-1,3 +1,3", "-1,4 +1,4"), 7, "shorter than expected"),
        (CHANGE.replace(" a\n", "a\n"), 4, "hunk diff line expected"),
        (CHANGE.replace("+b2\n", "+b2\n+b3\n"), 8, "the hunk on line 3: hunk is longer than expected"),
        (CHANGE.replace("+++ b/pkg/y.txt\n", ""), 2, "unexpected hunk found"),
        (CHANGE.replace("-b\n+b2\n", " b\n"), 3, "the hunk changes nothing"),
        # git would put such lines at the end of the file, whatever line the hunk names
        ("--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -1,0 +2 @@\n+new\n", 3, "nothing says where it goes"),
        (CHANGE[:-1], 7, "the last line (7) of the diff has no newline"),
        ("only words\n", 1, "it changes no file"),
        ("", 1, "it changes no file"),
        (CHANGE + "@@ -9 +9 @@\n-x\n", 9, "shorter than expected"),
        ("diff --git a/x.bin b/x.bin\nBinary files a/x.bin and b/x.bin differ\n", 1, "binary change"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", 1, "a link"),
    ],
)
def test_a_corrupt_diff_is_refused_with_its_line(bench: Bench, diff: str, line: int, words: str) -> None:
    error = refused(bench, diff)
    (finding,) = error.findings
    assert finding.where == f"{bench.folder / 'carried' / 'change.patch'}:{line}"
    assert finding.code == "patch-corrupt"
    assert words in finding.message
    assert "already applied" not in finding.message


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../x.txt", "a/pkg/../y.txt", '"a/\\056\\056/x"', "../x"])
@pytest.mark.parametrize("side", ["---", "+++"])
def test_names_that_leave_the_tree_are_unsafe(bench: Bench, name: str, side: str) -> None:
    other = {"---": "+++ b/pkg/y.txt", "+++": "--- a/pkg/y.txt"}[side]
    first, second = (f"{side} {name}", other) if side == "---" else (other, f"{side} {name}")
    error = refused(bench, f"{first}\n{second}\n@@ -1 +1 @@\n-a\n+b\n")
    (finding,) = error.findings
    assert finding.code == "patch-path-unsafe"
    assert str(finding.where).endswith("change.patch:1")


@pytest.mark.parametrize("name", ["pkg/out.txt", "pkg/outside/x.txt"])
def test_a_link_out_of_the_tree_is_unsafe(bench: Bench, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/x.txt").write_text("a\n")
    (bench.tree / "pkg/out.txt").symlink_to(tmp_path / "secret/x.txt")
    (bench.tree / "pkg/outside").symlink_to(tmp_path / "secret")
    result = applied(bench, f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n")
    assert [finding.code for finding in result.findings] == ["patch-path-unsafe"]
    assert (tmp_path / "secret/x.txt").read_text() == "a\n"


def test_a_link_inside_the_tree_is_no_file_for_a_diff(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    (bench.tree / "pkg/z.txt").symlink_to("y.txt")
    result = applied(bench, CHANGE.replace("y.txt", "z.txt"))
    assert result.findings[0].code == "patch-drifted"
    assert "is a link to pkg/y.txt" in result.findings[0].message


def test_neither_applied_nor_applicable_names_the_file(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": "a\nB-upstream-changed\nc\n", "pkg/z.txt": OLD})
    result = applied(bench, CHANGE.replace("y.txt", "z.txt") + CHANGE)
    assert result.topics[0].state is TopicState.DRIFTED
    (finding,) = result.findings
    assert finding.code == "patch-neither-applied-nor-applicable"
    assert "pkg/y.txt" in finding.message
    assert "z.txt" not in finding.message
    assert str(finding.where).endswith("change.patch:10")
    assert "already applied" not in finding.message + finding.hint
    assert (bench.tree / "pkg/z.txt").read_text() == OLD


def test_a_moved_target_is_named(bench: Bench) -> None:
    bench.fill({"python/sglang/kernels/aot/CMakeLists.txt": OLD, "python/pyproject.toml": ""})
    result = applied(bench, CHANGE.replace("pkg/y.txt", "sgl-kernel/CMakeLists.txt"))
    (finding,) = result.findings
    assert finding.code == "patch-target-moved"
    assert "python/sglang/kernels/aot/CMakeLists.txt" in finding.message
    assert "corrupt" not in finding.message


def test_a_change_that_upstream_has_can_be_dropped(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": "a\nb2\nc\n"})
    result = applied(bench, CHANGE)
    assert result.topics[0].state is TopicState.UPSTREAMED
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("patch-upstreamed", Severity.INFO)
    assert "can be dropped" in finding.message
    assert "conflict" not in finding.message
    assert result.tree_id is not None


def test_half_of_a_change_is_a_conflict(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": "a\nb2\nc\n", "pkg/z.txt": OLD})
    result = applied(bench, CHANGE + CHANGE.replace("y.txt", "z.txt"))
    assert result.topics[0].state is TopicState.CONFLICT
    assert result.findings[0].code == "patch-already-there"
    assert "pkg/y.txt" in result.findings[0].message
    assert "z.txt" not in result.findings[0].message


def test_a_file_that_the_diff_would_make_is_there_with_other_words(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": "mine\n"})
    result = applied(bench, "--- /dev/null\n+++ b/pkg/y.txt\n@@ -0,0 +1 @@\n+theirs\n")
    assert result.findings[0].code == "patch-drifted"
    assert (bench.tree / "pkg/y.txt").read_text() == "mine\n"


def test_a_diff_is_never_applied_with_fuzz(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": "A\nb\nc\n"})
    assert applied(bench, CHANGE).findings[0].code == "patch-neither-applied-nor-applicable"


LATER = "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -2,4 +2,4 @@\n a\n-b\n+b2\n c\n d\n"


def test_an_empty_file_is_filled_without_context(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": ""})
    applied(bench, "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -0,0 +1 @@\n+new\n")
    assert (bench.tree / "pkg/y.txt").read_text() == "new\n"


def test_a_hunk_may_have_moved_but_not_to_one_of_two_places(bench: Bench) -> None:
    part = "a\nb\nc\nd\n"
    bench.fill({"pkg/y.txt": "1\n2\n3\n" + part})
    assert applied(bench, LATER).findings == ()
    assert (bench.tree / "pkg/y.txt").read_text() == "1\n2\n3\na\nb2\nc\nd\n"
    bench.fill({"pkg/y.txt": "1\n2\n" + part + "---\n" + part})
    (finding,) = bench.apply().findings
    assert finding.code == "patch-anchor-ambiguous"
    assert "on lines 3, 8" in finding.message
    bench.fill({"pkg/y.txt": "1\n" + part + "---\n" + part})  # the line that the hunk names settles it
    assert bench.apply().findings == ()
    assert (bench.tree / "pkg/y.txt").read_text() == "1\na\nb2\nc\nd\n---\n" + part


def test_a_hunk_that_is_there_and_fits_elsewhere_is_not_made_twice(bench: Bench) -> None:
    insertion = "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -2,2 +2,3 @@\n a\n+x\n c\n"
    bench.fill({"pkg/y.txt": "1\na\nx\nc\n\na\nc\n"})
    (finding,) = applied(bench, insertion).findings
    assert finding.code == "patch-anchor-ambiguous"


def made(name: str) -> str:
    return f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+new\n"


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        (made("pkg/y.txt/z.txt"), "pkg/y.txt is a file"),
        (made("pkg/y.txt/deep/er.txt"), "pkg/y.txt is a file"),
        (made("pkg"), "pkg, which is a folder"),
        (made("new") + made("new/er"), "new is a file"),
        ("--- a/pkg/y.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-a\n-b\n-c\n" + made("pkg/y.txt/z"), "pkg/y.txt is a file"),
    ],
)
def test_a_new_file_below_a_file_is_refused_in_memory(bench: Bench, diff: str, said: str) -> None:
    bench.fill({"pkg/y.txt": OLD})
    before = bench.contents()
    (finding,) = applied(bench, diff).findings
    assert finding.code == "patch-drifted"
    assert said in finding.message
    assert bench.contents() == before


def test_a_new_file_in_the_place_of_an_earlier_topics_folder_is_refused(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    before = bench.contents()
    carry(bench, made("new/er.txt"), name="a")
    carry(bench, made("new"), name="b")
    (finding,) = bench.apply().findings
    assert finding.code == "patch-conflict"
    assert "new, which is a folder" in finding.message
    assert bench.contents() == before


TWENTY = "".join(f"{number}\n" for number in range(1, 21))
BARE = "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -3 +3,2 @@\n-3\n+drei\n+3b\n@@ -10,2 +11 @@\n-10\n-11\n+zehn\n"


def test_a_hunk_without_context_goes_to_its_own_lines(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": TWENTY})
    assert applied(bench, BARE).findings == ()
    changed = TWENTY.replace("\n3\n", "\ndrei\n3b\n").replace("10\n11\n", "zehn\n")
    assert (bench.tree / "pkg/y.txt").read_text() == changed
    assert bench.apply().topics[0].state is TopicState.UPSTREAMED


@pytest.mark.parametrize(
    "there",
    [
        "0\n" + TWENTY,  # one line further down: the lines are there once, and elsewhere
        TWENTY.replace("10\n", "ten\n"),
        "3\n2\nx\n" + TWENTY,
    ],
)
def test_a_hunk_without_context_goes_nowhere_else(bench: Bench, there: str) -> None:
    bench.fill({"pkg/y.txt": there})
    (finding,) = applied(bench, BARE).findings
    assert finding.code == "patch-neither-applied-nor-applicable"
    assert "without context" in finding.hint
    assert (bench.tree / "pkg/y.txt").read_text() == there


def test_a_hunk_without_context_must_say_where_it_ends_up(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": TWENTY + TWENTY})
    (finding,) = applied(bench, BARE.replace("+11 @@", "+31 @@")).findings
    assert finding.code == "patch-neither-applied-nor-applicable"
    assert finding.where == f"{bench.folder / 'carried' / 'change.patch'}:7"


def test_files_without_context_do_not_loosen_the_others(bench: Bench) -> None:
    whole = "--- a/pkg/one.txt\n+++ b/pkg/one.txt\n@@ -1 +1 @@\n-a\n+b\n"  # a file of one line, says the diff
    bench.fill({"pkg/y.txt": TWENTY, "pkg/one.txt": "a\nmore\n"})
    (finding,) = applied(bench, BARE + whole).findings
    assert finding.code == "patch-neither-applied-nor-applicable"
    assert (bench.tree / "pkg/y.txt").read_text() == TWENTY
    bench.fill({"pkg/one.txt": "a\n"})
    assert bench.apply().findings == ()
    assert (bench.tree / "pkg/one.txt").read_text() == "b\n"


def test_lines_deleted_without_context_are_never_taken_for_upstreams(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": TWENTY})
    assert applied(bench, "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -4 +3,0 @@\n-4\n").findings == ()
    assert (bench.tree / "pkg/y.txt").read_text() == TWENTY.replace("\n4\n", "\n")
    assert bench.apply().findings[0].code == "patch-neither-applied-nor-applicable"


def test_carriage_returns_are_text(bench: Bench) -> None:
    crlf = CHANGE.replace(" a\n", " a\r\n").replace("b\n", "b\r\n").replace("b2\n", "b2\r\n").replace(" c\n", " c\r\n")
    bench.fill({"pkg/y.txt": OLD.replace("\n", "\r\n")})
    assert applied(bench, crlf).findings == ()
    assert (bench.tree / "pkg/y.txt").read_bytes() == b"a\r\nb2\r\nc\r\n"
    bench.fill({"pkg/y.txt": OLD})
    (finding,) = bench.apply().findings
    assert finding.code == "patch-neither-applied-nor-applicable"
    assert "only the line endings differ" in finding.hint


def test_bytes_of_any_encoding_and_a_lacking_newline_are_kept(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": b"\xe9\xe8\n\x0c\nb"})
    diff = b"--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -1,3 +1,4 @@\n \xe9\xe8\n \x0c\n+\xff\n b\n"
    assert applied(bench, diff + b"\\ No newline at end of file\n").findings == ()
    assert (bench.tree / "pkg/y.txt").read_bytes() == b"\xe9\xe8\n\x0c\n\xff\nb"


@pytest.mark.parametrize(
    ("there", "named", "strip"),
    [
        ("python/sglang/y.txt", "a/python/sglang/y.txt", 1),
        ("sglang/y.txt", "a/python/sglang/y.txt", 1),
        ("python/sglang/y.txt", "a/sglang/y.txt", 1),
        ("sglang/y.txt", "sglang/y.txt", 0),
        ("sglang/y.txt", "work/tree/python/sglang/y.txt", 2),
    ],
)
def test_a_diff_of_one_layout_fits_the_other(bench: Bench, there: str, named: str, strip: int) -> None:
    bench.fill({there: OLD})
    diff = f"--- {named}\n+++ {named}\n@@ -1,3 +1,3 @@\n a\n-b\n+b2\n c\n"
    new = named.replace("y.txt", "new/z.txt")
    diff += f"--- /dev/null\n+++ {new}\n@@ -0,0 +1 @@\n+z\n"
    result = applied(bench, diff, f"strip = {strip}\n")
    assert result.findings == ()
    assert (bench.tree / there).read_text() == "a\nb2\nc\n"
    assert (bench.tree / there).with_name("new").joinpath("z.txt").read_text() == "z\n"


def test_too_many_folders_to_strip_is_corrupt(bench: Bench) -> None:
    assert "has fewer than 5 parts" in refused(bench, CHANGE, "strip = 4\n").findings[0].message


def test_files_that_a_tree_lacks_can_be_left_out(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    diff = CHANGE + CHANGE.replace("pkg/y.txt", "test/srt/test_y.txt")
    assert applied(bench, diff, 'exclude = ["test/*"]\n').findings == ()
    path = bench.folder / "carried/patch.toml"
    path.write_text(path.read_text().replace("test/*", "tests/*"))
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert "no file of the diff fits the glob `tests/*`" in caught.value.findings[0].message
    path.write_text(path.read_text().replace("tests/*", "*"))
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert "every file of the diff is excluded" in caught.value.findings[0].message


def test_a_mode_that_is_there_is_not_made_again(bench: Bench) -> None:
    bench.fill({"pkg/run.sh": "exit 0\n"})
    diff = "diff --git a/pkg/run.sh b/pkg/run.sh\nold mode 100644\nnew mode 100755\n"
    applied(bench, diff).require()
    assert os.access(bench.tree / "pkg/run.sh", os.X_OK)
    assert bench.apply().topics[0].state is TopicState.UPSTREAMED


def test_an_edited_module_is_held_to_the_contracts(bench: Bench) -> None:
    diff = "--- a/pkg/other.py\n+++ b/pkg/other.py\n@@ -1,2 +1,2 @@\n def f():\n-    pass\n+    missing()\n"
    assert applied(bench, diff).findings[0].code == "patch-undefined-name"
    (bench.folder / "carried/change.patch").write_text(diff.replace("missing()", "return ("))
    assert bench.apply().findings[0].code == "patch-does-not-compile"
    new = "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1 @@\n+missing()\n"
    (bench.folder / "carried/change.patch").write_text(new)
    assert bench.apply().findings[0].code == "patch-undefined-name"


def test_a_later_topic_that_undoes_a_diff_is_a_conflict(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    carry(bench, CHANGE, name="one")
    carry(bench, CHANGE.replace("-b\n+b2\n", "-b2\n+b3\n"), name="two")
    result = bench.apply()
    assert [topic.state for topic in result.topics] == [TopicState.CONFLICT, TopicState.APPLIED]
    assert (bench.tree / "pkg/y.txt").read_text() == OLD


def test_a_diff_on_the_result_of_another_is_applied_after_it(bench: Bench) -> None:
    carry(bench, "--- /dev/null\n+++ b/pkg/y.txt\n@@ -0,0 +1,3 @@\n+a\n+b\n+c\n", name="one")
    carry(bench, "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -1,3 +1,4 @@\n a\n b\n c\n+d\n", name="two")
    assert bench.apply().findings == ()
    assert (bench.tree / "pkg/y.txt").read_text() == "a\nb\nc\nd\n"


def test_a_tree_inside_an_ignored_folder_of_a_repository_is_patched(bench: Bench) -> None:
    proc.run(["git", "init", "-q", str(bench.tree.parent)])
    (bench.tree.parent / ".gitignore").write_text("tree/\n")
    bench.fill({"pkg/y.txt": OLD})
    assert applied(bench, CHANGE).findings == ()
    assert (bench.tree / "pkg/y.txt").read_text() == "a\nb2\nc\n"


def test_git_is_named_when_it_is_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench.fill({"pkg/y.txt": OLD})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PatchError) as caught:
        applied(bench, CHANGE)
    assert caught.value.code == "git-missing"


def test_the_words_above_a_diff_do_not_count(bench: Bench) -> None:
    carry(bench, "Description: one\n\n" + CHANGE)
    first = bench.load().digest("1.0")
    (bench.folder / "carried/change.patch").write_text("Description: another\n\n" + CHANGE)
    assert bench.load().digest("1.0") == first
    (bench.folder / "carried/change.patch").write_text(CHANGE.replace("b2", "b3"))
    assert bench.load().digest("1.0") != first
    assert WORDS


LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"  c", b"\x0c", b"\xe9\xe8", b"x\r", b"-- ", b"+d"]), max_size=9)
ENDS = st.sampled_from([b"", b"\n"])


@settings(deadline=None, max_examples=60)
@given(LINES, LINES, ENDS, ENDS, st.booleans(), st.booleans())
def test_any_change_goes_in_and_out(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[bytes],
    new: list[bytes],
    old_end: bytes,
    new_end: bytes,
    was: bool,
    runs: bool,
) -> None:
    before = File(raw=b"\n".join(old) + (old_end if old else b""))
    after = File(raw=b"\n".join(new) + (new_end if new else b""), executable=runs)
    raw = unified("d/f", before if was else None, after).encode(
        "utf-8" if _is_utf8(before, after, was=was) else "latin-1"
    )
    if not raw:
        return
    diff = parse_diff(raw, "change.patch")
    tree = tmp_path_factory.mktemp("tree")
    (tree / "d").mkdir()
    (tree / "keep").touch()
    if was:
        (tree / "d/f").write_bytes(before.raw)
    draft = Draft(checkout=open_checkout(tree))
    changed = apply_diff(draft, diff)
    assert changed.read("d/f") == after
    assert has_diff(changed, diff)
    assert not has_diff(draft, diff)


def _is_utf8(before: File, after: File, *, was: bool) -> bool:
    try:
        (b"".join([before.raw] if was else []) + after.raw).decode()
    except UnicodeDecodeError:
        return False
    return True
