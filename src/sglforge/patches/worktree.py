"""The tree in which a topic is edited: a git repository whose HEAD is the tree before the topic."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sglforge.base import git, proc
from sglforge.base.treeid import tree_id
from sglforge.errors import ConfigError, PatchError
from sglforge.patches.apply import apply_series
from sglforge.patches.attempt import attempt
from sglforge.patches.checkout import File, open_checkout
from sglforge.patches.draft import Draft
from sglforge.patches.series import Series

_RECORD = ".git/sglforge.json"
_IDENTITY = ("-c", "user.name=sglforge", "-c", "user.email=sglforge@localhost", "-c", "commit.gpgSign=false")
_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding\n"
_LEFT_BY_TOOLS = frozenset({".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
_LEFT_BESIDE = (".pyc", ".orig", ".rej", "~")
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTree:
    """A tree for editing: its folder, the topic, the upstream version, the commit before the topic, and the tree id
    that it had when it was made or last refreshed.
    """

    folder: Path
    package: str
    topic: str
    version: str
    base: str
    known: str

    def is_edited(self) -> bool:
        """Tell whether the tree is another one than when it was made or last refreshed.

        Raises PatchError ``tree-unreadable``.
        """
        return tree_id(self.folder) != self.known


def make(folder: Path, series: Series, topic: str, version: str) -> tuple[PatchError, ...]:
    """Turn a folder with an upstream tree into a tree for editing a topic; return the edits that do not apply.

    Raises ConfigError ``unknown-topic``; PatchError for an earlier topic that does not apply, and ``git-missing``.
    """
    current = series.named(topic)
    before = dataclasses.replace(series, topics=series.topics[: series.topics.index(current)])
    apply_series(before, folder, version=version).require()
    base = _commit(folder, f"{series.package} {version} before the topic {topic}")
    draft = Draft(checkout=open_checkout(folder))
    trial = attempt(current, draft, version)
    draft.checkout.write({file: trial.draft.changed[file] for file in trial.draft.since(draft)})
    tree = WorkTree(
        folder=folder, package=series.package, topic=topic, version=version, base=base, known=tree_id(folder)
    )
    remember(tree)
    return trial.faults


def read(folder: Path) -> WorkTree | None:
    """Return the tree for editing that a folder is, or None."""
    try:
        fields = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        return WorkTree(folder=folder, **fields)
    except (OSError, ValueError, TypeError):
        return None


def require_whole(folder: Path, *, command: str) -> WorkTree:
    """Return the tree for editing that a folder with files is; ``command`` is what makes one, for a hint.

    Raises ConfigError ``edit-tree-broken`` when its repository or its record is gone or damaged; PatchError
    ``git-missing``.
    """
    tree = read(folder)
    if not (folder / ".git").is_dir():
        what = "it has no `.git`"
    elif tree is None:
        what = f"its record {_RECORD} is missing or damaged"
    else:
        try:
            _git(folder, "rev-parse", "--quiet", "--verify", f"{tree.base}^{{tree}}")
        except PatchError as error:
            if error.code != "process-failed":
                raise
            what = "its git repository is damaged"
        else:
            return tree
    raise ConfigError(
        code="edit-tree-broken",
        message=f"nothing says what was edited in the tree any more: {what}",
        where=str(folder),
        hint=f"save what you need from it, remove {folder.parent}, then: {command}",
    )


def require_python(base: Draft, goal: Draft, tree: WorkTree, *, command: str) -> None:
    """Refuse an edited tree in which a Python file became none; ``command`` is what to do after the correction.

    Raises PatchError ``patch-target-unreadable`` with the place in the edited tree.
    """
    for file in goal.modules(base):
        try:
            goal.python(file)
        except PatchError as error:
            raise dataclasses.replace(
                error,
                where=str(tree.folder / file),
                hint=f"correct the file in the tree, then: {command}",
            ) from error


def taken_over(tree: WorkTree) -> WorkTree:
    """Return a tree as one of which everything that was edited is in the topic."""
    return dataclasses.replace(tree, known=tree_id(tree.folder))


def remember(tree: WorkTree) -> None:
    """Write down what a tree for editing is, inside its repository."""
    fields = dataclasses.asdict(tree)
    fields.pop("folder")
    (tree.folder / _RECORD).write_text(json.dumps(fields, indent=2), encoding="utf-8")


def drafts(tree: WorkTree, scratch: Path) -> tuple[Draft, Draft]:
    """Return the tree before the topic, checked out into an empty folder, and the edited one.

    Raises PatchError ``patch-not-expressible`` for a link that was changed; ``git-missing``, ``process-failed``.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    index = {"GIT_INDEX_FILE": str(scratch.with_name("index"))}
    _git(tree.folder, "read-tree", tree.base, more=index)
    _git(tree.folder, "checkout-index", "--all", f"--prefix={scratch.resolve()}/", more=index)
    base = Draft(checkout=open_checkout(scratch))
    before, after = _files(scratch), _files(tree.folder)
    for name in {*before, *after}:
        links = [
            path.readlink() if path and path.is_symlink() else None for path in (before.get(name), after.get(name))
        ]
        if links[0] != links[1]:
            raise PatchError(
                code="patch-not-expressible",
                message=f"{name} is a link that was changed; a topic cannot carry that",
                hint="put it back: git checkout -- FILE",
            )
    names = [name for name in {*before, *after} if not (before.get(name) or after[name]).is_symlink()]
    states = {name: _state(after.get(name)) for name in names}
    return base, base.with_files({name: state for name, state in states.items() if state != base.read(name)})


def _commit(folder: Path, message: str) -> str:
    _git(folder, "init", "--quiet", "--template=", "--initial-branch=before")
    (folder / ".git/info").mkdir(exist_ok=True)
    (folder / ".git/info/attributes").write_text(_ATTRIBUTES, encoding="utf-8")
    _git(folder, "add", "--all", "--force")
    _git(folder, *_IDENTITY, "commit", "--quiet", "--no-verify", "--allow-empty", "--message", message)
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *words: str, more: Mapping[str, str] | None = None) -> str:
    argv = ["git", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false", *words]
    env = {**git.own_environment(), **(more or {})}
    try:
        return proc.run(argv, cwd=folder, env=env, timeout_s=_TIMEOUT_S).stdout
    except proc.ProcessError as error:
        raise PatchError(
            code="git-missing" if error.code == "program-missing" else error.code,
            message=error.message,
            hint=error.hint,
            context=error.context,
        ) from error


def _files(root: Path) -> dict[str, Path]:
    return {path.relative_to(root).as_posix(): path for path in _walk(root)}


def _walk(root: Path) -> Iterator[Path]:
    for current, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_BY_TOOLS]
        links = [name for name in folders if Path(current, name).is_symlink()]
        yield from (Path(current, name) for name in (*files, *links) if not name.endswith(_LEFT_BESIDE))


def _state(path: Path | None) -> File | None:
    if path is None:
        return None
    return File(raw=path.read_bytes(), executable=bool(path.stat().st_mode & stat.S_IXUSR))
