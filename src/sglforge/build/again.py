"""Build a package again, elsewhere and as somebody else, and compare: the proof that its wheel is reproducible."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sglforge.artifacts.differences import FileDifference, differences
from sglforge.base.proc import ProcessError, Runner
from sglforge.base.proc import run as run_process
from sglforge.base.sandbox.step import Sandbox
from sglforge.base.scratch import working_folder
from sglforge.base.workspace import Workspace
from sglforge.build.hooks import give
from sglforge.build.store import StoredWheel
from sglforge.config.model import WheelSource
from sglforge.plan import Step

SOMEBODY_ELSE = "nobody"
PROBE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A package that was built again.

    ``stored`` and ``rebuilt`` are the sha256 of both wheels; ``sandbox`` is what kept the second build to itself, None
    where nothing of the package ran; ``user`` is who built, in words; ``differences`` is empty for equal wheels.
    """

    package: str
    key: str
    wheel: str
    kind: str
    stored: str
    rebuilt: str
    sandbox: dict[str, object] | None
    user: str
    seconds: float
    differences: tuple[FileDifference, ...]

    @property
    def same(self) -> bool:
        """Whether both wheels are equal, byte for byte."""
        return self.stored == self.rebuilt

    def to_json(self) -> dict[str, object]:
        """Return the form that the document has; ``first`` of a difference is the wheel in the store."""
        return {
            "package": self.package,
            "key": self.key,
            "wheel": self.wheel,
            "kind": self.kind,
            "same": self.same,
            "stored": self.stored,
            "rebuilt": self.rebuilt,
            "user": self.user,
            "sandbox": self.sandbox,
            "seconds": round(self.seconds, 3),
            "differences": [difference.to_json() for difference in self.differences],
        }


def build_again(
    step: Step, stored: StoredWheel, *, build: Callable[..., StoredWheel], python: Path, workspace: Workspace
) -> Rebuilt:
    """Build a package from its plan in a workspace that is thrown away, and compare the wheel with the stored one.

    That workspace has another path and an empty store, so nothing that was made before is taken but the wheels that
    the package is built with. Root builds as another user where that one can run the Python. The store is only read.

    Args:
        step: The package and its plan.
        stored: Its wheel.
        build: :func:`sglforge.build.execute.execute` with all but its ``workspace`` and ``user``.
        python: What it is built with.
        workspace: Where the stored wheel and the sources are.

    Raises what ``build`` raises, and OSError where the stored wheel is gone.
    """
    clock = time.monotonic()
    with working_folder(workspace, f"again-{step.package}") as folder:
        other = Workspace(root=folder / "elsewhere")
        other.root.mkdir()
        other.sources.symlink_to(workspace.sources)
        packs = isinstance(step.source, WheelSource)
        user, words = (None, "nothing of it ran") if packs else another_user(python)
        made = build(workspace=other, user=user)
        same = made.sha256 == stored.sha256
        sandbox = made.provenance.get("sandbox")
        return Rebuilt(
            package=step.package,
            key=step.key,
            wheel=stored.path.name,
            kind=str(made.provenance.get("kind")),
            stored=stored.sha256,
            rebuilt=made.sha256,
            sandbox=sandbox if isinstance(sandbox, dict) else None,
            user=words,
            seconds=time.monotonic() - clock,
            differences=() if same else differences(stored.path, made.path),
        )


def another_user(python: Path, *, run: Runner = run_process) -> tuple[int | None, str]:
    """Return the number of a user that steps can become, None where there is none; and who that is, in words."""
    if os.geteuid() != 0:
        return None, "the same user (only root builds as somebody else)"
    try:
        user = pwd.getpwnam(SOMEBODY_ELSE).pw_uid
    except KeyError:
        return None, f"the same user (there is no {SOMEBODY_ELSE})"
    with tempfile.TemporaryDirectory(prefix="sglforge-") as name:
        folder = Path(name)
        give(folder, user)
        sandbox = Sandbox(folders=(folder,), fixed={"work": folder}, user=user, run=run)
        try:
            sandbox([python, "-I", "-c", ""], cwd=folder, timeout_s=PROBE_TIMEOUT_S)
        except ProcessError:
            return None, f"the same user ({SOMEBODY_ELSE} cannot run {python})"
        if not sandbox.placed:
            return None, f"the same user ({SOMEBODY_ELSE} does not reach the folder without a fixed place)"
    return user, SOMEBODY_ELSE
