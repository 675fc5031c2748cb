"""A stand-in for the driver's libcuda, to link with where there is no driver: every function that cuda.h declares.

An empty one is worth nothing where functions are used: the linker drops it (``--as-needed``), and what was linked
does not load. CUDA's wheels bring none.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from sglforge.base.files import remove
from sglforge.base.proc import Completed, ProcessError, Runner
from sglforge.errors import InstallError

SONAME = "libcuda.so.1"
PLACE = Path("lib", "stubs", "libcuda.so")
TIMEOUT_S = 60.0
STUB_LIBRARY = 34
"""CUDA_ERROR_STUB_LIBRARY: what the driver's functions say where a stub was loaded in place of the driver."""
_FUNCTION = re.compile(r"\bCUresult\s+(cu[A-Z][A-Za-z0-9_]*)\s*\(")
_VIEWS: tuple[tuple[str, ...], ...] = (
    (),
    ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",),
    ("-D__CUDA_API_VERSION_INTERNAL",),
)
"""Macros under which cuda.h declares its functions by other names: newest ones, those of per-thread streams, all."""


def make_stub(home: Path, *, needed: Sequence[str], run: Runner) -> tuple[str, ...]:
    """Put the stub into a toolkit's folder and return the names of its functions.

    Raises InstallError ``compiler-missing``, and ``toolkit-incomplete`` where cuda.h declares none, or not those that
    are needed.
    """
    functions = sorted({name for view in _VIEWS for name in _declared(home, view, run)})
    if without := [name for name in needed if name not in functions]:
        raise InstallError(
            code="toolkit-incomplete",
            message=f"cuda.h does not declare {', '.join(without)}, which the stub of the driver must have",
            where=str(home / "include" / "cuda.h"),
            hint="compare `driver-symbols` of the toolkit's recipe with the release that is locked",
        )
    stub, source = home / PLACE, home / PLACE.with_suffix(".c")
    stub.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("".join(f"int {name}(void) {{ return {STUB_LIBRARY}; }}\n" for name in functions))
    options = (
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        "-fno-builtin",
        "-nostdlib",
        f"-Wl,-soname,{SONAME}",
        "-Wl,--build-id=none",
    )
    _compile(("-x", "c", *options, "-o", str(stub), str(source)), run)
    remove(source)
    return tuple(functions)


def _declared(home: Path, macros: Sequence[str], run: Runner) -> list[str]:
    words = ("-E", "-P", "-x", "c", *macros, "-I", str(home / "include"), "-")
    return _FUNCTION.findall(_compile(words, run, stdin="#include <cuda.h>\n").stdout)


def _compile(words: Sequence[str], run: Runner, *, stdin: str | None = None) -> Completed:
    """Run the host compiler.

    Raises InstallError ``compiler-missing``, and ``toolkit-incomplete`` where it does not take cuda.h.
    """
    compiler = next(filter(None, map(shutil.which, ("gcc", "cc"))), None)
    if compiler is None:
        raise InstallError(
            code="compiler-missing",
            message="gcc is not on PATH; the stub of the CUDA driver is made with it",
            hint="nox -s doctor says how to install it",
        )
    try:
        return run([compiler, *words], timeout_s=TIMEOUT_S, stdin=stdin)
    except ProcessError as error:
        raise InstallError(
            code="toolkit-incomplete",
            message=f"the stub of the CUDA driver cannot be made: {error.message}",
            context=error.context,
            hint="read what the compiler said; nox -s doctor judges it",
        ) from error
