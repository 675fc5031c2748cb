"""What a build does with what it finds."""

from __future__ import annotations

import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sglforge.base.console import Console
from sglforge.base.exclusive import exclusive
from sglforge.base.files import sha256_file, write_json
from sglforge.base.ids import BuildKey
from sglforge.base.sandbox.step import Isolation
from sglforge.base.workspace import Workspace
from sglforge.build import store
from sglforge.config.model import PackageRecipe, PathSource
from sglforge.pipeline import serving
from sglforge.pipeline.building import _chosen, _looked_at, _proof, _sandbox_remarks
from sglforge.pipeline.request import Request
from sglforge.pipeline.wheels import _took
from sglforge.plan import Step
from sglforge.provision.install import environment_lock
from sglforge.smoke.stored import Proof

KEY = BuildKey("k" * 64)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(argv=(), catalog_root=tmp_path, workspace=Workspace(root=tmp_path / "workspace"))


def step() -> Step:
    return Step(
        package="toy",
        recipe=PackageRecipe(name="toy", description="", import_name="toy"),
        source=PathSource(kind="path", path="toy"),
        locked=None,
        build_requires=(),
        key=KEY,
        key_parts={},
        local_version="cpu.t1",
        state="hit",
        why="in the store",
    )


def test_a_wheel_that_was_changed_in_the_store_is_dropped_and_built_again(request_: Request, tmp_path: Path) -> None:
    wheel = tmp_path / "toy-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    described = {"name": wheel.name, "size": 5, "sha256": sha256_file(wheel)}
    stored = store.publish(request_.workspace, KEY, wheel, {"wheel": described})
    assert _looked_at(step(), request_) == step()
    stored.path.write_bytes(b"WHEEL")
    damaged = _looked_at(step(), request_)
    assert (damaged.state, damaged.why) == ("miss", "its wheel in the store is damaged")
    assert store.lookup(request_.workspace, KEY) is None


def test_a_package_brings_what_it_is_built_with(request_: Request) -> None:
    """A wheel that is damaged, too: it is built again, and that needs the wheels that it is built with."""
    base = replace(step(), package="base", key=BuildKey("b" * 64))
    miss = replace(step(), depends=("base",), state="miss")
    asked = replace(request_, options={"packages": ["toy"]})
    assert _chosen(asked, [base, miss]) == (base, miss)
    assert _chosen(asked, [base, replace(miss, state="hit")]) == (replace(miss, state="hit"),)
    assert _chosen(request_, [base, miss]) == (base, miss)


def built(*sandboxes: dict[str, object] | None, took: dict[str, float] | None = None) -> list[Any]:
    return [SimpleNamespace(provenance={"sandbox": sandbox, "resources": took}) for sandbox in sandboxes]


def test_what_kept_no_build_is_said_once_and_only_of_what_this_run_built() -> None:
    full = Isolation(network="none", writes="own-folder", processes="contained", place="fixed").to_json()
    weak = {**full, "network": "unchecked", "why": ["namespaces (net): Operation not permitted"]}
    miss, out = replace(step(), state="miss"), io.StringIO()
    (finding,) = _sandbox_remarks((miss, miss, miss), built(weak, full, None), Console(stream=out))
    assert (finding.code, finding.severity.value) == ("sandbox-incomplete", "warning")
    assert out.getvalue().count("sandbox-incomplete") == 2  # the code, and the hint
    assert "Operation not permitted" in out.getvalue()
    quiet = Console(stream=io.StringIO())
    assert _sandbox_remarks((miss,), built(full), quiet) == ()
    assert _sandbox_remarks((step(),), built(weak), quiet) == ()
    assert _sandbox_remarks((miss,), built(None), quiet) == ()


def test_what_a_build_took_is_in_words() -> None:
    (wheel,) = built(None, took={"seconds": 3.0, "cpu_seconds": 2.345, "peak_rss_mib": 99.6})
    assert _took(wheel) == ", 2.3 s of CPU, 100 MiB"
    assert _took(built(None)[0]) == ""


@pytest.mark.parametrize("proven", [True, False])
def test_a_build_waits_for_one_that_proves_the_same_and_cites_its_verdict(
    request_: Request, monkeypatch: pytest.MonkeyPatch, proven: bool
) -> None:
    monkeypatch.setattr(serving, "prove", lambda *_: "proven by ourselves")
    out = io.StringIO()
    nothing = cast("Any", None)
    environment = cast("Any", SimpleNamespace(receipt=SimpleNamespace(environment_key=KEY)))

    def build() -> object:
        return _proof(request_, nothing, nothing, environment, nothing, Console(stream=out), key="key")

    with ThreadPoolExecutor(1) as pool:
        with exclusive(environment_lock(request_.workspace, KEY), waiting=pytest.fail):
            waiting = pool.submit(build)
            deadline = time.monotonic() + 30
            while "waiting" not in out.getvalue():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert f"waiting for process {os.getpid()}," in out.getvalue()
            if proven:
                report = {"verdict": "pass", "scope": "cpu-logic"}
                document = {"time": time.time(), "run": "first", "report": report}
                write_json(request_.workspace.verdicts / "key.json", document)
        found = waiting.result(timeout=30)
    if proven:
        assert isinstance(found, Proof)
        assert found.report["run"] == "first"
    else:
        assert found == "proven by ourselves"
