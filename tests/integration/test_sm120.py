"""SM120 without one: topics on released trees, what the trees choose on a claimed GPU, NaN in a real server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from calling import ROOT, Called
from toy_series import Bench, edit

from sglforge.base import runrecord
from sglforge.base.ids import Sha256
from sglforge.base.workspace import Workspace
from sglforge.config.load import load_catalog
from sglforge.config.model import Profile
from sglforge.config.releases import read_releases, releases_path
from sglforge.errors import Finding
from sglforge.host import package_index
from sglforge.launch.render import LaunchScript, render_bash
from sglforge.launch.rules import load_rules
from sglforge.patches.apply import apply_series
from sglforge.patches.result import TopicState
from sglforge.patches.series import load_series
from sglforge.patches.upstream import upstream_tree
from sglforge.patches.versions import holds
from sglforge.provision.receipt import Environment, find_environment
from sglforge.smoke.run import run
from sglforge.smoke.verdict import SmokeReport
from sglforge.sources.fetch import fetch_file
from sglforge.trees.arguments.read import read_arguments

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

CATALOG = load_catalog(ROOT)
LOCKED = read_releases(releases_path(ROOT, "sglang"))
VERSIONS = ("0.5.9", "0.5.13.post1", "0.5.16", "0.5.23")
TOPICS = {
    "kimi-k25-eagle3-hooks": "sglang/srt/models/kimi_k25.py",
    "torch-symm-mem-guard": "sglang/srt/distributed/device_communicators/torch_symm_mem.py",
}
STATES = {
    "0.5.9": [TopicState.APPLIED, TopicState.APPLIED],
    "0.5.13.post1": [TopicState.UPSTREAMED, TopicState.APPLIED],
    "0.5.16": [TopicState.UPSTREAMED, TopicState.UPSTREAMED],
    "0.5.23": [TopicState.UPSTREAMED, TopicState.UPSTREAMED],
}

Tree = Callable[[str], Path]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def tree(workspace: Path) -> Tree:
    """A function that returns the tree of a release, as it came."""
    place = Workspace(root=workspace)

    @cache
    def unpacked(version: str) -> Path:
        (release,) = LOCKED.chosen([version])
        source = LOCKED.source(release)
        archive = fetch_file(release.file, source, package="sglang", locations=package_index.read(), workspace=place)
        return upstream_tree(archive, place).root

    return unpacked


@pytest.fixture(scope="session")
def patched(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A function that returns a copy of the tree of a release with the SM120 topics applied."""

    @cache
    def patch(version: str) -> Path:
        copy = Path(shutil.copytree(tree(version), tmp_path_factory.mktemp("patched") / version))
        series = load_series(ROOT, "sglang")
        assert series
        states = []
        for topic, file in TOPICS.items():
            result = apply_series(series, copy, version=version, topic=topic)
            assert result.require(), result.findings
            (one,) = result.topics
            states.append(one.state)
            changed = [line for line in result.diff.splitlines() if line.startswith("+++ ")]
            assert changed == ([f"+++ b/{file}"] if one.state is TopicState.APPLIED else [])
        assert states == STATES[version]
        return copy

    return patch


@pytest.fixture(scope="session")
def environment(built: Called, workspace: Path) -> Environment:
    found = find_environment(Workspace(root=workspace), "release-0.5.23.cpu")
    assert found, "sglforge build left no environment"
    return found


@pytest.fixture(scope="session")
def ask(environment: Environment) -> Ask:
    """A function that runs a part of a tree under a claimed capability 12.0 and returns what it did."""

    def child(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        done = subprocess.run(
            [environment.python, "-P", "-B", Path(__file__).parent / "child" / "claimed_sm120.py", folder, *words],
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answer = json.loads(done.stdout.splitlines()[-1])
        assert isinstance(answer, dict)
        return answer

    return child


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """An environment of which the version of its SGLang is known: sm120 cannot be installed without a GPU."""

    sglang_version: str
    path: Path = Path("/srv/environment")
    name: str = "some.sm120"
    python: Path = Path("/srv/environment/venv/bin/python")

    @property
    def receipt_sha256(self) -> Sha256:
        return Sha256("0" * 64)


def script(version: str) -> LaunchScript:
    """Render a profile for eight GPUs that says nothing about backends."""
    profile = Profile(name="big", description="d", target="sm120", model="m", flags={"tp-size": 8})
    return render_bash(profile, environment=Recorded(sglang_version=version), catalog_root=ROOT)


def ruled(version: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the options behind the profile's own, and the variables, that the rules put into the script."""
    rendered = script(version)
    return rendered.argv[rendered.argv.index("8") + 1 :], {k: v for k, v in rendered.env.items() if "SGLANG" in k}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_topics_apply_where_they_are_for(patched: Tree, version: str) -> None:
    assert patched(version).is_dir()


def test_kimi_answers_what_eagle_workers_ask(tree: Tree, patched: Tree, ask: Ask) -> None:
    assert ask(tree("0.5.9"), "kimi")["error"].endswith("has no attribute 'get_embed_and_head'")
    ours, upstreams = ask(patched("0.5.9"), "kimi"), ask(tree("0.5.16"), "kimi")
    assert ours == upstreams
    assert ours["shared"] == ["embedding", "head"]
    assert ours["asked"] == [
        "get_embed_and_head",
        ["set_embed_and_head", "e", "h"],
        ["set_eagle3_layers_to_capture", [1, 2]],
        ["set_eagle3_layers_to_capture", None],
    ]


@pytest.mark.parametrize("version", ["0.5.9", "0.5.13.post1"])
def test_symmetric_memory_is_left_out_instead_of_ending_the_server(
    tree: Tree, patched: Tree, ask: Ask, version: str
) -> None:
    assert ask(tree(version), "symmetric-memory") == {"error": "KeyError: 12"}
    ours = ask(patched(version), "symmetric-memory")
    assert (ours["available"], ours["disabled"], ours["used"]) == (True, True, False)
    series = load_series(ROOT, "sglang")
    assert series
    assert series.named("torch-symm-mem-guard").file.evidence in ours["said"][0]
    upstreams = ask(tree("0.5.16"), "symmetric-memory")
    assert upstreams | {"said": []} == ours | {"said": []}


DEEPGEMM, TENSORRT = (
    "deepgemm_w8a8_block_fp8_linear_with_fallback",
    "flashinfer_gemm_w8a8_block_fp8_linear_with_fallback",
)
TRITON, CUTLASS = "triton_w8a8_block_fp8_linear", "cutlass_w8a8_block_fp8_linear_with_fallback"


@pytest.mark.parametrize(
    ("version", "upstream", "with_rules"),
    [
        (
            "0.5.9",
            {"fp4": "cutlass", "fp8": DEEPGEMM, "deep_gemm": True, "pcie": None},
            {"fp4": "cudnn", "fp8": TRITON, "deep_gemm": False, "pcie": None},
        ),
        (
            "0.5.16",
            {"fp4": "cutlass", "fp8": CUTLASS, "deep_gemm": False, "pcie": None},
            {"fp4": "cutlass", "fp8": CUTLASS, "deep_gemm": False, "pcie": None},
        ),
        (
            "0.5.23",
            {"fp4": "cutlass", "fp8": CUTLASS, "deep_gemm": True, "pcie": False},
            {"fp4": "cutlass", "fp8": CUTLASS, "deep_gemm": True, "pcie": True},
        ),
    ],
)
def test_the_rules_change_what_the_tree_itself_chooses(
    tree: Tree, ask: Ask, version: str, upstream: dict[str, object], with_rules: dict[str, object]
) -> None:
    options, variables = ruled(version)
    for answer, expected in (
        (ask(tree(version), "backends"), upstream),
        (ask(tree(version), "backends", *options, env=variables), with_rules),
    ):
        assert (answer["sm120"], answer["sm100"]) == (True, False)
        assert {name: answer[name] for name in expected} == expected
        assert answer["fusion"] is None or answer["fusion"].startswith("refused: ")


def test_deepgemm_off_alone_would_only_lead_to_the_next_dead_end(tree: Tree, ask: Ask) -> None:
    answer = ask(tree("0.5.9"), "backends", env={"SGLANG_ENABLE_JIT_DEEPGEMM": "0"})
    assert (answer["deep_gemm"], answer["fp8"]) == (False, TENSORRT)


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_the_other_backend_for_fp4_can_still_be_had(tree: Tree, ask: Ask, version: str) -> None:
    assert ask(tree(version), "backends", "--fp4-gemm-backend", "flashinfer_cudnn")["fp4"] == "cudnn"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_options_of_the_rules_are_the_trees(tree: Tree, workspace: Path, version: str) -> None:
    known = read_arguments(tree(version), workspace=Workspace(root=workspace)).by_option
    rules = load_rules(ROOT, "sm120")
    assert rules
    for name, rule in rules.rules.items():
        if not holds(rule.versions, version):
            continue
        for flag, value in rule.flags.items():
            argument = known[f"--{flag}"]
            assert argument.choices is None or value in argument.choices, name
        there = {refusal.flag for refusal in rule.refuses if f"--{refusal.flag}" in known}
        if name == "pcie-oneshot-not-upstream":
            assert not there
        else:
            assert bool(there) == bool(rule.refuses), name


LATE = """\
# sglforge: a fault for tests; only the target model's decode steps are hit.
if isinstance(logits_metadata, ForwardBatch):
    mode = logits_metadata.forward_mode
    if mode.is_target_verify() or (mode.is_decode() and logits_metadata.spec_info is None):
        late = logits_metadata.positions >= 200
        hidden_states = hidden_states.masked_fill(late.unsqueeze(-1), float("nan"))
"""
IN_A_BATCH = """\
# sglforge: a fault for tests; only the target model's decode steps are hit.
if isinstance(logits_metadata, ForwardBatch):
    mode = logits_metadata.forward_mode
    if mode.is_target_verify() or (mode.is_decode() and logits_metadata.spec_info is None):
        requests = logits_metadata.batch_size
        if requests > 3:  # a request that just ended may still be in the next one's batch
            hidden_states = hidden_states.clone()
            hidden_states[: hidden_states.shape[0] // requests] = float("nan")
"""

Smoke = Callable[..., SmokeReport]


@pytest.fixture
def smoke_with(environment: Environment, tmp_path: Path) -> Smoke:
    """A function that runs smoke on the installed SGLang with a fault in its logits."""

    def smoke(payload: str, profile: Profile, **variables: str) -> SmokeReport:
        overlay = tmp_path / "overlay"
        shutil.copytree(
            environment.site_packages / "sglang", overlay / "sglang", ignore=shutil.ignore_patterns("__pycache__")
        )
        bench = Bench(root=tmp_path / "catalog", tree=overlay)
        where = {"anchor": "LogitsProcessor.forward", "file": "sglang/srt/layers/logits_processor.py"}
        bench.topic("fault", edit("prepend-to-body", "fault", **where), fault=payload)
        assert bench.apply().require()
        changed = {"environment": {**profile.environment, "PYTHONPATH": str(overlay), **variables}}
        return run(
            profile.model_copy(update=changed),
            environment=environment,
            catalog_root=ROOT,
            target=CATALOG.target("cpu"),
            record=runrecord.start(tmp_path / "runs"),
        )

    return smoke


def failures(report: SmokeReport) -> dict[str, str]:
    return {p.name: p.finding.code for p in report.probes if p.verdict == "fail" and p.finding}


def found(report: SmokeReport) -> Finding:
    return next(finding for finding in report.findings if finding.subject == "logprobs-finite")


@pytest.mark.servers
def test_nan_late_in_a_text_is_called_by_its_name(smoke_with: Smoke) -> None:
    """Also with speculation every comparison agrees: token 0 to the end is what both servers say."""
    report = smoke_with(LATE, CATALOG.profile("tiny-cpu"))
    assert failures(report)["logprobs-finite"] == "nan-logits"
    assert not failures(report).keys() & {"parallel", "spec-parity", "greedy-repeat"}
    finding = found(report)
    assert "of request alone (id 0) has no finite log-probability; 1 of 9 requests are hit" in finding.message
    steps = json.loads(report.transcript.read_text())["steps"]
    (long,) = [step["response"] for step in steps if step["probe"] == "spec-gain"]
    assert set(long["output_ids"][-40:]) == {0}


@pytest.mark.servers
def test_nan_that_the_server_replaces_is_seen_too(smoke_with: Smoke) -> None:
    profile = CATALOG.profile("tiny-cpu").model_copy(update={"speculation": None})
    report = smoke_with(LATE, profile, SGLANG_SANITIZE_NAN_LOGITS="1")
    assert failures(report)["logprobs-finite"] == "nan-logits"
    assert "exactly as likely as every other candidate" in found(report).message


@pytest.mark.servers
def test_nan_in_a_batch_is_called_by_its_name(smoke_with: Smoke) -> None:
    profile = CATALOG.profile("tiny-cpu").model_copy(update={"speculation": None})
    report = smoke_with(IN_A_BATCH, profile)
    named = {"parallel": "garbage-under-concurrency", "logprobs-finite": "nan-logits"}
    assert named.items() <= failures(report).items()
    assert "the request that ran alone is not hit: it takes company" in found(report).message
