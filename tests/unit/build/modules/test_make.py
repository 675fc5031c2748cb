"""Modules are compiled for real, kept, and taken again: only what an edit reaches is compiled anew."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglforge.build.modules.keep import LIBRARY, unused
from sglforge.errors import BuildError

from .conftest import Bench, pin

ALL = {"page", "norm"}


def test_what_was_compiled_is_taken_again_in_another_folder(bench: Bench) -> None:
    assert bench.compiled() == ALL
    assert [news.new for news in bench.told if news.new] in (
        [("norm", "page")],
        [("norm",), ("page",)],
        [("page",), ("norm",)],
    )
    bench.told.clear()
    assert bench.compiled() == set()
    (news, last) = bench.told
    assert (last.new, last.there, last.remarks) == ((), 2, ())
    assert (sorted(news.new), news.compiled, news.there, news.wanted) == (["norm", "page"], False, 2, 2)


def test_modules_work_and_are_the_same_bytes(bench: Bench, tmp_path: Path) -> None:
    first, second = bench.make()[1], bench.make()[1]
    assert first == second
    (tmp_path / "page.so").write_bytes(first["page"])
    assert ctypes.CDLL(str(tmp_path / "page.so")).page() == 2


@pytest.mark.parametrize(
    ("file", "text", "compiled"),
    [
        ("src/page.c", "int page(void) { return 5; }\n", {"page"}),
        ("src/more.c", "int more(void) { return 8; }\n", {"norm"}),
        ("include/page.h", "#include <common.h>\n#define PAGE (COMMON + 2)\n", {"page"}),
        ("include/common.h", "#define COMMON 2\n", ALL),
        ("include/unused.h", "#define UNUSED 2\n", set()),
        ("first/common.h", "#define COMMON 9\n", ALL),
        ("include/extra.h", "#undef COMMON\n#define COMMON 3\n", ALL),
    ],
)
def test_an_edit_compiles_what_it_reaches(bench: Bench, file: str, text: str, compiled: set[str]) -> None:
    assert bench.compiled() == ALL
    before = bench.files.get(file)
    bench.files[file] = text
    assert bench.compiled() == compiled
    assert bench.compiled() == set()
    if before is None:
        del bench.files[file]
    else:
        bench.files[file] = before
    assert bench.compiled() == set(), "what was compiled from the same sources before is still kept"


def test_flags_toolkit_and_variables_decide(bench: Bench) -> None:
    assert bench.compiled() == ALL
    bench.recipe["modules"]["page"]["flags"] = "-DFAST"  # type: ignore[index]
    assert bench.compiled() == {"page"}
    bench.toolkit = "another"
    assert bench.compiled() == ALL
    bench.environment = {"MODE": "fast"}
    assert bench.compiled() == ALL


def test_the_drivers_environment_decides_where_a_program_of_it_is_run(bench: Bench) -> None:
    bench.recipe["modules"]["page"]["before"] = "PYTHON -c pass &&"  # type: ignore[index]
    bench.pins = [pin("1.13.0")]
    assert bench.compiled() == ALL
    bench.pins = [pin("1.13.1")]
    assert bench.compiled() == {"page"}


def test_a_set_takes_only_its_own(bench: Bench) -> None:
    bench.names = ("pa*",)
    assert bench.compiled() == {"page"}
    bench.names = ("page", "norm")
    assert bench.compiled() == {"norm"}


def test_a_damaged_module_counts_as_absent_and_is_replaced(bench: Bench) -> None:
    _, libraries = bench.make()
    for library in bench.workspace.modules.glob(f"*/*/{LIBRARY}"):
        library.chmod(0o644)
        library.write_bytes(library.read_bytes()[:-1] + b"x")
    made, again = bench.make()
    assert {module.name for module in made.modules if module.compiled} == ALL
    assert again == libraries
    assert bench.compiled() == set()


@pytest.mark.parametrize("content", [b"", b'{"schema": 1}', b"\xff"])
def test_a_record_that_is_none_counts_as_absent(bench: Bench, content: bytes) -> None:
    assert bench.compiled() == ALL
    for record in bench.workspace.modules.glob("*/*/module.json"):
        record.chmod(0o644)
        record.write_bytes(content)
    assert bench.compiled() == ALL
    assert bench.compiled() == set()


def test_what_does_not_name_its_headers_is_used_and_never_kept(bench: Bench) -> None:
    bench.recipe["modules"]["page"]["trace"] = "-MMD"  # type: ignore[index]
    made, _ = bench.make()
    assert made.not_kept == ("page",)
    assert [remark for news in bench.told for remark in news.remarks if remark.startswith("module page is not kept")]
    assert bench.compiled() == {"page"}


def test_a_header_of_the_machine_that_changes_meanwhile_proves_nothing(bench: Bench, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "system.h").write_text("#define SYSTEM 1\n")
    bench.files["src/page.c"] = "#include <system.h>\nint page(void) { return SYSTEM; }\n"
    page = bench.recipe["modules"]["page"]  # type: ignore[index]
    page["flags"] = f"-isystem {elsewhere}"
    assert bench.make()[0].not_kept == ()
    assert bench.compiled() == set()
    (elsewhere / "system.h").write_text("#define SYSTEM 2\n")
    assert bench.compiled() == {"page"}


def test_a_compiler_error_is_told_with_module_and_place(bench: Bench) -> None:
    bench.files["src/page.c"] = "int page(void)\n{ return missing; }\n"
    with pytest.raises(BuildError) as caught:
        bench.make()
    error = caught.value
    assert (error.code, error.where) == ("module-compile-failed", "toy/src/page.c:2")
    assert "module page of toy does not compile" in error.message
    assert "missing" in error.message
    assert error.log == str(bench.log)
    bench.files["src/page.c"] = "int page(void) { return 1; }\n"
    assert "page" in bench.compiled()


def test_what_was_finished_before_an_error_is_kept(bench: Bench) -> None:
    bench.recipe["modules"]["page"]["before"] = "sleep 1 &&"  # type: ignore[index]
    good, bench.files["src/page.c"] = bench.files["src/page.c"], "broken\n"
    with pytest.raises(BuildError, match="page"):
        bench.make()
    bench.files["src/page.c"] = good
    assert bench.compiled() == {"page"}


def test_names_that_the_package_does_not_have_are_refused(bench: Bench) -> None:
    bench.names = ("page", "pages*")
    with pytest.raises(BuildError, match=r"has no module pages\*") as caught:
        bench.make()
    assert caught.value.code == "module-unknown"


def test_a_driver_that_fails_is_told(bench: Bench) -> None:
    bench.recipe["fails"] = "upstream has moved it"
    with pytest.raises(BuildError, match="upstream has moved it") as caught:
        bench.make()
    assert caught.value.code == "module-driver-failed"


def test_modules_that_are_left_out_are_told(bench: Bench) -> None:
    bench.recipe["left_out"] = {"big": "no library for it"}
    assert bench.make()[0].left_out == {"big": "no library for it"}


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Bench
bench = Bench(root=Path(sys.argv[2]))
bench.recipe["modules"]["page"]["before"] = "sleep 60 &&"
bench.make()
"""


def test_a_build_that_was_killed_goes_on_with_the_modules_that_were_finished(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    child = subprocess.Popen(
        [sys.executable, script, Path(__file__).parent, tmp_path], env={**os.environ, "PYTHONPATH": paths}
    )
    try:
        deadline = time.monotonic() + 60
        while not list(bench.workspace.modules.glob("*/[!.]*/module.json")):  # names with a dot are not finished
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    bench.count = 10
    assert bench.compiled() == {"page"}


def test_gc_takes_what_no_build_took_for_a_time(bench: Bench) -> None:
    bench.compiled()
    now = time.time()
    assert list(unused(bench.workspace, keep_s=3600.0, now=now)) == []
    found = list(unused(bench.workspace, keep_s=3600.0, now=now + 7200))
    assert {item.path.parent for item in found} == {bench.workspace.modules}
    assert len(found) == len(ALL)
    old = json.dumps({"made": "long ago"})
    (bench.workspace.modules / "not-ours").write_text(old)
    assert len(list(unused(bench.workspace, keep_s=3600.0, now=now + 7200))) == len(ALL)


def _module(**changed: object) -> dict[str, object]:
    return {"name": "page", "statements": "/w/build.ninja", "library": "/w/page.so", **changed}


def _answer(*modules: object) -> str:
    return json.dumps({"modules": modules, "left_out": {}, "unknown": []})


@pytest.mark.parametrize(
    "answer",
    [
        "[" * 100_000,
        json.dumps({"modules": [], "left_out": {}}),
        _answer({"name": "page"}),
        _answer(_module(), _module()),
        _answer(_module(name="../../../etc/cron.d/page")),
        _answer(_module(name="a\nb")),
        _answer(_module(library="/w/x.so | /w/y")),
        _answer(_module(statements="/w/$root.ninja")),
    ],
)
def test_an_answer_that_is_none_is_refused(bench: Bench, answer: str) -> None:
    bench.recipe["answer"] = answer
    with pytest.raises(BuildError) as refused:
        bench.make()
    assert refused.value.code == "module-driver-failed"
    assert list(bench.root.rglob("*.so")) == []


def test_only_files_that_were_asked_for_become_modules(bench: Bench) -> None:
    strays = "touch finished/stray && ln -s /etc/passwd finished/linked &&"
    bench.recipe["modules"]["page"]["before"] = strays  # type: ignore[index]
    assert bench.compiled() == ALL


def test_a_module_that_is_no_file_is_refused(bench: Bench) -> None:
    bench.recipe["modules"]["page"]["link"] = "ln -sf /etc/passwd $out; true"  # type: ignore[index]
    with pytest.raises(BuildError) as refused:
        bench.make()
    assert (refused.value.code, "page" in refused.value.message) == ("module-compile-failed", True)


@pytest.mark.parametrize("name", ["a$b", "a\nb"])
def test_a_path_that_ninja_reads_as_something_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError) as refused:
        Bench(root=tmp_path / name).make()
    assert refused.value.code == "workspace-unusable"


def test_blanks_in_a_path_are_none_of_these(tmp_path: Path) -> None:
    assert Bench(root=tmp_path / "a  b").compiled() == ALL
