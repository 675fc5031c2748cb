"""Facts are read, each with its source, and nothing is guessed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.base.proc import Completed, ProcessError
from sglforge.host import gpu, programs
from sglforge.host.facts import Gpu, from_json
from sglforge.host.probe import probe

from .conftest import HOSTS, NAMES, Probe


def test_the_box_with_eight_gpus(on_host: Probe) -> None:
    facts = on_host("ubuntu-24.04-8x-rtx-pro-6000")
    assert facts.gpus is not None
    assert len(facts.gpus) == 8
    assert facts.gpus[5] == Gpu(
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        cc="12.0",
        memory_gib=95.6,
        pci="0000:a1:00.0",
        numa=1,
    )
    assert [item.numa for item in facts.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert facts.driver == "580.95.05"
    assert facts.cuda.nvcc == "13.0.88"
    assert (facts.gcc, facts.gxx, facts.git, facts.uv) == ("13.3.0", "13.3.0", "2.43.0", "0.9.2")
    assert (facts.distribution, facts.package_manager) == ("ubuntu 24.04", "apt")
    assert facts.ram_gib == 1007.62
    assert facts.cgroup_gib is None
    assert facts.sources["gpus"].endswith("bin/nvidia-smi")


def test_a_machine_without_a_gpu_knows_that_it_has_none(on_host: Probe) -> None:
    facts = on_host("debian-12-cgroup-v1")
    assert facts.gpus == ()
    assert facts.driver is None
    assert {"driver", "nvcc"} <= set(facts.absent)
    assert facts.cgroup_gib == facts.memory_gib == 6.0
    assert facts.cores == 1
    assert facts.sources["cores"] == "/sys/fs/cgroup/cpu,cpuacct/jobs/build-17/cpu.cfs_quota_us"


def test_a_bus_that_is_not_visible_leaves_the_gpus_unknown(on_host: Probe) -> None:
    facts = on_host("pod-cgroup-v2")
    assert facts.gpus is None
    assert facts.driver is None
    assert "driver" not in facts.absent
    assert set(facts.absent) >= {"git", "uv", "gcc", "gxx"}
    assert "the PCI bus is not visible" in facts.sources["gpus"]


def test_a_gpu_without_a_driver_is_seen_on_the_bus(on_host: Probe) -> None:
    facts = on_host("fedora-42-no-driver")
    assert facts.gpus == (Gpu(pci="0000:02:00.0", numa=0),)
    assert "driver" in facts.absent
    assert facts.package_manager == "dnf"
    assert "NVIDIA-SMI has failed" in facts.sources["gpus"]


@pytest.mark.parametrize("name", NAMES)
def test_facts_survive_their_json(on_host: Probe, name: str) -> None:
    facts = on_host(name)
    assert from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_this_machine(tmp_path: Path) -> None:
    facts = probe(tmp_path / "not/there/yet")
    assert facts.python == ".".join(map(str, sys.version_info[:3]))
    assert facts.cores is not None
    assert 1 <= facts.cores <= len(os.sched_getaffinity(0))
    assert facts.git is not None
    assert facts.disk_gib is not None
    assert facts.sources["disk_gib"] == f"free below {tmp_path}"
    assert "torch" not in facts.sources


def _script(folder: Path, name: str, *lines: str) -> None:
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def test_a_program_that_fails_or_babbles_is_unknown_not_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _script(tmp_path, "git", "echo broken >&2", "exit 3")
    _script(tmp_path, "cmake", "echo no number here")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.read("git", proc.run) == programs.Version(
        value=None, source=f"{tmp_path}/git: git ended with status 3"
    )
    assert programs.read("cmake", proc.run) == programs.Version(value=None, source=f"{tmp_path}/cmake")
    assert programs.read("ninja", proc.run).absent


def test_a_program_that_hangs_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _script(tmp_path, "git", "read -r line < /proc/self/fd/9 2>/dev/null", "while :; do :; done")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "TIMEOUT_S", 0.2)
    version = programs.read("git", proc.run)
    assert version.value is None
    assert not version.absent
    assert "was ended after" in version.source


@pytest.mark.parametrize(
    ("name", "said", "version"),
    [
        ("git", "git version 2.39.5 (Apple Git-154)", "2.39.5"),
        ("uv", "uv 0.9.2 (x86_64-unknown-linux-gnu)", "0.9.2"),
        ("gcc", "12.2.0", "12.2.0"),
        ("cmake", "cmake version 3.31.6\n\nCMake suite maintained and supported by Kitware", "3.31.6"),
        ("ninja", "1.13.0.git.kitware.jobserver-pipe-1", "1.13.0"),
        ("protoc", "libprotoc 25.3", "25.3"),
        ("rustc", "rustc 1.92.0 (4a1f7c2b9 2025-12-08)", "1.92.0"),
    ],
)
def test_versions_are_found_in_what_programs_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, said: str, version: str
) -> None:
    _script(tmp_path, name, f"echo '{said}'")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)
    assert programs.read(name, proc.run).value == version


def test_cuda_home_comes_before_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toolkit = tmp_path / "cuda-12.9"
    (toolkit / "bin").mkdir(parents=True)
    (toolkit / "nvvm").mkdir()
    _script(toolkit / "bin", "nvcc", "echo 'Cuda compilation tools, release 12.9, V12.9.86'")
    monkeypatch.setenv("PATH", str(HOSTS / "ubuntu-24.04-cuda-12.8/bin"))
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    facts = probe(tmp_path, root=HOSTS / "ubuntu-24.04-cuda-12.8/root")
    assert facts.cuda.nvcc == "12.9.86"
    assert facts.cuda.home == str(toolkit)
    assert facts.env == {"CUDA_HOME": str(toolkit)}


def test_pythons_on_path_and_those_of_uv_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    _script(tmp_path, "python3.19", "exit 0")
    for name in ("cpython-3.17.2-linux-x86_64-gnu", "cpython-3.18-linux-x86_64-gnu", "pypy-3.16.1-linux"):
        (tmp_path / "uv" / name).mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert probe(tmp_path).pythons == (running, "3.17", "3.18", "3.19")


def test_secrets_of_the_environment_are_no_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SGLANG_API_KEY", "hidden")
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    facts = probe(tmp_path)
    assert facts.env is not None
    assert facts.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert "hidden" not in json.dumps(facts.to_json())


def test_not_available_stays_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _script(tmp_path, "nvidia-smi", "echo 'NVIDIA GB10, 12.1, [N/A], 0000000F:01:00.0, 580.95.05'")
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = gpu.read(proc.run, tmp_path)
    assert reading.gpus == (Gpu(name="NVIDIA GB10", cc="12.1", memory_gib=None, pci="000f:01:00.0", numa=None),)


def test_programs_are_asked_at_the_same_time(tmp_path: Path) -> None:
    first, second = threading.Event(), threading.Event()

    def run(argv: object, **options: object) -> Completed:
        del argv, options
        if first.is_set():
            second.set()
        first.set()
        assert second.wait(30), "the first program was waited for before the second was asked"
        raise ProcessError(code="process-timeout", message="slow")

    probe(tmp_path, run)
    assert second.is_set()


def test_importing_the_probe_is_cheap() -> None:
    slow = ("pydantic", "torch", "rich", "psutil", "packaging", "urllib3", "jinja2")
    code = f"import sys, sglforge.host.probe; print([name for name in {slow!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
