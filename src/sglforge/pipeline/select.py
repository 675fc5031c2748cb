"""From a request to what is worked on: catalog, machine, stack and target, then lock, Python and plan."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sglforge import plan as plans
from sglforge.base.beside import Beside
from sglforge.base.console import Console
from sglforge.base.files import sha256_file
from sglforge.base.ids import Sha256
from sglforge.base.index_locations import IndexLocations
from sglforge.build import store
from sglforge.build.history import last_build
from sglforge.config import suggest
from sglforge.config.load import Catalog, load_catalog
from sglforge.config.lockfile import Lock, LockedArchive, LockedGit, lock_path, read_lock
from sglforge.config.model import GitSource, PathSource, Stack, StackEnvironment, Target
from sglforge.errors import BuildError, ConfigError, Finding, LockError
from sglforge.host import doctor
from sglforge.host.facts import HostFacts, load_facts
from sglforge.host.probe import probe
from sglforge.host.toolchain import fingerprint
from sglforge.patches.series import Series, load_series
from sglforge.pipeline import telling
from sglforge.pipeline.request import Request
from sglforge.pipeline.toolkits import PlannedToolkit, plan_toolkit
from sglforge.plan import BuildPlan, Draft, Found, Known
from sglforge.provision.python import ChosenPython, choose_python
from sglforge.provision.uv import open_uv
from sglforge.sources.choose import choose
from sglforge.sources.git.trees import seen_paths
from sglforge.sources.paths import digest_folder

ENVIRONMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is worked on; ``because`` is why the target was chosen."""

    catalog: Catalog
    facts: HostFacts
    stack: Stack
    target: Target
    because: str
    environment_name: str

    @property
    def environment(self) -> StackEnvironment:
        """The stack's environment for the target."""
        return self.stack.environments[self.target.name]

    def doctor(self) -> tuple[Finding, ...]:
        """Judge the machine against stack and target."""
        toolkit = self.catalog.toolkit(self.target)
        return doctor.judge(self.facts, self.target, pythons=self.environment.pythons, toolkit=toolkit)

    def lock(self) -> Lock:
        """Read the stack's lock for the target."""
        return read_lock(lock_path(self.catalog.root, self.stack.name, self.target.name))

    def require_buildable(self, wanted: Sequence[str] = ()) -> None:
        """Refuse what cannot be built yet: the packages that are ``wanted``, else the whole target.

        Raises BuildError ``target-waits``.
        """
        recipes = [self.catalog.packages[name] for name in wanted]
        waiting = {f"package {recipe.name}": recipe.waits_for for recipe in recipes if recipe.waits_for}
        if not wanted and self.target.waits_for:
            waiting = {f"target {self.target.name}": self.target.waits_for}
        for what, waits_for in waiting.items():
            ready = self._ready()
            now = f"what can be built: nox -s build -- --target {self.target.name} {' '.join(ready)}; " if ready else ""
            raise BuildError(
                code="target-waits",
                message=f"{what} can be planned, not built yet: it waits for {waits_for}",
                hint=f"{now}docs/explanation/roadmap.md says what comes next",
            )

    def _ready(self) -> tuple[str, ...]:
        """Return the packages that wait for nothing and whose sources are locked."""
        try:
            pinned = self.lock().sources
        except LockError:
            return ()
        return tuple(
            name
            for name in plans.packages(self.stack, self.target)
            if not self.catalog.packages[name].waits_for
            and (name in pinned or isinstance(self.stack.packages[name].source, PathSource))
        )

    def to_json(self) -> dict[str, str]:
        """Return the names for a document."""
        return {"stack": self.stack.name, "target": self.target.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A selection with its Python, its patch series, the plan, and the CUDA toolkit that it is compiled with."""

    selection: Selection
    python: ChosenPython
    series: Mapping[str, Series]
    plan: BuildPlan
    toolkit: PlannedToolkit | None = None


def select(request: Request, console: Console) -> Selection:
    """Load the catalog and probe the machine, side by side; say which stack and target are meant.

    Raises ConfigError for a catalog that is wrong, names that do not exist and facts that cannot be read;
    DoctorError where no target fits this machine.
    """
    probing = Beside(partial(_facts, request))
    catalog = load_catalog(request.catalog_root)
    facts = probing.result()
    if request.target == "auto":
        name, why = doctor.auto_target(facts, catalog.targets)
    else:
        name, why = request.target, "asked for"
    target = catalog.target(name)
    stack_name = request.stack or target.default_stack
    if stack_name is None:
        raise ConfigError(
            code="no-default-stack",
            message=f"target {name} has no default stack",
            hint=f"name one with --stack: {', '.join(sorted(catalog.stacks))}",
        )
    stack = catalog.stack(stack_name)
    if name not in stack.environments:
        raise ConfigError(
            code="target-not-in-stack",
            message=f"stack {stack_name} has no environment for target {name}",
            hint=f"it has: {', '.join(sorted(stack.environments))}",
        )
    environment_name = _environment_name(request, stack, target)
    telling.say_stack(console, stack_name, name, why)
    return Selection(
        catalog=catalog,
        facts=facts,
        stack=stack,
        target=target,
        because=why,
        environment_name=environment_name,
    )


def require_packages(request: Request, selection: Selection) -> None:
    """Refuse names that the stack does not have for the target.

    Raises ConfigError ``unknown-package``.
    """
    known = plans.packages(selection.stack, selection.target)
    if unknown := [name for name in request.words("packages") if name not in known]:
        raise ConfigError(
            code="unknown-package",
            message=f"stack {selection.stack.name} has no package {', '.join(unknown)} "
            f"for target {selection.target.name}",
            context={"known": ", ".join(known)},
            hint=suggest.hint(unknown[0], known),
        )


def plan(request: Request, selection: Selection) -> Planned:
    """Read the lock, choose the Python, look what is stored, and plan. Does not download.

    Raises LockError for a lock that is missing, invalid or stale; DoctorError for a Python that is not there.
    """
    stack, target, root = selection.stack, selection.target, selection.catalog.root
    lock = selection.lock()
    python = choose_python(lock.pythons, open_uv(IndexLocations(), offline=True), explicit=request.python)
    names = plans.packages(stack, target)
    series = {name: found for name in names if (found := load_series(root, name))}
    toolkit = plan_toolkit(
        selection.catalog,
        stack,
        target,
        lock,
        found=None if request.facts_file else selection.facts.toolkits,
        workspace=request.workspace,
    )
    known = Known(
        toolchain=fingerprint(selection.facts, toolkit.chosen.toolkit if toolkit else None),
        compilers=_compilers(),
        sources=_sources(selection, names, lock, python.locked.minor),
        series={
            name: found.topic_digests(locked.version)
            for name, found in series.items()
            if (locked := lock.sources.get(name))
        },
        drivers={
            name: sha256_file(root / modules.driver)
            for name in names
            if (modules := selection.catalog.packages[name].modules)
        },
        module_set=request.option("modules", str),
    )
    drafts = plans.draft(
        stack=stack,
        target=target,
        recipes=selection.catalog.packages,
        lock=lock,
        python=python.locked,
        known=known,
    )
    made = plans.make(
        drafts,
        stack=stack,
        target=target,
        python=python.locked,
        found=_found(drafts, request, target=target.name, python_minor=python.locked.minor),
    )
    return Planned(selection=selection, python=python, series=series, plan=made, toolkit=toolkit)


def _compilers() -> dict[str, str]:
    """Return the user's CC and CXX, where they are set.

    Raises ConfigError ``value-not-printable``: they are part of keys, which people read.
    """
    found = {name: value for name in ("CC", "CXX") if (value := os.environ.get(name))}
    for name, value in found.items():
        if not value.isprintable():
            raise ConfigError(
                code="value-not-printable",
                message=f"the variable {name} is {value!a}, and that is no name of a compiler",
                hint=f"set {name} anew, or unset it",
            )
    return found


def _found(drafts: Sequence[Draft], request: Request, *, target: str, python_minor: str) -> Found:
    """Look up just what the drafts ask for: their wheels, and the last builds of those that are not there."""
    workspace = request.workspace
    stored = frozenset(draft.key for draft in drafts if store.lookup(workspace, draft.key))
    missing = [draft for draft in drafts if draft.key not in stored]
    last = {
        draft.package: build
        for draft in missing
        if (build := last_build(workspace, package=draft.package, target=target, python_minor=python_minor))
    }
    return Found(stored=stored, damaged=store.damaged_keys(workspace) if missing else (), last=last)


def _environment_name(request: Request, stack: Stack, target: Target) -> str:
    """Return the name that was given for the environment, else ``<stack>.<target>``.

    Raises ConfigError ``environment-name-invalid``: a name becomes a link in the workspace and must stay there.
    """
    name = request.option("env", str)
    if name is None:
        return f"{stack.name}.{target.name}"
    if not ENVIRONMENT_NAME.fullmatch(name):
        raise ConfigError(
            code="environment-name-invalid",
            message=f"{name!r} cannot be the name of an environment",
            hint="use letters, digits and . _ + - , beginning with a letter or digit: --env candidate-2",
        )
    return name


def _sources(selection: Selection, names: Sequence[str], lock: Lock, minor: str) -> dict[str, Sha256]:
    """Return the hash of what each package is built from: its archive for this Python, or its folder.

    Raises LockError ``lock-stale`` for a commit that was locked with other paths or another version, ``lock-invalid``
    for two commits of one repository and ref.
    """
    found: dict[str, Sha256] = {}
    commits: dict[tuple[str, str], tuple[str, str]] = {}
    for name in names:
        source = selection.stack.packages[name].source
        if isinstance(source, PathSource):
            found[name] = digest_folder(selection.catalog.root / source.path)
        elif isinstance(locked := lock.sources.get(name), LockedArchive):
            found[name] = Sha256(choose(locked, minor).sha256)
        elif isinstance(locked, LockedGit) and isinstance(source, GitSource):
            _require_current(name, locked, source, lock)  # what a build sees of it is in the lock
            first, commit = commits.setdefault((locked.url, locked.ref), (name, locked.commit))
            if commit != locked.commit:
                raise _two_commits(first, name, lock)
    return found


def _require_current(package: str, locked: LockedGit, source: GitSource, lock: Lock) -> None:
    paths = tuple(entry.path for entry in locked.paths)
    same_ref = (locked.url, locked.ref) == (source.url, source.ref)  # another one is the plan's to tell
    if same_ref and (paths != seen_paths(source) or source.version not in {None, locked.version}):
        raise LockError(
            code="lock-stale",
            message=f"stack {lock.stack} names other source paths or another version of {package} than its lock",
            hint=f"nox -s lock -- --stack {lock.stack} --target {lock.target}",
        )


def _two_commits(first: str, second: str, lock: Lock) -> LockError:
    return LockError(
        code="lock-invalid",
        message=f"the lock of stack {lock.stack} has {first} and {second} at two commits of one repository and ref",
        hint="a merge of two locks does that: restore one of them from version control, or lock both at what is there "
        f"now: nox -s lock -- --stack {lock.stack} --target {lock.target}",
    )


def _facts(request: Request) -> HostFacts:
    return load_facts(request.facts_file) if request.facts_file else probe(request.workspace.root)
