"""Read how many answers were right, alone and in company, where a report counts them instead of quoting them."""

from __future__ import annotations

from collections.abc import Mapping

from sglforge.smoke.recorded.document import Node, first, mapping, number, whole
from sglforge.smoke.recorded.model import Share

_ALONE = ("single", "alone", "solo", "sequential", "serial")
_TOGETHER = ("parallel", "concurrent", "together", "batched")
_SCORES = ("accuracy", "acc", "score", "gsm8k", "mmlu", "humaneval", "correct_rate", "right_share")
_BAD = ("garbage", "bad", "wrong", "corrupt", "corrupted", "degenerate", "garbled", "incorrect")
_GOOD = ("ok", "good", "right", "correct", "fine", "clean")
_TOTAL = ("total", "n", "count", "requests")
_PERCENT = 100


def shares(node: Node) -> tuple[Share, Share] | None:
    """Return the share of right answers alone and in company, None where the document does not count."""
    alone, together = (_share(first(node, *names), names[0]) for names in (_ALONE, _TOGETHER))
    if alone and together:
        return alone, together
    by_concurrency = mapping(first(node, *_SCORES))
    found = {
        int(key): share for key, one in by_concurrency.items() if key.isdigit() and (share := _share(one, f"at {key}"))
    }
    if len(found) < 2:
        return None
    least = found.pop(min(found))
    return least, min(found.values(), key=lambda share: share.right)


def _share(value: object, name: str) -> Share | None:
    if isinstance(value, Mapping):
        return _counted(value, name)
    right = number(value) if isinstance(value, int | float) else None
    if right is None or not 0 <= right <= _PERCENT:
        return None
    right = right / _PERCENT if right > 1 else right
    return Share(right=right, said=f"{name}: {right:.0%} right")


def _counted(node: Node, name: str) -> Share | None:
    if (score := first(node, *_SCORES)) is not None:
        return _share(score, name)
    bad, good, total = (whole(first(node, *names)) for names in (_BAD, _GOOD, _TOTAL))
    if bad is None and good is not None and total is not None:
        bad = total - good
    if bad is None:
        return None
    total = total or bad + (good or 0)
    if not 0 <= bad <= total or not total:
        return None
    return Share(right=1 - bad / total, said=f"{name}: {total - bad} of {total} right")
