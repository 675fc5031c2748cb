"""Call the hooks of a build backend in its sandbox, where paths are others than here."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglforge.base.files import remove
from sglforge.base.proc import failed
from sglforge.base.sandbox.namespaces import PLACE
from sglforge.base.sandbox.step import Sandbox
from sglforge.build import stepfaults

_BACKEND_PATH = "_PYPROJECT_HOOKS_BACKEND_PATH_JSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Runs the hooks of one build; `build` calls it as its runner of processes.

    ``scratch`` is one of the sandbox's folders: what a hook and `build` tell each other lies there, not where `build`
    made it.
    """

    sandbox: Sandbox
    scratch: Path
    package: str
    variables: Mapping[str, str]
    log: Path
    timeout_s: float

    def __call__(
        self, cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        """Run one hook: ``python script hook folder``, with the arguments in a file of the folder.

        Raises BuildError as `stepfaults` names it, and ProcessError.
        """
        python, script, hook, exchange = cmd
        own = self._bring(Path(script), Path(exchange))
        done = self.sandbox(
            [self._seen(python), self._seen(own / Path(script).name), hook, self._seen(own)],
            cwd=Path(cwd) if cwd else None,
            env={**self.variables, **self._translated(extra_environ or {})},
            log=self.log,
            timeout_s=self.timeout_s,
            check=False,
        )
        if done.returncode:
            writable = (*self.sandbox.folders, Path(PLACE)) if self.sandbox.placed else self.sandbox.folders
            raise stepfaults.named(done.stdout, self.package, own=writable, log=self.log) or failed(done, log=self.log)
        shutil.copyfile(own / "output.json", Path(exchange, "output.json"))

    def _bring(self, script: Path, exchange: Path) -> Path:
        """Return a folder with the script and its input, whose paths are those that the step sees."""
        own = self.scratch / "exchange"
        if own.exists():
            remove(own)
        own.mkdir()
        shutil.copyfile(script, own / script.name)
        told = json.loads((exchange / "input.json").read_text(encoding="utf-8"))
        arguments = {
            name: self._seen(value) if value and name.endswith("_directory") else value
            for name, value in told["kwargs"].items()
        }
        (own / "input.json").write_text(json.dumps({**told, "kwargs": arguments}), encoding="utf-8")
        give(own, self.sandbox.user)
        return own

    def _translated(self, variables: Mapping[str, str]) -> dict[str, str]:
        paths = json.loads(variables.get(_BACKEND_PATH, "[]"))
        return {**variables, **({_BACKEND_PATH: json.dumps([*map(self._seen, paths)])} if paths else {})}

    def _seen(self, path: str | Path) -> str:
        return str(self.sandbox.seen(Path(path)))


def give(folder: Path, user: int | None) -> None:
    """Make a user the owner of a folder and of all that is in it; None changes nothing."""
    if user is None:
        return
    os.chown(folder, user, user)
    for current, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(current, name), user, user, follow_symlinks=False)
