"""What of a planned toolkit facts tell, and what only files do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_toolkit import NEEDS, RECIPE, lock_toolkit, wheel_files, write_wheel

from sglforge.base.workspace import Workspace
from sglforge.host.cuda.choose import Chosen, Judged
from sglforge.host.cuda.model import CudaToolkit
from sglforge.host.facts import FoundToolkit
from sglforge.pipeline.toolkits import PlannedToolkit
from sglforge.provision.toolkit import locked_toolkit


@pytest.fixture
def planned(tmp_path: Path) -> PlannedToolkit:
    lock = lock_toolkit(write_wheel(tmp_path, "toy_nvcc", "13.0.88", wheel_files()))
    toolkit = locked_toolkit(lock, RECIPE, Workspace(root=tmp_path))
    chosen = Chosen(toolkit=toolkit, why="the lock's: this machine has none")
    return PlannedToolkit(chosen=chosen, judged=(), recipe=RECIPE, locked=lock, needs=(NEEDS,))


def test_a_build_with_nothing_to_do_is_remembered_where_no_toolkits_files_decide(planned: PlannedToolkit) -> None:
    old = Judged(found=FoundToolkit(home="/old", origin="CUDA_HOME", nvcc="12.8.93"), why_not="it is old")
    part = Judged(found=FoundToolkit(home="/part", origin="x", nvcc="13.0.88"), why_not="it lacks", incomplete=True)
    found = CudaToolkit(home=Path("/own"), origin="x", release="13.0", version="13.0.88", fingerprint="f")
    assert not planned.rests_on_files
    assert not replace(planned, judged=(old,)).rests_on_files
    assert replace(planned, judged=(old, part)).rests_on_files
    assert replace(planned, chosen=Chosen(toolkit=found, why="x fits")).rests_on_files


def test_a_line_says_where_a_toolkit_of_the_machine_is(planned: PlannedToolkit) -> None:
    assert planned.line == "CUDA 13.0 (the lock's: this machine has none)"
    found = CudaToolkit(home=Path("/own"), origin="CUDA_HOME", release="13.0", version="13.0.88", fingerprint="f")
    moved = replace(planned, chosen=Chosen(toolkit=found, why="CUDA_HOME fits"))
    assert moved.line == "CUDA 13.0.88 in /own (CUDA_HOME fits)"
    assert moved.to_json()["fingerprint"] == "f"
