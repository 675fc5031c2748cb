"""The version of an SGLang tree, read from its files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sglforge.errors import PatchError

_FOLDERS = (".", "python")
"""Where a tree holds the package: wheels and sdists at their root, the repository under ``python``."""
_METADATA = re.compile(r"^Version:[ \t]*(\S+)[ \t]*$", re.MULTILINE)


def tree_version(tree: Path) -> str:
    """Return the version that an SGLang tree declares; nothing of the tree is run.

    A wheel's or an sdist's metadata comes first, then ``_version.py``, then ``version.py``.

    Raises PatchError ``tree-version-unknown`` when no file says it.
    """
    for version in _declared(tree):
        return version
    raise PatchError(
        code="tree-version-unknown",
        message=f"{tree} does not say which version of SGLang it is",
        hint="name the unpacked wheel or source archive, the folder that holds `sglang/` or `python/sglang/`",
    )


def _declared(tree: Path) -> Iterator[str]:
    for path in [*sorted(tree.glob("sglang-*.dist-info/METADATA")), tree / "PKG-INFO"]:
        if path.is_file() and (match := _METADATA.search(path.read_text(encoding="utf-8", errors="replace"))):
            yield match.group(1)
    for folder in _FOLDERS:
        for name in ("_version.py", "version.py"):
            path = tree / folder / "sglang" / name
            if path.is_file() and (version := _assigned(path)):
                yield version


def _assigned(path: Path) -> str | None:
    """Return the text that a module assigns to ``__version__`` at its top level, unconditionally."""
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return None
    for statement in module.body:
        match statement:
            case ast.Assign(targets=targets, value=ast.Constant(value=str(version))):
                if any(isinstance(target, ast.Name) and target.id == "__version__" for target in targets):
                    return version
            case _:
                pass
    return None
