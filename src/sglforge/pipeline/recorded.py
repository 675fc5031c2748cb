"""Read transcripts, ours and those of others."""

from __future__ import annotations

import json
import math
from pathlib import Path

from sglforge.base.workspace import Workspace
from sglforge.errors import ConfigError
from sglforge.smoke.transcript import is_ours

FILE = "transcript.json"
LATEST = "latest"

_LONGEST_TRANSCRIPT = 64 * 1024 * 1024


def transcript_files(workspace: Workspace) -> list[Path]:
    """Return the transcripts of all runs, the oldest first."""
    files = [file for file in workspace.runs.glob(f"*/{FILE}") if not file.parent.is_symlink()]
    return sorted(files, key=lambda file: (file.stat().st_mtime_ns, file))


def transcript_file(named: Path, workspace: Workspace) -> Path:
    """Return the transcript that a path, a run's folder, a run's id or ``latest`` names; a path that is none of these.

    ``latest`` is the last smoke test: other verbs leave runs without a transcript.
    """
    if named.is_dir():
        return named / FILE
    if named.exists() or len(named.parts) != 1:
        return named
    if named.name == LATEST and (files := transcript_files(workspace)):
        return files[-1]
    run = workspace.runs / named
    return run / FILE if run.is_dir() else named


def read_transcript(file: Path) -> object:
    """Read the JSON document of a transcript.

    Raises ConfigError ``transcript-unreadable`` and ``transcript-invalid``.
    """
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # a pipe or a device may never end
            raise ConfigError(
                code="transcript-unreadable",
                message="the transcript cannot be read: it is a pipe or a device, not a file",
                where=str(file),
                hint="write it to a file first, and name that",
            )
        if file.stat().st_size > _LONGEST_TRANSCRIPT:
            raise ConfigError(
                code="transcript-invalid",
                message=f"the transcript has more than {_LONGEST_TRANSCRIPT >> 20} MiB",
                where=str(file),
                hint="it is no transcript of smoke, or its log has to be shortened first",
            )
        odd: list[str] = []
        document: object = json.loads(
            file.read_text(encoding="utf-8"),
            parse_constant=lambda word: _number(word, odd),
            parse_float=lambda word: _number(word, odd),
        )
        if odd and is_ours(document):  # those of others may hold the NaN that they are about
            raise ValueError(f"smoke writes no number such as {odd[0]}")  # noqa: TRY301 - it is no JSON
    except OSError as error:
        raise ConfigError(
            code="transcript-unreadable",
            message=f"the transcript cannot be read: {error.strerror}",
            where=str(file),
            hint="name a transcript, a run's folder, a run's id or latest: runs/<id>/transcript.json is one",
        ) from error
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(
            code="transcript-invalid",
            message=f"the transcript is not JSON: {str(error)[:200]}",
            where=f"{file}{line}",
            hint="a transcript is one JSON document: docs/reference/transcripts.md",
        ) from error
    return document


def _number(word: str, odd: list[str]) -> float:
    """Return a number, and put the word aside if it stands for none that JSON can hold."""
    value = float(word)
    if not math.isfinite(value):
        odd.append(word)
    return value
