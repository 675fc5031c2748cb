"""Cases of kind smoke: a recorded transcript in whatever form the report gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cases.model import CaseError, Judgement
from sglforge.errors import ConfigError
from sglforge.smoke.recorded.judge import judge_recording


def judge(given: Mapping[str, Any]) -> Judgement | None:
    """Judge the transcript that a case holds.

    Raises CaseError when it is none.
    """
    try:
        recording = judge_recording(given, where="input")
    except ConfigError as error:
        raise CaseError(str(error)) from error
    return Judgement(verdict=recording.verdict, findings=recording.findings)
