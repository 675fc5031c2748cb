"""What `lock` makes of the lock that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.config.lockfile import Lock, LockedPython, LockedTorch, dump_lock
from sglforge.errors import Severity
from sglforge.pipeline.locking import _previous

LOCK = Lock(
    format=1,
    stack="s",
    target="cpu",
    sources={},
    build_requires={},
    pythons=[
        LockedPython(minor="3.11", torch=LockedTorch(version="1.0", variant="cpu", sha256=[]), requirements=[]),
    ],
)


def test_a_sound_lock_is_kept(tmp_path: Path) -> None:
    (tmp_path / "s.cpu.lock.toml").write_text(dump_lock(LOCK))
    assert _previous(tmp_path / "s.cpu.lock.toml") == (LOCK, ())
    assert _previous(tmp_path / "other.lock.toml") == (None, ())


@pytest.mark.parametrize("text", [dump_lock(LOCK)[:-9], "<<<<<<< ours\n" + dump_lock(LOCK), ""])
def test_a_damaged_lock_is_made_anew_and_that_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.cpu.lock.toml"
    path.write_text(text)
    lock, (finding,) = _previous(path)
    assert lock is None
    assert (finding.code, finding.severity) == ("lock-invalid", Severity.WARNING)
    assert finding.where is not None
    assert finding.where.startswith(str(path))
