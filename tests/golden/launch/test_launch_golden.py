"""Rendered scripts as they are, one file each; shellcheck has nothing to say about any of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from sglforge.base import proc
from sglforge.base.ids import Sha256
from sglforge.config.model import Profile, Speculation
from sglforge.launch.render import render_bash

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class ShellScript(SingleFileSnapshotExtension):
    """Keep each script as a file of its own."""

    _write_mode = WriteMode.TEXT
    file_extension = "sh"


@dataclass(frozen=True, kw_only=True)
class FakeEnvironment:
    """An environment that only has to be written down."""

    path: Path = Path("/srv/sglforge/environments/0123456789ab")
    name: str = "release-0.5.23.cpu"
    python: Path = Path("/srv/sglforge/environments/0123456789ab/venv/bin/python")
    receipt_sha256: Sha256
    sglang_version: str | None = "0.5.23"


ENVIRONMENT = FakeEnvironment(receipt_sha256=Sha256("0123456789abcdef" * 4))
OLD_SGLANG = FakeEnvironment(receipt_sha256=ENVIRONMENT.receipt_sha256, sglang_version="0.5.9")
PROFILES = {
    "plain": Profile(name="plain", description="Only what must be.", target="cpu", model="somebody/something"),
    "speculative": Profile(
        name="speculative",
        description="A model folder, options of every kind, a draft.",
        target="sm120",
        model="/srv/models/big",
        served_model_name="big",
        host="0.0.0.0",
        port=8000,
        flags={
            "tp-size": 8,
            "trust-remote-code": True,
            "disable-radix-cache": False,
            "mem-fraction-static": 0.85,
            "cuda-graph-bs-decode": ["1", "2", "4"],
        },
        environment={"OMP_NUM_THREADS": "8", "NCCL_P2P_LEVEL": "SYS"},
        speculation=Speculation(algorithm="EAGLE3", draft_model="/srv/models/draft", num_steps=3),
    ),
    "old-sglang": Profile(
        name="old-sglang",
        description="Rules of the target, one of them overridden.",
        target="sm120",
        model="/srv/models/big",
        flags={"tp-size": 8},
        environment={"NCCL_P2P_LEVEL": "SYS"},
        overridden_rules={"deepgemm-no-sm120": "its $(id) 'kernels' are `here`"},
    ),
    "hostile": Profile(
        name="hostile",
        description="$(id)",
        target="cpu",
        model="it's; a \"model\" $(id) {{ 7 * 7 }} `id`",
        served_model_name="-x",
        flags={"chat-template": "line one\nline two", "lora-paths": ["a b", "~", "*"]},
        environment={"A": "'\"$(id)\\", "B": "ünïcode 語"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROFILES)
def test_scripts_are_what_they_were(name: str, snapshot: SnapshotAssertion) -> None:
    environment = OLD_SGLANG if name == "old-sglang" else ENVIRONMENT
    script = render_bash(PROFILES[name], environment=environment, catalog_root=ROOT)
    assert script.text == snapshot(extension_class=ShellScript)


def test_shellcheck_is_content_with_all_of_them() -> None:
    scripts = sorted(HERE.rglob("*.sh"))
    assert len(scripts) == len(PROFILES)
    proc.run(["shellcheck", "--norc", *scripts])
