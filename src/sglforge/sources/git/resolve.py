"""From a ref to the commit that it is now."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sglforge.base.download import redact
from sglforge.base.files import digest
from sglforge.config.suggest import nearest
from sglforge.errors import FetchError, LockError
from sglforge.sources.git.mirror import Mirror

_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_SHORT = re.compile(r"[0-9a-f]{7,39}")
_SHOWN = 8


def resolve(mirror: Mirror, ref: str) -> str:
    """Return the commit that a branch, a tag or a commit's full id is, and bring it with its history and all tags.

    A name is looked for as git does: as it is written, as a tag, as a branch. Annotated tags are peeled.

    Raises LockError ``git-ref-missing``, ``git-ref-ambiguous`` and ``git-ref-no-commit``; FetchError.
    """
    if _COMMIT.fullmatch(ref):
        commit = ref.lower()
        bring_commit(mirror, commit)
        return commit
    name = _full_name(mirror, ref)
    local = f"refs/wanted/{digest(name)[:16]}"
    mirror.fetch(f"+{name}:{local}")
    return _peeled(mirror, local, ref)


def bring_commit(mirror: Mirror, commit: str) -> None:
    """Bring a commit by its id, and all tags, where it is not here yet.

    Raises LockError ``git-ref-missing`` when the origin does not have it; FetchError.
    """
    if mirror.has_commit(commit):
        _peeled(mirror, commit, commit)
        return
    try:
        mirror.fetch(f"+{commit}:refs/locked/{commit}")
    except FetchError as error:
        if error.code != "git-failed":
            raise
        # an origin that gives out no commits by their ids has it in a branch, or not at all
        mirror.fetch("+refs/heads/*:refs/branches/*")
    if not mirror.has_commit(commit):
        raise LockError(
            code="git-ref-missing",
            message=f"{redact(mirror.url)} has no commit {commit}",
            hint="correct the id in the stack; commits of a fork or of a rewritten branch may be gone",
        )
    _peeled(mirror, commit, commit)


def _full_name(mirror: Mirror, ref: str) -> str:
    """Return the one full name that a ref stands for at the origin."""
    names = [ref] if ref == "HEAD" or ref.startswith("refs/") else []
    names += [f"refs/{ref}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
    found = mirror.remote_refs(*names, *(f"{name}^{{}}" for name in names))
    places = {name: found.get(f"{name}^{{}}", found[name]) for name in names if name in found}
    if not places:
        raise _no_such(mirror, ref, mirror.remote_refs())
    if len(set(places.values())) > 1:
        raise LockError(
            code="git-ref-ambiguous",
            message=f"{redact(mirror.url)} has several {ref}, of different commits",
            context=places,
            hint=f'write the full name into the stack: ref = "{next(iter(places))}"',
        )
    return next(iter(places))


def _no_such(mirror: Mirror, ref: str, refs: Iterable[str]) -> LockError:
    known = sorted({name.removeprefix("refs/heads/").removeprefix("refs/tags/") for name in refs if _is_offered(name)})
    shown = redact(mirror.url)
    if not known:
        message, hint = f"{shown} has neither branches nor tags", "push a commit to it, or correct `url` in the stack"
    elif _SHORT.fullmatch(ref) and not nearest(ref, known):
        message = f"{shown} has no branch or tag {ref}"
        hint = "if it is the beginning of a commit's id, write all 40 digits"
    else:
        message = f"{shown} has no branch or tag {ref}"
        near = nearest(ref, known)
        some = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
        hint = f"did you mean `{near}`?" if near else f"it has: {some}"
    return LockError(code="git-ref-missing", message=message, hint=hint)


def _is_offered(name: str) -> bool:
    return name.startswith(("refs/heads/", "refs/tags/")) and not name.endswith("^{}")


def _peeled(mirror: Mirror, name: str, ref: str) -> str:
    """Return the commit behind a name in the mirror, which is kept from now on."""
    kind = mirror.read("cat-file", "-t", f"{name}^{{}}").strip()
    if kind != "commit":
        raise LockError(
            code="git-ref-no-commit",
            message=f"{ref} of {redact(mirror.url)} is a {kind}, not a commit",
            hint="name a branch, a tag of a commit, or a commit",
        )
    commit = mirror.read("rev-parse", "--verify", f"{name}^{{commit}}").strip()
    mirror.keep(commit)
    return commit
