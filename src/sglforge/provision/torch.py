"""torch, found by version, variant and hash, and held to its variant once it is installed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sglforge.base import files
from sglforge.base.download import download, local_path, redact
from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.base.proc import ProcessError
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.config.cuda import cuda_of_variant, major
from sglforge.config.lockfile import LockedTorch
from sglforge.errors import FetchError, InstallError
from sglforge.provision.progress import Progress
from sglforge.provision.receipt import TorchOrigin
from sglforge.provision.uv import Uv
from sglforge.sources.index import search
from sglforge.sources.model import IndexFile
from sglforge.sources.tags import rank, supported_tags

# Reads torch/version.py without importing torch, whose own requirements are not there yet.
_ASK = """
import importlib.util, json, pathlib
place = pathlib.Path(importlib.util.find_spec("torch").origin).parent
spec = importlib.util.spec_from_file_location("torch_version", place / "version.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps({"version": module.__version__, "cuda": module.cuda}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchWheel:
    """A torch wheel on this machine whose hash was computed; ``proven`` where the lock accepts it."""

    path: Path
    sha256: Sha256
    origin: TorchOrigin
    proven: bool


def find_torch(
    pin: LockedTorch,
    minor: str,
    *,
    locations: IndexLocations,
    workspace: Workspace,
    offline: bool,
    progress: Progress,
) -> TorchWheel | None:
    """Find the wheel of torch that the lock names, and bring it here if it is elsewhere.

    Looked through: archives kept from an earlier fetch, then the find-links and indexes of pip's
    configuration, those on this machine first; offline only those. Another version or variant never does.

    Returns None when there is no such file.
    Raises InstallError ``torch-hash-not-accepted``, and FetchError where a download fails.
    """
    accepted = {Sha256(text) for text in pin.sha256}
    supported = supported_tags(minor)
    for sha256 in sorted(accepted):
        for path in sorted((workspace.sources / sha256).glob("torch-*.whl")):
            if rank(path.name, supported) is not None and files.sha256_file(path) == sha256:
                return TorchWheel(path=path, sha256=sha256, origin="kept-archive", proven=True)
    refused: list[str] = []
    for candidate in _candidates(pin, minor, locations=locations, offline=offline):
        if accepted and candidate.sha256 and candidate.sha256 not in accepted:
            refused.append(f"{redact(candidate.url)} sha256 {candidate.sha256}")
            continue
        wheel = _brought(candidate, accepted, locations=locations, workspace=workspace, progress=progress)
        if not accepted or wheel.sha256 in accepted:
            return wheel
        refused.append(f"{redact(candidate.url)} sha256 {wheel.sha256}")
    if refused:
        raise InstallError(
            code="torch-hash-not-accepted",
            message=f"torch {pin.version}+{pin.variant} for Python {minor} is here, but not the locked file",
            context={"found": "\n".join(refused), "accepted sha256": ", ".join(sorted(accepted))},
            hint="provide the locked file, or run nox -s lock where the new one is to be accepted",
        )
    return None


def known_hashes(version: str, variant: str, minor: str, *, locations: IndexLocations) -> tuple[Sha256, ...]:
    """Return the hashes of the torch wheels that pip's configuration reaches here for one Python minor."""
    pin = LockedTorch(version=version, variant=variant, sha256=[])
    known = set()
    for candidate in _candidates(pin, minor, locations=locations, offline=False):
        if candidate.url.startswith("file:"):
            known.add(files.sha256_file(local_path(candidate.url)))
        elif candidate.sha256:
            known.add(candidate.sha256)
    return tuple(sorted(known))


def require_variant(python: Path, pin: LockedTorch, kind: Literal["cpu", "cuda"], uv: Uv) -> None:
    """Hold the installed torch to the pin: exact version, no CUDA on cpu, else CUDA of the major that the variant says.

    Raises InstallError ``torch-wrong-variant`` and ``torch-cuda-mismatch``.
    """
    wanted, cuda = f"{pin.version}+{pin.variant}", major(cuda_of_variant(pin.variant))
    said: dict[str, str | None] = {}
    try:
        said = json.loads(uv.run([python, "-I", "-c", _ASK], env=uv.environment, timeout_s=60.0).stdout)
        fits = said["version"] == wanted and (said["cuda"] is not None) == (kind == "cuda")
        what = f"is {said['version']} with CUDA {said['cuda'] or 'none'}"
    except ProcessError as error:
        fits, what = False, f"does not say what it is ({error.context.get('output', '').rpartition(chr(10))[2]})"
    if not fits:
        raise InstallError(
            code="torch-wrong-variant",
            message=f"torch {what}; wanted is {wanted}",
            hint="the wheel is not what its name says: provide the right file and install again",
        )
    if kind == "cuda" and cuda != major(said["cuda"] or ""):
        raise InstallError(
            code="torch-cuda-mismatch",
            message=f"torch {wanted} is built for CUDA {said['cuda']}, not for CUDA {cuda} as its variant says",
            hint="the wheel is not what its name says: provide the right file and install again",
        )


def torch_missing(pin: LockedTorch, minor: str, locations: IndexLocations, *, why_not_uv: str) -> InstallError:
    """Return the error for a torch that is nowhere, which says how to provide it."""
    tag = f"cp{minor.replace('.', '')}"
    searched = [*locations.find_links, *locations.extra_index_urls]
    searched += [locations.index_url] if locations.index_url else []
    return InstallError(
        code="torch-variant-missing",
        message=f"torch {pin.version}+{pin.variant} for Python {minor} is nowhere to be found",
        context={
            "searched (from pip's configuration)": "\n".join(map(redact, searched)) or "nothing is configured",
            "uv --torch-backend": why_not_uv,
            "not tried": "another version or variant: that would be another environment",
        },
        hint=f"put torch-{pin.version}+{pin.variant}-{tag}-{tag}-<platform>.whl into a folder and repeat the "
        "command with PIP_FIND_LINKS=FOLDER before it; for good: pip config set global.find-links FOLDER",
    )


def _candidates(pin: LockedTorch, minor: str, *, locations: IndexLocations, offline: bool) -> Iterator[IndexFile]:
    """Yield the torch wheels of this version and variant that fit, what is on this machine first.

    A location that cannot be asked counts as one without torch: the default index never has local versions.
    """
    supported = supported_tags(minor)
    with contextlib.suppress(FetchError):
        for place in search(locations, "torch", f"{pin.version}+{pin.variant}", offline=offline):
            if "/" not in place.name and rank(place.name, supported) is not None:
                yield place


def _brought(
    candidate: IndexFile,
    accepted: Collection[Sha256],
    *,
    locations: IndexLocations,
    workspace: Workspace,
    progress: Progress,
) -> TorchWheel:
    """Return a candidate as a file with a computed hash, downloading it if need be."""
    if candidate.url.startswith("file:"):
        path = local_path(candidate.url)
        try:
            found = files.sha256_file(path)
        except OSError as error:
            raise FetchError(
                code="file-unreadable",
                message=f"cannot read {path}: {error.strerror}",
                hint="correct the folder that pip's configuration names (pip config list)",
            ) from error
        return TorchWheel(path=path, sha256=found, origin="local-file", proven=found in accepted)

    def told(done: int, total: int | None) -> None:
        progress(done, total, note=f"downloading {candidate.name}")

    def fetched(destination: Path) -> Sha256:
        return download(
            candidate.url,
            destination,
            sha256=candidate.sha256,
            ca_bundle=locations.ca_bundle,
            trusted_hosts=locations.trusted_hosts,
            progress=told,
        )

    if candidate.sha256:  # its final place is known, so what a killed run left there is continued
        path = workspace.sources / candidate.sha256 / candidate.name
        found = fetched(path)
    else:
        with working_folder(workspace, "torch") as folder:
            draft = folder / candidate.name
            found = fetched(draft)
            path = workspace.sources / found / candidate.name
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(path)
    return TorchWheel(path=path, sha256=found, origin="download", proven=found in accepted)
