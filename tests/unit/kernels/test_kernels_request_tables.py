"""Kernels on req_to_token, against nested lists filled one cell at a time."""

import re
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
)
from torch import Tensor

UNTOUCHED = -7
INDEX_DTYPES = st.sampled_from([torch.int32, torch.int64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A table, some of its rows, and a range of positions in each."""

    table: list[list[int]]
    rows: list[int]
    ranges: list[tuple[int, int]]
    row_dtype: torch.dtype
    range_dtype: torch.dtype

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (rows, table, starts, ends)."""
        return (
            torch.tensor(self.rows, dtype=self.row_dtype),
            torch.tensor(self.table, dtype=torch.int32),
            torch.tensor([start for start, _ in self.ranges], dtype=self.range_dtype),
            torch.tensor([end for _, end in self.ranges], dtype=self.range_dtype),
        )

    @property
    def width(self) -> int:
        return len(self.table[0])

    @property
    def cells(self) -> list[tuple[int, int]]:
        """The (row, position) pairs of all ranges, in order."""
        return [
            (row, position)
            for row, (start, end) in zip(self.rows, self.ranges, strict=True)
            for position in range(start, end)
        ]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    height = draw(st.integers(1, 5))
    width = draw(st.integers(1, 12))
    cell = st.integers(0, 10_000)
    rows = draw(st.lists(st.integers(0, height - 1), unique=True, max_size=height))
    ends = [draw(st.integers(0, width)) for _ in rows]
    return Case(
        table=[[draw(cell) for _ in range(width)] for _ in range(height)],
        rows=rows,
        ranges=[(draw(st.integers(0, end)), end) for end in ends],
        row_dtype=draw(INDEX_DTYPES),
        range_dtype=draw(INDEX_DTYPES),
    )


@given(cases())
def test_assigned_slots_land_in_their_cells_and_nowhere_else(case: Case) -> None:
    rows, table, start, end = case.tensors()
    slots = [20_000 + i for i in range(len(case.cells))]
    expected = [list(row) for row in case.table]
    for (row, position), slot in zip(case.cells, slots, strict=True):
        expected[row][position] = slot

    assign_req_to_token_pool_cpu(rows, table, start, end, torch.tensor(slots, dtype=torch.int64), case.width)

    assert table.tolist() == expected


@given(cases(), st.integers(0, 3))
def test_collected_slots_are_packed_request_after_request(case: Case, spare: int) -> None:
    rows, table, start, end = case.tensors()
    expected = [case.table[row][position] for row, position in case.cells]
    out = torch.full((len(expected) + spare,), UNTOUCHED, dtype=torch.int64)

    assign_extend_cache_locs_cpu(rows, table, start, end, out, case.width)

    assert out.tolist() == expected + [UNTOUCHED] * spare
    assert table.tolist() == case.table


@given(cases())
def test_collecting_gives_back_what_was_assigned(case: Case) -> None:
    rows, table, start, end = case.tensors()
    slots = torch.arange(len(case.cells), dtype=torch.int64) + 500
    out = torch.empty_like(slots)

    assign_req_to_token_pool_cpu(rows, table, start, end, slots, case.width)
    assign_extend_cache_locs_cpu(rows, table, start, end, out, case.width)

    assert torch.equal(out, slots)


@st.composite
def draft_cases(draw: st.DrawFn) -> tuple[Case, list[int], int, int]:
    """Return a table, committed lengths, topk and steps such that all draft slots lie in the table."""
    case = draw(cases())
    topk = draw(st.integers(1, 4))
    steps = draw(st.integers(1, 3))
    committed = [draw(st.integers(0, case.width)) for _ in case.rows]
    width = case.width + topk * steps
    table = [[1000 * row + position for position in range(width)] for row in range(len(case.table))]
    wide = Case(
        table=table,
        rows=case.rows,
        ranges=case.ranges,
        row_dtype=case.row_dtype,
        range_dtype=case.range_dtype,
    )
    return wide, committed, topk, steps


@given(draft_cases())
def test_draft_slots_follow_the_committed_tokens(drawn: tuple[Case, list[int], int, int]) -> None:
    case, committed, topk, steps = drawn
    rows, table, _, _ = case.tensors()
    expected = []
    for row, length in zip(case.rows, committed, strict=True):
        expected += case.table[row][length : length + topk * steps]
    out = torch.full((len(expected),), UNTOUCHED, dtype=torch.int64)
    seq_lens = torch.tensor(committed, dtype=case.range_dtype)

    assign_draft_cache_locs_contiguous_cpu(rows, table, seq_lens, out, case.width, topk, steps)

    assert out.tolist() == expected


@given(draft_cases())
def test_each_branch_sees_the_prefix_and_then_its_own_slots(drawn: tuple[Case, list[int], int, int]) -> None:
    case, committed, topk, steps = drawn
    rows, table, _, _ = case.tensors()
    seq_lens = torch.tensor(committed, dtype=case.range_dtype)

    branches = build_draft_decode_metadata_cpu(table, rows, seq_lens, topk, steps, case.width)

    assert branches.shape == (len(case.rows) * topk, case.width)
    assert branches.dtype == table.dtype
    for b, (row, length) in enumerate(zip(case.rows, committed, strict=True)):
        for t in range(topk):
            own = case.table[row][length + t * steps : length + (t + 1) * steps]
            meaningful = branches[b * topk + t, : length + steps].tolist()
            assert meaningful == case.table[row][:length] + own
    assert table.tolist() == case.table


def _call(
    *,
    rows: list[int] | None = None,
    start: list[int] | None = None,
    end: list[int] | None = None,
    slots: int = 3,
    pool_len: int = 6,
) -> None:
    assign_req_to_token_pool_cpu(
        torch.tensor([0, 1] if rows is None else rows),
        torch.zeros(2, 6, dtype=torch.int32),
        torch.tensor([0, 2] if start is None else start),
        torch.tensor([2, 3] if end is None else end),
        torch.arange(slots),
        pool_len,
    )


def test_the_call_that_the_bad_ones_vary_is_right() -> None:
    _call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pool_len": 5}, "req_to_token has shape [2, 6], expected [*, 5]"),
        ({"rows": [0, 2]}, "req_pool_indices has values in [0, 2], expected [0, 1]"),
        ({"rows": [-1, 0]}, "req_pool_indices has values in [-1, 0], expected [0, 1]"),
        ({"start": [0]}, "start has shape [1], expected [2]"),
        ({"end": [2, 7]}, "end has values in [2, 7], expected [0, 6]"),
        ({"start": [0, -1]}, "start has values in [-1, 0], expected [0, 6]"),
        ({"start": [0, 4]}, "a range ends before it starts"),
        ({"slots": 2}, "out_cache_loc has 2 elements, expected at least 3"),
    ],
)
def test_a_wrong_call_is_refused(change: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        _call(**change)  # type: ignore[arg-type]


def test_branches_that_do_not_fit_into_the_table_are_refused() -> None:
    with pytest.raises(ValueError, match="seq_lens has values in"):
        build_draft_decode_metadata_cpu(
            torch.zeros(1, 6, dtype=torch.int32), torch.tensor([0]), torch.tensor([3]), 2, 2, 6
        )
