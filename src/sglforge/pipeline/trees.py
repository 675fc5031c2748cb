"""Source trees that people name with ``--tree``."""

from __future__ import annotations

from pathlib import Path

from sglforge.config.model import PackageRecipe
from sglforge.config.parse import load_model
from sglforge.errors import ConfigError
from sglforge.pipeline.request import Request
from sglforge.trees.version import tree_version


def given_version(request: Request, package: str, tree: Path) -> str:
    """Return the version of a package that a tree declares; the recipe says what module it provides.

    Raises ConfigError ``tree-missing`` and for a recipe that is wrong; PatchError ``tree-version-unknown``.
    """
    if not tree.is_dir():
        raise ConfigError(
            code="tree-missing",
            message=f"--tree: there is no folder {tree}",
            hint="name an unpacked source tree",
        )
    recipe = request.catalog_root / "recipes/packages" / f"{package}.toml"
    module = load_model(recipe, PackageRecipe)[0].import_name if recipe.is_file() else package.replace("-", "_")
    return tree_version(tree, module=module, project=package)
