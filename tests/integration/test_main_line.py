"""The main line for real: build, install, serve, prove; and what happens when a part of it is wrong."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from calling import ROOT, Called, argv, call, servers

from sglforge.smoke.probes.catalog import PROBES

pytestmark = [pytest.mark.integration, pytest.mark.servers, pytest.mark.timeout(1800)]


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A copy of the catalog, to be made wrong."""
    copy = tmp_path / "catalog"
    for name in ("recipes", "patches", "templates", "locks", "kernels", "models", "docs/errors"):
        shutil.copytree(ROOT / name, copy / name)
    return copy


def environment(built: Called) -> dict[str, str]:
    found = built.document["environment"]
    assert isinstance(found, dict)
    return found


def test_a_build_ends_with_a_proven_server(built: Called, workspace: Path) -> None:
    assert built.document["verdict"] == "pass", built.talk
    assert built.smoke["scope"] == "cpu-logic"
    assert list(built.probes) == [probe.name for probe in PROBES]
    assert {name for name, verdict in built.probes.items() if verdict != "pass"} == {"threshold-wave"}
    assert built.probes["threshold-wave"] == "skipped"
    assert servers(workspace) == []


def test_a_second_build_does_nothing_and_cites_the_verdict(built: Called, workspace: Path) -> None:
    again = call("build", "--target", "cpu", workspace=workspace)
    assert again.code == 0, again.talk
    assert again.smoke["cited"] is True
    assert isinstance(again.smoke["age_seconds"], int)
    assert again.document["environment"] == built.document["environment"]
    steps = again.document["steps"]
    assert isinstance(steps, list)
    assert [step["state"] for step in steps] == ["hit"] * 3


def test_torch_is_the_cpu_build_and_everything_is_as_the_receipt_says(built: Called, workspace: Path) -> None:
    script = "import torch, torchvision, sgl_kernel, sglang; print(torch.version.cuda, torch.__version__)"
    python = environment(built)["python"]
    done = subprocess.run([python, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "2.13.0+cpu"]
    verified = call("verify", "--target", "cpu", workspace=workspace)
    assert (verified.code, verified.document["verdict"]) == (0, "pass"), verified.talk


def test_the_installed_sglang_says_that_it_was_repacked_and_patched(built: Called) -> None:
    script = (
        "import importlib.metadata as m, json; d = m.distribution('sglang'); "
        "print(d.version); print(next(f for f in d.files if f.name == 'sglforge.json').read_text())"
    )
    done = subprocess.run(
        [environment(built)["python"], "-P", "-c", script], capture_output=True, text=True, check=True
    )
    version, _, provenance = done.stdout.partition("\n")
    assert version.startswith("0.5.23+cpu.t")
    assert "re-packed wheel" in provenance
    assert "cpu-attention-without-amx" in provenance
    assert "source build" not in provenance


def test_everything_works_without_a_network_afterwards(built: Called, workspace: Path, tmp_path: Path) -> None:
    """A new environment from what was fetched, with every proxy and index pointing nowhere."""
    nowhere = dict.fromkeys(
        ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"), "http://127.0.0.1:9"
    )
    assert call("fetch", "--target", "cpu", workspace=workspace).code == 0
    other = tmp_path / "workspace"
    shutil.copytree(workspace / "sources", other / "sources")
    fetched = call("fetch", "--target", "cpu", "--offline", workspace=other, env=nowhere)
    assert fetched.code == 0, fetched.talk
    for package in ("torchvision", "sgl-kernel-cpu"):
        made = call("build", package, "--target", "cpu", "--offline", workspace=other, env=nowhere)
        assert made.code == 0, made.talk


def test_a_draft_that_never_matches_fails_the_probe_that_is_for_it(built: Called, workspace: Path) -> None:
    mismatched = "speculation.draft-model=catalog:models/tiny-eagle-mismatched"
    result = call(
        "smoke",
        "--target",
        "cpu",
        "--set",
        mismatched,
        "--probe",
        "started,spec-gain,alive-after",
        workspace=workspace,
    )
    assert result.code == 11
    assert result.probes == {"started": "pass", "spec-gain": "fail", "alive-after": "pass"}
    assert "spec-no-gain" in result.codes


def test_the_other_trained_draft_gains_and_agrees(built: Called, workspace: Path) -> None:
    words = ("speculation.algorithm=EAGLE3", "speculation.draft-model=catalog:models/tiny-eagle3")
    result = call("smoke", "--target", "cpu", "--set", words[0], "--set", words[1], workspace=workspace)
    assert result.code == 0, result.talk
    assert result.probes["spec-gain"] == result.probes["spec-parity"] == "pass"


def test_drafts_stop_above_the_threshold_and_go_on_below_it(built: Called, workspace: Path) -> None:
    """Upstream's adaptive speculation, with the configuration that a profile's one setting becomes."""
    result = call(
        "smoke", "--target", "cpu", "--set", "speculation.disable-above-batch=2",
        "--probe", "started,spec-parity,threshold-wave,alive-after",
        workspace=workspace,
    )  # fmt: skip
    assert result.code == 0, result.talk
    assert result.probes["threshold-wave"] == result.probes["spec-parity"] == "pass"


def test_a_threshold_that_is_never_reached_is_refused_before_a_server_starts(built: Called, workspace: Path) -> None:
    result = call(
        "smoke", "--target", "cpu", "--set", "speculation.disable-above-batch=8", workspace=workspace, timeout_s=60
    )
    assert result.code == 10
    assert result.codes == {"threshold-never-reached"}


def test_without_the_attention_topic_speculation_fails_in_smoke(built: Called, workspace: Path, catalog: Path) -> None:
    series = catalog / "patches" / "sglang" / "series.toml"
    listed = series.read_text()
    series.write_text(listed.replace('"cpu-attention-without-amx",', ""))
    assert series.read_text() != listed
    shutil.rmtree(catalog / "patches" / "sglang" / "cpu-attention-without-amx")
    result = call("build", "--catalog", catalog, "--target", "cpu", "--prove", workspace=workspace)
    assert result.code == 11, result.talk
    assert result.document["verdict"] == "fail"
    assert "fail" in result.probes.values()
    restored = call("build", "--target", "cpu", workspace=workspace)
    assert restored.code == 0
    assert restored.smoke["cited"] is True


def test_a_changed_file_is_found_and_mended(built: Called, workspace: Path) -> None:
    path = Path(environment(built)["path"])
    (victim,) = path.glob("venv/lib/python3*/site-packages/sglang/version.py")
    victim.chmod(0o644)
    victim.write_text(victim.read_text() + "# changed\n")
    (other,) = path.glob("venv/lib/python3*/site-packages/torch/version.py")
    text = other.read_text()
    other.unlink()  # not through the hard link: that would change uv's cache
    other.write_text(text + "# changed\n")
    verified = call("verify", "--target", "cpu", workspace=workspace)
    assert verified.code == 9
    assert {"environment-changed", "torch-replaced"} <= verified.codes
    refused = call("render", "tiny-cpu", "--target", "cpu", workspace=workspace)
    assert (refused.code, refused.codes) == (9, {"environment-changed", "torch-replaced"})
    mended = call("install", "--target", "cpu", workspace=workspace)
    assert mended.code == 0, mended.talk
    assert call("verify", "--target", "cpu", workspace=workspace).code == 0


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_smoke_leaves_no_server(built: Called, workspace: Path, kill: signal.Signals) -> None:
    # Tests that run in the background ignore SIGINT, and so would what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        argv("smoke", "--target", "cpu", "--workspace", workspace),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 120
        while not servers(workspace) and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(3)
        assert servers(workspace)
        process.send_signal(kill)
        _, talk = process.communicate(timeout=60)
    assert process.returncode == (-9 if kill is signal.SIGKILL else 130)
    assert "Traceback" not in talk
    deadline = time.monotonic() + 15
    while servers(workspace) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert servers(workspace) == []


def test_a_port_that_is_taken_is_said_before_anything_starts(built: Called, workspace: Path) -> None:
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = call("smoke", "--target", "cpu", "--set", f"port={port}", workspace=workspace)
    assert result.code == 11
    assert result.codes == {"port-taken"}


def test_a_server_that_dies_at_start_is_explained(built: Called, workspace: Path) -> None:
    result = call(
        "smoke", "--target", "cpu", "--set", "flags.no-such-flag=1", "--probe", "started", workspace=workspace
    )
    assert result.code == 11
    assert "server-died" in result.codes
    assert "no-such-flag" in result.talk
