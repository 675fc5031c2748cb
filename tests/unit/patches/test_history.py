"""The commit that took an anchor away, in trees that have a git history."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest
from toy_series import WORKER, Bench, edit

from sglforge.base import git, proc
from sglforge.patches.apply import apply_series
from sglforge.patches.edits import text_digest
from sglforge.patches.result import PatchResult, TopicState

FILES = {"pkg/CMakeLists.txt": "project(x)\nset(A 1)\n", "pkg/x.toml": "[project]\nname = 'x'\n"}
TEXT = """
[[edits]]
kind = "text"
file = "pkg/CMakeLists.txt"
operation = "insert-after"
anchor = "set(A 1)"
payload = "payload/p.py"
"""
TOML = """
[[edits]]
kind = "toml"
file = "pkg/x.toml"
operation = "set"
key = "project.name"
value = "y"
replaces = "x"
"""
DIFF = '\n[[edits]]\nkind = "diff"\npayload = "payload/p.py"\n'
CHANGE = "--- a/pkg/worker.py\n+++ b/pkg/worker.py\n@@ -8,2 +8,2 @@\n     def run(self, batch):\n"
CHANGE += "-        return batch[: self.size]\n+        return batch\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upstream:
    """A bench whose tree is a git repository, or a folder of one."""

    bench: Bench

    def commit(self, subject: str, files: Mapping[str, str | None]) -> None:
        """Commit other contents of files; None deletes one."""
        self.bench.fill({name: text for name, text in files.items() if text is not None})
        for name in (name for name, text in files.items() if text is None):
            (self.bench.tree / name).unlink()
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)

    def git(self, *words: str) -> None:
        identity = ["-c", "user.name=Toy", "-c", "user.email=toy@example.com"]
        proc.run(["git", *identity, *words], cwd=self.bench.tree, env=git.own_environment())

    def told(self) -> str:
        (finding,) = self.bench.apply().findings
        return dict(line.split(": ", 1) for line in finding.detail).get("last changed by", "")


@pytest.fixture(params=[".", ".."])
def upstream(bench: Bench, request: pytest.FixtureRequest) -> Upstream:
    proc.run(["git", "init", "--quiet", str(bench.tree / request.param)])
    upstream = Upstream(bench=bench)
    upstream.commit("Begin", FILES)
    return upstream


@pytest.mark.parametrize(
    ("edits", "payload", "file", "changed"),
    [
        (edit("prepend-to-body", "p", "Worker.run"), "x = 1\n", "pkg/worker.py", WORKER.replace("run(", "walk(")),
        (edit("prepend-to-body", "p", "Worker"), "x = 1\n", "pkg/worker.py", WORKER.replace("Worker:", "Runner:")),
        (
            edit("replace-body", "p", "Worker.run", replaces=text_digest("return batch[: self.size]")),
            "return 1\n",
            "pkg/worker.py",
            WORKER.replace("return batch", "return batch[1:]"),
        ),
        (
            edit("insert-before", "p", "Worker.__init__") + '[edits.statement]\ntype = "assign"\nname = "self.size"\n',
            "x = 1\n",
            "pkg/worker.py",
            WORKER.replace("self.size = size", "self.count = size"),
        ),
        (edit("prepend-to-body", "p", "Worker.run"), "x = 1\n", "pkg/worker.py", None),
        (TEXT, "set(B 2)\n", "pkg/CMakeLists.txt", "project(x)\n"),
        (TOML, "", "pkg/x.toml", "[project]\n"),
        (DIFF, CHANGE, "pkg/worker.py", WORKER.replace("batch[: self.size]", "batch[1 : self.size]")),
        (DIFF, CHANGE, "pkg/worker.py", None),
    ],
)
def test_the_commit_that_took_it_away_is_named(
    upstream: Upstream, edits: str, payload: str, file: str, changed: str | None
) -> None:
    upstream.bench.topic("one", edits, p=payload)
    upstream.commit("Take it away: now", {file: changed})
    upstream.commit("Something else", {"pkg/other.py": "y = 1\n"})
    assert upstream.told().endswith("Take it away: now")
    assert upstream.bench.apply().topics[0].state is TopicState.DRIFTED


def test_a_copy_is_told_by_the_history_of_its_origin(upstream: Upstream, bench: Bench) -> None:
    upstream.commit("Take it away", {"pkg/worker.py": WORKER.replace("run(", "walk(")})
    bench.topic("one", edit("prepend-to-body", "p", "Worker.run"), p="x = 1\n")
    copy = dataclasses.replace(bench, tree=bench.root / "copy")
    copy.fill({name: raw for name, raw in bench.contents().items() if not name.startswith(".git")})
    result: PatchResult = apply_series(bench.load(), copy.tree, version="1.0", origin=bench.tree)
    assert any("Take it away" in line for line in result.findings[0].detail)


def test_a_file_that_differs_from_its_commit_was_patched_before(upstream: Upstream, bench: Bench) -> None:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.run"), p="print(batch)\n")
    bench.apply().require()
    assert bench.apply().topics[0].state is TopicState.CONFLICT
    upstream.commit("Do it upstream", {"pkg/worker.py": (bench.tree / "pkg/worker.py").read_text()})
    assert bench.apply().topics[0].state is TopicState.UPSTREAMED


def test_without_history_nothing_is_said(bench: Bench) -> None:
    bench.topic("one", edit("prepend-to-body", "p", "Worker.walk"), p="x = 1\n")
    (finding,) = bench.apply().findings
    assert finding.detail == ()
