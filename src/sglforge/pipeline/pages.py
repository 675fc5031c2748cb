"""The pages of findings."""

from __future__ import annotations

import difflib
import re

from sglforge.base.console import Console
from sglforge.errors import ConfigError
from sglforge.pipeline.request import Outcome, Request


def explain(request: Request, _console: Console) -> Outcome:
    """Print the page of a finding.

    Raises ConfigError ``unknown-code``.
    """
    code = request.option("finding", str) or ""
    folder = request.catalog_root / "docs" / "errors"
    page = folder / f"{code}.md"
    if not re.fullmatch(r"[a-z0-9-]+", code) or not page.is_file():
        known = sorted(path.stem for path in folder.glob("*.md"))
        near = difflib.get_close_matches(code, known)
        raise ConfigError(
            code="unknown-code",
            message=f"there is no page for the code `{code}`",
            hint=f"did you mean {' or '.join(near)}?" if near else "codes are printed in brackets after a message",
        )
    text = page.read_text(encoding="utf-8")
    return Outcome(document={"schema": 1, "code": code, "page": text}, text=text)
