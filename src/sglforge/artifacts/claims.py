"""List the machine code of files that have to show a claim, as few of them as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from sglforge.artifacts.architectures import Architecture
from sglforge.artifacts.binary import Binary, Wanted
from sglforge.artifacts.loader import not_loaded
from sglforge.artifacts.sass import Disassembler, Listing, list_code
from sglforge.base.proc import ProcessError, Runner

_LIKELY = ("fp4", "gemm", "moe", "quant", "common_ops")


def with_listings(
    binaries: Sequence[tuple[Binary, Path]], wanted: Wanted, disassembler: Disassembler | None, run: Runner
) -> list[Binary]:
    """Return the binaries, with the listings of those that were asked for a claim.

    Listing takes minutes for a large set: files whose names promise something come first, and it ends when all claims
    of a glob are shown.
    """
    found = [binary for binary, _ in binaries]
    order = sorted(range(len(found)), key=lambda place: _promise(found[place]))
    for gpu in wanted.gpus if disassembler else ():
        skipped = not_loaded([binary.path for binary in found], gpu)
        for glob, claims in wanted.claims.items():
            left = set(claims)
            for place in order:
                binary, file = found[place], binaries[place][1]
                if not left or binary.path in skipped or not fnmatchcase(binary.path, glob):
                    continue
                if binary.listing is None and disassembler and (fit := _fitting(binary, wanted)):
                    found[place] = binary = replace(binary, listing=_of_all(fit, file, disassembler, run))
                left -= {claim for claim in left if binary.listing and binary.listing.has(claim, gpu)}
    return found


def listed(file: Path, only: Architecture | None, disassembler: Disassembler, run: Runner) -> Listing:
    """Return what cuobjdump lists, of one architecture or of all; a listing with trouble where it fails."""
    try:
        return list_code(file, disassembler, run=run, only=only)
    except ProcessError as error:
        return Listing(pieces={}, claims={}, trouble=error.message)


def _promise(binary: Binary) -> tuple[bool, int]:
    """Order files by how soon they may show what is claimed."""
    return not any(word in binary.path for word in _LIKELY), binary.size


def _fitting(binary: Binary, wanted: Wanted) -> list[Architecture]:
    """Return the architectures of a library that some GPU runs; of a kernel that is a file of its own none."""
    if binary.reading is None or binary.is_cubin:
        return []
    return sorted(one for one in binary.reading.architectures("sass") if any(one.runs_on(gpu) for gpu in wanted.gpus))


def _of_all(fit: Sequence[Architecture], file: Path, disassembler: Disassembler, run: Runner) -> Listing:
    listings = [listed(file, one, disassembler, run) for one in fit]
    return Listing(
        pieces={key: count for one in listings for key, count in one.pieces.items()},
        claims={key: count for one in listings for key, count in one.claims.items()},
        trouble=next((one.trouble for one in listings if one.trouble), None),
    )
