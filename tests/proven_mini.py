"""A mini catalog whose wheel, environment and proof are there, so that its build has nothing to do."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mini_catalog import MINOR, ROOT, Mini

from sglforge import cli
from sglforge.base.console import Console, Verbosity
from sglforge.base.files import sha256_file, write_json, write_text
from sglforge.base.workspace import Workspace
from sglforge.build import store
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import Planned, plan, select
from sglforge.pipeline.serving import default_profile, proof_key
from sglforge.provision.python import running_interpreter
from sglforge.provision.receipt import (
    BuiltFile,
    BuiltReceipt,
    PythonReceipt,
    Receipt,
    RecordFile,
    TorchReceipt,
    read_environment,
    write_receipt,
)
from sglforge.provision.stamps import recorded_paths, stamp

TOPIC = "torch-symm-mem-guard"
SITE = f"venv/lib/python{MINOR}/site-packages"


@dataclass(frozen=True, kw_only=True)
class Proven:
    """A mini catalog and its workspace; the package is ``good``."""

    mini: Mini

    @property
    def workspace(self) -> Workspace:
        return Workspace(root=self.mini.workspace)

    @property
    def environment(self) -> Path:
        """The folder of the environment."""
        return (self.workspace.environments / "mini.toy").resolve()

    @property
    def site(self) -> Path:
        return self.environment / SITE

    def build(self, *words: str | Path) -> int:
        """Call the verb in this process and return its exit code; the document goes to stdout."""
        more = ["--catalog", self.mini.catalog, "--workspace", self.mini.workspace, "--target", "toy", "--json"]
        return cli.run(["build", *map(str, [*words, *more])])


def make_proven(root: Path) -> Proven:
    """Write the catalog, and what a build of it would have made."""
    mini = Mini(root=root)
    mini.source("good")
    mini.write()
    with (mini.catalog / "recipes/stacks/mini.toml").open("a") as stack:
        stack.write('smoke-profile = "tiny"\n')
    write_text(
        mini.catalog / "recipes/profiles/tiny.toml",
        'name = "tiny"\ndescription = "A toy."\ntarget = "toy"\nmodel = "catalog:models/tiny"\n',
    )
    write_text(mini.catalog / "models/tiny/weights", "w")
    write_text(mini.catalog / "templates/launch.sh.j2", "exec\n")
    write_text(mini.catalog / "patches/good/series.toml", f'topics = ["{TOPIC}"]\n')
    shutil.copytree(ROOT / "patches/sglang" / TOPIC, mini.catalog / "patches/good" / TOPIC)
    made = Proven(mini=mini)
    request = Request(argv=(), catalog_root=mini.catalog, workspace=made.workspace, target="toy")
    planned = plan(request, select(request, Console(verbosity=Verbosity.QUIET)))
    for step in planned.plan.steps:
        wheel = root / f"{step.package}-1.0-py3-none-any.whl"
        wheel.write_bytes(b"wheel")
        described = {"name": wheel.name, "size": 5, "sha256": sha256_file(wheel)}
        parts = dict(step.key_parts)
        store.publish(
            made.workspace, step.key, wheel, {"package": step.package, "wheel": described, "key-parts": parts}
        )
    _install(made, planned)
    _prove(made, planned, request)
    return made


def _install(made: Proven, planned: Planned) -> None:
    folder = made.workspace.environments / planned.plan.environment_key
    site, python = folder / SITE, folder / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(running_interpreter().path)
    write_text(folder / "venv/pyvenv.cfg", "home = here\n")
    write_text(site / "good/__init__.py", "")
    write_text(site / "toy/__init__.py", "x = 1\n")
    write_text(site / "good-1.0.dist-info/RECORD", "good/__init__.py,,\n")
    write_text(site / "toy-1.0.dist-info/RECORD", "toy/__init__.py,,\ntoy-1.0.dist-info/RECORD,,\n")
    built = {name: _file(site / name) for name in ("good/__init__.py", "good-1.0.dist-info/RECORD")}
    receipt = Receipt(
        environment_key=planned.plan.environment_key,
        name="mini.toy",
        created="",
        engine="",
        site_packages=SITE,
        python=PythonReceipt(
            minor=MINOR,
            version=".".join(map(str, sys.version_info[:3])),
            base=str(running_interpreter().path),
            config_sha256=sha256_file(folder / "venv/pyvenv.cfg"),
        ),
        torch=TorchReceipt(version="1.0", variant="cpu", sha256=None, origin="download", proven=False),
        requirements=(),
        built=(
            BuiltReceipt(
                name="good",
                version="1.0",
                build_key=planned.plan.steps[0].key,
                wheel="w",
                wheel_sha256="0" * 64,
                files=built,
            ),
        ),
        omitted=(),
        relaxed=(),
        records={
            "good-1.0.dist-info": _record(site / "good-1.0.dist-info/RECORD"),
            "toy-1.0.dist-info": _record(site / "toy-1.0.dist-info/RECORD"),
        },
        loose=(),
    )
    write_receipt(folder, receipt)
    (made.workspace.environments / "mini.toy").symlink_to(folder.name)


def _file(path: Path) -> BuiltFile:
    status = path.stat()
    return BuiltFile(sha256_file(path), status.st_size, status.st_mtime_ns, status.st_ino)


def _record(path: Path) -> RecordFile:
    sha256, *numbers = _file(path)
    return RecordFile("1.0", str(sha256), stamp(path.parents[1], recorded_paths(path)).digest, *numbers)


def _prove(made: Proven, planned: Planned, request: Request) -> None:
    environment = read_environment(made.environment, "mini.toy")
    assert environment
    key = proof_key(request, planned.selection, default_profile(planned.selection), environment)
    report = {"schema": 1, "verdict": "pass", "findings": [], "profile": "tiny", "scope": "cpu-logic", "probes": []}
    write_json(made.workspace.verdicts / f"{key}.json", {"time": time.time(), "run": "r", "report": report})


def events(made: Proven) -> list[dict[str, object]]:
    """Return the events of the last run."""
    return [json.loads(line) for line in (made.mini.last_run / "events.jsonl").read_text().splitlines()]
