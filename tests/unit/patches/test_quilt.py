"""Plain quilt series: patches are topics as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_series import Bench, edit

from sglforge.errors import PatchError
from sglforge.patches.quilt import read_header
from sglforge.patches.result import TopicState
from sglforge.patches.series import load_series

OLD = "a\nb\nc\n"
BODY = "--- a/pkg/y.txt\n+++ b/pkg/y.txt\n@@ -1,3 +1,3 @@\n a\n-b\n+b2\n c\n"
HEADER = """\
Description: change the middle
 It is needed because the middle
 was wrong.
 .
 Really.
Origin: https://example.com/pull/1
Bug: https://example.com/issues/2
Forwarded: https://example.com/pull/1
Last-Update: 2026-01-01
---
"""


def write(bench: Bench, series: str, **patches: str) -> None:
    bench.folder.mkdir(parents=True, exist_ok=True)
    (bench.folder / "series").write_text(series)
    for name, text in patches.items():
        (bench.folder / f"{name}.patch").write_text(text)


def test_a_plain_series_is_applied(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    write(
        bench,
        "# a comment\n\nmiddle.patch\nlast.patch -p0 # a comment too\n",
        middle=HEADER + BODY,
        last="--- pkg/y.txt\n+++ pkg/y.txt\n@@ -1,3 +1,4 @@\n a\n b2\n c\n+d\n",
    )
    series = bench.load()
    assert [topic.name for topic in series.topics] == ["middle", "last"]
    words = series.topics[0].file
    assert words.description == "change the middle"
    assert words.reason == "It is needed because the middle\nwas wrong.\n\nReally."
    assert (words.origin, words.reference) == ("https://example.com/pull/1", "https://example.com/issues/2")
    assert words.forwarded == "https://example.com/pull/1"
    assert [topic.state for topic in bench.apply("0.1").topics] == [TopicState.APPLIED] * 2
    assert (bench.tree / "pkg/y.txt").read_text() == "a\nb2\nc\nd\n"


def test_patches_come_before_topics(bench: Bench) -> None:
    bench.topic("a-topic", edit("append-to-body", "p", file="pkg/other.py"), p="x = 1\n")
    append = "--- a/pkg/other.py\n+++ b/pkg/other.py\n@@ -1,2 +1,3 @@\n def f():\n     pass\n+y = 1\n"
    write(bench, "z-patch.patch\n", **{"z-patch": append})
    assert [topic.name for topic in bench.load().topics] == ["z-patch", "a-topic"]
    bench.apply().require()
    assert (bench.tree / "pkg/other.py").read_text().endswith("y = 1\nx = 1\n")


def test_one_patch_alone(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    write(bench, "middle.patch\n", middle=BODY)
    assert [topic.name for topic in bench.apply(topic="middle").topics] == ["middle"]


def test_a_patch_that_upstream_has_from_a_version_on(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    write(bench, "middle.patch\n", middle="Applied-Upstream: 0.5.13, https://example.com/commit/1\n" + BODY)
    assert bench.apply("0.5.13").topics[0].state is TopicState.UPSTREAMED
    assert bench.apply("0.5.12").topics[0].state is TopicState.APPLIED


def test_a_patch_may_say_its_versions(bench: Bench) -> None:
    bench.fill({"pkg/y.txt": OLD})
    write(bench, "middle.patch\n", middle="Subject: [PATCH 1/2] the middle\nVersions: <0.5.12\n\n" + BODY)
    assert bench.load().topics[0].file.description == "the middle"
    assert bench.apply("0.5.13").topics[0].state is TopicState.NOT_FOR_VERSION


@pytest.mark.parametrize(
    ("series", "patch", "where", "words"),
    [
        ("gone.patch\nmiddle.patch\n", BODY, "series:1", "cannot read the patch gone.patch"),
        ("middle.patch\nmiddle.patch\n", BODY, "series:2", "listed twice"),
        ("middle.patch -R\n", BODY, "series:1", "only -pN is known"),
        ("middle.patch -p\n", BODY, "series:1", "only -pN is known"),
        ("../middle.patch\nmiddle.patch\n", BODY, "series:1", "outside the series' folder"),
        ("# nothing\n", BODY, "series", "`middle.patch` is not in the series"),
        ("middle.patch\n", BODY.replace("+1,3", "+1,5"), "middle.patch:7", "corrupt on line 7"),
        ("middle.patch\n", "Versions: soon\n" + BODY, "middle.patch:1", "not a version specifier"),
        ("middle.patch\n", "Applied-Upstream: 1.0\nVersions: >=2\n" + BODY, "middle.patch:1", "both hold"),
        ("middle.patch -p9\n", BODY, "middle.patch:1", "has fewer than 10 parts"),
    ],
)
def test_a_broken_series_is_told_with_file_and_line(
    bench: Bench, series: str, patch: str, where: str, words: str
) -> None:
    write(bench, series, middle=patch)
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert caught.value.code == "patch-corrupt"
    told = {str(Path(str(f.where)).relative_to(bench.folder)): f.message for f in caught.value.findings}
    assert words in told[where]


def test_patches_without_a_series_are_forgotten(bench: Bench) -> None:
    write(bench, "", middle=BODY)
    (bench.folder / "series").unlink()
    with pytest.raises(PatchError) as caught:
        load_series(bench.root, "toy")
    assert "`middle.patch` is not in the series" in caught.value.findings[0].message


def test_a_topic_and_a_patch_of_one_name_are_refused(bench: Bench) -> None:
    bench.topic("middle", edit("append-to-body", "p"), p="x = 1\n")
    write(bench, "middle.patch\n", middle=BODY)
    with pytest.raises(PatchError) as caught:
        bench.load()
    assert "`middle` is listed twice" in caught.value.findings[0].message


def test_a_mail_is_a_header_too() -> None:
    text = "From 123 Mon Sep 17\nFrom: A <a@b>\nSubject: [PATCH] fix\n\nBecause of this.\n\n"
    fields = read_header(text + "Signed-off-by: A\n---\n x | 2 +-\n")
    assert (fields["from"], fields["subject"], fields["text"]) == ("A <a@b>", "[PATCH] fix", "Because of this.\n")
    assert "x | 2" not in "".join(fields.values())
