"""Read transcripts, ours and those of others."""

from __future__ import annotations

import json
from pathlib import Path

from sglforge.errors import ConfigError

_LONGEST_TRANSCRIPT = 64 * 1024 * 1024


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
        document: object = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            code="transcript-unreadable",
            message=f"the transcript cannot be read: {error.strerror}",
            where=str(file),
            hint="name a file: runs/<id>/transcript.json in the workspace is one",
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
