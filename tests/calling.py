"""Call verbs as processes and read what they return."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A verb that ended: exit code, its JSON document, its talk."""

    code: int
    document: Mapping[str, object]
    talk: str

    @property
    def codes(self) -> set[str]:
        findings = self.document["findings"]
        assert isinstance(findings, list)
        return {finding["code"] for finding in findings}

    @property
    def smoke(self) -> dict[str, object]:
        smoke = self.document.get("smoke", self.document)
        assert isinstance(smoke, dict)
        return smoke

    @property
    def probes(self) -> dict[str, str]:
        probes = self.smoke["probes"]
        assert isinstance(probes, list)
        return {probe["name"]: probe["verdict"] for probe in probes}


def argv(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "sglforge", *map(str, words)]


def call(*words: str | Path, workspace: Path, env: Mapping[str, str] | None = None, timeout_s: float = 900) -> Called:
    done = subprocess.run(
        argv(*words, "--json", "--workspace", workspace),
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Called(code=done.returncode, document=json.loads(done.stdout or "{}"), talk=done.stderr)


def servers(workspace: Path) -> Sequence[str]:
    """Return the command lines of SGLang processes that live now and run from a workspace."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            ours = str(workspace) in command or str(workspace) in (entry / "maps").read_text(errors="replace")
        except OSError:
            continue
        if ours and ("sglang.launch_server" in command or command.startswith("sglang::")):
            found.append(command)
    return found
