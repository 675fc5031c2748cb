"""Under which conditions a smoke test ran: what a later one must know to be compared with it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sglforge.base.ids import Sha256
from sglforge.smoke.measure import Speed, figure_of

_ENDS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a smoke test ran on, and how fast it was; None for what nobody knows.

    Attributes:
        sglang: The version that the server tells.
        receipt: The hash of the environment's receipt.
        weights: A hash that tells the model files apart, and those of the draft.
        host: Facts of the machine that a verdict depends on; of a server that somebody else runs, its address.
        variables: Variables that the launch script sets, each with a hash of its value: some are secret.
        seconds_to_ready: From the start to the first token.
        speed: What was measured.
    """

    sglang: str | None = None
    receipt: str | None = None
    weights: str | None = None
    host: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    seconds_to_ready: float | None = None
    speed: Speed = field(default_factory=Speed)

    def to_json(self) -> dict[str, object]:
        """Return it as a part of the transcript."""
        ready = self.seconds_to_ready
        return {
            "sglang": self.sglang,
            "receipt": self.receipt,
            "weights": self.weights,
            "host": dict(self.host),
            "variables": dict(self.variables),
            "seconds_to_ready": None if ready is None else round(ready, 3),
            "speed": self.speed.to_json(),
            "no_speed": self.speed.missing,
        }


def conditions_of(document: object) -> Conditions:
    """Read the conditions of a transcript; what it does not say is not known."""
    said = document if isinstance(document, Mapping) else {}

    def text(name: str) -> str | None:
        value = said.get(name)
        return value if isinstance(value, str) else None

    def texts(name: str) -> dict[str, str]:
        value = said.get(name)
        return {str(key): str(one) for key, one in value.items()} if isinstance(value, Mapping) else {}

    ready, speed = said.get("seconds_to_ready"), said.get("speed")
    figures = speed.items() if isinstance(speed, Mapping) else ()
    return Conditions(
        sglang=text("sglang"),
        receipt=text("receipt"),
        weights=text("weights"),
        host=texts("host"),
        variables=texts("variables"),
        seconds_to_ready=float(ready) if isinstance(ready, (int, float)) else None,
        speed=Speed(
            figures={str(name): figure for name, one in figures if (figure := figure_of(one))},
            missing=text("no_speed") or Speed().missing,
        ),
    )


def hashed(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables with hashes instead of their values."""
    return {name: hashlib.sha256(value.encode()).hexdigest()[:12] for name, value in variables.items()}


def weights_digest(folders: Sequence[Path]) -> Sha256 | None:
    """Return a hash over the files of model folders: names, sizes, and of each the first and last MiB.

    Weights of hundreds of gigabytes are not read for it; None where there is no folder or one cannot be read.
    """
    whole = hashlib.sha256()
    try:
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    whole.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
                    whole.update(_ends(path))
    except OSError:
        return None
    return Sha256(whole.hexdigest()) if folders else None


def _ends(path: Path) -> bytes:
    with path.open("rb") as stream:
        first = stream.read(_ENDS_BYTES)
        stream.seek(max(stream.tell(), path.stat().st_size - _ENDS_BYTES))
        return hashlib.sha256(first + stream.read(_ENDS_BYTES)).digest()
