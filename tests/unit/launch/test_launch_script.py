"""Launch scripts, run for real with an interpreter that prints what it was started with."""

from __future__ import annotations

import json
import os
import socket
import string
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.base import files, proc
from sglforge.base.ids import Sha256
from sglforge.base.proc import Completed
from sglforge.config.model import Profile, Speculation
from sglforge.errors import RenderError
from sglforge.launch.render import LaunchScript, ScriptExit, render_bash

ROOT = Path(__file__).parents[3]
TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


@dataclass(frozen=True, kw_only=True)
class FakeEnvironment:
    """An environment whose interpreter prints its arguments and variables as JSON."""

    path: Path
    receipt_sha256: Sha256
    name: str = "fake.cpu"
    sglang_version: str | None = "0.5.23"

    @property
    def python(self) -> Path:
        return self.path / "venv" / "bin" / "python"


def make_environment(path: Path) -> FakeEnvironment:
    program = f"exec '{sys.executable}' -c '{TELL}' \"$@\""
    files.write_text(path / "venv" / "bin" / "python", f"#!/bin/sh\n{program}\n", mode=0o755)
    files.write_text(path / "receipt.json", "{}\n")
    return FakeEnvironment(path=path, receipt_sha256=files.sha256_file(path / "receipt.json"))


def make_profile(**changes: object) -> Profile:
    profile = Profile(name="toy", description="A toy.", target="cpu", model="somebody/something", port=30123)
    return profile.model_copy(update=changes)


@pytest.fixture
def environment(tmp_path: Path) -> FakeEnvironment:
    return make_environment(tmp_path / "an environment's $HOME")


def execute(script: LaunchScript, folder: Path, env: Mapping[str, str] | None = None) -> Completed:
    path = folder / "script.sh"
    path.write_text(script.text, encoding="utf-8")
    return proc.run(["bash", path], env=env, check=False)


def started(
    script: LaunchScript, folder: Path, env: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables that the interpreter got, less its own."""
    done = execute(script, folder, env)
    assert done.returncode == 0, done.stderr
    arguments, variables = json.loads(done.stdout)
    return arguments, variables


def test_the_interpreter_gets_the_options_and_the_environment(environment: FakeEnvironment, tmp_path: Path) -> None:
    profile = make_profile(
        served_model_name="toy one",
        flags={
            "device": "cpu",
            "disable-cuda-graph": True,
            "trust-remote-code": False,
            "mem-fraction-static": 0.7,
            "max-running-requests": 8,
            "cuda-graph-bs": ["1", "2"],
            "random-seed": -1,
        },
        environment={"OMP_NUM_THREADS": "1"},
        speculation=Speculation(algorithm="EAGLE", draft_model="somebody/draft"),
    )
    script = render_bash(profile, environment=environment, catalog_root=ROOT)
    arguments, variables = started(script, tmp_path)
    assert arguments == [
        *("-P", "-m", "sglang.launch_server"),
        *("--model-path", "somebody/something", "--host", "127.0.0.1", "--port", "30123"),
        *("--served-model-name", "toy one", "--device", "cpu", "--disable-cuda-graph"),
        *("--mem-fraction-static", "0.7", "--max-running-requests", "8", "--cuda-graph-bs", "1", "2"),
        "--random-seed=-1",
        *("--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", "somebody/draft"),
        *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
    ]
    assert list(script.argv[1:]) == arguments
    assert variables["OMP_NUM_THREADS"] == "1"
    assert script.env.items() <= variables.items()


def test_the_caller_keeps_its_variables_and_no_other_python_leaks_in(
    environment: FakeEnvironment, tmp_path: Path
) -> None:
    caller = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/somebody",
        "OMP_NUM_THREADS": "64",
        # names that a script might use for itself
        **dict.fromkeys(("profile", "environment", "python", "host", "port", "command", "variables"), "mine"),
        "PYTHONPATH": "/elsewhere",
        "PYTHONHOME": "/elsewhere",
        "VIRTUAL_ENV": "/elsewhere",
    }
    script = render_bash(make_profile(environment={"OMP_NUM_THREADS": "1"}), environment=environment, catalog_root=ROOT)
    _, variables = started(script, tmp_path, caller)
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        assert name not in variables
        del caller[name]
    assert variables.items() >= (caller | {"OMP_NUM_THREADS": "1"}).items()


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_a_server_reaches_itself_past_a_proxy(environment: FakeEnvironment, tmp_path: Path, name: str) -> None:
    caller = {"PATH": os.environ["PATH"], "http_proxy": "http://proxy:3128", name: "intranet"}
    script = render_bash(make_profile(), environment=environment, catalog_root=ROOT)
    _, variables = started(script, tmp_path, caller)
    assert variables["no_proxy"] == variables["NO_PROXY"] == "127.0.0.1,localhost,intranet"
    assert variables["http_proxy"] == "http://proxy:3128"


def test_the_profile_may_set_a_python_path_of_its_own(environment: FakeEnvironment, tmp_path: Path) -> None:
    profile = make_profile(environment={"PYTHONPATH": "/plugins", "no_proxy": "all"})
    script = render_bash(profile, environment=environment, catalog_root=ROOT)
    _, variables = started(script, tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": "/elsewhere"})
    assert (variables["PYTHONPATH"], variables["no_proxy"]) == ("/plugins", "all")


def test_what_is_started_is_told_on_stderr(environment: FakeEnvironment, tmp_path: Path) -> None:
    profile = make_profile(environment={"HF_TOKEN": "hf_secret"})
    done = execute(render_bash(profile, environment=environment, catalog_root=ROOT), tmp_path)
    assert "starting profile toy in environment fake.cpu on 127.0.0.1:30123" in done.stderr
    assert "HF_TOKEN" in done.stderr
    assert "--model-path somebody/something" in done.stderr
    assert "hf_secret" not in done.stderr


def test_the_control_server_has_nothing_speculative(environment: FakeEnvironment) -> None:
    profile = make_profile(
        flags={"speculative-draft-window-size": 8, "device": "cpu"},
        speculation=Speculation(algorithm="EAGLE3", draft_model="catalog:models/no-such-draft"),
    )
    script = render_bash(profile, environment=environment, catalog_root=ROOT, port=4711, speculation=False)
    assert "speculative" not in script.text
    assert "no-such-draft" not in script.text
    assert script.name == "toy-control.sh"
    assert "4711" in script.argv


def test_ngram_needs_neither_draft_nor_steps(environment: FakeEnvironment) -> None:
    profile = make_profile(speculation=Speculation(algorithm="NGRAM", num_draft_tokens=8))
    argv = render_bash(profile, environment=environment, catalog_root=ROOT).argv
    assert argv[-4:] == ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8")


def test_a_catalog_folder_is_resolved_and_must_be_there(environment: FakeEnvironment, tmp_path: Path) -> None:
    catalog = tmp_path / "the catalog"
    catalog.mkdir()
    (catalog / "templates").symlink_to(ROOT / "templates")
    script = render_bash(make_profile(model="catalog:models/toy"), environment=environment, catalog_root=catalog)
    refused = execute(script, tmp_path)
    assert refused.returncode == ScriptExit.MODEL_MISSING
    assert "no model folder" in refused.stderr
    (catalog / "models" / "toy").mkdir(parents=True)
    arguments, _ = started(script, tmp_path)
    assert str(catalog / "models" / "toy") in arguments


@pytest.mark.parametrize("path", ["catalog:../x", "catalog:/etc", "catalog:models/../../x", "catalog:"])
def test_a_catalog_path_stays_in_the_catalog(environment: FakeEnvironment, path: str) -> None:
    with pytest.raises(RenderError) as caught:
        render_bash(make_profile(model=path), environment=environment, catalog_root=ROOT)
    assert caught.value.code == "catalog-path-invalid"


def test_a_missing_environment_is_refused(environment: FakeEnvironment, tmp_path: Path) -> None:
    script = render_bash(make_profile(), environment=environment, catalog_root=ROOT)
    environment.python.unlink()
    done = execute(script, tmp_path)
    assert (done.returncode, done.stdout) == (ScriptExit.ENVIRONMENT_MISSING, "")
    assert "environment fake.cpu is not installed" in done.stderr


def test_a_changed_environment_is_refused(environment: FakeEnvironment, tmp_path: Path) -> None:
    script = render_bash(make_profile(), environment=environment, catalog_root=ROOT)
    (environment.path / "receipt.json").write_text('{"other": 1}\n')
    done = execute(script, tmp_path)
    assert (done.returncode, done.stdout) == (ScriptExit.ENVIRONMENT_CHANGED, "")
    assert "has changed" in done.stderr


def test_a_taken_port_is_refused(environment: FakeEnvironment, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = execute(render_bash(make_profile(port=port), environment=environment, catalog_root=ROOT), tmp_path)
    assert (done.returncode, done.stdout) == (ScriptExit.PORT_TAKEN, "")
    assert f"port {port}" in done.stderr


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"flags": {"--device": "cpu"}}, "option-name-invalid"),
        ({"flags": {"Device": "cpu"}}, "option-name-invalid"),
        ({"flags": {"a b": "cpu"}}, "option-name-invalid"),
        ({"flags": {"port": 1}}, "option-owned-by-profile"),
        ({"flags": {"speculative-num-steps": 1}}, "option-owned-by-profile"),
        ({"flags": {"lora-paths": ["a", "--api-key"]}}, "option-value-invalid"),
        ({"flags": {"tokenizer-path": "catalog:../x"}}, "catalog-path-invalid"),
        ({"flags": {"device": "a\0b"}}, "value-not-printable"),
        ({"model": "a\x1b[31mb"}, "value-not-printable"),
        ({"served_model_name": "a\x7fb"}, "value-not-printable"),
        ({"environment": {"A": "b\rc"}}, "value-not-printable"),
        ({"environment": {"A": "\ud800"}}, "value-not-printable"),
        ({"environment": {"A=B": "c"}}, "variable-name-invalid"),
        ({"environment": {"A;id": "c"}}, "variable-name-invalid"),
    ],
)
def test_what_cannot_be_rendered_is_an_error(
    environment: FakeEnvironment, changes: dict[str, object], code: str
) -> None:
    with pytest.raises(RenderError) as caught:
        render_bash(make_profile(**changes), environment=environment, catalog_root=ROOT)
    assert caught.value.code == code


HOSTILE = st.one_of(
    st.sampled_from(
        [
            "'", '"', "\\", "$(touch pwned)", "`touch pwned`", "${HOME}", "{{ 7 * 7 }}", "{% raw %}", "-x", "--port=1",
            "a\nb", "\n", "", " ", "*", "~", "!!", "a;b", "a&b", "|", "#", "ünïcode 語 😀", "=", "%s%n", "\\n",
        ]
    ),
    st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=30),
)  # fmt: skip
NAMES = st.text(string.ascii_uppercase + "_", min_size=1, max_size=8).map("X_".__add__)


@pytest.fixture(scope="module")
def hostile_environment() -> Iterator[FakeEnvironment]:
    with tempfile.TemporaryDirectory() as folder:
        yield make_environment(Path(folder) / "$(x) 'y' \"z\"")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=HOSTILE,
    items=st.lists(HOSTILE.filter(lambda item: not item.startswith(("-", "catalog:"))), min_size=1, max_size=3),
    variables=st.dictionaries(NAMES, HOSTILE, max_size=3),
)
def test_hostile_values_stay_values(
    hostile_environment: FakeEnvironment,
    tmp_path: Path,
    value: str,
    items: list[str],
    variables: dict[str, str],
) -> None:
    profile = make_profile(
        served_model_name=value, flags={"chat-template": value, "lora-paths": items}, environment=variables
    )
    script = render_bash(profile, environment=hostile_environment, catalog_root=ROOT)
    arguments, seen = started(script, tmp_path)
    joined = value.startswith("-")
    assert arguments[9:] == [
        *([f"--served-model-name={value}"] if joined else ["--served-model-name", value]),
        *([f"--chat-template={value}"] if joined else ["--chat-template", value]),
        *("--lora-paths", *items),
    ]
    assert variables.items() <= seen.items()
    assert not (tmp_path / "pwned").exists()
