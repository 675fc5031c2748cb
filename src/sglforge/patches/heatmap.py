"""The drift matrix as a picture: SVG, colours that all eyes tell apart, and a letter in every cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from types import MappingProxyType

from sglforge.patches.drift import LETTERS, Matrix
from sglforge.patches.result import TopicState

COLOURS: Mapping[TopicState, tuple[str, str]] = MappingProxyType(
    {
        TopicState.APPLIED: ("#0072b2", "#ffffff"),
        TopicState.NOT_FOR_VERSION: ("#ffffff", "#595959"),
        TopicState.SUPERSEDED: ("#d9d9d9", "#000000"),
        TopicState.UPSTREAMED: ("#56b4e9", "#000000"),
        TopicState.UNSUPPORTED: ("#f0e442", "#000000"),
        TopicState.DRIFTED: ("#d55e00", "#000000"),
        TopicState.CONFLICT: ("#cc79a7", "#000000"),
        TopicState.CORRUPT: ("#000000", "#ffffff"),
        TopicState.REJECTED: ("#e69f00", "#000000"),
    }
)
"""Ground and letter of each state: the palette of Okabe and Ito, letters with a contrast of 4.5 or more."""

_CELL_PX = 26
_LETTER_PX = 7
_MARGIN_PX = 12
_HEAD_PX = 90
_FONT = "font-family='ui-monospace,Menlo,Consolas,monospace'"


def svg(matrix: Matrix) -> str:
    """Return the picture as SVG; every cell has a title with version, topic, state and message."""
    left = _MARGIN_PX + _LETTER_PX * max(map(len, matrix.topics)) + 10
    met = [state for state in LETTERS if state in {cell.state for cell in matrix.cells()}]
    legend_px = _MARGIN_PX + 40 + max(len(state.value) for state in met) * _LETTER_PX
    width = max(left + _CELL_PX * len(matrix.columns) + _HEAD_PX // 2, legend_px) + _MARGIN_PX
    bottom = _HEAD_PX + _CELL_PX * len(matrix.topics) + _MARGIN_PX
    height = bottom + 22 * len(met) + _MARGIN_PX
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-labelledby='title desc'>",
        f"<title id='title'>Patch topics of {escape(matrix.package)} by upstream version</title>",
        f"<desc id='desc'>{escape(_told(matrix))}</desc>",
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
        f"<g {_FONT} font-size='12' fill='#000000'>",
        *_heads(matrix, left),
        *_rows(matrix, left),
        *_legend(met, bottom),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _heads(matrix: Matrix, left: int) -> Iterator[str]:
    for index, column in enumerate(matrix.columns):
        x, y = left + _CELL_PX * index + _CELL_PX // 2 + 4, _HEAD_PX - 6
        yield f"<text x='{x}' y='{y}' transform='rotate(-60 {x} {y})'>{escape(column.version)}</text>"


def _rows(matrix: Matrix, left: int) -> Iterator[str]:
    cells = {(cell.topic, cell.version): cell for cell in matrix.cells()}
    for row, topic in enumerate(matrix.topics):
        y = _HEAD_PX + _CELL_PX * row
        yield f"<text x='{left - 8}' y='{y + 17}' text-anchor='end'>{escape(topic)}</text>"
        for index, column in enumerate(matrix.columns):
            cell = cells[topic, column.version]
            told = f"{column.version} {topic}: {cell.state.value}: {cell.message}"
            yield from _square(cell.state, left + _CELL_PX * index, y, told)


def _legend(states: list[TopicState], top: int) -> Iterator[str]:
    for index, state in enumerate(states):
        y = top + 22 * index
        yield from _square(state, _MARGIN_PX, y, state.value, size=20)
        yield f"<text x='{_MARGIN_PX + 28}' y='{y + 14}'>{escape(state.value)}</text>"


def _square(state: TopicState, x: int, y: int, told: str, *, size: int = _CELL_PX - 2) -> Iterator[str]:
    ground, letter = COLOURS[state]
    yield f"<g><title>{escape(told)}</title>"
    yield f"<rect x='{x}' y='{y}' width='{size}' height='{size}' fill='{ground}' stroke='#8c8c8c'/>"
    middle = f"x='{x + size / 2}' y='{y + size / 2 + 4}' text-anchor='middle'"
    yield f"<text {middle} fill='{letter}'>{escape(LETTERS[state])}</text></g>"


def _told(matrix: Matrix) -> str:
    """Return the picture in words, for those who hear it."""
    counts = {state: sum(cell.state is state for cell in matrix.cells()) for state in LETTERS}
    states = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    versions = [column.version for column in matrix.columns]
    return f"{len(matrix.topics)} topics on {len(versions)} versions from {versions[0]} to {versions[-1]}: {states}."
