"""Topics that somebody wrote to break things, or that a tool wrote: a fault with a code each, never a bug of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_series import Bench, edit

from sglforge.errors import PatchError
from sglforge.patches.diffs import parse_diff
from sglforge.patches.result import TopicState

NEW = "--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x = 1\n"


def new_file(name: str) -> str:
    return NEW.format(name=name)


@pytest.mark.parametrize(
    "code",
    ["y = " + "1+" * 20000 + "1\n", "y = " + "-" * 20000 + "1\n", "y = " + "(" * 150 + "1" + ")" * 150 + "\n"],
    ids=["sum", "sign", "brackets"],
)
def test_a_payload_that_is_nested_too_deeply_is_corrupt(bench: Bench, code: str) -> None:
    bench.topic("deep", edit("append-to-body", "deep"), deep=code)
    (topic,) = bench.apply().topics
    assert topic.state in {TopicState.CORRUPT, TopicState.APPLIED}
    assert (topic.state is TopicState.APPLIED) is code.startswith("y = (")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000], ids=["arrays", "digits"])
def test_a_topic_that_toml_cannot_hold_is_corrupt(bench: Bench, text: str) -> None:
    bench.topic("deep", edit("append-to-body", "deep"), deep="y = 1\n")
    (bench.folder / "deep" / "patch.toml").write_text(text)
    with pytest.raises(PatchError) as caught:
        bench.apply()
    assert caught.value.code == "patch-corrupt"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".git/hooks/post-checkout", "belongs to git"),
        ("pkg/.GIT/config", "belongs to git"),
        (f"pkg/{'n' * 300}.py", "too long"),
    ],
)
def test_a_diff_must_name_a_file_that_a_tree_may_have(name: str, said: str) -> None:
    with pytest.raises(PatchError, match=said) as caught:
        parse_diff(new_file(name).encode(), "t.patch")
    assert caught.value.code == "patch-path-unsafe"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("NEW.md", "NEW.md"),
        ("fresh/z.py", "fresh/z.py"),
        ("python/sglang/z.py", "python/sglang/z.py"),
        ("sglang/z.py", "python/sglang/z.py"),
    ],
)
def test_a_new_file_goes_where_the_diff_says(bench: Bench, name: str, place: str) -> None:
    (bench.tree / "python" / "sglang").mkdir(parents=True)
    (bench.tree / "python" / "sglang" / "m.py").write_text("x = 1\n")
    bench.topic("new", '\n[[edits]]\nkind = "diff"\npayload = "new.patch"\n')
    (bench.folder / "new" / "new.patch").write_text(new_file(name))
    assert bench.apply().require()
    assert [path for path in sorted(bench.tree.rglob("*")) if path.name in {"NEW.md", "z.py"}] == [
        bench.tree / Path(place)
    ]
