"""How long a start may take: what is worked out, what extends it, what cuts it short."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.config.model import Profile, Speculation, Target
from sglforge.smoke import activity, deadline
from sglforge.smoke.activity import Activity
from sglforge.smoke.deadline import Deadline, Patience, allowance, patience, weight_bytes

CPU = Target(name="cpu", description="This machine's CPU.", kind="cpu")
GPU = Target(name="sm120", description="A GPU.", kind="cuda")


def make_profile(model: str, draft: str | None = None, **changes: object) -> Profile:
    speculation = Speculation(algorithm="EAGLE", draft_model=draft) if draft else None
    profile = Profile(name="p", description="One.", target="cpu", model=model, speculation=speculation)
    return profile.model_copy(update=changes)


def weights(folder: Path, **sizes: int) -> Path:
    """Make files of any size that take no disk."""
    folder.mkdir(parents=True)
    for name, size in sizes.items():
        with (folder / name.replace("_", ".")).open("wb") as stream:
            stream.truncate(size)
    return folder


def test_the_wait_grows_with_the_weights(tmp_path: Path) -> None:
    small = weights(tmp_path / "small", a_safetensors=10**9, config_json=10)
    large = weights(tmp_path / "large", a_safetensors=300 * 10**9, b_safetensors=300 * 10**9)
    assert allowance(make_profile(str(small)), CPU, catalog_root=tmp_path).seconds == 180 + 10 + 60
    allowed = allowance(make_profile(str(large)), GPU, catalog_root=tmp_path)
    assert allowed.seconds == 180 + 6000 + 300 + 1200
    assert allowed.because == (
        "180 s for imports + 6000 s for 600.0 GB of weights at 100 MB/s + 300 s for graphs + 1200 s for JIT compiling"
    )
    eager = make_profile(str(small), flags={"disable-cuda-graph": True})
    assert allowance(eager, GPU, catalog_root=tmp_path).seconds == 180 + 10 + 1200


def test_a_draft_counts_where_it_is_loaded(tmp_path: Path) -> None:
    model = weights(tmp_path / "models" / "m", a_safetensors=10**9)
    weights(tmp_path / "models" / "d", a_bin=2 * 10**9)
    profile = make_profile(str(model), "catalog:models/d")
    assert allowance(profile, CPU, catalog_root=tmp_path).seconds == 180 + 30 + 60
    assert allowance(profile, CPU, catalog_root=tmp_path, speculation=False).seconds == 180 + 10 + 60


def test_a_hub_id_gets_time_for_a_download(tmp_path: Path) -> None:
    model = weights(tmp_path / "m", a_safetensors=10**9)
    assert allowance(make_profile("org/model"), CPU, catalog_root=tmp_path).seconds == 180 + 3600 + 60
    assert allowance(make_profile(str(model), "org/draft"), CPU, catalog_root=tmp_path).seconds == 180 + 10 + 3600 + 60


def test_one_form_of_the_same_weights_counts(tmp_path: Path) -> None:
    assert weight_bytes(weights(tmp_path / "a", a_safetensors=5, b_safetensors=6, c_bin=100)) == 11
    assert weight_bytes(weights(tmp_path / "b", a_pt=5, b_bin=6, c_bin=7, tokenizer_json=99)) == 13
    assert weight_bytes(tmp_path / "none") == 0


def test_the_profiles_own_timeout_is_exact(tmp_path: Path) -> None:
    wait = patience(make_profile("org/model", start_timeout_s=7.0), GPU, catalog_root=tmp_path, stop_s=3.0)
    assert wait == Patience(start_s=7.0, request_s=60.0, stop_s=3.0)
    now = [0.0]
    end = Deadline(patience=wait, members=list, clock=lambda: now[0])
    now[0] = 6.0
    assert (end.left(6.0), end.stuck_since(0.0)) == (1.0, None)
    computed = patience(make_profile("org/model"), CPU, catalog_root=tmp_path, stop_s=3.0)
    assert (computed.start_s, computed.cap_s, computed.stuck_s) == (3840.0, 3 * 3840.0, deadline.STUCK_S)


def test_progress_extends_the_wait_up_to_the_cap() -> None:
    now = [0.0]
    wait = Patience(start_s=100.0, request_s=1.0, stop_s=1.0, cap_s=1000.0, stuck_s=300.0)
    end = Deadline(patience=wait, members=list, clock=lambda: now[0])
    now[0] = 90.0
    assert end.left(0.0) == 90.0  # EXTENSION_S from the start is longer than 100 s
    assert end.left(85.0) == 85.0 + deadline.EXTENSION_S - 90.0
    now[0] = 400.0
    assert end.left(85.0) < 0
    assert end.left(399.0) == 399.0 + deadline.EXTENSION_S - 400.0
    now[0] = 990.0
    assert end.left(989.0) == 10.0
    end.activity.compiled = 380.0
    now[0] = 400.0
    assert end.left(0.0) == 380.0 + deadline.EXTENSION_S - 400.0


def test_a_silent_and_idle_server_is_stuck_before_the_cap() -> None:
    now = [0.0]
    wait = Patience(start_s=1000.0, request_s=1.0, stop_s=1.0, cap_s=3000.0, stuck_s=300.0)
    end = Deadline(patience=wait, members=list, clock=lambda: now[0])
    now[0] = 299.0
    assert end.stuck_since(0.0) is None
    now[0] = 310.0
    assert end.stuck_since(0.0) == 310.0
    assert end.stuck_since(11.0) is None
    end.activity.busy = 100.0
    assert end.stuck_since(0.0) is None


@contextmanager
def watched(tmp_path: Path, *argv: str | Path) -> Iterator[Activity]:
    service = proc.spawn(argv, log=tmp_path / "log")
    try:
        yield Activity(members=service.members)
    finally:
        service.stop(grace_s=1.0)


def looked(watch: Activity, seconds: float = 4.0) -> Activity:
    """Look until the first moments, in which every process is busy, are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        watch.update()
        time.sleep(0.1)
    return watch


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "SAMPLE_S", 0.4)


@pytest.mark.parametrize(
    ("code", "busy"),
    [
        ("import time; time.sleep(60)", False),
        ("while True: pass", True),
        ("import time\nwhile True: open('/dev/zero', 'rb').read(4 << 20); time.sleep(0.2)", True),
        ("import os, time\nif os.fork(): time.sleep(60)\nwhile True: pass", True),
    ],
)
def test_a_process_that_computes_or_reads_is_busy(tmp_path: Path, code: str, busy: bool) -> None:
    with watched(tmp_path, sys.executable, "-c", code) as watch:
        looked(watch)
        assert (time.monotonic() - watch.busy < 1.5) == busy


def test_a_compiler_among_the_processes_is_named_with_its_module(tmp_path: Path) -> None:
    module = tmp_path / "fused_moe_120"
    module.mkdir()
    ninja = tmp_path / "ninja"
    ninja.symlink_to("/bin/sleep")
    with watched(tmp_path, "sh", "-c", f"cd {module}; {ninja} 60; true") as watch:
        looked(watch, 1.5)
        assert watch.note().startswith("compiling module fused_moe_120 since ")
        assert watch.compiled is not None
    ptxas = tmp_path / "ptxas"
    ptxas.symlink_to("/bin/sleep")
    with watched(tmp_path, ptxas, "60") as watch:
        assert looked(watch, 1.5).note().startswith("compiling with ptxas since ")
    with watched(tmp_path, "sleep", "60") as watch:
        looked(watch, 1.5)
        assert (watch.note(), watch.compiled) == ("", None)


def test_a_process_that_is_gone_is_no_trouble() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    watch = Activity(members=lambda: [gone.pid])
    assert looked(watch, 1.0).compiling is None
