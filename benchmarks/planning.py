"""A plan of fifty packages, pure and as a verb; one hash over the tree of SGLang, beside git and sha256sum."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.measure import BenchError, Sample, interleave, ratio, summary, timed
from benchmarks.setting import Setting, program

from sglforge import plan as plans
from sglforge.base.console import Verbosity, for_terminal
from sglforge.base.files import digest
from sglforge.base.index_locations import IndexLocations
from sglforge.base.workspace import Workspace
from sglforge.build.history import remember
from sglforge.config.load import load_catalog
from sglforge.config.lockfile import (
    Lock,
    LockedArchive,
    LockedFile,
    LockedGit,
    LockedPath,
    LockedPython,
    LockedRequirement,
    LockedSource,
    LockedTorch,
    dump_lock,
    lock_path,
)
from sglforge.pipeline.request import Request
from sglforge.pipeline.select import plan, select
from sglforge.pipeline.sources import bring
from sglforge.plan import Known
from sglforge.sources.model import SourceArchive
from sglforge.sources.paths import digest_folder
from sglforge.sources.unpack import unpack

ROUNDS = 9
PACKAGES = 50
PINS = 12
TREE = "sglang"
ENGINE, PURE = "sglforge plan", "draft and make"
HASHED = "digest of the folder"


def measure(setting: Setting) -> dict[str, object]:
    """Measure plans of a made-up catalog of fifty packages, and hashes over the tree of the stack's own SGLang.

    Every package was built before and differs in one leaf from then, so that all of them are compared. A tree is
    cold when its files were dropped from the page cache; names and inodes stay known.
    """
    rounds = setting.rounds or ROUNDS
    with setting.folder() as folder:
        planning = interleave(_plans(setting, folder), rounds)
        hashing = interleave(_hashes(setting, folder), rounds)
        files = sum(1 for _ in _files(folder / "tree"))
    return {
        "packages": PACKAGES,
        "files": files,
        "cases": {name: summary(taken) for name, taken in (planning | hashing).items()},
        "ratios": {
            f"{HASHED}, {state} / {peer}, {state}": ratio(hashing[f"{HASHED}, {state}"], hashing[f"{peer}, {state}"])
            for peer in ("git add and write-tree", "git hash-object", "sha256sum")
            for state in ("cold", "warm")
        },
        "aims": {PURE: "wall at most 0.2 s"},
    }


def _plans(setting: Setting, folder: Path) -> Mapping[str, Callable[[], Sample]]:
    root, workspace = _write_catalog(folder / "catalog"), Workspace(root=folder / "workspace")
    request = Request(argv=(), catalog_root=root, workspace=workspace, target="cpu")
    quiet = for_terminal(Verbosity.QUIET)
    planned = plan(request, select(request, quiet)).plan
    for step in planned.steps:
        before = {**step.key_parts, "toolchain": {"glibc": "2.17"}}
        remember(
            workspace,
            {"package": step.package, "python": planned.python.minor, "key-parts": before, "seconds": 1.0},
        )
    catalog, lock = load_catalog(root), _lock()
    sources = {name: digest(name) for name in catalog.stacks["fifty"].packages}
    known = Known(toolchain={"glibc": "2.36"}, sources=sources, series={})

    def pure() -> Sample:
        start, cpu = time.perf_counter(), time.process_time()
        stack, target, python = catalog.stacks["fifty"], catalog.targets["cpu"], lock.pythons[0]
        drafts = plans.draft(
            stack=stack, target=target, recipes=catalog.packages, lock=lock, python=python, known=known
        )
        made = plans.make(drafts, stack=stack, target=target, python=python)
        sample = Sample(wall_s=time.perf_counter() - start, cpu_s=time.process_time() - cpu)
        if len(made.steps) != PACKAGES:
            raise BenchError("the plan lacks packages")
        return sample

    words: list[str | Path] = ["--catalog", root, "--target", "cpu", "--workspace", workspace.root]
    verb = [program("sglforge"), "plan", *words]
    env = setting.environment
    return {
        PURE: pure,
        ENGINE: lambda: timed(verb, env=env),
        f"{ENGINE} --explain": lambda: timed([*verb, "--explain"], env=env),
        "python that does nothing": lambda: timed([sys.executable, "-I", "-c", "pass"], env=env),
    }


def _hashes(setting: Setting, folder: Path) -> Mapping[str, Callable[[], Sample]]:
    planned = setting.planned()
    step = next(step for step in planned.plan.steps if step.package == TREE)
    archive = bring(step, planned, setting.request(), setting.console(), IndexLocations())
    if not isinstance(archive, SourceArchive):
        raise BenchError(f"{TREE} has no locked archive")
    tree = unpack(archive.path, folder / "tree")
    env = {
        **setting.environment,
        "GIT_DIR": str(folder / "git"),
        "GIT_WORK_TREE": str(tree),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    timed(["git", "init", "--quiet"], env=env, cwd=tree)
    there = f"cd {shlex.quote(str(tree))}"
    peers = {
        # an index of its own each time: git would hash nothing that it has seen
        "git add and write-tree": f"rm -rf $GIT_DIR/index $GIT_DIR/objects/?? && {there} "
        "&& git add --all --force . && git write-tree",
        "git hash-object": f"{there} && find . -type f | git hash-object --stdin-paths --no-filters",
        "sha256sum": f"{there} && find . -type f -print0 | sort -z | xargs -0 sha256sum",
    }

    def ours() -> Sample:
        start, cpu = time.perf_counter(), time.process_time()
        digest_folder(tree)
        return Sample(wall_s=time.perf_counter() - start, cpu_s=time.process_time() - cpu)

    def peer(script: str) -> Callable[[], Sample]:
        return lambda: timed(["sh", "-c", script], env=env)

    cases = {HASHED: ours, **{name: peer(script) for name, script in peers.items()}}
    return {
        **{f"{name}, cold": _cold(case, tree) for name, case in cases.items()},
        **{f"{name}, warm": case for name, case in cases.items()},
    }


def _cold(case: Callable[[], Sample], tree: Path) -> Callable[[], Sample]:
    def measured() -> Sample:
        os.sync()
        for path in _files(tree):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        return case()

    return measured


def _files(tree: Path) -> Iterator[Path]:
    return (Path(folder, name) for folder, _, names in os.walk(tree) for name in names)


def _write_catalog(root: Path) -> Path:
    """Write a catalog of fifty packages: folders, archives and commits of repositories."""
    stack = ['name = "fifty"', 'description = "Fifty packages."', ""]
    for name, kind in _packages():
        recipe = [
            f'name = "{name}"',
            'description = "A package."',
            f'import-name = "{name}"',
            'build-requires = ["setuptools>=77", "ninja"]',
            'toolchain = ["python-abi", "glibc", "torch"]',
            f'depends = ["{_first()}"]' if name != _first() else "",
        ]
        _write(root / "recipes" / "packages" / f"{name}.toml", recipe)
        source = {
            "path": f'{{ kind = "path", path = "kernels/{name}" }}',
            "sdist": f'{{ kind = "sdist", project = "{name}", version = "1.0" }}',
            "git": f'{{ kind = "git", url = "https://example.org/{name}.git", ref = "main", source-paths = ["src"] }}',
        }[kind]
        stack += [f"[packages.{name}]", f"source = {source}", ""]
        if kind == "path":
            for number in range(5):
                _write(root / "kernels" / name / f"{number}.py", [f"x = {number}"])
    stack += [
        "[environments.cpu]",
        'torch = { version = "2.13.0", variant = "cpu" }',
        f'pythons = ["{_minor()}"]',
    ]
    _write(root / "recipes" / "stacks" / "fifty.toml", stack)
    target = ['name = "cpu"', 'description = "Any machine."', 'kind = "cpu"', 'default-stack = "fifty"']
    _write(root / "recipes" / "targets" / "cpu.toml", target)
    _write(lock_path(root, "fifty", "cpu"), [dump_lock(_lock())])
    return root


def _lock() -> Lock:
    pins = [
        LockedRequirement(
            name=name,
            version="80.0",
            files=[LockedFile(name=f"{name}-80.0-{n}.whl", sha256=digest([name, n])) for n in range(4)],
        )
        for name in ("setuptools", "ninja", *(f"pin{number}" for number in range(PINS - 2)))
    ]
    sources: dict[str, LockedSource] = {}
    for name, kind in _packages():
        if kind == "sdist":
            files = [LockedFile(name=f"{name}-1.0.tar.gz", sha256=digest(name))]
            sources[name] = LockedArchive(kind="sdist", project=name, version="1.0", files=files)
        elif kind == "git":
            sources[name] = LockedGit(
                kind="git",
                url=f"https://example.org/{name}.git",
                ref="main",
                commit=digest(name)[:40],
                described="v1.0-1-g0000000",
                version="1.0.1.dev0",
                paths=[LockedPath(path="src", id=digest([name])[:40])],
                submodules=[],
            )
    torch = LockedTorch(version="2.13.0", variant="cpu", sha256=["0" * 64])
    python = LockedPython(minor=_minor(), torch=torch, requirements=pins)
    requires = {name: pins for name, _ in _packages()}
    return Lock(format=1, stack="fifty", target="cpu", sources=sources, build_requires=requires, pythons=[python])


def _packages() -> list[tuple[str, str]]:
    kinds = ("path", "sdist", "git")
    return [(f"package{number:02}", kinds[number % len(kinds)]) for number in range(PACKAGES)]


def _first() -> str:
    return _packages()[0][0]


def _minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
