"""Judge a benchmark by concurrency: speculation that costs under load, and a cliff above its threshold."""

from __future__ import annotations

from itertools import pairwise

from sglforge.errors import Finding
from sglforge.smoke.recorded.model import Measure, Opinion, Record, fault, question

_SLOWER = 0.9
"""Less than this share of the speed without speculation is slower; repeats of a benchmark differ by a few percent."""
_CLIFF = 0.8
"""Less than this share of what fewer requests got together is a cliff: more requests do not do less by themselves."""

Series = dict[int, Measure]


def judge(record: Record) -> Opinion:
    """Compare with and without speculation where both were measured, else look for a cliff."""
    if not record.measures:
        return Opinion()
    series = {mode: _series(record, mode) for mode in ("plain", "speculation", "threshold")}
    judged = series["threshold"] or series["speculation"]
    plain = series["plain"]
    if not judged:
        return Opinion()
    common = sorted(judged.keys() & plain.keys())
    slower = [count for count in common if judged[count].total < _SLOWER * plain[count].total]
    if slower:
        return Opinion(findings=(_slower(record, judged, plain, slower),))
    if cliff := _cliff(record, judged, plain):
        return Opinion(findings=(cliff,))
    falls = any(judged[more].total < _CLIFF * judged[fewer].total for fewer, more in pairwise(sorted(judged)))
    if not common and falls and not _are_totals(judged):
        return Opinion(findings=(_whose(judged),))
    if common or (len(judged) > 1 and (record.threshold is None or max(judged) > record.threshold)):
        counts = common or sorted(judged)
        return Opinion(right=(f"benchmark with {counts[0]} to {counts[-1]} requests at once",))
    return Opinion(
        findings=(
            question(
                "the benchmark has no second figure to compare with",
                "measure each concurrency with and without speculation, also above the threshold",
            ),
        )
    )


def _series(record: Record, mode: str) -> Series:
    return {one.concurrency: one for one in record.measures if one.mode == mode}


def _are_totals(series: Series) -> bool:
    """Whether the figures are those of all requests together: they say so, or they grow with the requests."""
    counts = sorted(series)
    return series[counts[0]].is_total or any(series[b].total > series[a].total for a, b in pairwise(counts))


def _whose(series: Series) -> Finding:
    return question(
        "the benchmark falls with concurrency, and it does not say whether its figures are those of each request, "
        "which is natural, or of all together, which is a cliff",
        "name the figures throughput or per-request, and measure without speculation too",
        *(f"concurrency {count}: {series[count].said}" for count in sorted(series)),
    )


def _slower(record: Record, judged: Series, plain: Series, slower: list[int]) -> Finding:
    threshold = record.threshold
    gains = [count for count in sorted(judged.keys() & plain.keys()) if judged[count].total > plain[count].total]
    above = threshold is not None and all(count > threshold for count in slower)
    place = (
        f" above the threshold of {threshold}" if above else "" if threshold is None else f" (threshold {threshold})"
    )
    worst = min(slower, key=lambda count: judged[count].total / plain[count].total)
    share = judged[worst].total / plain[worst].total
    if threshold is None:
        best = [count for count in gains if count < min(slower)]
        advice = (
            f"at {best[-1]}, the last concurrency at which it gains" if best else "where it still gains, if anywhere"
        )
        hint = f"give the profile a threshold (disable-above-batch) {advice}: above it no tokens are drafted"
    elif above:
        hint = (
            "above its threshold the server should do what it does without speculation: look whether the switch leaves "
            "the full decode graphs in use, drafts go on for requests that cross, or an extra draft step remains"
        )
    else:
        hint = "the threshold is too high: set disable-above-batch to the last concurrency at which speculation gains"
    return fault(
        "spec-threshold-regression",
        f"with speculation the server is slower than without it{place}: at concurrency {worst} it reaches "
        f"{share:.0%} ({judged[worst].said} against {plain[worst].said})",
        hint,
        *(_line(count, judged, plain) for count in sorted(judged.keys() & plain.keys())),
    )


def _line(count: int, judged: Series, plain: Series) -> str:
    share = judged[count].total / plain[count].total
    return f"concurrency {count}: {judged[count].said} with speculation, {plain[count].said} without ({share:.0%})"


def _cliff(record: Record, judged: Series, plain: Series) -> Finding | None:
    """Find a step where more requests get less done together, which the server without speculation does not have."""
    sure = _are_totals(judged)
    for fewer, more in pairwise(sorted(judged)):
        if record.threshold is not None and more <= record.threshold:
            continue
        ratio = judged[more].total / judged[fewer].total
        if ratio >= _CLIFF or (not sure and ratio * more / fewer >= _CLIFF):
            continue
        if fewer in plain and more in plain and plain[more].total / plain[fewer].total < _CLIFF:
            continue
        crossing = record.threshold is not None and fewer <= record.threshold
        what = f"across the threshold of {record.threshold}" if crossing else "as concurrency grows"
        return fault(
            "spec-threshold-regression",
            f"a cliff {what}: from {fewer} to {more} requests at once, all together get {ratio:.0%} "
            f"({judged[fewer].said}, then {judged[more].said})",
            "measure the same without speculation. If only speculation has the cliff: the switch leaves full decode "
            "graphs or an extra draft step in use; without a threshold, set disable-above-batch below the cliff",
            *(f"concurrency {count}: {judged[count].said}" for count in sorted(judged)),
        )
    return None
