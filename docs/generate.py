"""Write the parts of the documentation that are generated, or check that they are current; check links.

    python docs/generate.py [--check]

Generated: the JSON schemas of all files that people write and of events, the page of events, the list of error pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from sglforge.base.files import write_text
from sglforge.config.schema import schema_text
from sglforge.config.schema import schemas as config_schemas
from sglforge.launch.schema import schemas as launch_schemas
from sglforge.patches.schema import schemas as patch_schemas
from sglforge.pipeline import events

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def main() -> int:
    """Write or check; return the number of faults."""
    check = "--check" in sys.argv[1:]
    faults = list(broken_links())
    for path, text in generated().items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            faults.append(f"{path.relative_to(ROOT)} is not current: run nox -s docs")
        else:
            write_text(path, text)
            sys.stdout.write(f"written {path.relative_to(ROOT)}\n")
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    return len(faults)


def generated() -> Mapping[Path, str]:
    """Return every generated file with its text."""
    folder = ROOT / "docs" / "reference"
    schemas = {**config_schemas(), **launch_schemas(), **patch_schemas(), **events.schemas()}
    return {
        **{folder / "schema" / f"{kind}.schema.json": schema_text(schema) for kind, schema in schemas.items()},
        folder / "errors.md": error_list(),
        folder / "events.md": events.page(),
    }


def error_list() -> str:
    """Return the page that lists all error pages with their first sentence."""
    lines = ["# Finding codes", "", "`sglforge explain CODE` prints a page.", "", "| code | meaning |", "|---|---|"]
    for page in sorted((ROOT / "docs" / "errors").glob("*.md")):
        paragraphs = page.read_text(encoding="utf-8").split("\n\n")
        meaning = next(text for text in paragraphs[1:] if not text.startswith("#"))
        sentence = " ".join(meaning.split()).partition(". ")[0].rstrip(".")
        lines.append(f"| [{page.stem}](../errors/{page.name}) | {sentence.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def broken_links() -> Iterator[str]:
    """Yield each relative link of a page to a file that does not exist."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "models").glob("*.md"))):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)}: link to {target}, which does not exist"


if __name__ == "__main__":
    sys.exit(main())
