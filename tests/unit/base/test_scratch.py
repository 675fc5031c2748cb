"""base.scratch: working folders that are gone afterwards, also when their run was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from sglforge.base import scratch
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path)


def make_old(path: Path) -> None:
    past = time.time() - 3 * 24 * 3600
    os.utime(path, (past, past))


def test_a_working_folder_is_gone_afterwards(place: Workspace) -> None:
    with working_folder(place, "step") as folder:
        (folder / "deep" / "er").mkdir(parents=True)
        assert scratch.sweep(place) == ()
        make_old(folder)
        assert scratch.sweep(place) == (), "it is used, however old"
    assert list(place.scratch.iterdir()) == []
    with pytest.raises(ZeroDivisionError), working_folder(place, "step"):
        raise ZeroDivisionError
    assert list(place.scratch.iterdir()) == []


def test_what_a_killed_run_left_is_swept_at_once(place: Workspace) -> None:
    program = f"""
        import sys, time
        from pathlib import Path
        from sglforge.base.scratch import working_folder
        from sglforge.base.workspace import Workspace
        with working_folder(Workspace(root=Path({str(place.root)!r})), "step") as folder:
            (folder / "file").write_text("x")
            print(folder, flush=True)
            time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        left = Path(process.stdout.readline().strip())
        assert scratch.sweep(place) == ()
        process.kill()
    assert (left / "file").exists()
    with working_folder(place, "next") as folder:
        assert list(place.scratch.iterdir()) == [folder]


def test_what_was_kept_goes_when_it_is_old(place: Workspace) -> None:
    with working_folder(place, "kept", keep=True) as folder:
        pass
    assert scratch.sweep(place) == ()
    make_old(folder)
    assert scratch.sweep(place) == (folder,)
    assert scratch.sweep(place) == ()


def test_what_cannot_be_removed_stops_nobody(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.scratch.mkdir()
    for name in ("a.work", "b.work"):
        (place.scratch / name).mkdir()

    def refuse(path: Path) -> None:
        if path.name.startswith("a"):
            raise PermissionError
        path.rmdir()

    monkeypatch.setattr(scratch, "remove", refuse)
    assert scratch.sweep(place) == (place.scratch / "b.work",)
