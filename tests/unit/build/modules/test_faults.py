"""What compilers say, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglforge.build.modules.faults import named

PLACE = "/dev/shm/sglforge-build"
LIBRARIES = {name: f"{PLACE}/modules/cached_ops/{name}/{name}.so" for name in ("norm", "page")}
FAILED = f"FAILED: [code=2] {PLACE}/modules/cached_ops/norm/csrc_norm.cuda.o \n{PLACE}/cuda/bin/nvcc -c norm.cu\n"


def shown(path: str) -> str:
    return path.removeprefix(f"{PLACE}/tree/")


@pytest.mark.parametrize(
    ("said", "where", "text"),
    [
        (
            f'{PLACE}/tree/flashinfer/data/csrc/norm.cu(41): error: identifier "x" is undefined\n\n1 error detected\n',
            "flashinfer/data/csrc/norm.cu:41",
            'identifier "x" is undefined',
        ),
        (
            f"{PLACE}/tree/flashinfer/data/csrc/norm.cu:3:10: fatal error: a.h: No such file or directory\n",
            "flashinfer/data/csrc/norm.cu:3",
            "a.h: No such file or directory",
        ),
        (
            f"{PLACE}/tree/a.cuh(7): catastrophic error: cannot open source file\n",
            "a.cuh:7",
            "cannot open source file",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120f'\n", None, "Unsupported gpu architecture"),
        ("ptxas /tmp/x.ptx, line 12; error   : Instruction 'cvt' not supported\n", None, "Instruction 'cvt'"),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory\n", None, "cannot find -lcuda"),
        ("Killed\n", None, "Killed"),
        ("Segmentation fault\nninja: build stopped: subcommand failed.\n", None, "compile: Segmentation fault"),
        ("Segmentation fault\n[2/9] nvcc -c page.cu\na.cu(1): error: of another unit\n", None, "Segmentation fault"),
        ("ninja: build stopped: subcommand failed.\n", None, "the compiler ended with status 2"),
        ("something else\nthe last word\n", None, "the last word"),
    ],
)
def test_the_first_error_is_told_with_its_place(said: str, where: str | None, text: str) -> None:
    noise = "[1/9] nvcc -c page.cu\nignored(1): error: of another unit that is not the failed one\n"
    error = named(
        "flashinfer",
        f"{noise}{FAILED}{said}ninja: build stopped\n" if where else f"{noise}{FAILED}{said}",
        LIBRARIES,
        shown=shown,
        log=Path("/x/modules.log"),
    )
    assert error.code == "module-compile-failed"
    assert error.where == where
    assert error.message.startswith("module norm of flashinfer does not compile: ")
    assert text in error.message
    assert "modules.log" in error.hint


def test_ninja_that_fails_without_a_unit_is_told_too() -> None:
    error = named(
        "flashinfer", "ninja: error: loading 'x.ninja': No such file\n", LIBRARIES, shown=shown, log=Path("/x/l")
    )
    assert "a module of flashinfer" in error.message
    assert "No such file" in error.message
