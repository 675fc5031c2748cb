"""base.runrecord: what is written can be read again, line by line."""

from __future__ import annotations

import json
from pathlib import Path

from sglforge.base import runrecord


def test_events_are_lines_of_json_in_order(tmp_path: Path) -> None:
    record = runrecord.start(tmp_path)
    record.event("step", name="fetch", path=Path("x"))
    record.event("step", name="bad\nname")
    lines = (record.folder / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["fetch", "bad\nname"]


def test_latest_points_at_the_newest_run(tmp_path: Path) -> None:
    first, second = runrecord.start(tmp_path), runrecord.start(tmp_path)
    assert first.id != second.id
    assert (tmp_path / "latest").resolve() == second.folder


def test_the_document_is_written_whole(tmp_path: Path) -> None:
    record = runrecord.start(tmp_path)
    record.write({"schema": 1, "argv": ["build"]})
    assert json.loads((record.folder / "run.json").read_text()) == {"schema": 1, "argv": ["build"]}
    assert record.log("sglang", "patch") == record.folder / "logs" / "sglang.patch.log"
