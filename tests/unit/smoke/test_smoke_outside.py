"""The probes that look at a server from outside, on fake servers in real processes."""

from __future__ import annotations

import json
import sys
import venv
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from shared_objects import shared_object
from unit.smoke.conftest import Bench, make_profile

from sglforge.base.files import sha256_file, write_text
from sglforge.base.ids import BuildKey
from sglforge.provision.receipt import (
    BuiltFile,
    BuiltReceipt,
    Environment,
    PythonReceipt,
    Receipt,
    TorchReceipt,
    read_environment,
    write_receipt,
)
from sglforge.smoke.client import Answer
from sglforge.smoke.judging import judge_again
from sglforge.smoke.observe.jit import JitFolder, Snapshot
from sglforge.smoke.observe.libraries import Loaded
from sglforge.smoke.probes import memory
from sglforge.smoke.probes.identity import IDENTITY
from sglforge.smoke.probes.jit import JIT_SILENCE
from sglforge.smoke.probes.memory import MEMORY_STEADY
from sglforge.smoke.probes.model import Judgement
from sglforge.smoke.subject import Subject
from sglforge.smoke.transcript import Observed, transcript_of
from sglforge.smoke.verdict import ProbeResult, SmokeReport

TESTS = Path(__file__).parents[2]
OUTSIDE = ["identity", "memory-steady", "jit-silence"]
VERSION = "0.5.23+cpu.t00b3cd5b.p7e95cd7a"
MIB = 2**20


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sglforge.smoke.interview.SETTLE_S", 0.4)
    monkeypatch.setattr("sglforge.smoke.probes.memory._SETTLE_S", 0.05)


def outcome(report: SmokeReport) -> dict[str, str]:
    """Return the code of what failed, or the verdict, of every probe that did not pass."""
    results = [result for result in report.probes if result.verdict not in {"pass", "skipped"}]
    return {result.name: result.finding.code if result.finding else result.verdict for result in results}


def result_of(report: SmokeReport, name: str) -> ProbeResult:
    return next(result for result in report.probes if result.name == name)


def judged_again(report: SmokeReport) -> dict[str, tuple[object, ...]]:
    transcript = transcript_of(json.loads(report.transcript.read_text()))
    return {result.name: said(result) for result in judge_again(transcript)}


def said(result: ProbeResult) -> tuple[object, ...]:
    return result.verdict, result.message, json.loads(json.dumps(result.evidence))


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("", {}),
        ("wrong-version", {"identity": "wrong-server"}),
        ("memory-grows", {"memory-steady": "memory-grows"}),
        ("jit-at-request", {"jit-silence": "jit-at-run-time"}),
    ],
)
def test_each_fault_is_caught_by_its_probe_alone_and_again_from_the_transcript(
    bench: Bench, tmp_path: Path, fault: str, found: dict[str, str]
) -> None:
    profile = make_profile(fault)
    folder = {"FLASHINFER_WORKSPACE_BASE": str(tmp_path / "flashinfer")}
    report = bench.run(profile.model_copy(update={"environment": {**profile.environment, **folder}}))
    assert outcome(report) == found
    assert judged_again(report) == {result.name: said(result) for result in report.probes}


def test_a_leak_is_told_by_its_tokens_and_by_its_bytes(bench: Bench) -> None:
    message = result_of(bench.run(make_profile("memory-grows"), probes=["memory-steady"]), "memory-steady").message
    # 256 tokens and 2 MiB are lost with each of 40 requests
    assert message.startswith(f"{40 * 256} KV tokens are in use by nobody that were free")
    assert "its processes grow by 8.0 MiB with each round of 4 requests" in message


def test_a_module_that_is_compiled_at_run_time_is_named(bench: Bench, tmp_path: Path) -> None:
    variables = {"FAKE_FAULT": "jit-at-request", "FLASHINFER_WORKSPACE_BASE": str(tmp_path / "flashinfer")}
    report = bench.run(make_profile(environment=variables), probes=["decode-single", "jit-silence"])
    result = result_of(report, "jit-silence")
    assert result.evidence["while_it_ran"] == ["flashinfer: fake_sampling_module"]
    again = bench.run(make_profile(environment=variables), probes=["decode-single", "jit-silence"])
    assert outcome(again) == {"jit-silence": "jit-at-run-time"}  # the fake does not look whether it is there


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["libtorch_cpu.so"], "library-not-ours"),
        (["libcublas.so.12", "libcublasLt.so.13"], "so-cuda-major-mixed"),
    ],
)
def test_libraries_that_somebody_preloads(bench: Bench, tmp_path: Path, names: list[str], code: str) -> None:
    libraries = [shared_object(tmp_path / "theirs" / name, soname=name) for name in names]
    variables = {"LD_PRELOAD": ":".join(map(str, libraries))}
    report = bench.run(make_profile(environment=variables), probes=OUTSIDE)
    result = result_of(report, "identity")
    assert outcome(report) == {"identity": code}
    assert str(libraries[0]) in json.dumps(result.evidence)
    assert judged_again(report)["identity"] == said(result)


def make_installed(folder: Path) -> Environment:
    """Return an environment with a receipt and a Python of its own, whose sglang is the fake one with a library."""
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "venv" / "lib" / f"python{minor}" / "site-packages"
    library = shared_object(site / "sgl_kernel" / "common_ops.abi3.so")
    write_text(site / "tests.pth", "\n".join([str(TESTS), *(path for path in sys.path if "site-packages" in path)]))
    write_text(site / "sglang" / "__init__.py", "")
    write_text(
        site / "sglang" / "launch_server.py",
        f"import ctypes, sys\nctypes.CDLL({str(library)!r})\n"
        "from fake_sglang.serving import main\nmain(sys.argv[1:])\n",
    )
    row = BuiltFile(sha256=sha256_file(library), size=1, mtime_ns=1, inode=1)
    key = BuildKey("0123456789abcdef" * 4)
    common = {"build_key": key, "wheel": "w", "wheel_sha256": "b" * 64}
    built = (
        BuiltReceipt(name="sglang", version=VERSION, files={}, **common),
        BuiltReceipt(name="sgl-kernel", version="1", files={"sgl_kernel/common_ops.abi3.so": row}, **common),
    )
    receipt = Receipt(
        environment_key=key,
        name="e",
        created="",
        engine="",
        site_packages=str(site.relative_to(folder)),
        python=PythonReceipt(minor=minor, version=minor, base="", config_sha256=""),
        torch=TorchReceipt(version="2.13.0", variant="cpu", sha256=None, origin="download", proven=False),
        requirements=(),
        built=built,
        omitted=(),
        relaxed=(),
        records={},
        loose=(),
    )
    write_receipt(folder, receipt)
    environment = read_environment(folder, "e")
    assert environment
    return environment


def installed(bench: Bench, environment: Environment, fault: str = "") -> SmokeReport:
    return replace(bench, environment=environment).run(make_profile(fault), probes=["identity"])  # type: ignore[arg-type]


def test_what_was_built_is_in_the_evidence(bench: Bench, tmp_path: Path) -> None:
    report = installed(bench, make_installed(tmp_path / "installed"))
    result = result_of(report, "identity")
    assert outcome(report) == {}
    assert result.message.startswith(f"SGLang {VERSION}, build key 0123456789ab; ")
    receipt: Any = result.evidence["receipt"]
    assert receipt["built"]["sgl-kernel"]["build_key"] == "0123456789abcdef" * 4
    assert judged_again(report)["identity"] == said(result)


def test_a_library_that_is_not_the_built_one(bench: Bench, tmp_path: Path) -> None:
    environment = make_installed(tmp_path / "installed")
    shared_object(environment.site_packages / "sgl_kernel/common_ops.abi3.so", body="int two(void) { return 2; }")
    report = installed(bench, environment)
    assert outcome(report) == {"identity": "library-replaced"}


def test_another_interpreter_than_the_environments(bench: Bench, tmp_path: Path) -> None:
    environment = make_installed(tmp_path / "installed")
    other = make_installed(tmp_path / "other")
    environment.python.unlink()
    write_text(environment.python, f'#!/bin/sh\nexec "{other.python}" "$@"\n', mode=0o755)
    result = result_of(installed(bench, environment), "identity")
    assert result.finding
    assert result.finding.code == "wrong-server"
    assert f"it runs in {other.python}" in result.message


def test_a_version_is_held_against_the_receipt(bench: Bench, tmp_path: Path) -> None:
    report = installed(bench, make_installed(tmp_path / "installed"), "wrong-version")
    assert f"it is SGLang 0.5.8, the receipt has {VERSION}" in result_of(report, "identity").message


def judged(judge: Any, *looks: Mapping[str, object], ended: str | None = None) -> Judgement:
    judgement: Judgement = judge(Observed(subject=Subject(scope="cpu-logic"), looks=looks, ended=ended))
    return judgement


def rounds(
    *,
    rss: tuple[int, ...] = (100 * MIB,) * 10,
    tokens: tuple[int | None, ...] = (0,) * 10,
    busy: int = 0,
    ready: int | None = 0,
) -> Judgement:
    first: dict[str, object] = {"rss": 90 * MIB, "kv_tokens": ready, "busy": 0}
    after = [{"rss": r, "kv_tokens": t, "busy": busy} for r, t in zip(rss, tokens, strict=True)]
    return judged(MEMORY_STEADY.judge, first, first, *after)


def test_a_server_that_tells_no_tokens_is_judged_by_its_bytes() -> None:
    level = rounds(tokens=(None,) * 10, ready=None)
    assert level.verdict == "pass"
    assert "does not say how many KV tokens" in level.message
    grown = rounds(rss=tuple((100 + 2 * n) * MIB for n in range(10)), tokens=(None,) * 10, ready=None)
    assert (grown.verdict, grown.code) == ("fail", "memory-grows")
    assert "grow by 2.0 MiB" in grown.message


def test_one_token_that_does_not_come_back_is_a_fault_and_one_that_is_late_is_none() -> None:
    assert rounds(tokens=(0,) * 7 + (1,) * 3).code == "memory-grows"
    assert rounds(tokens=(5,) * 9 + (0,)).verdict == "pass"
    assert rounds(tokens=(7,) * 10, ready=7).verdict == "pass"


def test_a_server_that_never_rests_leaves_it_open() -> None:
    assert rounds(tokens=(9,) * 10, busy=1).verdict == "inconclusive"


def compiled(*paths: str, at: float = 0.0, owner: str = "tvm-ffi", unreadable: tuple[str, ...] = ()) -> dict[str, Any]:
    seen = Snapshot(
        folders=(JitFolder(owner=owner, path="/jit", source="default"),),
        files={path: (1, int(at * 1e9)) for path in paths},
        unreadable=unreadable,
    )
    return {"processes": 1, "started": 1000.0, "compiled": asdict(seen)}


def test_what_was_compiled_before_readiness_is_told_and_no_fault() -> None:
    seen = compiled("/jit/norm_0a/main.so", at=1500.0)
    judgement = judged(JIT_SILENCE.judge, seen, seen)
    assert judgement.verdict == "pass"
    assert judgement.evidence["at_start"] == ["tvm-ffi: norm_0a"]
    assert "1 modules were compiled during the start" in judgement.message
    assert judged(JIT_SILENCE.judge, compiled(), seen).code == "jit-at-run-time"


def test_caches_that_fill_at_run_time_are_told_and_no_fault() -> None:
    judgement = judged(
        JIT_SILENCE.judge, compiled(owner="triton"), compiled("/jit/QX/_fwd.cubin", at=2000.0, owner="triton")
    )
    assert judgement.verdict == "pass"
    assert "triton: _fwd" in judgement.message


def test_folders_that_cannot_be_read_leave_it_open() -> None:
    assert judged(JIT_SILENCE.judge, compiled(), compiled(unreadable=("/jit",))).verdict == "inconclusive"
    assert judged(JIT_SILENCE.judge, compiled(), {**compiled(), "processes": 0}).verdict == "skipped"
    assert judged(JIT_SILENCE.judge, compiled(), compiled(), ended="killed").verdict == "skipped"


def test_a_file_in_no_folder_leaves_it_open() -> None:
    look = compiled("/jit/norm_0a/main.so")
    look["compiled"]["folders"] = ()
    assert judged(JIT_SILENCE.judge, compiled(), look).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("response", "load"),
    [
        ({"loads": [{"num_used_tokens": 5, "num_running_reqs": 0, "num_waiting_reqs": 0}] * 2}, (10, 0)),
        ({"loads": [{"num_used_tokens": 5}]}, (None, None)),
        ({"loads": []}, (None, None)),
        ("Not Found", (None, None)),
    ],
)
def test_loads_of_all_ranks_count_where_they_are_told(response: object, load: tuple[int | None, int | None]) -> None:
    assert memory._load_at_rest(lambda _: Answer(status=200, seconds=0.0, response=response)) == load


@pytest.mark.parametrize("judge", [IDENTITY.judge, MEMORY_STEADY.judge, JIT_SILENCE.judge])
@pytest.mark.parametrize("look", [None, {}, {"rss": "much"}, {"comparison": 3, "compiled": 3, "processes": 1}])
def test_looks_that_are_none_leave_it_open(judge: Any, look: Mapping[str, object] | None) -> None:
    assert judged(judge, *([look] * 14 if look is not None else [])).verdict == "inconclusive"


def test_a_server_that_says_nothing_of_itself_leaves_it_open() -> None:
    libraries = asdict(Loaded(environment="/e", libraries=()))
    look: dict[str, object] = {"comparison": None, "stranger": None, "libraries": libraries, "receipt": None}
    judgement = judged(IDENTITY.judge, look)
    assert judgement.verdict == "inconclusive"
    assert "/server_info" in judgement.message
