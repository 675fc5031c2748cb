"""Attention over slot lists, against float64 loops over single keys and against itself, cut differently."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel.indexed_attention import decode_attention_indexed_cpu, extend_attention_indexed_cpu
from torch import Tensor

Visible = Callable[[int, int, int], bool]
"""Whether a new token (request, number) sees the token in this column of its request: prefix first, then new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """So many prefix and new tokens per request, and how attention is asked for."""

    prefixes: list[int]
    new: list[int]
    heads: int
    kv_heads: int
    dim: int
    v_dim: int
    seed: int
    logit_cap: float = 0.0
    with_sinks: bool = False
    scale: float | None = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """The tensors of a batch; slots are in random order, and the lists have spare entries at their ends."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    k_buffer: Tensor
    v_buffer: Tensor
    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_indices: Tensor
    sinks: Tensor | None


def _indptr(lengths: list[int], spare: int = 0) -> Tensor:
    total = sum(lengths)
    return torch.tensor(
        [sum(lengths[:i]) for i in range(len(lengths) + 1)] + [total] * spare,
        dtype=torch.int32,
    )


def _tensors(batch: Batch) -> Tensors:
    generator = torch.Generator().manual_seed(batch.seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    tokens, slots = sum(batch.new), sum(batch.prefixes)
    return Tensors(
        query=normal(tokens, batch.heads, batch.dim),
        key=normal(tokens, batch.kv_heads, batch.dim),
        value=normal(tokens, batch.kv_heads, batch.v_dim),
        output=torch.full((tokens, batch.heads, batch.v_dim), math.nan),
        k_buffer=normal(slots + 2, batch.kv_heads, batch.dim),
        v_buffer=normal(slots + 2, batch.kv_heads, batch.v_dim),
        qo_indptr=_indptr(batch.new),
        kv_indptr=_indptr(batch.prefixes, spare=1),
        kv_indices=torch.cat([torch.randperm(slots, generator=generator) + 1, torch.tensor([-9])]),
        sinks=normal(batch.heads) if batch.with_sinks else None,
    )


def _decode(batch: Batch, tensors: Tensors, *, scales: tuple[float, float] = (1.0, 1.0)) -> Tensor:
    decode_attention_indexed_cpu(
        tensors.query,
        tensors.k_buffer,
        tensors.v_buffer,
        tensors.output,
        tensors.kv_indptr,
        tensors.kv_indices,
        0.7 if batch.scale is None else batch.scale,
        batch.logit_cap,
        tensors.sinks,
        *scales,
    )
    return tensors.output


def _extend(
    batch: Batch,
    tensors: Tensors,
    *,
    causal: bool = True,
    mask: Tensor | None = None,
    mask_indptr: Tensor | None = None,
    skip_prefix: bool = True,
    window: int = -1,
    offsets: Tensor | None = None,
    scales: tuple[float, float] = (1.0, 1.0),
) -> Tensor:
    extend_attention_indexed_cpu(
        tensors.query,
        tensors.key,
        tensors.value,
        tensors.output,
        tensors.k_buffer,
        tensors.v_buffer,
        tensors.qo_indptr,
        tensors.kv_indptr,
        tensors.kv_indices,
        mask,
        causal,
        mask_indptr,
        sm_scale=batch.scale,
        logit_cap=batch.logit_cap,
        skip_prefix_custom_mask=skip_prefix,
        sliding_window_size=window,
        sinks=tensors.sinks,
        window_kv_offsets=offsets,
        k_scale=scales[0],
        v_scale=scales[1],
    )
    return tensors.output


def _one_query(
    query: list[float], keys: list[list[float]], values: list[list[float]], batch: Batch, sink: float | None
) -> list[float]:
    """Attend with one query of one head, a key at a time."""
    scale = batch.dim**-0.5 if batch.scale is None else batch.scale
    weights = []
    for key in keys:
        score = scale * sum(q * k for q, k in zip(query, key, strict=True))
        if batch.logit_cap > 0:
            score = batch.logit_cap * math.tanh(score / batch.logit_cap)
        weights.append(math.exp(score))
    total = sum(weights) + (0.0 if sink is None else math.exp(sink))
    return [sum(w * value[d] for w, value in zip(weights, values, strict=True)) / total for d in range(batch.v_dim)]


def _reference(batch: Batch, tensors: Tensors, visible: Visible) -> Tensor:
    """Compute the whole batch with Python floats; new tokens come after the prefix."""
    query, sinks = tensors.query.tolist(), None if tensors.sinks is None else tensors.sinks.tolist()
    cached = list(zip(tensors.k_buffer.tolist(), tensors.v_buffer.tolist(), strict=True))
    fresh = list(zip(tensors.key.tolist(), tensors.value.tolist(), strict=True))
    found: list[list[list[float]]] = []
    for i, (prefix, new) in enumerate(zip(batch.prefixes, batch.new, strict=True)):
        first, row = sum(batch.prefixes[:i]), sum(batch.new[:i])
        columns = [cached[slot] for slot in tensors.kv_indices[first : first + prefix].tolist()]
        columns += fresh[row : row + new]
        for number in range(new):
            seen = [pair for column, pair in enumerate(columns) if visible(i, number, column)]
            heads = []
            for head in range(batch.heads):
                kv_head = head // (batch.heads // batch.kv_heads)
                heads.append(
                    _one_query(
                        query[row + number][head],
                        [key[kv_head] for key, _ in seen],
                        [value[kv_head] for _, value in seen],
                        batch,
                        None if sinks is None else sinks[head],
                    )
                )
            found.append(heads)
    return torch.tensor(found, dtype=torch.float64).view(sum(batch.new), batch.heads, batch.v_dim)


def _near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-5, atol=2e-6)


@st.composite
def batches(draw: st.DrawFn, *, decode: bool = False) -> Batch:
    requests = draw(st.integers(1, 3))
    kv_heads = draw(st.integers(1, 2))
    return Batch(
        prefixes=[draw(st.integers(1 if decode else 0, 6)) for _ in range(requests)],
        new=[1 if decode else draw(st.integers(0, 5)) for _ in range(requests)],
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        dim=draw(st.integers(1, 4)),
        v_dim=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 10_000)),
        logit_cap=draw(st.sampled_from([0.0, 1.5])),
        with_sinks=draw(st.booleans()),
        scale=0.7 if decode else draw(st.sampled_from([None, 0.7])),
    )


@given(batches(decode=True))
def test_decode_sees_the_listed_slots_and_no_others(batch: Batch) -> None:
    tensors = _tensors(batch)
    expected = _reference(batch, tensors, lambda i, _number, column: column < batch.prefixes[i])

    _near(_decode(batch, tensors), expected)


@given(batches(), st.booleans())
def test_extend_sees_the_prefix_and_what_causality_allows(batch: Batch, causal: bool) -> None:
    tensors = _tensors(batch)
    expected = _reference(batch, tensors, lambda i, n, column: not causal or column <= batch.prefixes[i] + n)

    _near(_extend(batch, tensors, causal=causal), expected)


@given(batches(), st.integers(1, 7))
def test_a_window_cuts_off_what_lies_further_back(batch: Batch, window: int) -> None:
    tensors = _tensors(batch)

    def visible(i: int, number: int, column: int) -> bool:
        own = batch.prefixes[i] + number
        return own - window <= column <= own

    _near(_extend(batch, tensors, window=window), _reference(batch, tensors, visible))


@given(st.data(), batches(), st.booleans(), st.booleans(), st.sampled_from([-1, 3]))
def test_a_custom_mask_is_read_row_by_row(
    data: st.DataObject, batch: Batch, skip_prefix: bool, causal: bool, window: int
) -> None:
    """Each row has a column for every token; with a window there are more columns in front, which nobody reads."""
    in_front = [data.draw(st.integers(0, 3)) if window > 0 else 0 for _ in batch.new]
    widths = [front + prefix + new for front, prefix, new in zip(in_front, batch.prefixes, batch.new, strict=True)]
    cells = [
        [[data.draw(st.booleans()) for _ in range(width)] for _ in range(new)]
        for width, new in zip(widths, batch.new, strict=True)
    ]
    for i, rows in enumerate(cells):
        for number, row in enumerate(rows):
            row[in_front[i] + batch.prefixes[i] + number] = True  # a token always sees itself
    tensors = _tensors(batch)

    def visible(i: int, number: int, column: int) -> bool:
        if window > 0 and column < batch.prefixes[i] + number - window:
            return False
        return (skip_prefix and column < batch.prefixes[i]) or cells[i][number][in_front[i] + column]

    expected = _reference(batch, tensors, visible)
    found = _extend(
        batch,
        tensors,
        causal=causal,
        mask=torch.tensor([cell for rows in cells for row in rows for cell in row] + [False], dtype=torch.bool),
        mask_indptr=_indptr([width * new for width, new in zip(widths, batch.new, strict=True)]).to(torch.int64),
        skip_prefix=skip_prefix,
        window=window,
        offsets=torch.tensor(in_front, dtype=torch.int32) if window > 0 else None,
    )

    _near(found, expected)


@given(batches(), st.data())
def test_a_token_gets_the_same_wherever_the_prefix_ends(batch: Batch, data: st.DataObject) -> None:
    """Tokens that were new are cached: those after them must not notice."""
    tensors = _tensors(batch)
    whole = _extend(batch, tensors).clone()
    moved = [data.draw(st.integers(0, new)) for new in batch.new]
    k_buffer = torch.cat([tensors.k_buffer, tensors.key])
    v_buffer = torch.cat([tensors.v_buffer, tensors.value])
    slots: list[int] = []
    kept: list[int] = []
    for i, new in enumerate(batch.new):
        first, row = sum(batch.prefixes[:i]), sum(batch.new[:i])
        slots += tensors.kv_indices[first : first + batch.prefixes[i]].tolist()
        slots += range(len(tensors.k_buffer) + row, len(tensors.k_buffer) + row + moved[i])
        kept += range(row + moved[i], row + new)
    later = replace(
        batch,
        prefixes=[prefix + count for prefix, count in zip(batch.prefixes, moved, strict=True)],
        new=[new - count for new, count in zip(batch.new, moved, strict=True)],
    )
    cut = replace(
        tensors,
        query=tensors.query[kept],
        key=tensors.key[kept],
        value=tensors.value[kept],
        output=torch.full_like(whole[kept], math.nan),
        k_buffer=k_buffer,
        v_buffer=v_buffer,
        qo_indptr=_indptr(later.new),
        kv_indptr=_indptr(later.prefixes),
        kv_indices=torch.tensor(slots, dtype=torch.int64),
    )

    _near(_extend(later, cut), whole[kept])


@given(batches(decode=True))
def test_one_new_token_is_a_decode_of_the_longer_list(batch: Batch) -> None:
    tensors = _tensors(batch)
    extended = _extend(batch, tensors).clone()
    k_buffer, v_buffer = torch.cat([tensors.k_buffer, tensors.key]), torch.cat([tensors.v_buffer, tensors.value])
    slots: list[int] = []
    for i in range(len(batch.new)):
        first = sum(batch.prefixes[:i])
        slots += [*tensors.kv_indices[first : first + batch.prefixes[i]].tolist(), len(tensors.k_buffer) + i]
    longer = replace(batch, prefixes=[prefix + 1 for prefix in batch.prefixes])
    decoded = replace(
        tensors,
        k_buffer=k_buffer,
        v_buffer=v_buffer,
        kv_indptr=_indptr(longer.prefixes),
        kv_indices=torch.tensor(slots, dtype=torch.int64),
    )

    _near(_decode(longer, decoded), extended)


@given(batches(decode=True), st.booleans())
def test_scales_are_for_what_is_cached(batch: Batch, extend: bool) -> None:
    tensors = _tensors(batch)
    call = _extend if extend else _decode
    found = call(batch, tensors, scales=(0.5, 3.0)).clone()
    scaled = replace(tensors, k_buffer=tensors.k_buffer * 0.5, v_buffer=tensors.v_buffer * 3.0)

    _near(found, call(batch, scaled))


def test_a_branch_of_a_tree_says_what_the_same_chain_says() -> None:
    """Nodes 0, 2 and 3 are a chain; node 1 is a sibling that they must not see."""
    batch = Batch(prefixes=[3], new=[4], heads=2, kv_heads=1, dim=4, v_dim=4, seed=7)
    tensors = _tensors(batch)
    ancestors = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)
    mask = torch.cat([torch.ones(4, 3, dtype=torch.bool), ancestors], dim=1)
    tree = _extend(batch, tensors, mask=mask.reshape(-1), mask_indptr=torch.tensor([0, 28])).clone()
    path = [0, 2, 3]
    chain = replace(
        tensors,
        query=tensors.query[path],
        key=tensors.key[path],
        value=tensors.value[path],
        output=torch.zeros_like(tree[path]),
        qo_indptr=torch.tensor([0, 3]),
    )

    _near(_extend(replace(batch, new=[3]), chain), tree[path])


def test_the_precision_of_the_output_is_the_callers() -> None:
    batch = Batch(prefixes=[2], new=[1], heads=2, kv_heads=1, dim=4, v_dim=4, seed=3)
    tensors = _tensors(batch)
    expected = _decode(batch, tensors).clone()
    halves = replace(
        tensors, query=tensors.query.bfloat16(), k_buffer=tensors.k_buffer.bfloat16(), output=expected.bfloat16()
    )

    assert _decode(batch, halves).dtype == torch.bfloat16
    torch.testing.assert_close(halves.output.float(), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_indptr": torch.tensor([0, 2])}, "kv_indptr has 2 elements, expected at least 3"),
        ({"kv_indptr": torch.tensor([0, 2, 1])}, "kv_indptr does not ascend: [0, 2, 1]"),
        ({"kv_indptr": torch.tensor([0, 2, 9])}, "kv_indptr ends at 9, there are only 4 entries"),
        ({"kv_indices": torch.tensor([1, 2, 5])}, "kv_indices has values in [1, 5], expected [0, 4]"),
        ({"kv_indices": torch.tensor([1, 2, -1])}, "kv_indices has values in [-1, 2], expected [0, 4]"),
        ({"qo_indptr": torch.tensor([0, 1, 4])}, "qo_indptr ends at 4, there are only 3 entries"),
        ({"key": torch.zeros(2, 1, 4)}, "k_extend has shape [2, 1, 4], expected [3, 1, 4]"),
        ({"value": torch.zeros(3, 1, 3)}, "v_extend has shape [3, 1, 3], expected [3, 1, 4]"),
        ({"output": torch.zeros(3, 2, 3)}, "output has shape [3, 2, 3], expected [3, 2, 4]"),
    ],
)
def test_a_wrong_extend_is_refused(change: dict[str, Tensor], message: str) -> None:
    batch = Batch(prefixes=[2, 1], new=[1, 2], heads=2, kv_heads=1, dim=4, v_dim=4, seed=1)
    tensors = _tensors(batch)
    _extend(batch, tensors)  # as it is, it is right

    with pytest.raises(ValueError, match=re.escape(message)):
        _extend(batch, replace(tensors, **change))  # type: ignore[arg-type]


def test_a_mask_without_its_description_is_refused() -> None:
    batch = Batch(prefixes=[2], new=[2], heads=1, kv_heads=1, dim=2, v_dim=2, seed=1)
    tensors = _tensors(batch)
    mask = torch.ones(8, dtype=torch.bool)

    with pytest.raises(ValueError, match="mask_indptr is not"):
        _extend(batch, tensors, mask=mask)
    with pytest.raises(ValueError, match="custom_mask has 7 elements, expected at least 8"):
        _extend(batch, tensors, mask=mask[:7], mask_indptr=torch.tensor([0, 8]))


def test_a_decode_without_a_token_is_refused() -> None:
    batch = Batch(prefixes=[2, 0], new=[1, 1], heads=1, kv_heads=1, dim=2, v_dim=2, seed=1)

    with pytest.raises(ValueError, match="request 1 has no token to attend to"):
        _decode(batch, _tensors(batch))
