"""Smoke on the real SGLang: what a fake server cannot show."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from calling import ROOT, Called
from shared_objects import shared_object

from sglforge.base import proc, runrecord
from sglforge.base.workspace import Workspace
from sglforge.config.load import load_catalog
from sglforge.config.model import Profile, Speculation, Target
from sglforge.launch.threshold import adaptive_config
from sglforge.provision.receipt import Environment, find_environment
from sglforge.smoke.generation import generation
from sglforge.smoke.judging import judge_again
from sglforge.smoke.run import run
from sglforge.smoke.transcript import transcript_of
from sglforge.smoke.verdict import SmokeReport

pytestmark = [pytest.mark.integration, pytest.mark.servers, pytest.mark.timeout(900)]

CATALOG = load_catalog(ROOT)
PROFILE = CATALOG.profile("tiny-cpu")
TARGET = CATALOG.target("cpu")


@pytest.fixture
def environment(built: Called, workspace: Path) -> Environment:
    found = find_environment(Workspace(root=workspace), "release-0.5.23.cpu")
    assert found, "sglforge build left no environment"
    return found


def smoke(
    profile: Profile, environment: Environment, folder: Path, *probes: str, target: Target = TARGET
) -> SmokeReport:
    return run(
        profile,
        environment=environment,
        catalog_root=ROOT,
        target=target,
        record=runrecord.start(folder / "runs"),
        probes=probes or None,
    )


def test_a_plain_profile_passes_behind_a_proxy_that_answers_nothing(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang asks itself over HTTP while it warms up, with a library that obeys proxy variables."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sglang.py").write_text("raise SystemExit('the wrong sglang')\n")
    report = smoke(PROFILE.model_copy(update={"speculation": None}), environment, tmp_path)
    assert report.verdict == "pass", report.findings
    skipped = {probe.name for probe in report.probes if probe.verdict == "skipped"}
    assert skipped == {"spec-gain", "spec-parity", "threshold-wave"}
    assert report.versions["sglang"] == "0.5.23"
    assert report.log
    assert not report.log.with_name("smoke.control.log").exists()


def test_this_sglang_answers_with_what_the_judges_read(environment: Environment, tmp_path: Path) -> None:
    report = smoke(PROFILE, environment, tmp_path, "spec-gain")
    assert report.verdict == "pass", report.findings
    (step,) = json.loads(report.transcript.read_text())["steps"]
    meta = step["response"]["meta_info"]
    assert {"spec_num_correct_drafts", "spec_verify_ct", "completion_tokens", "finish_reason"} <= meta.keys()
    answer = generation(step["response"])
    assert answer
    assert answer.output_ids
    assert len(answer.output_ids) == answer.completion_tokens == meta["completion_tokens"]
    assert answer.correct_drafts
    # each verification adds one token of the model's own, the first token comes from the prefill
    assert answer.verify_steps
    assert answer.correct_drafts + answer.verify_steps >= answer.completion_tokens - 1


# Takes memory from every process that has it, as long as the file lies beside it that the test puts there.
LEAK = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *leak(void *none) {
  for (;;) {
    usleep(50000);
    if (access(LEAKING, F_OK) == 0) memset(malloc(2 << 20), 1, 2 << 20);
  }
}
__attribute__((constructor)) static void begin(void) { pthread_t one; pthread_create(&one, NULL, leak, NULL); }
"""


def test_a_foreign_library_a_leak_and_a_module_compiled_late_are_seen_from_outside(
    environment: Environment, tmp_path: Path
) -> None:
    leaking, cache = tmp_path / "leaking", tmp_path / "ffi"
    body = LEAK.replace("LEAKING", json.dumps(str(leaking)))
    library = shared_object(tmp_path / "theirs" / "libtorch_shm.so", body=body)
    variables = {**PROFILE.environment, "LD_PRELOAD": str(library), "TVM_FFI_CACHE_DIR": str(cache)}
    shared_object(cache / "early_0a" / "main.so")

    def during(note: str) -> None:
        leaking.unlink(missing_ok=True)
        if note == "profile server: memory-steady":
            leaking.touch()
            shared_object(cache / "late_0b" / "main.so")

    report = run(
        PROFILE.model_copy(update={"speculation": None, "environment": variables}),
        environment=environment,
        catalog_root=ROOT,
        target=TARGET,
        record=runrecord.start(tmp_path / "runs"),
        probes=["started", "identity", "memory-steady", "jit-silence", "stops-clean"],
        progress=during,
    )
    found = {probe.name: probe.finding.code for probe in report.probes if probe.finding}
    assert found == {
        "identity": "library-not-ours",
        "memory-steady": "memory-grows",
        "jit-silence": "jit-at-run-time",
    }
    (late,) = (probe for probe in report.probes if probe.name == "jit-silence")
    assert late.message.endswith("compiled 1 module while it ran: tvm-ffi: late_0b")
    transcript = transcript_of(json.loads(report.transcript.read_text()))
    assert [(again.name, again.message) for again in judge_again(transcript)] == [
        (probe.name, probe.message) for probe in report.probes
    ]


POLICY = """
import json, sys
from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams
policy = AdaptiveSpeculativeParams(initial_steps=3, cfg_path=sys.argv[1])
policy.set_cuda_graph_bs(json.loads(sys.argv[2]))
for accepted in (0, 3):
    for size in range(1, 65):
        for _ in range(30):
            policy.on_verify_complete([accepted] * size, size)
print(json.dumps([policy.get_steps_for_batch(size) for size in range(1, 65)]))
"""


@pytest.mark.parametrize("captured", [None, [1, 2, 4, 8, 16, 32, 48, 64]])
def test_upstreams_policy_takes_the_configuration_as_it_is_meant(
    environment: Environment, tmp_path: Path, captured: list[int] | None
) -> None:
    """However right or wrong drafts are: 3 steps up to 32 requests, none from 33 on."""
    speculation = Speculation(algorithm="EAGLE", draft_model="a/draft", num_steps=3, disable_above_batch=32)
    config = tmp_path / "adaptive.json"
    config.write_text(adaptive_config(speculation))
    words: list[str | Path] = [environment.python, "-P", "-c", POLICY, config, json.dumps(captured)]
    done = proc.run(words, env={"SGLANG_USE_CPU_ENGINE": "1", "PATH": os.environ["PATH"]}, timeout_s=300)
    assert json.loads(done.stdout.splitlines()[-1]) == [3] * 32 + [0] * 32
