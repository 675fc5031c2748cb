"""Moving KV rows, against copies of the buffers' bytes."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import copy_all_layer_kv_cache_cpu
from torch import Tensor

DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.uint8])


def _rows(buffer: Tensor) -> list[bytes]:
    """Return the raw bytes of each row."""
    return [bytes(row.contiguous().view(torch.uint8).reshape(-1).tolist()) for row in buffer]


def _move(buffers: list[Tensor], target: list[int], source: list[int]) -> None:
    copy_all_layer_kv_cache_cpu(
        torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64),
        torch.tensor([buffer[0].nbytes for buffer in buffers]),
        torch.tensor(target, dtype=torch.int64),
        torch.tensor(source, dtype=torch.int64),
    )


def _buffer(slots: int, heads: int, dim: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 255, (slots, heads, dim), generator=generator).to(dtype)


@st.composite
def moves(draw: st.DrawFn) -> tuple[list[Tensor], list[int], list[int]]:
    slots = draw(st.integers(1, 10))
    buffers = [
        _buffer(slots, draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(DTYPES), draw(st.integers(0, 99)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    target = draw(st.lists(st.integers(0, slots - 1), unique=True))
    return buffers, target, [draw(st.integers(0, slots - 1)) for _ in target]


@given(moves())
def test_every_row_ends_up_as_it_was_at_its_source_and_the_rest_stays(
    drawn: tuple[list[Tensor], list[int], list[int]],
) -> None:
    buffers, target, source = drawn
    expected = []
    for buffer in buffers:
        before = _rows(buffer)
        after = dict(enumerate(before)) | {t: before[s] for t, s in zip(target, source, strict=True)}
        expected.append([after[slot] for slot in range(len(before))])

    _move(buffers, target, source)

    assert [_rows(buffer) for buffer in buffers] == expected


@pytest.mark.parametrize("step", [1, -1])
def test_a_shift_by_one_does_not_smear(step: int) -> None:
    buffer = torch.arange(6, dtype=torch.float32).view(6, 1, 1)
    source = [1, 2, 3, 4]

    _move([buffer], [s + step for s in source], source)

    expected = [0.0, 1.0, 1.0, 2.0, 3.0, 4.0] if step == 1 else [1.0, 2.0, 3.0, 4.0, 4.0, 5.0]
    assert buffer.reshape(-1).tolist() == expected


def test_padding_that_moves_slot_0_onto_itself_is_harmless() -> None:
    buffer = torch.arange(4, dtype=torch.float32).view(4, 1, 1)

    _move([buffer], [2, 0, 0], [3, 0, 0])

    assert buffer.reshape(-1).tolist() == [0.0, 1.0, 3.0, 3.0]


def test_memory_behind_the_last_named_row_stays() -> None:
    memory = torch.arange(20, dtype=torch.float32)
    cache = memory[4:16].view(6, 1, 2)

    _move([cache], [0], [5])

    assert memory.tolist() == [0, 1, 2, 3, 14, 15, *range(6, 20)]


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        ([0, 1], [2], "src_loc has shape [1], expected [2]"),
        ([-1], [0], "must not be negative"),
        ([0], [-1], "must not be negative"),
    ],
)
def test_a_wrong_call_is_refused_before_memory_is_touched(target: list[int], source: list[int], message: str) -> None:
    buffer = torch.arange(4, dtype=torch.float32).view(4, 1, 1)

    with pytest.raises(ValueError, match=re.escape(message)):
        _move([buffer], target, source)
    assert buffer.reshape(-1).tolist() == [0.0, 1.0, 2.0, 3.0]
