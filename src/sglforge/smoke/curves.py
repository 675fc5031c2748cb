"""Tokens per second by concurrency, with and without speculation, as a picture: SVG with noise bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from sglforge.smoke.measure import Figure
from sglforge.smoke.tuning import Level

_FONT = "font-family='ui-monospace,Menlo,Consolas,monospace'"
_STEP_PX = 80
_LEFT_PX, _TOP_PX, _PLOT_PX, _BOTTOM_PX, _RIGHT_PX = 84, 64, 280, 56, 40
_LEAST_WIDTH_PX = 520
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """A curve; the colours are those of Okabe and Ito, the marks tell it apart without them."""

    name: str
    colour: str
    dash: str
    round_marks: bool
    shift_px: int
    of: Callable[[Level], Figure]


_CURVES = (
    _Curve(
        name="with speculation",
        colour="#0072b2",
        dash="none",
        round_marks=True,
        shift_px=-3,
        of=lambda level: level.speculation,
    ),
    _Curve(name="without", colour="#d55e00", dash="6 4", round_marks=False, shift_px=3, of=lambda level: level.plain),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Where values lie: levels side by side at equal distances, speeds from 0 at the bottom up to ``top``."""

    levels: Sequence[Level]
    top: float

    def x(self, index: int) -> float:
        return _LEFT_PX + _STEP_PX * (index + 0.5)

    def y(self, speed: float) -> float:
        return round(_TOP_PX + _PLOT_PX * (1 - speed / self.top), 1)

    @property
    def right(self) -> int:
        return _LEFT_PX + _STEP_PX * len(self.levels)


def svg(levels: Sequence[Level], *, title: str, threshold: int | None = None) -> str:
    """Return the picture; every point has a title with median and noise bounds.

    Args:
        levels: What was measured, smallest concurrency first, at least one.
        title: What was measured where.
        threshold: Is drawn right of the last level that it lets speculate.
    """
    axes = _Axes(levels=levels, top=_round_up(max(curve.of(one).high for curve in _CURVES for one in levels)))
    width, height = max(axes.right + _RIGHT_PX, _LEAST_WIDTH_PX), _TOP_PX + _PLOT_PX + _BOTTOM_PX
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-labelledby='title desc'>",
        f"<title id='title'>{escape(title)}</title>",
        f"<desc id='desc'>{escape(_told(levels, threshold))}</desc>",
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
        f"<g {_FONT} font-size='12' fill='#000000'>",
        f"<text x='12' y='20'>{escape(title)}</text>",
        *_scales(axes),
        *_limit(axes, threshold),
        *(line for curve in _CURVES for line in _drawn(curve, axes)),
        *_legend(),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _scales(axes: _Axes) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        speed = axes.top * tick / _TICKS
        y = axes.y(speed)
        yield f"<line x1='{_LEFT_PX}' x2='{axes.right}' y1='{y}' y2='{y}' stroke='#d9d9d9'/>"
        yield f"<text x='{_LEFT_PX - 8}' y='{y + 4}' text-anchor='end'>{speed:g}</text>"
    bottom = _TOP_PX + _PLOT_PX
    for index, level in enumerate(axes.levels):
        yield f"<text x='{axes.x(index)}' y='{bottom + 18}' text-anchor='middle'>{level.concurrency}</text>"
    yield f"<text x='{_LEFT_PX}' y='{bottom + 40}'>requests at once; tokens per second of all together</text>"


def _limit(axes: _Axes, threshold: int | None) -> Iterator[str]:
    if threshold is None:
        return
    below = sum(level.concurrency <= threshold for level in axes.levels)
    x, bottom = _LEFT_PX + _STEP_PX * below, _TOP_PX + _PLOT_PX
    yield f"<line x1='{x}' x2='{x}' y1='{_TOP_PX}' y2='{bottom}' stroke='#595959' stroke-dasharray='2 3'/>"
    yield f"<text x='{x + 4}' y='{_TOP_PX + 12}' fill='#595959'>threshold {threshold}</text>"


def _drawn(curve: _Curve, axes: _Axes) -> Iterator[str]:
    places = [(axes.x(index) + curve.shift_px, curve.of(level), level) for index, level in enumerate(axes.levels)]
    points = " ".join(f"{x},{axes.y(figure.median)}" for x, figure, _ in places)
    ink = f"stroke='{curve.colour}'"
    yield f"<polyline points='{points}' fill='none' {ink} stroke-width='2' stroke-dasharray='{curve.dash}'/>"
    for x, figure, level in places:
        said = f"{level.concurrency} at once, {curve.name}: {figure.median:.1f} ({figure.low:.1f} to {figure.high:.1f})"
        low, high = axes.y(figure.low), axes.y(figure.high)
        yield f"<g><title>{escape(said)}</title>"
        yield f"<path d='M{x - 4},{high}h8M{x},{high}V{low}M{x - 4},{low}h8' fill='none' {ink}/>"
        yield _mark(curve, x, axes.y(figure.median)) + "</g>"


def _mark(curve: _Curve, x: float, y: float) -> str:
    if curve.round_marks:
        return f"<circle cx='{x}' cy='{y}' r='4' fill='{curve.colour}'/>"
    return f"<rect x='{x - 4}' y='{y - 4}' width='8' height='8' fill='{curve.colour}'/>"


def _legend() -> Iterator[str]:
    x = _LEFT_PX
    for curve in _CURVES:
        line = f"stroke='{curve.colour}' stroke-width='2' stroke-dasharray='{curve.dash}'"
        yield f"<line x1='{x}' x2='{x + 28}' y1='40' y2='40' {line}/>"
        yield _mark(curve, x + 14, 40)
        yield f"<text x='{x + 36}' y='44'>{escape(curve.name)}</text>"
        x += 200


def _round_up(speed: float) -> float:
    """Return the next speed whose fifth part is a round number."""
    size = 1.0
    while speed / size > 10:
        size *= 10
    while speed / size < 1:
        size /= 10
    return next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= speed)


def _told(levels: Sequence[Level], threshold: int | None) -> str:
    """Return the picture in words, for those who hear it."""
    said = [
        f"{level.concurrency} at once {level.speculation.median:.0f} and {level.plain.median:.0f}" for level in levels
    ]
    return f"Tokens per second with and without speculation: {'; '.join(said)}." + (
        f" Threshold {threshold}." if threshold else ""
    )
