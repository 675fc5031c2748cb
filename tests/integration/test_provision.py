"""The shipped lock, installed for real: fetched once, then without a network."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from sglforge.base import proc
from sglforge.base.files import sha256_file
from sglforge.base.ids import BuildKey, Sha256
from sglforge.base.workspace import Workspace
from sglforge.config.load import load_catalog
from sglforge.config.lockfile import Lock, dump_lock, lock_path, read_lock
from sglforge.host import package_index
from sglforge.plan import BuildPlan
from sglforge.provision.install import install
from sglforge.provision.prefetch import download_requirements, download_torch
from sglforge.provision.python import choose_python
from sglforge.provision.resolve import resolve
from sglforge.provision.uv import open_uv
from sglforge.provision.verify import full, quick

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
STACK, TARGET = "release-0.5.23", "cpu"
IMPORTS = """
import torch, transformers, xgrammar, triton, zmq, fastapi, uvicorn, uvloop, orjson, compressed_tensors
assert torch.version.cuda is None and not torch.cuda.is_available()
print((torch.ones(3) * 2).sum().item())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A built wheel, as the store returns it."""

    key: BuildKey
    path: Path
    sha256: Sha256


@pytest.fixture
def lock() -> Lock:
    return read_lock(lock_path(ROOT, STACK, TARGET))


@pytest.fixture
def server(tmp_path: Path) -> Wheel:
    """Return a small wheel in the place of those that a build makes."""
    members = {
        "placeholder.py": "",
        "placeholder-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: placeholder\nVersion: 1.0\n",
        "placeholder-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "placeholder-1.0.dist-info/RECORD,,\n"
    for name, text in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text)}\n"
    path = tmp_path / "placeholder-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**members, "placeholder-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return Wheel(key=BuildKey("b" * 64), path=path, sha256=sha256_file(path))


def test_the_lock_is_one_that_the_resolver_keeps(lock: Lock, tmp_path: Path) -> None:
    environment = load_catalog(ROOT).stack(STACK).environments[TARGET]
    uv = open_uv(package_index.read())
    for locked in lock.pythons:
        resolution = resolve(environment, locked.minor, uv=uv, scratch=tmp_path, previous=locked)
        assert resolution.locked == locked
        assert resolution.findings == ()


def test_the_lock_holds_no_url_and_no_cuda(lock: Lock) -> None:
    assert "://" not in dump_lock(lock)
    for locked in lock.pythons:
        names = {requirement.name for requirement in locked.requirements}
        assert not [name for name in names if name == "torch" or name.startswith(("nvidia-", "cuda-"))]


@pytest.mark.timeout(1500)
def test_fetched_then_installed_without_a_network(
    lock: Lock, server: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, locations = load_catalog(ROOT), package_index.read()
    workspace = Workspace(root=tmp_path / "workspace")
    python = choose_python(lock.pythons, open_uv(locations))
    download_torch(python.locked.torch, interpreter=python.interpreter, workspace=workspace, locations=locations)
    download_requirements(
        python.locked.requirements, interpreter=python.interpreter, workspace=workspace, locations=locations
    )

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    plan = BuildPlan(
        stack=catalog.stack(STACK),
        target=catalog.target(TARGET),
        python=python.locked,
        steps=(),
        environment_key=BuildKey("e" * 64),
    )
    environment = install(
        plan,
        [server],
        name="real",
        interpreter=python.interpreter,
        workspace=workspace,
        locations=locations,
        offline=True,
        log=tmp_path / "uv.log",
    )
    assert proc.run([environment.python, "-c", IMPORTS], timeout_s=300).stdout.strip() == "6.0"
    assert environment.receipt.torch.proven
    assert [entry.name for entry in environment.receipt.requirements if entry.sha256 is None] == []
    assert quick(environment) == full(environment) == ()

    proc.run([sys.executable, "-c", f"open({str(environment.site_packages / 'numpy' / 'stray.py')!r}, 'w')"])
    assert quick(environment) == ()
    (finding,) = full(environment)
    assert finding.detail == ("numpy/stray.py",)
