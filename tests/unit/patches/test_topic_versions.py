"""What a topic says about upstream versions: alternatives, retirement, and contradictions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from toy_series import WORDS, WORKER, Bench, edit

from sglforge.errors import PatchError, Severity
from sglforge.patches.result import TopicState
from sglforge.patches.versions import common


def written(bench: Bench) -> str:
    return (bench.tree / "pkg/worker.py").read_text()


def test_an_alternative_is_chosen_by_version(bench: Bench) -> None:
    both = edit("append-to-body", "a", versions="<2") + edit("append-to-body", "b", versions=">=2rc1")
    bench.topic("one", both, a="x = 1\n", b="x = 2\n")
    assert bench.apply("1.0").findings == ()
    assert written(bench) == WORKER + "x = 1\n"
    bench.fill({"pkg/worker.py": WORKER})
    bench.apply("2.0rc1").require()
    assert written(bench) == WORKER + "x = 2\n"


def test_a_version_without_an_edit_is_an_error(bench: Bench) -> None:
    bench.topic("one", edit("append-to-body", "a", versions="<2"), a="x = 1\n")
    result = bench.apply("2.0")
    assert result.topics[0].state is TopicState.CORRUPT
    assert [(finding.code, finding.severity) for finding in result.findings] == [("patch-without-edits", "error")]
    assert written(bench) == WORKER


WAIVED = '[[contracts.waive]]\ncontract = "flag-exists"\nreason = "r"\n'
DEFAULTED = '[[contracts.defaulted]]\nattribute = "limit"\nclasses = ["Child"]\nreason = "r"\n'
UNSUPPORTED = '[[unsupported]]\nversions = ">=6,<5"\nreason = "r"\n'


@pytest.mark.parametrize(
    ("topic", "line", "said"),
    [
        ('versions = ">=0.6,<0.5"\n' + edit("append-to-body", "a"), 7, "no version is in that range"),
        ('versions = ">=1"\n' + edit("append-to-body", "a", versions=">2,<1"), 14, "no version is in that range"),
        (f'versions = ">=1,<2"\n{UNSUPPORTED}' + edit("append-to-body", "a"), 9, "no version is in that range"),
        (f'versions = ">=1"\n{WAIVED * 2}' + edit("append-to-body", "a"), 11, "`flag-exists` is declared twice"),
        (f'versions = ">=1"\n{DEFAULTED * 2}' + edit("append-to-body", "a"), 12, "in `Child` is declared twice"),
        (
            'versions = ">=1"\n[contracts]\nflags = ["--x", "--x"]\n' + edit("append-to-body", "a"),
            9,
            "--x is declared twice",
        ),
    ],
)
def test_what_says_nothing_or_twice_is_refused(bench: Bench, topic: str, line: int, said: str) -> None:
    bench.topic("one", topic, a="x = 1\n")
    path = bench.folder / "one/patch.toml"
    path.write_text(WORDS + topic)
    with pytest.raises(PatchError) as caught:
        bench.load()
    (finding,) = caught.value.as_findings()
    assert (finding.code, finding.where) == ("patch-corrupt" if "twice" in said else "invalid-value", f"{path}:{line}")
    assert said in finding.message


@pytest.mark.parametrize("text", [">1.0,<1.0.1", ">1.0rc1,<1.0rc2", "==1.*,!=1.0", ">=1,<2,!=1.*", "<0.1", ">9999"])
def test_a_range_is_empty_only_if_no_version_is_in_it(text: str) -> None:
    known = [Version(word) for word in ("0.0.1", "1.0.0.1", "1.0rc2.dev0", "1.5", "10000")]
    assert (common(text, text) is not None) is any(SpecifierSet(text).contains(one, prereleases=True) for one in known)


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
@pytest.mark.parametrize("name", ["series.toml", "series", "one/patch.toml"])
def test_what_is_no_file_is_told(bench: Bench, name: str, kind: str) -> None:
    """It is not passed over: a series that nobody reads would leave the tree unpatched."""
    bench.topic("one", edit("append-to-body", "a"), a="x = 1\n")
    path = bench.folder / name
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(PatchError) as caught:
        bench.load()
    findings = [finding for finding in caught.value.as_findings() if finding.where == str(path)]
    assert findings, caught.value.as_findings()
    assert "director" in findings[0].message or "No such file" in findings[0].message


def test_the_digest_is_of_the_chosen_edits(bench: Bench) -> None:
    both = edit("append-to-body", "a", versions="<2") + edit("append-to-body", "b", versions=">=2")
    bench.topic("one", both, a="x = 1\n", b="x = 2\n")
    old, new = bench.load().digest("1.0"), bench.load().digest("2.0")
    (bench.folder / "one/payload/b.py").write_text("x = 3\n")
    assert bench.load().digest("1.0") == old
    assert bench.load().digest("2.0") != new


RETIRED = 'superseded = "the flag --adaptive"\nsuperseded-from = "2.1"\n'


def test_a_superseded_topic_is_left_out_with_the_reason(bench: Bench) -> None:
    bench.topic("one", edit("append-to-body", "a"), a="x = 1\n", versions=">=1,<2", words=WORDS + RETIRED)
    result = bench.apply("2.1.post1")
    assert result.topics[0].state is TopicState.SUPERSEDED
    assert "--adaptive" in result.topics[0].message
    assert result.findings == ()
    assert written(bench) == WORKER
    assert bench.apply("2.0").topics[0].state is TopicState.NOT_FOR_VERSION
    assert bench.apply("1.9").topics[0].state is TopicState.APPLIED


def test_a_topic_that_upstream_took_can_be_dropped(bench: Bench) -> None:
    words = WORDS + 'upstreamed-from = "2"\n'
    bench.topic("one", edit("append-to-body", "a"), a="x = 1\n", versions=">=1,<2", words=words)
    result = bench.apply("2.0")
    assert result.topics[0].state is TopicState.UPSTREAMED
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("patch-upstreamed", Severity.INFO)
    assert "can be dropped" in finding.message
    assert result.tree_id is not None


def test_a_version_that_is_not_supported_is_a_warning(bench: Bench) -> None:
    words = WORDS + '[[unsupported]]\nversions = "==2.*"\nreason = "the hook is gone"\n'
    bench.topic("one", edit("append-to-body", "a"), a="x = 1\n")
    path = bench.folder / "one/patch.toml"
    path.write_text(WORDS + 'versions = "<2"\n' + words.removeprefix(WORDS) + edit("append-to-body", "a"))
    bench.topic("two", edit("append-to-body", "b"), b="y = 1\n")
    result = bench.apply("2.0")
    assert [topic.state for topic in result.topics] == [TopicState.UNSUPPORTED, TopicState.APPLIED]
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("patch-unsupported", Severity.WARNING)
    assert "the hook is gone" in finding.message
    assert bench.load().remarks("2.0") == (finding,)
    assert bench.load().remarks("1.0") == ()
    assert result.require()
    assert written(bench) == WORKER + "y = 1\n"


@pytest.mark.parametrize(
    ("versions", "more", "line", "words"),
    [
        (">=1", RETIRED, 9, "`superseded-from` and `versions` both hold 2.1"),
        ("==2.*", RETIRED, 9, "both hold 2.1"),
        ("<2", 'superseded-from = "2"\n', 8, "`superseded-from` without `superseded`"),
        ("<2", RETIRED + 'upstreamed-from = "3"\n', 10, "has both"),
        ("<2", '[[unsupported]]\nversions = "==1.5"\nreason = "r"\n', 8, "`unsupported` ==1.5 and `versions`"),
        ("<2", RETIRED + '[[unsupported]]\nversions = ">3"\nreason = "r"\n', 10, "`superseded-from` both hold"),
        ("<2", edit("append-to-body", "a", versions=">=2"), 14, "is never made"),
    ],
)
def test_contradictions_are_found_on_reading(bench: Bench, versions: str, more: str, line: int, words: str) -> None:
    bench.topic("one", "", a="x = 1\n")
    path = bench.folder / "one/patch.toml"
    path.write_text(f'{WORDS}versions = "{versions}"\n{more}{edit("append-to-body", "a")}')
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert caught.value.code == "patch-corrupt"
    told = {finding.where: finding.message for finding in caught.value.findings}
    assert words in told[f"{path}:{line}"]


def test_a_file_may_have_moved_between_versions(bench: Bench) -> None:
    moved = edit("append-to-body", "a").replace('"pkg/worker.py"', '["old/worker.py", "pkg/worker.py"]')
    bench.topic("one", moved, a="x = 1\n")
    result = bench.apply()
    assert (result.topics[0].files, result.findings) == (("pkg/worker.py",), ())
    assert written(bench) == WORKER + "x = 1\n"
    bench.fill({"old/worker.py": WORKER, "pkg/worker.py": WORKER})
    (finding,) = bench.apply().findings
    assert finding.code == "patch-target-ambiguous"
    assert "old/worker.py and pkg/worker.py" in finding.message
    (bench.tree / "old/worker.py").rename(bench.tree / "worker.py")
    (bench.tree / "pkg/worker.py").unlink()
    (finding,) = bench.apply().findings
    assert finding.code == "patch-target-moved"
    assert finding.message.endswith("files of that name: worker.py")


def test_a_bad_place_in_a_list_is_told(bench: Bench) -> None:
    bench.topic("one", edit("append-to-body", "a").replace('"pkg/worker.py"', '["pkg/worker.py", "../x.py"]'))
    with pytest.raises(PatchError) as caught:
        bench.load()
    (finding,) = caught.value.findings
    assert "'../x.py' is not a relative path" in finding.message
    assert (finding.code, finding.subject) == ("invalid-value", "edits[0].file[1]")


@pytest.mark.parametrize(
    ("tree", "written", "found"),
    [
        (["python/sglang/a.py"], "sglang/a.py", "python/sglang/a.py"),
        (["python/sglang/a.py"], "python/sglang/a.py", "python/sglang/a.py"),
        (["sglang/a.py"], "python/sglang/a.py", "sglang/a.py"),
        (["sglang/a.py"], "sglang/a.py", "sglang/a.py"),
        (["python/pyproject.toml", "python/pkg/a.py"], "pkg/a.py", "python/pkg/a.py"),
        (["python/sglang/x.py", "sgl-kernel/a.py"], "sgl-kernel/a.py", "sgl-kernel/a.py"),
    ],
)
def test_a_topic_is_for_both_layouts_of_a_tree(bench: Bench, tree: list[str], written: str, found: str) -> None:
    bench.fill(dict.fromkeys(tree, "x = 1\n"))
    bench.topic("one", edit("append-to-body", "a", file=written), a="y = 1\n")
    result = bench.apply()
    assert result.topics[0].files == (found,)
    assert (bench.tree / found).read_text() == "x = 1\ny = 1\n"


def test_a_file_in_both_layouts_is_ambiguous(bench: Bench) -> None:
    bench.fill({"python/pyproject.toml": "", "python/setup.py": "x = 1\n", "setup.py": "x = 1\n"})
    bench.topic("one", edit("append-to-body", "a", file="setup.py"), a="y = 1\n")
    assert bench.apply().findings[0].code == "patch-target-ambiguous"


ENDS = ("rc1", "", ".post1", ".1", ".3")
NUMBERS = [Version(f"{major}.{minor}{end}") for major in (0, 1, 2) for minor in (0, 1, 2) for end in ENDS]
CLAUSES = st.builds(
    lambda operator, version: operator + str(version),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from(NUMBERS),
)
SPECIFIERS = st.lists(CLAUSES | st.sampled_from(["~=1.1", "==1.*", "==1.1.*", "!=1.*"]), min_size=1, max_size=3)


@settings(deadline=None)
@given(SPECIFIERS, SPECIFIERS)
def test_versions_that_two_specifiers_share_are_found(first: list[str], second: list[str]) -> None:
    one, other = ",".join(first), ",".join(second)
    shared = [
        number for number in NUMBERS if all(SpecifierSet(s).contains(number, prereleases=True) for s in (one, other))
    ]
    found = common(one, other)
    if shared:
        assert found is not None
    if found is not None:
        assert all(SpecifierSet(s).contains(found, prereleases=True) for s in (one, other))
