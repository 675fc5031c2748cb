"""The requests of a smoke test with their answers, in a form that can be judged again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sglforge.base.files import write_json
from sglforge.smoke.client import Answer, Request, Status

Role = Literal["profile", "control"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request of a probe and its answer; ``server`` says which of the two servers gave it."""

    probe: str
    server: Role
    request: Request
    answer: Answer

    @property
    def status(self) -> Status:
        """HTTP status, or why there is none."""
        return self.answer.status

    @property
    def ok(self) -> bool:
        """Whether the server answered as asked."""
        return self.answer.status == 200

    def to_json(self) -> dict[str, object]:
        """Return a step of CONTRACT's transcript."""
        return {
            "probe": self.probe,
            "server": self.server,
            "request": self.request.to_json(),
            "status": self.answer.status,
            "seconds": round(self.answer.seconds, 3),
            "response": self.answer.response,
        }


def write(path: Path, *, steps: Sequence[Exchange], log: str, argv: Sequence[str]) -> None:
    """Write a transcript: the steps, the log of the profile's server, the command line that started it."""
    write_json(path, {"schema": 1, "steps": [step.to_json() for step in steps], "log": log, "argv": list(argv)})
