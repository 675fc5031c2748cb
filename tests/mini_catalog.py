"""A catalog of toy packages that really build, offline and in a moment; what a build does is told line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

from sglforge.base.files import sha256_file
from sglforge.config.lockfile import (
    Lock,
    LockedArchive,
    LockedFile,
    LockedPython,
    LockedRequirement,
    LockedTorch,
    dump_lock,
)

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOT = Path(__file__).parents[1]
BACKEND = ROOT / "tests" / "packages" / "toy-backend" / "toy_backend.py"

HOLDS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {gate!r}])
print("holds", flush=True)
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.02)
child.kill()
child.wait()
"""
"""A build that waits, with a child process, for a file to appear."""
FAILS = "import sys; print('compiling unit 0'); sys.exit('the toy cannot be built')"


@dataclass(frozen=True, kw_only=True)
class Mini:
    """The catalog, its workspace and the folder with its released wheels."""

    root: Path
    packages: dict[str, dict[str, object]] = field(default_factory=dict)
    archives: dict[str, LockedArchive] = field(default_factory=dict)

    @property
    def catalog(self) -> Path:
        return self.root / "catalog"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def wheels(self) -> Path:
        return self.root / "wheels"

    @property
    def last_run(self) -> Path:
        return (self.workspace / "runs" / "latest").resolve()

    def gate(self, name: str) -> Path:
        """Return the file that a package which `holds` waits for."""
        return self.root / f"{name}.open"

    def source(self, name: str, *, does: str = "", depends: Sequence[str] = ()) -> None:
        """Add a package that is a folder; ``does`` is Python that its build runs first."""
        module, folder = name.replace("-", "_"), self.catalog / "sources" / name
        (folder / "src" / module).mkdir(parents=True)
        (folder / "src" / module / "__init__.py").write_text("")
        program = does.replace("{gate!r}", repr(str(self.gate(name))))
        first = f"\n_build = build_wheel\n\ndef build_wheel(*words):\n{indent(program, ' ')}\n return _build(*words)\n"
        (folder / "backend.py").write_text(BACKEND.read_text() + (first if does else ""))
        (folder / "pyproject.toml").write_text(
            f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            f'[project]\nname = "{name}"\nversion = "1.0"\n'
        )
        self.packages[name] = {"kind": "path", "path": f"sources/{name}"}
        self._recipe(name, module, depends)

    def released(self, name: str) -> Path:
        """Add a package that is a released wheel, and return the wheel."""
        wheel = self._wheel(name)
        files = [LockedFile(name=wheel.name, sha256=sha256_file(wheel))]
        self.packages[name] = {"kind": "wheel", "project": name, "version": "1.0"}
        self.archives[name] = LockedArchive(kind="wheel", project=name, version="1.0", files=files)
        self._recipe(name, name.replace("-", "_"), ())
        return wheel

    def _wheel(self, name: str) -> Path:
        module = name.replace("-", "_")
        self.wheels.mkdir(parents=True, exist_ok=True)
        wheel, info = self.wheels / f"{module}-1.0-py3-none-any.whl", f"{module}-1.0.dist-info"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{module}/__init__.py", "")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", f"{info}/RECORD,,\n")
        return wheel

    def write(self) -> Mini:
        """Write stack, target and lock; to be called after the packages were added."""
        lines = ['name = "mini"', 'description = "Toys."']
        for name, source in self.packages.items():
            told = ", ".join(f'{key} = "{value}"' for key, value in source.items())
            lines += [f"[packages.{name}]", f"source = {{ {told} }}"]
        lines += ["[environments.toy]", 'torch = { version = "1.0", variant = "cpu" }', f'pythons = ["{MINOR}"]']
        self._file("recipes/stacks/mini.toml", *lines)
        self._file(
            "recipes/targets/toy.toml",
            'name = "toy"',
            'description = "Any machine."',
            'kind = "cpu"',
            'default-stack = "mini"',
            "min-memory-gib = 0.1",
            "min-disk-gib = 0.01",
        )
        torch = LockedTorch(version="1.0", variant="cpu", sha256=[])
        python = LockedPython(minor=MINOR, torch=torch, requirements=[])
        wheel = self._wheel("toy")
        files = [LockedFile(name=wheel.name, sha256=sha256_file(wheel))]
        toy = LockedRequirement(name="toy", version="1.0", files=files)
        built = [name for name, source in self.packages.items() if source["kind"] == "path"]
        lock = Lock(
            format=1,
            stack="mini",
            target="toy",
            sources=dict(self.archives),
            build_requires={name: [toy] for name in built},
            pythons=[python],
        )
        self._file("locks/mini.toy.lock.toml", dump_lock(lock))
        return self

    def argv(self, *words: str | Path) -> list[str]:
        more = ["--catalog", self.catalog, "--workspace", self.workspace, "--target", "toy"]
        return [sys.executable, "-m", "sglforge", *map(str, [*words, *more])]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of a call: packages come from the folder of wheels, nobody's CI is seen."""
        away = {"CI", "GITHUB_ACTIONS", "GITLAB_CI", "GITHUB_STEP_SUMMARY", "NO_COLOR"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") and name not in away}
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        return {**kept, **pip, **(more or {})}

    def start(self, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a verb that can be interrupted."""
        return subprocess.Popen(
            # what runs in the background ignores SIGINT, and so would what it starts
            ["env", "--default-signal=INT", *self.argv(*words)],
            cwd=ROOT,
            env=self.environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(
        self, *words: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Call a verb to its end."""
        done = subprocess.run(
            self.argv(*words),
            cwd=ROOT,
            env=self.environment(env),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def log(self, package: str) -> str:
        """Return what the build of a package said so far."""
        path = self.last_run / "logs" / f"{package}.build.log"
        return path.read_text() if path.is_file() else ""

    def events(self) -> list[dict[str, object]]:
        """Return the events of the last run."""
        return [json.loads(line) for line in (self.last_run / "events.jsonl").read_text().splitlines()]

    def pids(self, package: str) -> list[int]:
        """Return the children of a build that holds, by their command lines: a sandbox numbers them anew."""
        if "holds\n" not in self.log(package):
            return []
        gate, found = str(self.gate(package)).encode(), []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and gate in (process / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def _recipe(self, name: str, module: str, depends: Sequence[str]) -> None:
        lines = [f'name = "{name}"', 'description = "A toy."', f'import-name = "{module}"', 'build-requires = ["toy"]']
        self._file(f"recipes/packages/{name}.toml", *lines, f"depends = {json.dumps(list(depends))}")

    def _file(self, path: str, *lines: str) -> None:
        file = self.catalog / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
