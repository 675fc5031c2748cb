"""Trees that are broken or hostile: an error with a name and a place, nothing written, nothing left running."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from option_trees import SHAPES, plant, server_args

from sglforge.base import proc
from sglforge.errors import RenderError
from sglforge.trees.arguments.asked import ask_parser
from sglforge.trees.arguments.files import LONGEST_BYTES, schema_files
from sglforge.trees.arguments.read import read_twice
from sglforge.trees.arguments.static import read_static

OPTION = 'parser.add_argument("--x")'


def refused(tree: Path) -> RenderError:
    with pytest.raises(RenderError) as caught:
        read_twice(schema_files(tree))
    assert caught.value.exit_code == 10
    return caught.value


def state(folder: Path) -> Mapping[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_without_a_server(tmp_path: Path) -> None:
    for tree in (tmp_path, tmp_path / "no-such-folder"):
        error = refused(tree)
        assert error.code == "arguments-missing"


def test_a_file_that_is_no_python(tmp_path: Path) -> None:
    plant(tmp_path, SHAPES["structs"])
    path = tmp_path / "sglang/srt/arg_groups/fields/model.py"
    path.write_text(path.read_text() + "\nclass Broken(:\n")
    error = refused(tmp_path)
    assert error.code == "arguments-unreadable"
    assert error.where == f"{path}:{len(path.read_text().splitlines())}"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x = '\x00'\n", b"(" * 5000, b"# -*- coding: no-such -*-\n"])
def test_bytes_that_are_no_python(content: bytes, tmp_path: Path) -> None:
    plant(tmp_path, server_args(OPTION))
    (tmp_path / "sglang/srt/server_args.py").write_bytes(content)
    assert refused(tmp_path).code == "arguments-unreadable"


def test_a_file_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    plant(tmp_path, server_args(OPTION))
    with (tmp_path / "sglang/srt/server_args.py").open("ab") as stream:
        stream.truncate(LONGEST_BYTES + 1)
    assert refused(tmp_path).code == "arguments-missing"


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "sglang/srt").mkdir(parents=True)
    os.mkfifo(tmp_path / "sglang/srt/server_args.py")
    assert refused(tmp_path).code == "arguments-missing"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for name in NAMES:\n    parser.add_argument(name)", 7),
        ("parser.add_argument(NAME)", 7),
        ('parser.add_argument("--x", **words)', 7),
        ("unknown_helper(parser)", 7),
        ("parser.set_defaults(x=1)", 7),
        ('parser.add_argument("--x", nargs=many())', 7),
        ('parser.add_argument("--x", action=make_action())', 7),
        ("other = [parser]", 7),
    ],
)
def test_a_shape_that_is_not_known_is_named_with_its_line(body: str, line: int, tmp_path: Path) -> None:
    tree = plant(tmp_path, server_args(body))
    error = refused(tree)
    assert error.code == "arguments-unreadable"
    assert error.where == f"{tree / 'sglang/srt/server_args.py'}:{line}"
    assert "0.5.9 to 0.5.23" in error.hint


def test_a_server_without_the_class(tmp_path: Path) -> None:
    assert (
        refused(plant(tmp_path, {"sglang/srt/server_args.py": "class Other:\n    pass\n"})).code
        == "arguments-unreadable"
    )


def test_an_annotation_of_another_shape_is_named(tmp_path: Path) -> None:
    for before, after in [
        ("Arg(choices=[1, 2, 3])", 'Arg("text")'),
        ('aliases=["--model"]', "aliases=other()"),
        ("A[float, ", 'A["float", '),
    ]:
        files = dict(SHAPES["dataclass"])
        text = files["sglang/srt/server_args.py"]
        files["sglang/srt/server_args.py"] = text.replace(before, after)
        assert files != SHAPES["dataclass"], before
        with pytest.raises(RenderError) as caught:
            read_static(schema_files(plant(tmp_path, files)))
        assert caught.value.code == "arguments-unreadable"
        assert "`" in caught.value.message


@pytest.mark.parametrize(
    ("top", "code", "told"),
    [
        ("import socket\nsocket.socket()", "arguments-forbidden", "reach the network"),
        ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')", "arguments-forbidden", "network"),
        ("import socket\nsocket.getaddrinfo('example.org', 80)", "arguments-forbidden", "network"),
        ("open(__file__ + '.out', 'w')", "arguments-forbidden", "write"),
        ("import os\nos.open(__file__, os.O_RDWR)", "arguments-forbidden", "write"),
        ("import os\nos.mkdir(__file__ + '.d')", "arguments-forbidden", "write"),
        ("import os\nos.remove(__file__)", "arguments-forbidden", "write"),
        ("import os\nos.mkfifo(__file__ + '.p')", "arguments-forbidden", "write"),
        ("from pathlib import Path\nPath(__file__).with_suffix('.x').write_text('x')", "arguments-forbidden", "write"),
        ("import tempfile\ntempfile.mkdtemp()", "arguments-forbidden", "write"),
        ("import shutil\nshutil.rmtree(__file__ + '/..')", "arguments-forbidden", "write"),
        ("import subprocess\nsubprocess.run(['true'])", "arguments-forbidden", "start a process"),
        ("import os\nos.system('true')", "arguments-forbidden", "start a process"),
        ("import os\nos.fork()", "arguments-forbidden", "start a process"),
        (
            "import multiprocessing as m\nm.get_context('spawn').Process(target=print).start()",
            "arguments-forbidden",
            "",
        ),
        ("import os\nos.kill(os.getppid(), 0)", "arguments-forbidden", "end a process"),
        ("import ctypes\nctypes.CDLL(None).system(b'true')", "arguments-forbidden", "call the C library"),
        ("try:\n    open('/tmp/written', 'w')\nexcept BaseException:\n    pass", "arguments-forbidden", "write"),
        ("raise RuntimeError('no GPU')", "arguments-failed", "RuntimeError: no GPU"),
        ("import sys\nsys.exit(0)", "arguments-failed", "SystemExit"),
        ("import os\nos._exit(0)", "arguments-failed", "gave no answer"),
        ("import os\nos.write(1, b'{}')\nos._exit(0)", "arguments-failed", "gave no answer"),
        ("def f():\n    f()\nf()", "arguments-failed", "RecursionError"),
        ("from sglang.srt.arg_groups.missing_name import x\nx.y.z\n1 / 0", "arguments-failed", "ZeroDivisionError"),
        ("class ServerArgs:\n    pass\nraise KeyboardInterrupt", "arguments-failed", "KeyboardInterrupt"),
    ],
)
def test_code_that_does_what_it_should_not(top: str, code: str, told: str, tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", server_args(OPTION, top=top))
    before = state(tmp_path)
    error = refused(tree)
    assert (error.code, told in error.message) == (code, True), error.message
    assert state(tmp_path) == before
    if code == "arguments-forbidden" and "except" not in top:
        assert error.where
        assert "server_args.py:" in error.where


def test_an_import_that_hangs_is_ended(tmp_path: Path) -> None:
    tree = plant(tmp_path, server_args(OPTION, top="import time\ntime.sleep(600)"))
    start = time.monotonic()
    with pytest.raises(RenderError) as caught:
        ask_parser(schema_files(tree), deadline_s=0.5)
    assert caught.value.code == "arguments-timeout"
    assert time.monotonic() - start < 20
    assert not [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if str(tree).encode() in read(entry)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_memory_is_bounded(tmp_path: Path) -> None:
    error = refused(plant(tmp_path, server_args(OPTION, top="x = bytearray(64 * 2**30)")))
    assert error.code == "arguments-failed"
    assert "MemoryError" in error.message


def test_what_the_tree_prints_is_not_taken_for_the_answer(tmp_path: Path) -> None:
    top = "import atexit, os, sys\nprint('{\"error\": null}')\nsys.stdout.write('x' * 100000)\nos.write(1, b'[]')\n"
    (found,) = read_twice(schema_files(plant(tmp_path, server_args(OPTION, top=f"{top}atexit.register(print, 'end')"))))
    assert found.options == ("--x",)


def test_an_answer_that_is_not_argparses_is_refused(tmp_path: Path) -> None:
    body = f"{OPTION}\nparser._actions[-1].dest = 5\nparser._actions[-1].nargs = [1]"
    tree = plant(tmp_path, server_args(body))
    with pytest.raises(RenderError) as caught:
        ask_parser(schema_files(tree))
    assert caught.value.code == "arguments-failed"
    assert "not argparse's" in caught.value.message


def test_the_environment_and_third_parties_do_not_reach_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_SECRET", "word")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "numpy.py").write_text("raise RuntimeError('a real module was imported')\n")
    top = "import os\nimport numpy\nimport pydantic.fields\nassert 'SGLANG_SECRET' not in os.environ\n"
    (found,) = read_twice(schema_files(plant(tmp_path / "tree", server_args(OPTION, top=top))))
    assert found.options == ("--x",)


def test_nothing_is_left_beside_the_sources(tmp_path: Path) -> None:
    tree = plant(tmp_path, SHAPES["structs"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    read_twice(schema_files(tree))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_missing_interpreter_is_said_as_such(tmp_path: Path) -> None:
    def run(*_: object, **__: object) -> proc.Completed:
        raise proc.ProcessError(code="program-missing", message="cannot run python")

    with pytest.raises(proc.ProcessError):
        ask_parser(schema_files(plant(tmp_path, server_args(OPTION))), run=run)
