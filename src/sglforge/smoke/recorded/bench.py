"""Read a benchmark by concurrency, with and without speculation, from rows, columns or nested mappings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sglforge.smoke.recorded.document import Node, first, number, whole
from sglforge.smoke.recorded.model import Measure, Mode

_CONCURRENCY = (
    "concurrency",
    "max_concurrency",
    "conc",
    "c",
    "n",
    "bs",
    "batch",
    "batch_size",
    "running",
    "running_req",
    "#running-req",
    "parallel",
    "requests",
    "clients",
    "users",
)
_MODE_KEYS = ("mode", "config", "label", "name", "series", "variant", "run", "server", "setting")
_SPEC_KEYS = ("speculation", "speculative", "spec_on", "spec_enabled", "with_speculation", "spec", "eagle", "mtp")
_NOT_FIGURES = {*_CONCURRENCY, *_MODE_KEYS, "threshold", "disable_above_batch", "spec_threshold", "unit", "note"}
_PLAIN = re.compile(
    r"(^|[^a-z])(no|non|without|w/?o|off|plain|base|baseline|vanilla|none|false|disabled?|control|autoregressive|ar)"
    r"([^a-z]|$)|nospec|no_?spec",
    re.IGNORECASE,
)
_THRESHOLD = re.compile(r"thres|adaptive|disable.?above|switch|cut.?off", re.IGNORECASE)
_NO_THRESHOLD = re.compile(r"\b(no|without|w/o)[ -]*thres|thres\w*[ :=-]*(off|none|0\b)", re.IGNORECASE)
_SPECULATION = re.compile(r"spec|eagle|mtp|nextn|draft|ngram|(^|[^a-z])(on|with|true|enabled)([^a-z]|$)", re.IGNORECASE)
_LATENCY = re.compile(r"latenc|tpot|itl|ttft|_ms\b|\bms\b|ms_|time|duration", re.IGNORECASE)
_SECONDS = re.compile(r"(^|_)(s|sec|secs|seconds)$", re.IGNORECASE)
_EACH = re.compile(r"per.?(req|user|stream|client)|each", re.IGNORECASE)
_RATE = re.compile(r"tok|tps|through|tput|t/s|rate|speed|output|req.?s|rps|qps", re.IGNORECASE)


_TOTAL = re.compile(r"total|through|tput|aggregate|system|all", re.IGNORECASE)
# A name that holds both a mode and a concurrency: c8_spec, no_spec_at_9.
_COUNT_IN_NAME = re.compile(r"(?:^|[_ ])(?:c|n|bs|b|x|at|conc|concurrency|batch)[=_ ]?(\d+)(?=$|[_ ])", re.IGNORECASE)
_COUNT = re.compile(r"\D{0,12}?(\d+)")


def measures(table: object, *, threshold: int | None, unit: str = "") -> tuple[Measure, ...]:
    """Return the points of a benchmark; nothing where the form is not known.

    A latency, or a throughput of each request, is turned into something in proportion to the throughput of all
    requests together, so that one judge does for all.
    """
    found = {(one.mode, one.concurrency): one for one in _points(table, None, None, unit)}
    if threshold is not None and not any(mode == "threshold" for mode, _ in found):
        # whatever speculates did so under the threshold that the record names
        return tuple(replace(one, mode="threshold") if one.mode == "speculation" else one for one in found.values())
    return tuple(found.values())


def _points(value: object, mode: Mode | None, concurrency: int | None, name: str) -> Iterator[Measure]:
    if isinstance(value, Mapping):
        yield from _of_mapping({str(key): one for key, one in value.items()}, mode, concurrency, name)
    elif isinstance(value, list):
        for row in value:
            match row:
                case [int(beside), int() | float() as figure] if not isinstance(beside, bool):
                    yield from _point(figure, mode, beside, name)
                case _:
                    yield from _points(row, mode, concurrency, name)
    elif concurrency is not None:
        yield from _point(value, mode, concurrency, name)


def _point(value: object, mode: Mode | None, concurrency: int, name: str) -> Iterator[Measure]:
    figure = number(value)
    if figure is None or figure <= 0 or concurrency < 1:
        return
    slow, each = _is_latency(name), bool(_EACH.search(name))
    total = concurrency / figure if slow else figure * concurrency if each else figure
    yield Measure(
        mode=mode or "speculation",
        concurrency=concurrency,
        total=total,
        is_total=slow or each or bool(_TOTAL.search(name)),
        said=f"{figure:g} {name}".strip(),
    )


def _of_mapping(node: Node, mode: Mode | None, concurrency: int | None, name: str) -> Iterator[Measure]:
    beside = first(node, *_CONCURRENCY)
    if isinstance(beside, list):
        yield from _columns(node, beside, mode, name)
        return
    own = whole(beside)
    concurrency = own if own is not None else concurrency
    mode = _mode_of_row(node) or mode
    if concurrency is not None and (figures := _figures(node)):
        for key, figure in figures:
            yield from _points(figure, _mode_of(key) or mode, concurrency, f"{name} {_unit(key)}".strip())
        return
    for key, one in node.items():
        if key in _NOT_FIGURES or (isinstance(one, str | bool) and number(one) is None):
            continue
        own_mode = _mode_of(key)
        count = _COUNT_IN_NAME.search(key) or (None if own_mode else _COUNT.fullmatch(key))
        beside_key = int(count[1]) if count and concurrency is None else concurrency
        yield from _points(one, own_mode or mode, beside_key, f"{name} {_unit(key)}".strip())


def _columns(node: Node, concurrencies: list[object], mode: Mode | None, name: str) -> Iterator[Measure]:
    for key, column in node.items():
        if key in _NOT_FIGURES or not isinstance(column, list):
            continue
        for beside, figure in zip(concurrencies, column, strict=False):
            if (count := whole(beside)) is not None:
                yield from _point(figure, _mode_of(key) or mode, count, f"{name} {_unit(key)}".strip())


def _figures(node: Node) -> list[tuple[str, object]]:
    """Return the figures of a row: one a mode if modes are columns, else the throughput, else a latency."""
    figures = [
        (key, value)
        for key, value in node.items()
        if key not in _NOT_FIGURES and (number(value) is not None or isinstance(value, Mapping))
    ]
    if columns := [(key, value) for key, value in figures if _mode_of(key)]:
        rates = [one for one in columns if _RATE.search(one[0])]
        return rates or columns
    for wanted in (re.compile("output|gen"), _RATE, _LATENCY):
        if named := [(key, value) for key, value in figures if wanted.search(key)]:
            return named[:1]
    return figures[:1]


def _mode_of_row(node: Node) -> Mode | None:
    for key in _SPEC_KEYS:
        if isinstance(flag := node.get(key), bool):
            return "speculation" if flag else "plain"
        if isinstance(flag, str) and number(flag) is None:
            return "plain" if _PLAIN.search(flag) or not flag else _mode_of(flag) or "speculation"
    return next(
        (mode for key in _MODE_KEYS if isinstance(said := node.get(key), str) and (mode := _mode_of(said))), None
    )


def _mode_of(words: str) -> Mode | None:
    text = words.replace("_", " ")
    if _NO_THRESHOLD.search(text):
        return "speculation"
    if _THRESHOLD.search(text) and not re.match(r"(above|below|over)", text):
        return "threshold"
    if _PLAIN.search(text):
        return "plain"
    return "speculation" if _SPECULATION.search(text) else None


def _unit(key: str) -> str:
    return key if any(one.search(key) for one in (_LATENCY, _SECONDS, _RATE, _EACH)) else ""


def _is_latency(name: str) -> bool:
    return bool(_LATENCY.search(name) or (_SECONDS.search(name) and not _RATE.search(name)))
