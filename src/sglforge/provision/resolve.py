"""From a stack's requirements to a complete, hashed list: names, versions, files, never a URL."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from sglforge.base.index_locations import IndexLocations
from sglforge.config.lockfile import LockedFile, LockedModules, LockedPython, LockedRequirement, LockedTorch
from sglforge.config.model import Modules, StackEnvironment, TorchPin
from sglforge.errors import Finding, InstallError, LockError, Severity
from sglforge.provision.torch import known_hashes
from sglforge.provision.uv import Uv

# The first decides the versions; the others add their files where the same versions exist for them.
ARCHITECTURES = ("x86_64", "aarch64")
LIBC_FLOOR = "manylinux_2_34"

# uv drops a requirement whose override never applies: no torch can enter through anybody's dependencies.
_NO_TORCH = "torch; python_version < '0'\n"

Pins = Mapping[str, LockedRequirement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The locked section of one Python minor, and what is to be said about it."""

    locked: LockedPython
    findings: tuple[Finding, ...]


def resolve(
    environment: StackEnvironment,
    minor: str,
    *,
    uv: Uv,
    scratch: Path,
    previous: LockedPython | None = None,
    update: Collection[str] = (),
    constraints: Sequence[LockedRequirement] = (),
) -> Resolution:
    """Resolve the requirements of an environment for one Python minor.

    torch is held out and becomes an entry of its own, with the hashes of the files that pip's find-links and
    indexes have for it here, and those that ``previous`` accepted for the same version. Versions of
    ``previous`` stay unless named in ``update`` or no longer possible. What ``constraints`` pin is, where it is needed,
    of just that version: beside a torch of CUDA 13.0 nothing of 13.5 may come. Only wheels count, so no code runs.

    Raises LockError ``requirements-unsatisfiable``, and FetchError where an index cannot be reached.
    """
    from packaging.utils import canonicalize_name

    moving = {canonicalize_name(name) for name in update}
    kept = {pin.name: pin for pin in previous.requirements if pin.name not in moving} if previous else {}
    pins, findings = _for_architectures(
        environment.requirements, minor, uv=uv, scratch=scratch, kept=kept, held=constraints
    )
    locked = LockedPython(
        minor=minor,
        torch=_locked_torch(environment.torch, [minor], uv=uv, previous=previous.torch if previous else None),
        requirements=list(pins.values()),
    )
    return Resolution(locked=locked, findings=findings)


def resolve_modules(
    modules: Modules,
    minors: Sequence[str],
    *,
    uv: Uv,
    scratch: Path,
    previous: LockedModules | None = None,
    update: Collection[str] = (),
) -> LockedModules:
    """Resolve the environment in which a package writes the statements of its modules, for every minor.

    It is resolved as :func:`resolve_build` does; torch is held out, with the hashes of its files that are known here
    and of those that ``previous`` accepted.

    Raises LockError ``requirements-unsatisfiable`` and ``build-requires-differ``.
    """
    pins = resolve_build(
        modules.requires,
        minors,
        uv=uv,
        scratch=scratch,
        previous=previous.requirements if previous else (),
        update=update,
    )
    torch = _locked_torch(modules.torch, minors, uv=uv, previous=previous.torch if previous else None)
    return LockedModules(torch=torch, requirements=pins)


def _locked_torch(pin: TorchPin, minors: Sequence[str], *, uv: Uv, previous: LockedTorch | None) -> LockedTorch:
    """Return a torch with the hashes that are known here, and those that the same pin accepted before."""
    accepted: set[str] = set()
    for minor in minors:
        accepted |= set(known_hashes(pin.version, pin.variant, minor, locations=uv.locations))
    if previous and (previous.version, previous.variant) == (pin.version, pin.variant):
        accepted |= set(previous.sha256)
    return LockedTorch(version=pin.version, variant=pin.variant, sha256=sorted(accepted))


def resolve_build(
    requirements: Sequence[str],
    minors: Sequence[str],
    *,
    uv: Uv,
    scratch: Path,
    previous: Collection[LockedRequirement] = (),
    update: Collection[str] = (),
) -> list[LockedRequirement]:
    """Resolve a build environment to versions that hold for every minor, with the files of all of them.

    The oldest Python comes first: what it can use, newer ones mostly can too, and not the other way round. Versions of
    ``previous`` stay unless named in ``update`` or no longer possible: what is built with them is not built again.

    Raises LockError ``requirements-unsatisfiable`` and ``build-requires-differ``.
    """
    from packaging.utils import canonicalize_name

    moving = {canonicalize_name(name) for name in update}
    kept: Pins = {pin.name: pin for pin in previous if pin.name not in moving}
    merged: dict[str, LockedRequirement] = {}
    oldest, *_ = ordered = sorted(minors, key=lambda minor: int(minor.partition(".")[2]))
    for minor in ordered:
        pins, _ = _for_architectures(requirements, minor, uv=uv, scratch=scratch, kept=merged or kept)
        if merged and _versions(pins) != _versions(merged):
            raise LockError(
                code="build-requires-differ",
                message=f"Python {minor} needs other build requirements than Python {oldest}",
                context={"requirements": ", ".join(requirements), "differs": _difference(pins, merged)},
                hint="name versions in build-requires that exist for every locked Python",
            )
        merged = _united(pins, merged)
    return list(merged.values())


def _for_architectures(
    requirements: Sequence[str],
    minor: str,
    *,
    uv: Uv,
    scratch: Path,
    kept: Pins,
    held: Sequence[LockedRequirement] = (),
) -> tuple[dict[str, LockedRequirement], tuple[Finding, ...]]:
    first, *others = ARCHITECTURES
    pins = _compile(requirements, minor, first, uv=uv, scratch=scratch, kept=kept, held=held)
    findings = []
    for other in others:
        try:
            more = _compile(requirements, minor, other, uv=uv, scratch=scratch, kept=pins, held=held)
        except LockError as error:
            findings.append(_left_out(other, minor, error.message, tuple(error.context.values())))
            continue
        if _versions(more) == _versions(pins):
            pins = _united(pins, more)
        else:
            findings.append(_left_out(other, minor, "it needs other versions", (_difference(more, pins),)))
    return pins, tuple(findings)


def _compile(
    requirements: Sequence[str],
    minor: str,
    architecture: str,
    *,
    uv: Uv,
    scratch: Path,
    kept: Pins,
    held: Sequence[LockedRequirement],
) -> dict[str, LockedRequirement]:
    """Run uv's resolver once; ``kept`` are versions that it prefers, ``held`` those that it may not leave."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="resolve-") as folder:
        names = ("requirements.in", "overrides.txt", "constraints.txt", "pylock.toml")
        wanted, overrides, constraints, output = (Path(folder, name) for name in names)
        wanted.write_text("".join(f"{requirement}\n" for requirement in requirements))
        overrides.write_text(_NO_TORCH)
        constraints.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in held))
        if kept:
            output.write_text(_preferences(kept))
        words: list[str | Path] = ["pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml"]
        words += ["--only-binary", ":all:", "--index-strategy", "unsafe-best-match"]
        words += ["--python-version", minor, "--python-platform", f"{architecture}-{LIBC_FLOOR}"]
        words += ["--overrides", overrides, "--constraints", constraints, "--output-file", output]
        try:
            uv.extended(_main_index_first(uv.locations))(*words, wanted)
        except InstallError as error:
            raise LockError(
                code="requirements-unsatisfiable",
                message=f"the requirements cannot be held together on Python {minor}, {architecture}",
                context={"uv said": error.context.get("uv said", "")},
                hint="change the stack's requirements; what uv said names the ones that collide",
            ) from error
        return _read_pylock(output)


def _preferences(kept: Pins) -> str:
    """Return a lock in uv's format that says nothing but versions: uv keeps them where it can."""
    entries = "".join(f'[[packages]]\nname = "{pin.name}"\nversion = "{pin.version}"\n' for pin in kept.values())
    return f'lock-version = "1.0"\ncreated-by = "sglforge"\n{entries}'


def _read_pylock(path: Path) -> dict[str, LockedRequirement]:
    packages = tomllib.loads(path.read_text()).get("packages", [])
    pins = {}
    for package in sorted(packages, key=lambda entry: str(entry["name"])):
        files = sorted((_file_name(wheel), str(wheel["hashes"]["sha256"])) for wheel in package.get("wheels", ()))
        pins[package["name"]] = LockedRequirement(
            name=package["name"],
            version=package["version"],
            files=[LockedFile(name=name, sha256=sha256) for name, sha256 in files],
        )
    return pins


def _file_name(wheel: Mapping[str, str]) -> str:
    return wheel.get("name") or unquote((wheel.get("url") or wheel["path"]).rpartition("/")[2])


def _main_index_first(locations: IndexLocations) -> dict[str, str]:
    """Return uv's index settings with the main index before the extra ones.

    A mirror on disk often holds one file of a version; the lock wants the hashes of all of them. For the same
    version uv takes the files of the index that comes first, and its own order puts the extra ones there.
    """
    if locations.no_index or not locations.extra_index_urls:
        return {}
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    urls = (locations.index_url or PYPI_SIMPLE_ENDPOINT, *locations.extra_index_urls)
    return {"UV_INDEX": " ".join(urls[:-1]), "UV_DEFAULT_INDEX": urls[-1]}


def _versions(pins: Pins) -> dict[str, str]:
    return {name: pin.version for name, pin in pins.items()}


def _united(pins: Pins, more: Pins) -> dict[str, LockedRequirement]:
    return {
        name: LockedRequirement(
            name=name,
            version=pin.version,
            files=sorted(
                {file.name: file for file in (*pin.files, *_files(more, name))}.values(), key=lambda f: f.name
            ),
        )
        for name, pin in pins.items()
    }


def _files(pins: Pins, name: str) -> Sequence[LockedFile]:
    return pins[name].files if name in pins else ()


def _difference(one: Pins, other: Pins) -> str:
    differing = sorted(set(_versions(one).items()) ^ set(_versions(other).items()))
    return ", ".join(f"{name} {version}" for name, version in differing)


def _left_out(architecture: str, minor: str, why: str, detail: tuple[str, ...]) -> Finding:
    return Finding(
        code="architecture-not-locked",
        severity=Severity.WARNING,
        subject=architecture,
        message=f"the lock has no files for {architecture} on Python {minor}: {why}",
        detail=detail,
    )
