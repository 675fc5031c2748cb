"""The topics of this repository: they load, their payloads parse, and every fault of the engine has a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.patches.faults import STATES
from sglforge.patches.payload import understand
from sglforge.patches.series import load_series
from sglforge.patches.topic import Topic

ROOT = Path(__file__).parents[3]


def shipped() -> list[Topic]:
    packages = sorted(path.parent.name for path in (ROOT / "patches").glob("*/series.toml"))
    return [topic for package in packages if (series := load_series(ROOT, package)) for topic in series.topics]


@pytest.mark.parametrize("topic", shipped(), ids=lambda topic: topic.name)
def test_a_topic_is_complete(topic: Topic) -> None:
    folder = Path(topic.document.path).parent
    used = {*topic.payloads, *(name for name, _, _ in topic.diffs)}
    assert {path.relative_to(folder).as_posix() for path in folder.glob("payload/*")} == used
    for name, payload in topic.payloads.items():
        if name.endswith(".py"):
            assert understand(payload).statements
        assert payload.text.startswith("# sglforge: ")
    if topic.file.evidence:
        assert any(topic.file.evidence in payload.text for payload in topic.payloads.values())


@pytest.mark.parametrize("code", STATES)
def test_a_fault_has_a_page(code: str) -> None:
    page = (ROOT / "docs" / "errors" / f"{code}.md").read_text()
    assert page.startswith(f"# {code}\n")
    assert "## Why it happens" in page
    assert "## What to do" in page
