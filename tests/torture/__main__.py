"""Play rounds of torture: ``python -m torture --rounds N --seed S --jobs J``, or one again: ``--seed S --round K``."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torture import reference as references
from torture.rounds import Report, play, to_json, written
from torture.scenario import cells, draw, skipped
from torture.table import counted, litter, machine, table


def main(arguments: Sequence[str]) -> int:
    """Play the rounds, print a line for each and the table at the end; return 1 if one was lost."""
    options = _parse(arguments)
    begin, load = time.monotonic(), os.getloadavg()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="sglforge-torture-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    numbers = _numbers(options)
    for fault, why in skipped().items():
        print(f"skipped: {fault}: {why}")
    reports = list(_played(numbers, options.seed, options.jobs, folder, shown=options.verbose))
    lost = [report for report in reports if report.lost]
    print(table(counted(reports)))
    for kind, count in litter(reports).most_common():
        print(f"left behind after {count} rounds: {kind}")
    seconds = time.monotonic() - begin
    hit = sum(report.hit for report in reports)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    said = f"{len(reports)} rounds, {hit} hit, {len(lost)} lost, seed {options.seed}"
    print(f"{said}, {seconds:.0f} s, {cpu_s:.0f} s of CPU time")
    for report in lost:
        print(f"again: python -m torture --seed {options.seed} --round {report.scenario.number} -v")
    if options.json:
        document = {
            "rounds": len(reports), "hit": hit, "lost": len(lost), "seed": options.seed, "jobs": options.jobs,
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_s, 1), "load": {"before": load[0], "after": os.getloadavg()[0]},
            "machine": machine(), "cells": len(cells()), "skipped": skipped(), "coverage": counted(reports),
            "left_behind": dict(litter(reports)), "lost_rounds": [to_json(report) for report in lost],
            "processes": sum(len(report.scenario.verbs) for report in reports),
        }  # fmt: skip
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    if lost:
        print(f"the folders of lost rounds are in {folder}")
    elif not options.folder:
        shutil.rmtree(folder)
    return 1 if lost or not hit else 0


def _numbers(options: argparse.Namespace) -> list[int]:
    """Return the numbers of the rounds that are wanted."""
    if options.round is not None:
        return [options.round]
    wanted = set(options.only or ())
    drawn = ((number, draw(options.seed, number, {})) for number in itertools.count())
    fitting = (number for number, it in drawn if not wanted or wanted & {it.fault, it.phase})
    return list(itertools.islice(fitting, options.rounds))


def _played(numbers: Sequence[int], seed: int, jobs: int, folder: Path, *, shown: bool) -> Iterator[Report]:
    """Yield the reports as their rounds end, in order; the folder of a round that was lost stays."""
    reference = references.make(folder / "reference")

    def one(number: int) -> Report:
        place = folder / f"round-{number}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        report = play(draw(seed, number, reference.counts), reference, place)
        (place / "log.txt").write_text(written(report) + "\n")
        if not report.lost:
            shutil.rmtree(place, ignore_errors=True)
        return report

    with ThreadPoolExecutor(jobs) as pool:
        for report in pool.map(one, numbers):
            if shown or report.lost:
                print(written(report), flush=True)
            yield report


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, metavar="K", help="only this one, again")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only rounds of these faults or phases")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="rounds at the same time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="work there, and keep what is there")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every round")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
