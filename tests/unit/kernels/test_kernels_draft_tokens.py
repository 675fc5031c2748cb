"""Bookkeeping of drafted and accepted tokens, against list operations."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import fill_accept_out_cache_loc_cpu, fill_bonus_tokens_cpu, rotate_input_ids_cpu

UNTOUCHED = -7
INDEX_DTYPES = st.sampled_from([torch.int32, torch.int64])


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 999), min_size=4, max_size=4), st.integers(1, 4)), max_size=5),
    st.booleans(),
)
def test_the_bonus_token_is_the_last_accepted_one(requests: list[tuple[list[int], int]], flat: bool) -> None:
    tokens = torch.tensor([row for row, _ in requests], dtype=torch.int32).view(-1, 4)
    lengths = torch.tensor([length for _, length in requests], dtype=torch.int32)
    bonus = torch.full((len(requests) + 1,), UNTOUCHED, dtype=torch.int32)

    fill_bonus_tokens_cpu(tokens.reshape(-1) if flat else tokens, lengths, bonus, 4)

    assert bonus.tolist() == [row[:length][-1] for row, length in requests] + [UNTOUCHED]


@pytest.mark.parametrize("length", [0, 5])
def test_a_length_outside_the_row_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="accept_lens has values"):
        fill_bonus_tokens_cpu(
            torch.zeros(8, dtype=torch.int32), torch.tensor([1, length]), torch.zeros(2, dtype=torch.int32), 4
        )


@given(st.data(), INDEX_DTYPES, st.booleans())
def test_accepted_slots_are_packed_in_order(data: st.DataObject, dtype: torch.dtype, sized: bool) -> None:
    slots = data.draw(st.lists(st.integers(0, 5000), min_size=1, max_size=12))
    index = data.draw(st.lists(st.integers(-1, len(slots) - 1), max_size=10))
    size = data.draw(st.integers(0, len(index))) if sized else None
    counted = index if size is None else index[:size]
    accepted = [slots[i] for i in counted if i >= 0]
    out = torch.full((len(index) + 1,), UNTOUCHED, dtype=torch.int64)

    fill_accept_out_cache_loc_cpu(torch.tensor(index, dtype=dtype), torch.tensor(slots), out, size)

    assert out.tolist() == accepted + [UNTOUCHED] * (len(index) + 1 - len(accepted))


@pytest.mark.parametrize(
    ("index", "room", "message"),
    [
        ([0, 3], 2, "accept_index has values in [0, 3], expected [-1, 2]"),
        ([-2, 0], 2, "accept_index has values in [-2, 0]"),
        ([0, 1], 1, "accept_out_cache_loc has 1 elements, expected at least 2"),
    ],
)
def test_indices_that_do_not_fit_are_refused(index: list[int], room: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fill_accept_out_cache_loc_cpu(torch.tensor(index), torch.arange(3), torch.zeros(room, dtype=torch.int64))


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 999), max_size=5), st.integers(1000, 1999)), max_size=5),
    st.booleans(),
    INDEX_DTYPES,
    INDEX_DTYPES,
)
def test_tokens_move_left_and_the_new_one_comes_last(
    requests: list[tuple[list[int], int]], column: bool, start_dtype: torch.dtype, length_dtype: torch.dtype
) -> None:
    gap = [UNTOUCHED]
    tokens, start, expected = list(gap), [], list(gap)
    for old, new in requests:
        start.append(len(tokens))
        tokens += old + gap
        expected += ([*old[1:], new] if old else []) + gap
    new_tokens = torch.tensor([new for _, new in requests], dtype=torch.int64)
    input_ids = torch.tensor(tokens)

    rotate_input_ids_cpu(
        input_ids,
        torch.tensor(start, dtype=start_dtype),
        torch.tensor([len(old) for old, _ in requests], dtype=length_dtype),
        new_tokens.unsqueeze(1) if column else new_tokens,
    )

    assert input_ids.tolist() == expected


def test_a_selected_place_gets_the_new_token_instead_of_the_last_one() -> None:
    input_ids = torch.tensor([1, 2, 3, 4, 5, 6])

    rotate_input_ids_cpu(
        input_ids, torch.tensor([0, 4]), torch.tensor([4, 2]), torch.tensor([77, 88]), torch.tensor([1, 5])
    )

    assert input_ids.tolist() == [2, 77, 4, 4, 6, 88]


@pytest.mark.parametrize(
    ("start", "length", "select"), [([0, 3], [2, 3], None), ([0, -1], [2, 1], None), ([0, 2], [2, 2], [0, 5])]
)
def test_a_segment_outside_the_tokens_is_refused(start: list[int], length: list[int], select: list[int] | None) -> None:
    with pytest.raises(ValueError, match="has values in"):
        rotate_input_ids_cpu(
            torch.arange(5),
            torch.tensor(start),
            torch.tensor(length),
            torch.tensor([7, 8]),
            None if select is None else torch.tensor(select),
        )
