"""The command that installs what is missing, for the distribution at hand."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "git": {"apt": "sudo apt-get install git", "dnf": "sudo dnf install git"},
    "compiler": {"apt": "sudo apt-get install gcc g++", "dnf": "sudo dnf install gcc gcc-c++"},
    "nvcc": {
        "apt": "sudo apt-get install cuda-toolkit-13-0   # from NVIDIA's repository",
        "dnf": "sudo dnf install cuda-toolkit-13-0   # from NVIDIA's repository",
    },
    "driver": {
        "apt": "sudo apt-get install nvidia-open   # from NVIDIA's repository",
        "dnf": "sudo dnf install nvidia-open   # from NVIDIA's repository",
    },
}
PLAIN: Mapping[str, str] = {
    "git": "git",
    "compiler": "gcc and g++",
    "nvcc": "the CUDA 13 toolkit",
    "driver": "the NVIDIA driver, branch 580 or newer, with open kernel modules",
}


def how_to_install(what: str, package_manager: str | None) -> str:
    """Return the command for a package manager (``apt``, ``dnf``), else plain words."""
    return COMMANDS[what].get(package_manager or "", f"install {PLAIN[what]} as your distribution does it")
