"""Ask cuobjdump: which architectures a file has machine code for, and which instructions are in it.

Listings of a large file are gigabytes of text, so they are counted as they come and never held.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.artifacts.architectures import Architecture, parse
from sglforge.artifacts.fatbin import DeviceCode, Reading
from sglforge.base.proc import Runner

PROGRAM, DISASSEMBLER = "cuobjdump", "nvdisasm"
TIMEOUT_S = 1800.0

CLAIMS: Mapping[str, tuple[str, str]] = {
    "fp4-convert": (r"F2FP[.A-Z0-9_]*E2M1", "conversion to and from FP4"),
    "omma": (r" OMMA[. ]", "block-scaled FP4 tensor-core products"),
    "qmma": (r" QMMA[. ]", "FP8 and FP6 tensor-core products"),
}
"""What a set of kernels may claim: the instruction in the listing (an awk pattern), and in words what it does."""

# Counts, for each architecture, the listed pieces of code and the claims; ends with the program's status.
_COUNT = (
    r"""
{ "$1" -sass ${3:+-arch "$3"} "$2" 2>&1 </dev/null; echo "sglforge-status $?"; } | awk '
/^Fatbin /          { kind = $2 }
/^arch = /          { arch = $3; pieces[kind " " arch]++ }
/^\t\.target/       { if (kind == "") { arch = $2; pieces["elf " arch]++ } }
/^cuobjdump /       { print "say", $0 }
/^sglforge-status / { status = $2 }
"""
    + "\n".join(f'/{pattern}/ {{ found["{name} " arch]++ }}' for name, (pattern, _) in CLAIMS.items())
    + r"""
END { for (one in pieces) print "piece", one, pieces[one]
      for (one in found) print "found", one, found[one]
      print "status", status }'
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disassembler:
    """cuobjdump, with the nvdisasm that it calls."""

    path: Path
    nvdisasm: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a listing says: pieces of code by kind and architecture, and claims by architecture, counted.

    ``trouble`` is why the listing is not complete, None where it is.
    """

    pieces: Mapping[tuple[str, Architecture], int]
    claims: Mapping[tuple[str, Architecture], int]
    trouble: str | None = None

    def reading(self) -> Reading:
        """Return the architectures in the form of our own reader; sizes and units are not known."""
        codes = [
            DeviceCode(
                kind="ptx" if kind == "ptx" else "lto" if kind == "nvvm" else "sass", architecture=one, unit=0, size=0
            )
            for kind, one in sorted(self.pieces)
        ]
        return Reading(codes=tuple(codes), unsure=(self.trouble,) if self.trouble else ())

    def has(self, claim: str, gpu: Architecture) -> bool:
        """Return whether code that a GPU runs has the instructions of a claim."""
        return any(name == claim and one.runs_on(gpu) for name, one in self.claims)


def find_disassembler(
    homes: Iterable[Path] = (), *, environment: Mapping[str, str] = os.environ
) -> Disassembler | None:
    """Return cuobjdump and nvdisasm: of the toolkits in ``homes``, then of CUDA_HOME and CUDA_PATH, then of PATH.

    Both are needed. NVDISASM_PATH is what cuobjdump itself looks at.
    """
    variables = [environment[name] for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)]
    folders = [str(home / "bin") for home in homes] + [os.path.join(home, "bin") for home in variables]  # noqa: PTH118
    search = os.pathsep.join([*folders, environment.get("PATH", os.defpath), "/usr/local/cuda/bin"])
    program = shutil.which(PROGRAM, path=search)
    if program is None:
        return None
    beside = shutil.which(DISASSEMBLER, path=os.pathsep.join([str(Path(program).parent), search]))
    return Disassembler(path=Path(program), nvdisasm=Path(beside)) if beside else None


def list_code(
    file: Path,
    disassembler: Disassembler,
    *,
    run: Runner,
    only: Architecture | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Listing:
    """Return what cuobjdump lists for a file, of one architecture or of all.

    Raises ProcessError where the shell is missing or the listing takes too long.
    """
    search = os.pathsep.join([str(disassembler.nvdisasm.parent), os.environ.get("PATH", os.defpath)])
    done = run(
        ["/bin/sh", "-c", _COUNT, "sh", disassembler.path.absolute(), file.absolute(), only.name if only else ""],
        env={**os.environ, "PATH": search, "NVDISASM_PATH": str(disassembler.nvdisasm.parent), "LC_ALL": "C"},
        timeout_s=timeout_s,
    )
    return _listing(done.stdout)


def _listing(text: str) -> Listing:
    pieces: dict[tuple[str, Architecture], int] = {}
    claims: dict[tuple[str, Architecture], int] = {}
    said: list[str] = []
    status = "?"
    for line in text.splitlines():
        match line.split():
            case ["piece" | "found" as what, name, arch, count] if found := parse(arch):
                (pieces if what == "piece" else claims)[name, found] = int(count)
            case ["status", status]:
                pass
            case ["say", *_]:
                said.append(line.removeprefix("say "))
            case _:
                said.append(f"unexpected: {line[:80]}")
    trouble = (
        None if status == "0" and not said else f"cuobjdump ended with {status}: {'; '.join(said[:3]) or 'no word'}"
    )
    return Listing(pieces=pieces, claims=claims, trouble=trouble)
