"""Texts of string expressions, as far as they are written down."""

from __future__ import annotations

import ast

GAP = "\0"
"""What stands for a part of a text that only a run knows; it is in no text that people search for."""


def literal(node: ast.expr) -> str:
    """Return the text of a string, an f-string or a sum of them, or an empty text for any other expression."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(literal(part) or GAP for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = literal(left), literal(right)
            return "".join(text or GAP for text in texts) if any(texts) else ""
        case _:
            return ""
