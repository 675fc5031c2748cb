"""Whatever is edited, in whatever order: a module that is taken again is the one that a compilation would give now."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglforge.base.ids import Sha256
from sglforge.base.proc import run
from sglforge.build.modules.contents import Contents
from sglforge.build.modules.driving import Asked
from sglforge.build.modules.keep import find, keep
from sglforge.build.modules.roots import Root, Roots
from sglforge.build.modules.statements import Statements, key_of, read_of, read_statements

from .conftest import DRIVER, NINJA, Bench

SOURCES = ("src/page.c", "src/norm.c")
HEADERS = ("include/common.h", "include/page.h")
SHADOWS = ("first/common.h", "first/page.h", "include/extra.h", "src/common.h")
PLAIN = "#include <common.h>\nint own{0}(void) {{ return {0} + COMMON; }}\n"
QUOTED = '#include "common.h"\nint quoted{0}(void) {{ return COMMON; }}\n'
HEADER = "#undef COMMON\n#define COMMON {0}\n#define PAGE {0}\n"
numbers = st.integers(1, 5)
edits = st.one_of(
    st.tuples(st.sampled_from(SOURCES), st.builds(str.format, st.sampled_from([PLAIN, QUOTED]), numbers)),
    st.tuples(st.sampled_from(HEADERS), numbers.map(HEADER.format)),
    st.tuples(st.sampled_from(SHADOWS), numbers.map(HEADER.format)),
    st.tuples(st.sampled_from(SHADOWS), st.none()),
    st.tuples(st.sampled_from(["page", "norm"]), st.sampled_from(["", "-DMORE=4", "-O2"])),
    st.tuples(st.just("includes"), st.sampled_from([["first", "include"], ["include", "first"]])),
)


class Trial:
    """Compiles the toy modules without a sandbox, each time from nothing, and looks what is kept of them."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.folder = bench, bench.root / "trial"
        self.taken = self.compiled = 0

    def look(self) -> Iterator[tuple[str, bytes | None, bytes | None]]:
        """Yield each module with what is kept of it and what is compiled now; None: nothing, or it does not compile."""
        shutil.rmtree(self.folder, ignore_errors=True)
        tree, work = self.bench.tree(self.folder / "tree"), self.folder / "work"
        work.mkdir(parents=True)
        roots = Roots(Root(name=name, real=path, seen=path) for name, path in (("tree", tree), ("work", work)))
        contents = Contents()
        for each, library in self._statements(tree, work, roots):
            key = key_of(each, roots=roots, contents=contents, toolchain={}, environment={})
            kept = find(self.bench.workspace, key, roots=roots, contents=contents)
            there = kept.path.read_bytes() if kept else None
            ninja = work / "made" / each.name / "build.ninja"
            done = run([NINJA, "-f", ninja, "-d", "keepdepfile", library], cwd=work, check=False)
            now = library.read_bytes() if done.returncode == 0 else None
            if now is not None and there is None:
                read = read_of(each, roots=roots, contents=contents, since_s=2**40)
                assert read
                assert keep(self.bench.workspace, key, library, name=each.name, read=read)
            self.taken += there is not None
            self.compiled += there is None and now is not None
            yield each.name, there, now

    def _statements(self, tree: Path, work: Path, roots: Roots) -> list[tuple[Statements, Path]]:
        request, answer = work / "request.json", work / "answer.json"
        request.write_text(json.dumps({"names": ["*"], "folder": str(work)}))
        (work / "driver.py").write_text(DRIVER)
        driver = compile(DRIVER, "driver", "exec")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["driver", str(request), str(answer)])
            patch.setenv("PYTHONPATH", str(tree))
            exec(driver, {"__name__": "driver"})
        asked = [Asked(**each) for each in json.loads(answer.read_text())["modules"]]
        found = read_statements(
            asked, ninja=Path(NINJA), roots=roots, launcher="", environment={"PATH": "/usr/bin:/bin"}, run=run
        )
        return [(each, Path(one.library)) for each, one in zip(found, asked, strict=True)]


def apply(bench: Bench, edit: tuple[str, object]) -> None:
    """Edit the toy package."""
    what, value = edit
    if what == "includes":
        bench.recipe["includes"] = value
    elif what in {"page", "norm"}:
        bench.recipe["modules"][what]["flags"] = value  # type: ignore[index]
    elif value is None:
        bench.files.pop(what, None)
    else:
        bench.files[what] = str(value)


@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(edits, min_size=8, max_size=8))
def test_no_edit_is_missed(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]) -> None:
    trial = Trial(Bench(root=tmp_path_factory.mktemp("bench")))
    for edit in [("includes", ["first", "include"]), *steps]:
        apply(trial.bench, edit)
        for name, kept, now in trial.look():
            assert kept in {None, now}, f"{name} is stale after {edit}"
    for name, kept, now in trial.look():
        assert kept == now, f"{name} was compiled from the very same sources before, and was not taken"


def test_paths_have_names_that_are_the_same_everywhere(tmp_path: Path) -> None:
    roots = Roots(
        [
            Root(name="tree", real=tmp_path / "tree", seen=Path("/place/tree")),
            Root(name="cuda", real=tmp_path / "cuda", seen=Path("/place/cuda"), pinned=True),
        ]
    )
    assert (
        roots.neutral("cc -I/place/tree/x -I/place/treeless '/place/tree'") == "cc -I@tree/x -I/place/treeless '@tree'"
    )
    assert roots.name("/place/cuda/bin/..//include/x.h") == "@cuda/include/x.h"
    assert roots.real("@tree/x.h") == tmp_path / "tree" / "x.h"
    assert roots.real("/usr/include/x.h") == Path("/usr/include/x.h")
    assert roots.pinned("@cuda/include/x.h")
    assert not roots.pinned("@tree/x.h")
    assert not roots.pinned("/cuda")


def test_a_key_needs_no_compiler(tmp_path: Path) -> None:
    """The statements of a module are read from ninja's own words, whatever its rules are called."""
    trial = Trial(Bench(root=tmp_path))
    names = {name: now for name, _, now in trial.look()}
    assert set(names) == {"page", "norm"}
    assert Sha256("0" * 64) not in {path.name for path in trial.bench.workspace.modules.iterdir()}
