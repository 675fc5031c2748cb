"""The version of a source tree, of SGLang or another package, read from its files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sglforge.errors import PatchError

_FOLDERS = (".", "python")
"""Where a tree holds the package: wheels and sdists at their root, the repository under ``python``."""
_FIELD = re.compile(r"^(Name|Version):[ \t]*(\S+)[ \t]*$", re.MULTILINE)


def tree_version(tree: Path, *, module: str = "sglang", project: str = "") -> str:
    """Return the version of a package that a tree declares; nothing of the tree is run.

    The metadata of a wheel or an sdist of that name comes first, then ``_version.py``, then ``version.py``.

    Args:
        tree: The folder that holds the module, or ``python/`` with the module in it.
        module: The module that the package provides.
        project: The distribution's name, if it is another one.

    Raises PatchError ``tree-version-unknown`` when no file says it.
    """
    for version in _declared(tree, module, {_normal(module), _normal(project)}):
        return version
    raise PatchError(
        code="tree-version-unknown",
        message=f"{tree} does not say which version of {project or module} it is",
        hint=f"name the unpacked wheel or source archive, the folder that holds `{module}/` or `python/{module}/`",
    )


def _declared(tree: Path, module: str, names: set[str]) -> Iterator[str]:
    wheels = (path for path in tree.glob("*.dist-info") if _normal(path.name.partition("-")[0]) in names)
    for path in [*(folder / "METADATA" for folder in sorted(wheels)), tree / "PKG-INFO"]:
        if path.is_file():
            head = path.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
            fields = {match.group(1): match.group(2) for match in _FIELD.finditer(head)}
            if "Version" in fields and _normal(fields.get("Name", "")) in names:
                yield fields["Version"]
    for folder in _FOLDERS:
        for name in ("_version.py", "version.py"):
            path = tree.joinpath(folder, *module.split("."), name)
            if path.is_file() and (version := _assigned(path)):
                yield version


def _normal(name: str) -> str:
    """Return a distribution's name as indexes compare it; that of a module is the same with other signs."""
    return re.sub(r"[-_.]+", "-", name).lower()


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
