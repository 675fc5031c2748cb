"""Where a catalog keeps what scripts are made from, for those who need the files and not what is in them."""

from __future__ import annotations

from pathlib import Path

TEMPLATE = "launch.sh.j2"


def templates_path(catalog_root: Path) -> Path:
    """Return the folder of the templates."""
    return catalog_root / "templates"


def rules_path(catalog_root: Path, target: str) -> Path:
    """Return where the rules of a target are written, if it has any."""
    return catalog_root / "recipes" / "rules" / f"{target}.toml"
