"""Recorded transcripts in many forms: each fault has its code, and its near-identical twin stays silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglforge.smoke.recorded.judge import judge_recording

SAMPLES = [
    json.loads(line) for line in (Path(__file__).parent / "samples.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["id"])
def test_a_transcript_is_judged(sample: dict[str, Any]) -> None:
    """The code must be among the findings; null wants no finding at all; ``-code`` wants this one absent."""
    judged = judge_recording(sample["document"], where="f.json")
    codes = {finding.code for finding in judged.findings}
    code = sample["code"]
    if code is None:
        assert not codes
    elif code.startswith("-"):
        assert code[1:] not in codes
    else:
        assert code in codes
    assert sample["verdict"] in {None, judged.verdict}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["id"])
def test_a_fault_never_sounds_like_success(sample: dict[str, Any]) -> None:
    judged = judge_recording(sample["document"], where="f.json")
    said = " ".join(f"{finding.message} {finding.hint}" for finding in judged.findings).casefold()
    assert "pass" not in said
    for wrong in ("output wrong", "nccl", "wrong arch", "out of memory", "temperature"):
        assert wrong not in said
