"""The probe of identity: who answers is the server that was started, made of what was built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sglforge.errors import Finding, Severity
from sglforge.provision.receipt import Environment
from sglforge.smoke import ports
from sglforge.smoke.interview import server_info
from sglforge.smoke.observe.identity import Comparison, Expected, compare, expected_of, judge_identity, options
from sglforge.smoke.observe.libraries import (
    Loaded,
    cuda_majors,
    duplicates,
    expected_hashes,
    judge_libraries,
    read_libraries,
)
from sglforge.smoke.probes.looking import by_looks
from sglforge.smoke.probes.model import Judgement, Need, Probe, failed, inconclusive, passed
from sglforge.smoke.site import Site
from sglforge.smoke.transcript import Look, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the server says beside what was started, None where it says nothing; what it has loaded; of what it is made.

    ``stranger`` listens on the port and is none of its processes. There is no ``receipt`` where no environment of ours
    is.
    """

    comparison: Comparison | None
    stranger: str | None
    libraries: Loaded
    receipt: Mapping[str, object] | None


def _look(site: Site) -> Look:
    """Compare what the server says with what was started, and read what its processes have loaded."""
    members = site.members()
    installed = site.environment if isinstance(site.environment, Environment) else None
    expected = (
        expected_of(installed, site.argv)
        if installed
        else Expected(version=site.environment.sglang_version, python=None, argv=site.argv)
    )
    listener, stranger = _listeners(site.argv, members)
    info = server_info(site.ask)
    command = ports.command_of(listener) if listener else None
    libraries = read_libraries(
        members, environment=site.environment.path, expected=expected_hashes(installed) if installed else {}
    )
    if libraries.unreadable:
        live = site.members()  # a short helper that ends meanwhile hides nothing
        libraries = replace(libraries, unreadable=tuple(pid for pid in libraries.unreadable if pid in live))
    return asdict(
        _Seen(
            comparison=compare(info, expected, command=command) if info else None,
            stranger=ports.process(stranger) if stranger and not listener else None,
            libraries=libraries,
            receipt=_receipt(installed) if installed else None,
        )
    )


def _listeners(argv: Sequence[str], members: Sequence[int]) -> tuple[int | None, int | None]:
    """Return who listens on the port of a command line: one of the server's processes, and somebody else."""
    port = dict(options(argv)).get("--port")
    pids = list(ports.holders(int(str(port)))) if port else []
    return next((pid for pid in pids if pid in members), None), next((pid for pid in pids if pid not in members), None)


def _receipt(environment: Environment) -> dict[str, object]:
    """Return what an environment was made of."""
    receipt = environment.receipt
    return {
        "environment_key": receipt.environment_key,
        "sha256": environment.receipt_sha256,
        "torch": receipt.torch.version,
        "built": {
            built.name: {"version": built.version, "build_key": built.build_key, "wheel_sha256": built.wheel_sha256}
            for built in receipt.built
        },
    }


def _judge(_observed: Observed, looks: Sequence[_Seen]) -> Judgement:
    look = looks[-1]
    comparison, loaded = look.comparison, look.libraries
    if comparison is None:
        return inconclusive("the server does not say what it is: neither /server_info nor /get_server_info answers")
    findings = [*_stranger(look.stranger), *judge_identity(comparison), *judge_libraries(loaded)]
    evidence: dict[str, object] = {
        "receipt": look.receipt,
        "says": comparison.version_says,
        "chosen": dict(comparison.chosen),
        "unstated": list(comparison.unstated),
        "libraries": len(loaded.libraries),
        "cuda": sorted(cuda_majors(loaded)),
        "twice": {name: list(paths) for name, paths in duplicates(loaded).items()},
        "findings": [finding.to_json() for finding in findings],
    }
    if wrong := [finding for finding in findings if finding.severity is Severity.ERROR]:
        others = f" (and {', '.join(finding.code for finding in wrong[1:])})" if wrong[1:] else ""
        return failed(wrong[0].code, f"{wrong[0].message}{others}", wrong[0].hint, **evidence)
    if loaded.unreadable or not loaded.libraries:
        return inconclusive("/proc does not show what every process of the server has loaded", "", **evidence)
    remarks = "".join(f"; {finding.message}" for finding in findings)
    return passed(f"{_made_of(comparison, look.receipt)}; {_libraries(loaded)}{remarks}", **evidence)


def _stranger(who: str | None) -> Iterator[Finding]:
    if who:
        yield Finding(
            code="wrong-server",
            severity=Severity.ERROR,
            message=f"another server answers than the script starts: {who} listens on the port",
            hint="stop it, or give the profile another port",
        )


def _made_of(comparison: Comparison, receipt: Mapping[str, object] | None) -> str:
    match receipt:
        case {"built": {"sglang": {"version": str(version), "build_key": str(key)}}}:
            return f"SGLang {version}, build key {key[:12]}"
        case _:
            return f"SGLang {comparison.version_says}"


def _libraries(loaded: Loaded) -> str:
    majors = cuda_majors(loaded)
    return f"{len(loaded.libraries)} libraries loaded, none foreign, {f'CUDA {min(majors)}' if majors else 'no CUDA'}"


IDENTITY = Probe(
    name="identity",
    proves="who answers is the server that was started, made of what was built",
    needs=(Need.OWN, Need.NATIVE),
    look=_look,
    judge=by_looks(_Seen, _judge, least=1),
)
