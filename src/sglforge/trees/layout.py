"""The two layouts of an SGLang tree, and how a file is called in each.

Wheels and source archives hold the package at their root (`sglang/...`), the repository below `python/`
(`python/sglang/...`), beside other packages such as `sgl-kernel/`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

REPOSITORY_FOLDER = "python"


def package_root(tree: Path) -> PurePosixPath:
    """Return where a tree holds its Python package: ``python`` in a repository, else the tree's root."""
    folder = tree / REPOSITORY_FOLDER
    is_repository = (folder / "sglang").is_dir() or (folder / "pyproject.toml").is_file()
    return PurePosixPath(REPOSITORY_FOLDER) if is_repository else PurePosixPath()


def either_layout(tree: Path, file: str) -> tuple[str, ...]:
    """Return the names that a file of one layout may have in a tree: as it is, and as the tree's layout calls it."""
    name, root = PurePosixPath(file), package_root(tree)
    if root.parts and not name.is_relative_to(root):
        return file, str(root / name)
    if not root.parts and name.is_relative_to(REPOSITORY_FOLDER) and not (tree / REPOSITORY_FOLDER).exists():
        return file, str(name.relative_to(REPOSITORY_FOLDER))
    return (file,)
