"""Every finding code that the source can raise has a page with real content, and every page is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|bug|usage")


def code_arguments(tree: ast.AST) -> Iterator[str]:
    """Yield string literals that are passed or assigned as ``code``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "code":
                    yield from literals(keyword.value)


def literals(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)


def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))}


def test_every_code_has_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "errors").glob("*.md")}
    used = {code for text in sources().values() for code in code_arguments(ast.parse(text))}
    assert used - pages == set()


def test_every_page_belongs_to_a_code_and_tells_what_to_do() -> None:
    text = "\n".join(sources().values())
    for page in sorted((ROOT / "docs" / "errors").glob("*.md")):
        assert CODE.fullmatch(page.stem), page
        assert f'"{page.stem}"' in text, f"{page.name} is used nowhere"
        content = page.read_text()
        assert content.startswith(f"# {page.stem}\n"), page
        assert re.search(r"(?im)^## what to do", content), page
        assert len(content) > 200, page
