"""Judge binary files: is every file that gets loaded fit for the target?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from sglforge.artifacts.architectures import Architecture, names
from sglforge.artifacts.binary import Binary, Wanted, number
from sglforge.artifacts.fatbin import DeviceCode
from sglforge.artifacts.loader import not_loaded
from sglforge.artifacts.sass import CLAIMS
from sglforge.artifacts.symbols import TORCH, Unresolved, other_string_abi
from sglforge.errors import Finding, Severity, Verdict, verdict_of

SHOWN = 12
INCONCLUSIVE = "so-not-understood"
_JIT_CACHE = re.compile(r"(?:^|/)(?:cached_ops|jit_cache|torch_extensions)/")
_PYTHON_TAG = re.compile(r"\.cpython-3(\d+)[a-z]*-")
_FP4 = frozenset({"fp4-convert", "omma"})


def judge(binaries: Sequence[Binary], wanted: Wanted) -> tuple[Finding, ...]:
    """Return everything that is wrong with the binaries of one wheel, or of one file."""
    found: list[Finding] = []
    cubins = [binary for binary in binaries if binary.is_cubin]
    others = [binary for binary in binaries if not binary.is_cubin]
    for binary in others:
        if trouble := _unreadable(binary, wanted):
            found.append(trouble)
            continue
        found += [*_linkage(binary, wanted), *_symbols(binary, wanted)]
    paths = [binary.path for binary in others]
    for gpu in wanted.gpus:
        skipped = not_loaded(paths, gpu)
        for binary in others:
            found += _gpu_code(binary, gpu, wanted, skipped.get(binary.path))
        found += _cubins(cubins, gpu)
        found += _claims([binary for binary in others if binary.path not in skipped], gpu, wanted)
    if unasked := [binary for binary in others if binary.elf and binary.scope is None and binary.elf.undefined]:
        found.append(_not_looked_up(unasked))
    return _grouped(found)


def _grouped(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each fault, errors first: what a dozen files have in common is said once."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for one in dict.fromkeys(found):
        groups.setdefault((one.severity, one.code), []).append(one)
    order = list(Severity)
    together = []
    for _, ones in sorted(groups.items(), key=lambda group: order.index(group[0][0])):
        first, more = ones[0], [one.message for one in ones[1:]]
        message = f"{first.message} (and {len(more)} more)" if more else first.message
        together.append(replace(first, message=message, detail=(*first.detail, *_shown(more))))
    return tuple(together)


def verdict(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict: what was not understood is inconclusive, unless something is wrong anyway."""
    said = verdict_of(findings)
    return "inconclusive" if said != "fail" and any(one.code == INCONCLUSIVE for one in findings) else said


def _unreadable(binary: Binary, wanted: Wanted) -> Finding | None:
    if binary.trouble:
        return _finding("so-unreadable", binary.path, f"{binary.path} cannot be loaded: {binary.trouble}",
                        "the file is cut off, damaged, or no library: build or fetch it again")  # fmt: skip
    if binary.elf and binary.elf.ident.machine != wanted.machine:
        said = f"{binary.path} is for {binary.elf.ident.machine}, the target is {wanted.machine}"
        return _finding("so-wrong-machine", binary.path, said, "fetch or build it for this machine")
    return None


def _linkage(binary: Binary, wanted: Wanted) -> Iterator[Finding]:
    """Look at the CUDA that it is linked with, the C library that it needs, its search path and its Python."""
    majors = dict.fromkeys(major for _, major in binary.cuda_majors)
    words = ", ".join(name for name, _ in binary.cuda_majors)
    if len(majors) > 1:
        yield _mixed(binary, f"{binary.path} needs libraries of CUDA {' and '.join(map(str, sorted(majors)))}: {words}")
    elif majors and wanted.cuda_major and wanted.cuda_major not in majors:
        yield _mixed(binary, f"{binary.path} needs {words}, and torch here is for CUDA {wanted.cuda_major}")
    yield from _glibc(binary, wanted)
    if odd := [entry for entry in (binary.elf.runpath or binary.elf.rpath if binary.elf else ()) if _is_odd(entry)]:
        yield _finding(
            "so-runpath",
            binary.path,
            f"{binary.path} looks for its libraries in {', '.join(repr(entry) for entry in odd[:3])}",
            "link with a search path that begins with $ORIGIN, or with none",
            severity=Severity.WARNING,
        )
    tag = _PYTHON_TAG.search(PurePosixPath(binary.path).name)
    if tag and wanted.python_minor and f"3.{tag[1]}" != wanted.python_minor:
        yield _finding(
            "so-python-abi",
            binary.path,
            f"{binary.path} is for Python 3.{tag[1]} alone: Python {wanted.python_minor} does not find it",
            "whatever its wheel's tags say: build it for this Python",
            severity=Severity.WARNING,
        )


def _mixed(binary: Binary, said: str) -> Finding:
    if _JIT_CACHE.search(binary.path):
        return _finding(
            "jit-cache-cuda-mismatch",
            binary.path,
            said,
            "remove that cache (cached_ops) and let CUDA_HOME name the toolkit of torch's CUDA",
            detail=("a file in a JIT cache was compiled with another toolkit than the one that runs now",),
        )
    return _finding("so-cuda-major-mixed", binary.path, said, "build it with the CUDA that torch is built with")


def _glibc(binary: Binary, wanted: Wanted) -> Iterator[Finding]:
    floor = binary.glibc
    if floor is None:
        return
    bounds = (
        (wanted.glibc, "this machine has glibc", Severity.ERROR),
        (wanted.tag_glibc, "the wheel's tags promise glibc", Severity.WARNING),
        (wanted.min_glibc, "the target's machines have glibc from", Severity.WARNING),
    )
    for bound, words, severity in bounds:
        if bound and number(floor) > number(bound):
            said = f"{binary.path} needs glibc {floor}, {words} {bound}"
            hint = "build it on the oldest system that it must run on"
            yield _finding("so-glibc-too-new", binary.path, said, hint, severity=severity)
            return


def _is_odd(entry: str) -> bool:
    """Return whether a search path names a folder of the machine that built it, or of whoever starts the process."""
    return not entry.startswith(("$ORIGIN", "${ORIGIN}"))


def _gpu_code(binary: Binary, gpu: Architecture, wanted: Wanted, skipped: str | None) -> Iterator[Finding]:
    """Look whether a file that is loaded on a GPU has code for it."""
    reading = binary.reading
    if reading is None or not (reading.codes or reading.unsure) or skipped:
        return
    if reading.unsure:
        yield _not_understood(binary.path, f"the GPU code of {binary.path} is not understood", reading.unsure)
        return
    sass, ptx = reading.architectures("sass"), reading.architectures("ptx")
    fit = [one for one in sass if one.runs_on(gpu)]
    if fit:
        yield from _fitting(binary, reading.codes, gpu, wanted)
    elif from_ptx := [one for one in ptx if one.compiles_for(gpu)]:
        yield _finding(
            "so-ptx-only",
            binary.path,
            f"{binary.path} has no machine code for compute capability {gpu.capability}, only PTX "
            f"({', '.join(one.virtual for one in from_ptx)}): the driver compiles it when it is first loaded",
            f"build it with {_asked(gpu, wanted)}",
            severity=Severity.WARNING,
        )
    else:
        has = names(sass) or "no machine code"
        also = f" and PTX for {', '.join(sorted(one.virtual for one in ptx))}" if ptx else " and no PTX"
        yield _finding(
            "so-missing-arch",
            binary.path,
            f"{binary.path} has no code for compute capability {gpu.capability} ({gpu.name}): it has {has}{also}",
            f"build it with {_asked(gpu, wanted)}; what other files of the package hold does not help",
            detail=(f"{binary.path} is what is loaded on {gpu.capability}",),
        )


def _fitting(binary: Binary, codes: Sequence[DeviceCode], gpu: Architecture, wanted: Wanted) -> Iterator[Finding]:
    """Look closer at a file that has code for a GPU: for all its units, with the suffix, and for nothing else."""
    sass = {one.architecture for one in codes if one.kind == "sass"}
    fit = [one for one in sass if one.runs_on(gpu)]
    having = {one.unit for one in codes if one.kind != "lto" and _serves(one.kind, one.architecture, gpu)}
    lacking = {one.unit for one in codes} - having
    if lacking:
        total = len({one.unit for one in codes})
        yield _finding(
            "so-missing-arch",
            binary.path,
            f"{len(lacking)} of the {total} translation units of {binary.path} have no code for {gpu.name}",
            f"build all of it with {_asked(gpu, wanted)}",
            severity=Severity.ERROR if wanted.built else Severity.INFO,
        )
    asked = [one for one in wanted.arch_list if one.suffix and one.runs_on(gpu)]
    if asked and not any(one.suffix for one in fit):
        yield _finding(
            "arch-needs-suffix",
            binary.path,
            f"{binary.path} has code for {names(fit)}, the target asks for {names(asked)}",
            f"compile for {names(asked)}: FP4 conversions and block-scaled products exist only there",
            severity=Severity.ERROR if wanted.built else Severity.WARNING,
        )
    strange = [one for one in sass if not any(one.runs_on(gpu) for gpu in wanted.gpus)]
    if wanted.built and strange:
        said = f"{binary.path} has code for {names(strange)} too, which no GPU of the target runs"
        yield _finding("so-unused-arch", binary.path, said, "build for the target alone", severity=Severity.WARNING)


def _serves(kind: str, one: Architecture, gpu: Architecture) -> bool:
    return one.compiles_for(gpu) if kind == "ptx" else one.runs_on(gpu)


def _asked(gpu: Architecture, wanted: Wanted) -> str:
    return names([one for one in wanted.arch_list if one.runs_on(gpu)]) or gpu.name


def _cubins(cubins: Sequence[Binary], gpu: Architecture) -> Iterator[Finding]:
    """Look at kernels that are files of their own: they are picked by name at run time, so one that fits is enough."""
    read = [binary.reading for binary in cubins if binary.reading]
    if not read:
        return
    fitting = [one for one in read if any(code.architecture.runs_on(gpu) for code in one.codes)]
    unsure = [one for one in read if one.unsure and any(code.architecture.major == gpu.major for code in one.codes)]
    if fitting and not all(one.unsure for one in fitting):
        return
    if unsure:
        yield _not_understood(cubins[0].path, f"{len(unsure)} cubins do not say what they are for", unsure[0].unsure)
        return
    counts = Counter(f"{code.architecture.name}{'?' if one.unsure else ''}" for one in read for code in one.codes)
    yield _finding(
        "so-missing-arch",
        cubins[0].path,
        f"none of its {len(read)} cubins is for compute capability {gpu.capability} ({gpu.name})",
        "these kernels are of no use on such a GPU: leave the package out",
        detail=tuple(f"{name}: {count}" for name, count in sorted(counts.items())),
    )


def _claims(loaded: Sequence[Binary], gpu: Architecture, wanted: Wanted) -> Iterator[Finding]:
    """Hold files to what their set claims: the instructions are really there, in code that the GPU runs."""
    for glob, claims in wanted.claims.items():
        files = [binary for binary in loaded if fnmatchcase(binary.path, glob) and binary.elf]
        if not files:
            said = f"no file that is loaded on {gpu.capability} matches {glob}, of which {', '.join(claims)} is claimed"
            yield _finding("so-instructions-missing", glob, said, "correct the claim, or build what it is about")
            continue
        for claim in claims:
            if any(binary.listing and binary.listing.has(claim, gpu) for binary in files):
                continue
            yield _unkept(claim, files, gpu, wanted)


def _unkept(claim: str, files: Sequence[Binary], gpu: Architecture, wanted: Wanted) -> Finding:
    unlisted = [binary for binary in files if binary.reading and (not binary.listing or binary.listing.trouble)]
    subject, what = files[0].path, CLAIMS[claim][1]
    fit = {
        one for binary in files if binary.reading for one in binary.reading.architectures("sass") if one.runs_on(gpu)
    }
    if claim in _FP4 and fit and not any(one.suffix for one in fit):
        return _finding(
            "arch-needs-suffix",
            subject,
            f"{subject} is to have {what}, and is compiled for {names(fit)}, where they do not exist",
            f"compile for {_asked(gpu, wanted)}",
        )
    if unlisted:
        why = (
            next((one.listing.trouble for one in unlisted if one.listing), None)
            or "cuobjdump was not there to be asked"
        )
        return _not_understood(subject, f"whether {subject} has {what} is not known", (str(why),))
    said = f"{subject} has no {what} ({claim}) in code for {gpu.name}"
    return _finding(
        "so-instructions-missing",
        subject,
        said,
        "the kernel was compiled without its fast path: look at the architecture and the defines of its build",
        detail=_shown([binary.path for binary in files]),
    )


def _symbols(binary: Binary, wanted: Wanted) -> Iterator[Finding]:
    """Say why symbols stay undefined: another torch, a library that is not there or too old, or the project's own."""
    scope = binary.scope
    if scope is None:
        return
    numbered = dict(binary.cuda_majors)
    other_cuda = {name for name, major in numbered.items() if wanted.cuda_major not in {None, major}}
    if gone := [name for name in scope.missing if name not in other_cuda]:  # what is of another CUDA is said already
        yield _finding(
            "so-library-missing",
            binary.path,
            f"{binary.path} needs {', '.join(gone)}, found neither in the environment nor on this machine",
            "install what brings it, or build without it",
        )
    allowed = {one.name: why for one in binary.unresolved if (why := _allowed(one.name, wanted))}
    if allowed:
        yield _finding(
            "so-own-undefined-symbol",
            binary.path,
            f"{len(allowed)} symbols of {binary.path} stay open, as its recipe says: {next(iter(allowed.values()))}",
            "",
            severity=Severity.INFO,
            detail=_shown(list(allowed)),
        )
    open_ends = [one for one in binary.unresolved if one.name not in allowed]
    by_cause = {cause: [one for one in open_ends if one.cause == cause] for cause in ("torch", "library", "own")}
    if by_cause["torch"] and not any(TORCH.fullmatch(name) for name in scope.missing):
        there = scope.has_torch or wanted.torch
        yield _torch(binary, by_cause["torch"], wanted) if there else _of_library(binary, by_cause["torch"])
    if scope.missing:
        return  # what is open may be theirs
    if by_cause["library"]:
        yield _of_library(binary, by_cause["library"])
    if by_cause["own"]:
        yield _own(binary, by_cause["own"])


def _allowed(name: str, wanted: Wanted) -> str | None:
    """Return why a symbol may stay open, None where it may not."""
    return next((why for glob, why in wanted.open_symbols.items() if fnmatchcase(name, glob)), None)


def _torch(binary: Binary, open_ends: Sequence[Unresolved], wanted: Wanted) -> Finding:
    what = wanted.package or PurePosixPath(binary.path).name
    near = [f"{one.name}: torch here has {', '.join(one.near)}" for one in open_ends if one.near]
    strings = any(other_string_abi(one.name, one.near) for one in open_ends)
    return _finding(
        "torch-abi-mismatch",
        binary.path,
        f"{binary.path} was built against another torch: {_count(open_ends)} of torch's C++ interface "
        f"not in the one that is here, the first is {open_ends[0].name}",
        f"rebuild {what} against the torch that runs it, or install the torch that it was built with",
        detail=(
            f"torch version at build vs at run: {wanted.torch_built or 'not known'} vs {wanted.torch or 'not known'}",
            *(["built with the other ABI of std::string (_GLIBCXX_USE_CXX11_ABI)"] if strings else []),
            *_shown(near or [one.name for one in open_ends]),
        ),
    )


def _of_library(binary: Binary, open_ends: Sequence[Unresolved]) -> Finding:
    named = binary.scope.named if binary.scope else ()
    owners = sorted({one.owner or "torch" for one in open_ends})
    linked = [owner for owner in owners if any(name.startswith(f"{owner}.so") for name in named)]
    said = (
        f"{linked[0]} is linked, and the one that is here is older and lacks them"
        if linked
        else f"they are of {', '.join(owners)}, which the file does not name"
    )
    return _finding(
        "so-library-missing",
        binary.path,
        f"{binary.path} has {_count(open_ends)} of a library that nothing defines: {said}",
        "link with the library (an empty stub is dropped by --as-needed), or install the version it was linked with",
        detail=_shown(
            [f"{one.name} ({one.owner or 'torch'}{f', {one.version}' if one.version else ''})" for one in open_ends]
        ),
    )


def _own(binary: Binary, open_ends: Sequence[Unresolved]) -> Finding:
    return _finding(
        "so-own-undefined-symbol",
        binary.path,
        f"{binary.path} calls {open_ends[0].name}, which nothing defines: the symbol belongs to this project, "
        "source excluded by the arch list or left out of the build",
        "build the source that defines it, or take away the define that makes others call it",
        detail=_shown([one.name for one in open_ends]),
    )


def _not_looked_up(unasked: Sequence[Binary]) -> Finding:
    return _finding(
        "not-checked",
        unasked[0].path,
        f"undefined symbols of {len(unasked)} files were not looked up: there is no environment to look in",
        "install one, or name one with --env",
        severity=Severity.INFO,
    )


def _not_understood(subject: str, said: str, why: Sequence[str]) -> Finding:
    return _finding(
        INCONCLUSIVE,
        subject,
        said,
        "put cuobjdump and nvdisasm on PATH, or name their toolkit with CUDA_HOME, and check again",
        severity=Severity.WARNING,
        detail=_shown(why),
    )


def _count(open_ends: Sequence[Unresolved]) -> str:
    return "1 symbol" if len(open_ends) == 1 else f"{len(open_ends)} symbols"


def _shown(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - SHOWN
    return (*lines[:SHOWN], *([f"and {more} more"] if more > 0 else []))


def _finding(
    code: str,
    subject: str,
    message: str,
    hint: str,
    *,
    severity: Severity = Severity.ERROR,
    detail: Sequence[str] = (),
) -> Finding:
    return Finding(code=code, severity=severity, subject=subject, message=message, hint=hint, detail=tuple(detail))
