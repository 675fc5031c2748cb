"""Cases of kind env: facts about a machine, judged as `doctor` judges it for sm120.

Cases that say nothing of driver, compilers and C library are about parts of sglforge that are not there yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from cases.model import Judgement
from sglforge.config.load import load_catalog
from sglforge.errors import verdict_of
from sglforge.host import doctor
from sglforge.host.facts import HostFacts, from_json

ROOT = Path(__file__).parents[2]
_OURS = ("driver", "gcc", "glibc", "nvcc")
_SHORT = {"cgroup_gb", "disk_gb", "gpu", "gpu_cc", "n_gpus", "nvcc", "ram_gb"}
_NAMES = {field.name for field in fields(HostFacts)} | _SHORT


def judge(given: Mapping[str, Any]) -> Judgement | None:
    """Judge the machine that a case describes; None when it says nothing that is judged."""
    inner = given.get("env")
    said = {**given, **(inner if isinstance(inner, dict) else {})}
    if not any(isinstance(said.get(name), str) for name in _OURS):
        return None
    known = {name: value for name, value in said.items() if name in _NAMES - {"env"} and value is not None}
    facts = from_json({name: _number(name, value) for name, value in known.items()})
    catalog = load_catalog(ROOT)
    target = catalog.target("sm120")
    findings = doctor.judge(facts, target, toolkit=catalog.toolkit(target))
    return Judgement(verdict=verdict_of(findings), findings=findings)


def _number(name: str, value: object) -> object:
    return float(value) if name.endswith(("_gb", "_gib")) and isinstance(value, int) else value
