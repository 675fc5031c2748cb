"""Facts that somebody hands over: strict, every fault said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sglforge.errors import ConfigError
from sglforge.host.facts import Cuda, Gpu, HostFacts, from_json, load_facts


def test_short_names_are_taken() -> None:
    facts = from_json(
        {"gpu": "RTX 5090", "gpu_cc": "12.0", "n_gpus": 2, "nvcc": "13.0", "ram_gb": 64, "cgroup_gb": None}
    )
    assert facts.gpus == (Gpu(name="RTX 5090", cc="12.0"), Gpu(name="RTX 5090", cc="12.0"))
    assert facts.cuda == Cuda(nvcc="13.0")
    assert (facts.ram_gib, facts.cgroup_gib, facts.memory_gib) == (64.0, None, 64.0)


def test_the_fingerprint_knows_the_gpu_and_not_the_free_disk() -> None:
    facts = HostFacts(gpus=(Gpu(name="A", cc="12.0"),), driver="580", disk_gib=1.0, ram_gib=63.7)
    assert facts.fingerprint() == replace(facts, disk_gib=2.0, ram_gib=64.2).fingerprint()
    assert facts.fingerprint() != replace(facts, gpus=()).fingerprint()
    assert facts.fingerprint() != replace(facts, driver="581").fingerprint()


def test_every_fault_is_said() -> None:
    with pytest.raises(ConfigError) as caught:
        from_json({"ramgib": 1, "cores": "many", "gpus": [{"ccc": "12.0"}], "cuda": {"nvc": "13"}})
    assert caught.value.code == "facts-invalid"
    assert sorted(finding.message for finding in caught.value.findings) == [
        "`cores`: input should be a valid integer",
        "unknown fact `cuda.nvc`: did you mean `nvcc`?",
        "unknown fact `gpus.0.ccc`: did you mean `cc`?",
        "unknown fact `ramgib`: did you mean `ram_gib`?",
    ]


def test_a_doctor_report_is_taken_as_it_is(tmp_path: Path) -> None:
    facts = HostFacts(cores=4, absent=("uv",), sources={"cores": "somewhere"})
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"schema": 1, "verdict": "fail", "findings": [], "facts": facts.to_json()}))
    assert load_facts(report) == facts
    report.write_text(json.dumps(facts.to_json()))
    assert load_facts(report) == facts


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "\xff"])
def test_a_file_that_holds_no_facts_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "facts.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError) as caught:
        load_facts(path)
    assert caught.value.code == "facts-invalid"
    assert caught.value.where == str(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_facts(tmp_path / "none.json")
    assert "none.json" in caught.value.message
