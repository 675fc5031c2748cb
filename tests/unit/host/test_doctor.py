"""A machine is judged completely in one pass, and only by what is known about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy_toolkit import RECIPE

from sglforge.config.model import Target
from sglforge.errors import DoctorError, Finding, Severity
from sglforge.host.doctor import auto_target, judge, serves
from sglforge.host.facts import Cuda, FoundToolkit, Gpu, HostFacts, from_json

from .conftest import Probe

CPU = Target(
    name="cpu",
    description="No GPU.",
    kind="cpu",
    min_cores=2,
    min_memory_gib=4.0,
    min_disk_gib=10.0,
    min_glibc="2.34",
)
SM120 = Target(
    name="sm120",
    description="Blackwell.",
    kind="cuda",
    arch_list=["12.0f"],
    compute_capability="12.0",
    min_cores=2,
    min_memory_gib=20.0,
    min_disk_gib=60.0,
)
TARGETS = {"cpu": CPU, "sm120": SM120}

FIT = HostFacts(
    gpus=(Gpu(name="NVIDIA RTX PRO 6000", cc="12.0"),),
    driver="580.95.05",
    cuda=Cuda(nvcc="13.0.88"),
    gcc="13.3.0",
    gxx="13.3.0",
    glibc="2.39",
    python="3.12.3",
    machine="x86_64",
    package_manager="apt",
    cores=32,
    ram_gib=128.0,
    disk_gib=500.0,
    git="2.43.0",
    uv="0.9.2",
)


def told(findings: tuple[Finding, ...]) -> list[str]:
    return [f"{finding.severity.value} {finding.code}" for finding in findings]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_machine_that_fits_has_no_finding(target: Target) -> None:
    assert judge(FIT, target, pythons=["3.11", "3.12"]) == ()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"cores": 1}, "cores-too-few", "1 usable cores, target cpu needs 2"),
        ({"ram_gib": 3.5}, "memory-too-small", "3.5 GiB of memory (RAM), target cpu needs 4 GiB"),
        (
            {"cgroup_gib": 2.0},
            "memory-too-small",
            "2 GiB of memory (limit of the control group), target cpu needs 4 GiB",
        ),
        ({"disk_gib": 9.9}, "disk-too-small", "9.9 GiB of disk are free, target cpu needs 10 GiB"),
        ({"glibc": "2.31"}, "glibc-too-old", "glibc 2.31, the released wheels for target cpu need 2.34"),
        (
            {"python": "3.14.0", "pythons": ("3.10", "3.14")},
            "python-not-locked",
            "this is Python 3.14, the environment is locked for 3.11, 3.12: none here",
        ),
        ({"git": None, "absent": ("git",)}, "git-missing", "git is not on PATH"),
        ({"uv": None, "absent": ("uv",)}, "uv-missing", "uv is neither beside this Python nor on PATH"),
        ({"machine": "aarch64"}, "machine-unsupported", "this machine is aarch64"),
    ],
)
def test_what_no_target_can_do_without(changes: dict[str, object], code: str, words: str) -> None:
    (finding,) = judge(replace(FIT, **changes), CPU, pythons=["3.11", "3.12"])  # type: ignore[arg-type]
    assert (finding.code, finding.severity) == (code, Severity.ERROR)
    assert finding.message.startswith(words)
    assert finding.hint


def test_another_python_that_is_here_will_do() -> None:
    assert judge(replace(FIT, python="3.14.0", pythons=("3.12", "3.14")), CPU, pythons=["3.11", "3.12"]) == ()


@pytest.mark.parametrize(
    ("changes", "told_is"),
    [
        ({"gpus": (), "driver": None}, ["warning gpu-missing"]),
        ({"gpus": (Gpu(name="H100", cc="9.0"),)}, ["warning gpu-not-for-target"]),
        ({"gpus": (Gpu(cc="12.1"),)}, []),
        (
            {"gpus": (Gpu(pci="0000:01:00.0"),), "driver": None, "absent": ("driver",)},
            ["error driver-missing"],
        ),
        ({"driver": "575.57.08"}, ["error driver-too-old-for-cuda13"]),
        ({"driver": "580"}, []),
        ({"cuda": Cuda(nvcc="12.8")}, ["error nvcc-too-old-for-sm12x"]),
        ({"cuda": Cuda(nvcc="12.9")}, []),
        ({"cuda": Cuda(), "absent": ("nvcc",)}, ["error nvcc-missing"]),
        ({"gcc": None, "gxx": None, "absent": ("gcc", "gxx")}, ["error compiler-missing"]),
        ({"gxx": None, "absent": ("gxx",)}, ["error compiler-missing"]),
    ],
)
def test_what_a_gpu_target_needs_too(changes: dict[str, object], told_is: list[str]) -> None:
    facts = replace(FIT, **changes)  # type: ignore[arg-type]
    assert told(judge(facts, SM120)) == told_is
    assert judge(facts, CPU) == ()


@pytest.mark.parametrize(
    ("changes", "told_is"),
    [
        ({}, []),
        ({"cuda": Cuda(), "absent": ("nvcc",), "toolkits": ()}, []),
        ({"cuda": Cuda(), "toolkits": ()}, []),
        ({"cuda": Cuda(nvcc="12.8"), "toolkits": ()}, ["warning nvcc-too-old-for-sm12x"]),
        # facts that say nothing about toolkits: nobody knows whether builds would bring one
        ({"cuda": Cuda(nvcc="12.8")}, ["error nvcc-too-old-for-sm12x"]),
        ({"gcc": "15.2.0"}, []),
        ({"gcc": "16.1.0"}, ["error host-compiler-too-new"]),
        ({"gcc": "16.1.0", "env": {"CC": "gcc-15"}}, []),
        ({"glibc": "2.41"}, []),
        ({"glibc": "2.42"}, ["error glibc-vs-cuda-headers"]),
        ({"toolkits": (FoundToolkit(home=":/a", origin="CUDA_HOME", problem="no"),)}, ["warning cuda-home-malformed"]),
        ({"toolkits": (FoundToolkit(home="/a", origin="CUDA_PATH", problem="no"),)}, ["warning cuda-home-unusable"]),
        ({"toolkits": (FoundToolkit(home="/a", origin="nvcc on PATH", problem="no"),)}, []),
    ],
)
def test_a_target_that_brings_its_toolkit(changes: dict[str, object], told_is: list[str]) -> None:
    facts = replace(FIT, **changes)  # type: ignore[arg-type]
    assert told(judge(facts, SM120, toolkit=RECIPE)) == told_is
    assert judge(facts, CPU) == ()


@pytest.mark.parametrize(
    ("glibc", "nvcc", "told_is"),
    [
        ("2.40", "12.9", []),
        ("2.41", "12.9", ["error glibc-vs-cuda-headers"]),
        ("2.41", "13.0.88", []),
        ("2.42", "13.0", ["error glibc-vs-cuda-headers"]),
        ("2.42", "12.9", ["error glibc-vs-cuda-headers"]),
        ("2.42", "13.1", ["warning glibc-vs-cuda-headers"]),
        ("2.43", "13.3.1", []),
        ("2.42", None, ["info not-checked"]),
    ],
)
def test_headers_that_clash_with_the_c_library(glibc: str, nvcc: str | None, told_is: list[str]) -> None:
    findings = judge(replace(FIT, glibc=glibc, cuda=Cuda(nvcc=nvcc)), SM120)
    assert told(findings) == told_is
    for finding in findings:
        if finding.code == "glibc-vs-cuda-headers":
            assert f"glibc {glibc}" in finding.message
            assert nvcc is not None
            assert f"CUDA {nvcc[:4]}" in finding.message


def test_every_finding_comes_in_one_pass(on_host: Probe) -> None:
    findings = judge(replace(on_host("pod-cgroup-v2"), disk_gib=1.0, python="3.9.2", pythons=()), CPU, pythons=["3.11"])
    assert told(findings) == [
        "error cores-too-few",
        "error memory-too-small",
        "error disk-too-small",
        "error python-not-locked",
        "error git-missing",
        "error uv-missing",
    ]
    assert "read from /sys/fs/cgroup/memory.max" in findings[1].detail
    assert findings[4].hint == "sudo apt-get install git"


def test_the_box_before_its_upgrade(on_host: Probe) -> None:
    facts = replace(on_host("ubuntu-24.04-cuda-12.8"), disk_gib=500.0)
    findings = {finding.code: finding for finding in judge(facts, SM120)}
    assert set(findings) >= {"driver-too-old-for-cuda13", "nvcc-too-old-for-sm12x"}
    assert "570.133.07" in findings["driver-too-old-for-cuda13"].message
    assert "580" in findings["driver-too-old-for-cuda13"].message
    assert ">= 12.9" in findings["nvcc-too-old-for-sm12x"].message
    assert findings["nvcc-too-old-for-sm12x"].hint.startswith("sudo apt-get install cuda-toolkit-13-0")


@pytest.mark.parametrize(
    ("manager", "hint"),
    [
        ("apt", "sudo apt-get install git"),
        ("dnf", "sudo dnf install git"),
        (None, "install git as your distribution does it"),
    ],
)
def test_hints_are_commands_of_the_distribution(manager: str | None, hint: str) -> None:
    (finding,) = judge(replace(FIT, git=None, absent=("git",), package_manager=manager), CPU)
    assert finding.hint == hint


def test_what_is_not_known_is_not_judged_but_named() -> None:
    (finding,) = judge(HostFacts(sources={"cores": "nothing to read"}), SM120, pythons=["3.12"])
    assert (finding.code, finding.severity) == ("not-checked", Severity.INFO)
    assert finding.message == (
        "could not be read and was not judged: machine, cores, memory, disk, glibc, python, git, uv, "
        "gcc, gxx, gpus, nvcc"
    )
    assert finding.detail == ("cores: nothing to read",)


def test_facts_of_a_report_are_judged_by_their_short_names() -> None:
    facts = from_json({"gpu_cc": "12.0", "driver": "580.95", "nvcc": "12.8", "ram_gb": 128, "cores": 32})
    assert told(judge(facts, SM120)) == ["error nvcc-too-old-for-sm12x", "info not-checked"]


@pytest.mark.parametrize(
    ("arch", "capability", "gpu", "fits"),
    [
        ("12.0f", "12.0", "12.0", True),
        ("12.0f", "12.0", "12.1", True),
        ("12.1f", "12.1", "12.0", False),
        ("12.0a", "12.0", "12.1", False),
        ("12.0f", "12.0", "10.0", False),
        ("12.0f", "12.0", None, False),
    ],
)
def test_a_family_serves_later_gpus_of_its_major(arch: str, capability: str, gpu: str | None, fits: bool) -> None:
    target = SM120.model_copy(update={"arch_list": [arch], "compute_capability": capability})
    assert serves(target, Gpu(cc=gpu)) is fits


def test_the_target_is_chosen_by_the_gpu() -> None:
    assert auto_target(FIT, TARGETS) == ("sm120", "NVIDIA RTX PRO 6000 (compute capability 12.0)")
    assert auto_target(replace(FIT, gpus=()), TARGETS) == ("cpu", "no GPU")


def test_a_gpu_that_no_target_serves_is_an_error() -> None:
    with pytest.raises(DoctorError) as caught:
        auto_target(replace(FIT, gpus=(Gpu(name="H100", cc="9.0"),)), TARGETS)
    assert caught.value.code == "no-target-for-gpu"
    assert caught.value.exit_code == 4
    assert "H100 (compute capability 9.0)" in caught.value.message
    assert caught.value.context == {"targets": "cpu (no GPU), sm120 (compute capability 12.0)"}
    assert "--target cpu" in caught.value.hint


@pytest.mark.parametrize("gpus", [None, (Gpu(pci="0000:01:00.0"),)])
def test_a_target_is_never_guessed(gpus: tuple[Gpu, ...] | None) -> None:
    with pytest.raises(DoctorError) as caught:
        auto_target(replace(FIT, gpus=gpus), TARGETS)
    assert caught.value.code == "gpu-unknown"
