"""The verb that judges wheels and libraries, ours or not."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from sglforge.artifacts.architectures import Architecture, names, parse
from sglforge.artifacts.binary import Wanted
from sglforge.artifacts.demand import demanded
from sglforge.artifacts.examine import Examined, Tools, examine_library, examine_wheel, printable
from sglforge.artifacts.judge import verdict
from sglforge.artifacts.libraries import Libraries
from sglforge.artifacts.sass import CLAIMS, Disassembler, find_disassembler
from sglforge.base.console import Console
from sglforge.base.scratch import working_folder
from sglforge.config import suggest
from sglforge.errors import CheckError, ConfigError
from sglforge.pipeline import serving
from sglforge.pipeline.request import Outcome, Request, opening
from sglforge.pipeline.select import Selection, select
from sglforge.provision.receipt import find_environment


def check(request: Request, console: Console) -> Outcome:
    """Judge wheels and libraries against the target, each on its own."""
    selection = select(request, console)
    files = [Path(word) for word in request.words("files")]
    for file in files:
        if not file.is_file():
            raise ConfigError(code="file-missing", message=f"there is no file {file}", hint="name a wheel or a library")
    site = _site(request, selection)
    libraries = Libraries(site=site) if site else None
    wanted = _wanted(request, selection, libraries)
    minor = request.python or _minor_of(site) or selection.environment.pythons[0]
    disassembler = find_disassembler(_toolkits(request, selection))
    examined = [_examined(file, request, console, wanted, libraries, disassembler, minor) for file in files]
    findings = [finding for one in examined for finding in one.findings]
    said = verdict(findings)
    document = {
        **opening(findings, console),
        "verdict": said,
        **selection.to_json(),
        "gpus": [gpu.capability for gpu in wanted.gpus],
        "environment": str(site) if site else None,
        "files": [one.to_json() for one in examined],
    }
    text = "\n".join(line for one in examined for line in _lines(one))
    return Outcome(document=document, text=text, exit_code=0 if said in {"pass", "warn"} else CheckError.exit_code)


def _examined(
    file: Path,
    request: Request,
    console: Console,
    wanted: Wanted,
    libraries: Libraries | None,
    disassembler: Disassembler | None,
    minor: str,
) -> Examined:
    with console.step(f"check {printable(file.name)}") as step, working_folder(request.workspace, "check") as scratch:
        tools = Tools(scratch=scratch, libraries=libraries, disassembler=disassembler)
        if file.suffix == ".whl":
            examined = examine_wheel(file, wanted, tools, python_minor=minor)
        else:
            examined = examine_library(file, wanted, tools)
        step.say(f"{len(examined.binaries)} binaries")
        step.failed = examined.verdict not in {"pass", "warn"}
    return examined


def _toolkits(request: Request, selection: Selection) -> list[Path]:
    """Return the toolkits whose cuobjdump may be asked: those that builds have brought, then this machine's."""
    brought = sorted(request.workspace.toolkits.glob("*/cuda"))
    return [*brought, *(Path(one.home) for one in selection.facts.toolkits or () if not one.problem)]


def _wanted(request: Request, selection: Selection, libraries: Libraries | None) -> Wanted:
    facts, torch = selection.facts, selection.environment.torch
    return demanded(
        selection.target,
        torch_variant=torch.variant,
        machine=facts.machine or platform.machine(),
        glibc=facts.glibc,
        gpus=_gpus(request, selection),
        claims=_claims(request),
        open_symbols={
            glob: why for recipe in selection.catalog.packages.values() for glob, why in recipe.open_symbols.items()
        },
        torch=libraries.torch if libraries else None,
    )


def _gpus(request: Request, selection: Selection) -> tuple[Architecture, ...]:
    """Return the GPUs to serve: those that were named, else this machine's that are of the target's kind."""
    if text := request.option("gpu", str):
        named = {word: parse(word) for word in text.split(",") if word.strip()}
        if wrong := [word for word, one in named.items() if one is None or one.suffix]:
            raise ConfigError(
                code="usage",
                message=f"`{wrong[0]}` is no compute capability",
                hint="write --gpu 12.0 or --gpu 12.0,9.0",
            )
        return tuple(one for one in named.values() if one)
    own = parse(selection.target.compute_capability or "")
    here = {parse(gpu.cc) for gpu in selection.facts.gpus or () if gpu.cc}
    return tuple(sorted(one for one in here if one and own and one.major == own.major))


def _claims(request: Request) -> dict[str, tuple[str, ...]]:
    """Return what is claimed of which files: `GLOB=NAME`, or `NAME` for any file.

    Raises ConfigError ``usage``.
    """
    claims: dict[str, tuple[str, ...]] = {}
    for word in request.words("claim"):
        glob, equals, name = word.rpartition("=")
        if name not in CLAIMS:
            raise ConfigError(
                code="usage", message=f"there is no claim `{name}`", hint=suggest.hint(name, list(CLAIMS))
            )
        glob = glob if equals and glob else "*"
        claims[glob] = (*claims.get(glob, ()), name)
    return claims


def _site(request: Request, selection: Selection) -> Path | None:
    """Return the site-packages folder to look symbols up in; the target's own environment where none is named.

    Raises ConfigError ``folder-missing``, InstallError ``environment-not-installed``.
    """
    if folder := request.option("site", Path):
        found = [folder, *sorted(folder.glob("lib/python3*/site-packages"))]
        if not folder.is_dir():
            raise ConfigError(code="folder-missing", message=f"there is no folder {folder}", hint="name a venv")
        return found[-1].absolute()
    if request.option("env", str):
        return serving.installed(request, selection, check=False).site_packages
    environment = find_environment(request.workspace, selection.environment_name)
    return environment.site_packages if environment else None


def _minor_of(site: Path | None) -> str | None:
    return site.parent.name.removeprefix("python") if site and site.parent.name.startswith("python3.") else None


def _lines(examined: Examined) -> Sequence[str]:
    """Return the summary for people: the file, then its binaries with what they hold."""
    skipped = examined.not_loaded()
    lines = [f"{examined.verdict}  {printable(str(examined.file))}"]
    for binary in examined.binaries:
        if not binary.is_cubin:
            sass = names(binary.reading.architectures("sass")) if binary.reading else ""
            ptx = (
                ", ".join(sorted(one.virtual for one in binary.reading.architectures("ptx"))) if binary.reading else ""
            )
            held = "; ".join(filter(None, (sass, ptx and f"PTX {ptx}"))) or "no GPU code"
            lines.append(f"  {binary.path}: {binary.trouble or held}")
            lines += [
                f"    not loaded on {gpu.capability}: {reasons[binary.path]}"
                for gpu, reasons in skipped.items()
                if binary.path in reasons
            ]
    cubins = examined.to_json()["cubins"]
    if isinstance(cubins, dict) and cubins:
        lines.append(f"  cubins: {', '.join(f'{name} {count}' for name, count in cubins.items())}")
    return lines
