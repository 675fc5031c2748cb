"""Run a folder of case files: one line a case, then ``N passed, N failed``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases import env, smoke, so, tree
from cases.model import Case, CaseError, Judgement, faults, load

JUDGES: Mapping[str, Callable[[Mapping[str, Any]], Judgement | None]] = {
    "env": env.judge,
    "smoke": smoke.judge,
    "so": so.judge,
    "tree": tree.judge,
}
"""What judges a kind; the other kinds belong to parts of sglforge that are not there yet."""
OWN = Path(__file__).parent / "reports"


def main(arguments: Sequence[str]) -> int:
    """Judge every case file of the folders, this one's own by default; return the exit status."""
    paths = [path for folder in arguments or [str(OWN)] for path in sorted(Path(folder).glob("*.json"))]
    passed = failed = unjudged = 0
    for path in paths:
        try:
            case = load(path)
            results = list(judged(case))
        except CaseError as error:
            failed += 1
            print(f"FAIL  {error}" if str(path) in str(error) else f"FAIL  {path}: {error}")
            continue
        if not results:
            unjudged += 1
            print(f"----  {case.id} {case.title}: nothing judges {', '.join(case.kinds)} yet")
        elif wrong := _wrong(results):
            failed += 1
            print(f"FAIL  {case.id} {case.title}: {'; '.join(wrong)}")
        else:
            passed += 1
            got = ", ".join(dict.fromkeys(finding.code for _, said, _ in results for finding in said.findings))
            print(f"ok    {case.id} {case.title}: {got or 'no finding'}")
    if not paths:
        print(f"there is no case file in {', '.join(arguments) or OWN}", file=sys.stderr)
    if unjudged:
        print(f"{unjudged} not judged")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not paths else 0


def judged(case: Case) -> list[tuple[str, Judgement, list[str]]]:
    """Return for each kind of a case that can be judged: the kind, what was said, and what is wrong with it."""
    results = []
    for kind in case.kinds:
        said = JUDGES[kind](case.input) if kind in JUDGES else None
        if said is not None:
            results.append((kind, said, list(faults(case, said))))
    return results


def _wrong(results: Sequence[tuple[str, Judgement, list[str]]]) -> list[str]:
    return [f"{kind}: {fault}" for kind, _, wrong in results for fault in wrong]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
