"""Rules of targets: what they add to a profile for a version of SGLang, and what they do not let through."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from calling import call

from sglforge.base import files, proc
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.config.model import Profile
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError, RenderError
from sglforge.launch.render import LaunchScript, render_bash
from sglforge.launch.rules import load_rules
from sglforge.launch.ruling import Ruling, hold_to
from sglforge.provision.receipt import BuiltReceipt, PythonReceipt, Receipt, TorchReceipt, write_receipt

ROOT = Path(__file__).parents[3]
NOTHING = Sha256("0" * 64)
OLDEST = [
    *("deepgemm-no-sm120", "fp8-gemm-no-sm120", "fp4-gemm-cutlass-nan"),
    *("ar-fusion-on-pcie", "pcie-oneshot-not-upstream"),
]
ALWAYS = ["ar-fusion-on-pcie", "pcie-oneshot-not-upstream"]


@dataclass(frozen=True, kw_only=True)
class RecordedEnvironment:
    """An environment of which only the version of its SGLang is known."""

    sglang_version: str | None
    path: Path = Path("/srv/environment")
    name: str = "some.sm120"
    python: Path = Path("/srv/environment/venv/bin/python")
    receipt_sha256: Sha256 = NOTHING


def make_profile(**changes: object) -> Profile:
    base = {"name": "big", "description": "d", "target": "sm120", "model": "somebody/something"}
    return Profile.model_validate({**base, **changes}, by_name=True)


def rule(version: str | None, **changes: object) -> Ruling:
    return hold_to(load_rules(ROOT, "sm120"), make_profile(**changes), version)


def render(version: str, **changes: object) -> LaunchScript:
    environment = RecordedEnvironment(sglang_version=version)
    return render_bash(make_profile(**changes), environment=environment, catalog_root=ROOT)


def refused(version: str, **changes: object) -> RenderError:
    with pytest.raises(RenderError) as caught:
        render(version, **changes)
    return caught.value


def test_every_shipped_rule_file_is_for_a_target_and_says_where_its_rules_come_from() -> None:
    paths = sorted((ROOT / "recipes" / "rules").glob("*.toml"))
    assert [path.stem for path in paths] == ["sm120"]
    for path in paths:
        assert (ROOT / "recipes" / "targets" / path.name).is_file()
        rules = load_rules(ROOT, path.stem)
        assert rules
        page = (ROOT / "docs" / "explanation" / f"{path.stem}.md").read_text()
        for name, one in rules.rules.items():
            assert f"`{name}`" in page
            assert re.search(r"#[0-9]+|sglang/srt/", one.reference), name


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.5.9", OLDEST),
        ("0.5.10", ["deepgemm-no-sm120", *ALWAYS]),
        ("0.5.10.post1", ["deepgemm-no-sm120", *ALWAYS]),
        ("0.5.12.post1", ["deepgemm-no-sm120", *ALWAYS]),
        ("0.5.16", ["deepgemm-no-sm120", *ALWAYS]),
        ("0.5.19", ["deepgemm-no-sm120", *ALWAYS]),
        ("0.5.20", ALWAYS),
        ("0.5.21", ["ar-fusion-on-pcie", "pcie-ipc-allreduce", "pcie-oneshot-not-upstream"]),
        ("0.5.23", ["ar-fusion-on-pcie", "pcie-ipc-allreduce", "pcie-oneshot-not-upstream"]),
        ("0.5.24.dev118", ["ar-fusion-on-pcie", "pcie-ipc-allreduce", "pcie-oneshot-not-upstream"]),
    ],
)
def test_the_installed_version_decides_which_rules_hold(version: str, names: list[str]) -> None:
    assert [one.name for one in rule(version, flags={"tp-size": 8}).held] == names


@pytest.mark.parametrize(
    ("flags", "holds"),
    [
        ({}, False),
        ({"tp-size": 1}, False),
        ({"tp-size": 2}, True),
        ({"tp": 4}, True),
        ({"tensor-parallel-size": "8"}, True),
        ({"tp-size": 6}, False),
        ({"tp-size": 16}, False),
    ],
)
def test_a_rule_may_be_for_some_sizes_only(flags: dict[str, object], holds: bool) -> None:
    ruling = rule("0.5.23", flags=flags)
    assert ruling.profile.environment.get("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") == ("1" if holds else None)


def test_a_script_holds_what_the_rules_set_and_why() -> None:
    script = render("0.5.9", flags={"tp-size": 8}, environment={"OMP_NUM_THREADS": "8"})
    assert script.argv[-6:] == (
        *("--tp-size", "8", "--fp8-gemm-backend", "triton"),
        *("--fp4-gemm-backend", "flashinfer_cudnn"),
    )
    assert script.env["SGLANG_ENABLE_JIT_DEEPGEMM"] == "0"
    assert script.env["OMP_NUM_THREADS"] == "8"
    assert "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE" not in script.env
    comments = [line for line in script.text.splitlines() if line.startswith("# ")]
    said = " ".join(" ".join(line.removeprefix("#").split()) for line in comments)
    assert "Set by the rules of target sm120 for SGLang 0.5.9:" in said
    for one in script.rules:
        words = f"{one.name}: {one.rule.settings()} {one.rule.reason} {one.rule.reference}"
        assert (words in said) is (one.name not in ALWAYS)  # those only refuse
    assert [one.to_json()["applied"] for one in script.rules] == [True] * 5
    proc.run(["bash", "-n", "-c", script.text])
    assert max(map(len, comments)) <= 120


def test_a_target_without_rules_gets_none() -> None:
    assert load_rules(ROOT, "cpu") is None
    profile = make_profile(target="cpu")
    for version in (None, "0.5.9", "0.0.1"):
        environment = RecordedEnvironment(sglang_version=version)
        script = render_bash(profile, environment=environment, catalog_root=ROOT)
        assert script.rules == ()
        assert "Set by the rules" not in script.text
        assert list(script.env) == ["PYTHONUNBUFFERED"]


def test_the_control_server_keeps_to_the_same_rules() -> None:
    speculation = {"algorithm": "EAGLE3", "draft_model": "somebody/draft"}
    profile = make_profile(speculation=speculation, flags={"tp-size": 2})
    environment = RecordedEnvironment(sglang_version="0.5.23")
    scripts = [
        render_bash(profile, environment=environment, catalog_root=ROOT, speculation=speculative)
        for speculative in (True, False)
    ]
    assert {script.env["SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"] for script in scripts} == {"1"}


@pytest.mark.parametrize(
    ("version", "changes", "name"),
    [
        ("0.5.9", {"environment": {"SGLANG_ENABLE_JIT_DEEPGEMM": "1"}}, "deepgemm-no-sm120"),
        ("0.5.9", {"environment": {"SGLANG_ENABLE_JIT_DEEPGEMM": "true"}}, "deepgemm-no-sm120"),
        ("0.5.19", {"flags": {"fp8-gemm-backend": "deep_gemm"}}, "deepgemm-no-sm120"),
        ("0.5.12.post1", {"flags": {"moe-runner-backend": "deep_gemm"}}, "deepgemm-no-sm120"),
        ("0.5.9", {"flags": {"fp8-gemm-backend": "auto"}}, "fp8-gemm-no-sm120"),
        ("0.5.9", {"flags": {"fp4-gemm-backend": "flashinfer_cutlass"}}, "fp4-gemm-cutlass-nan"),
        ("0.5.9", {"flags": {"fp4-gemm-backend": "auto"}}, "fp4-gemm-cutlass-nan"),
        ("0.5.9", {"flags": {"fp4-gemm-backend": False}}, "fp4-gemm-cutlass-nan"),
        # the server's own parser takes beginnings of option names
        ("0.5.9", {"flags": {"fp4-gemm": "flashinfer_cutlass"}}, "fp4-gemm-cutlass-nan"),
        ("0.5.9", {"flags": {"enable-flashinfer-allreduce-fusion": True}}, "ar-fusion-on-pcie"),
        ("0.5.23", {"flags": {"enable-flashinfer-allreduce-fusion": True}}, "ar-fusion-on-pcie"),
        ("0.5.23", {"flags": {"flashinfer-allreduce-fusion-backend": "auto"}}, "ar-fusion-on-pcie"),
        ("0.5.16", {"flags": {"enable-pcie-oneshot-allreduce": True}}, "pcie-oneshot-not-upstream"),
        (
            "0.5.21",
            {"flags": {"tp-size": 4}, "environment": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "0"}},
            "pcie-ipc-allreduce",
        ),
    ],
)
def test_what_contradicts_a_rule_is_an_error_with_its_name(version: str, changes: dict[str, object], name: str) -> None:
    error = refused(version, **changes)
    (finding,) = error.as_findings()
    assert (error.code, error.exit_code, finding.subject) == ("rule-contradicted", 10, name)
    assert name in error.message
    assert "[overridden-rules]" in error.hint
    assert finding.detail[0].startswith("reference: ")


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        ("0.5.9", {"environment": {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}}),
        ("0.5.9", {"flags": {"fp4-gemm-backend": "flashinfer_cudnn"}}),
        ("0.5.9", {"flags": {"enable-flashinfer-allreduce-fusion": False}}),
        ("0.5.9", {"flags": {"moe-runner-backend": "auto", "fp8-gemm-backend": "triton"}}),
        ("0.5.10", {"flags": {"fp4-gemm-backend": "flashinfer_cutlass"}}),
        ("0.5.20", {"flags": {"moe-runner-backend": "deep_gemm"}, "environment": {"SGLANG_ENABLE_JIT_DEEPGEMM": "1"}}),
        ("0.5.23", {"flags": {"enforce-disable-flashinfer-allreduce-fusion": True}}),
        ("0.5.23", {"environment": {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "0"}}),  # one GPU: the rule does not hold
    ],
)
def test_what_agrees_or_is_not_ruled_passes_once(version: str, changes: dict[str, object]) -> None:
    script = render(version, **changes)
    options = [word for word in script.argv if word.startswith("--")]
    assert len(options) == len(set(options))


def test_all_contradictions_are_said_in_one_pass() -> None:
    error = refused(
        "0.5.9",
        flags={"fp4-gemm-backend": "auto", "enable-flashinfer-allreduce-fusion": True},
        environment={"SGLANG_ENABLE_JIT_DEEPGEMM": "1"},
        overridden_rules={"fp4-gem-cutlass-nan": "a typing error"},
    )
    assert [(finding.code, finding.subject) for finding in error.as_findings()] == [
        ("unknown-rule", "big"),
        ("rule-contradicted", "deepgemm-no-sm120"),
        ("rule-contradicted", "fp4-gemm-cutlass-nan"),
        ("rule-contradicted", "ar-fusion-on-pcie"),
    ]
    assert error.as_findings()[0].hint == "did you mean `fp4-gemm-cutlass-nan`?"


def test_a_rule_is_overridden_by_its_name_with_a_reason() -> None:
    why = "FlashInfer 0.6.14 is installed here, which has the flag"
    script = render(
        "0.5.9",
        flags={"fp4-gemm-backend": "flashinfer_cutlass"},
        overridden_rules={"fp4-gemm-cutlass-nan": why},
    )
    assert script.argv[-4:-2] == ("--fp4-gemm-backend", "flashinfer_cutlass")
    assert f"#   fp4-gemm-cutlass-nan does not apply, the profile says: {why}\n" in script.text
    (overridden,) = [one.to_json() for one in script.rules if not one.to_json()["applied"]]
    assert overridden["reason"] == why
    # without the value it only keeps the rule's own away
    assert "--fp4-gemm-backend" not in render("0.5.9", overridden_rules={"fp4-gemm-cutlass-nan": why}).argv
    # a rule of other versions may be overridden: the same profile serves several stacks
    assert render("0.5.23", overridden_rules={"fp4-gemm-cutlass-nan": why}).rules


@pytest.mark.parametrize("reason", ["", "two\nlines", "a\x1b[31m"])
def test_a_reason_is_one_line_of_text(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "p"\ndescription = "d"\ntarget = "sm120"\nmodel = "m"\n[overridden-rules]\n'
        f"deepgemm-no-sm120 = {json.dumps(reason)}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_model(path, Profile)
    assert caught.value.where == f"{path}:6"


@pytest.mark.parametrize("version", [None, "0.5.8", "0.0.0.dev0"])
def test_a_version_that_the_rules_were_not_read_for_is_refused(version: str | None) -> None:
    with pytest.raises(RenderError) as caught:
        rule(version)
    assert caught.value.code == "rules-not-for-version"
    assert str(version or "none that it names") in caught.value.message


RULE = """
target = "sm120"
read-for = ">=0.5.9"

[rules.one]
versions = "<0.5.10"
superseded-from = "0.5.10"
flags = { a = "b" }
origin = "sglforge"
reason = "r"
reference = "x"
"""


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("", ""), 0, ""),
        (('reason = "r"\n', ""), 5, "lacks the key `reason`"),
        (('reason = "r"', 'reason = "r\\ns"'), 10, "one line of text"),
        (('flags = { a = "b" }\n', ""), 5, "sets or refuses something"),
        (('versions = "<0.5.10"', 'versions = "<=0.5.10"'), 5, "`versions` holds `superseded-from`"),
        (('versions = "<0.5.10"', 'versions = "soon"'), 6, "not a version specifier"),
        (('{ a = "b" }', '{ --a = "b" }'), 8, ""),
        (('target = "sm120"', 'target = "cpu"'), 2, "are for target `cpu`"),
        (("[rules.one]", "[rules.one]\nflag = 1"), 6, "unknown key `flag`"),
    ],
)
def test_a_rules_file_is_checked_where_it_is_wrong(
    tmp_path: Path, change: tuple[str, str], line: int, said: str
) -> None:
    path = tmp_path / "recipes" / "rules" / "sm120.toml"
    files.write_text(path, RULE.replace(*change) if change[0] else RULE)
    if not line:
        assert load_rules(tmp_path, "sm120")
        return
    with pytest.raises(ConfigError) as caught:
        load_rules(tmp_path, "sm120")
    assert caught.value.where == f"{path}:{line}"
    assert said in " ".join((caught.value.message, *(finding.message for finding in caught.value.findings)))


Install = Callable[[str], None]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def install(workspace: Path) -> Install:
    """A function that leaves an environment `main.sm120` which says that it holds a version of SGLang."""

    def leave(version: str) -> None:
        folder = Workspace(root=workspace).environments / "main.sm120"
        (folder / "venv" / "bin").mkdir(parents=True)
        (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
        config = folder / "venv" / "pyvenv.cfg"
        files.write_text(config, "home = /usr/bin\n")
        (folder / "site").mkdir()
        receipt = Receipt(
            environment_key=BuildKey("k"),
            name="main.sm120",
            created="",
            engine="",
            site_packages="site",
            python=PythonReceipt(
                minor="3.12", version="3.12.1", base=sys.executable, config_sha256=files.sha256_file(config)
            ),
            torch=TorchReceipt(version="2.14.1", variant="cu130", sha256=None, origin="download", proven=True),
            requirements=(),
            built=(
                BuiltReceipt(name="sglang", version=version, build_key="k", wheel="w", wheel_sha256="0" * 64, files={}),
            ),
            omitted=(),
            relaxed=(),
            records={},
            loose=(),
        )
        write_receipt(folder, receipt)

    return leave


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A catalog with a profile for sm120."""
    root = tmp_path / "catalog"
    shutil.copytree(ROOT / "recipes", root / "recipes")
    for name in ("templates", "patches", "docs", "kernels", "models"):
        (root / name).symlink_to(ROOT / name)
    files.write_text(
        root / "recipes" / "profiles" / "big.toml",
        'name = "big"\ndescription = "d"\ntarget = "sm120"\nmodel = "somebody/something"\n[flags]\ntp-size = 8\n',
    )
    return root


def test_render_reads_the_version_off_the_installed_environment(
    install: Install, catalog: Path, workspace: Path, tmp_path: Path
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"gpus": []}))
    words = ("render", "big", "--target", "sm120", "--facts", facts, "--catalog", catalog)
    install("0.5.9+sm120.t1.p2")
    rendered = call(*words, workspace=workspace)
    assert rendered.code == 0, rendered.talk
    argv, rules = rendered.document["argv"], rendered.document["rules"]
    assert isinstance(argv, list)
    assert isinstance(rules, list)
    assert argv[-2:] == ["--fp4-gemm-backend", "flashinfer_cudnn"]
    assert [one["name"] for one in rules] == OLDEST
    wrong = call(*words, "--set", "flags.fp4-gemm-backend=flashinfer_cutlass", workspace=workspace)
    assert (wrong.code, wrong.codes) == (10, {"rule-contradicted"})
    assert "fp4-gemm-cutlass-nan" in wrong.talk
