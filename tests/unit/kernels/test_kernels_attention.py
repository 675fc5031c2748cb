"""Attention, against float64 loops over single keys, torch's own attention, and its own properties."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

Visible = Callable[[int, int], bool]
"""Whether the new token with this number sees the token at this position of its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests with their KV cache, and how attention is asked for."""

    lengths: list[int]
    new: list[int]
    heads: int
    kv_heads: int
    dim: int
    v_dim: int
    seed: int
    dtype: torch.dtype = torch.float32
    window: int = 0
    logit_cap: float = 0.0
    with_sinks: bool = False
    encoder: list[int] | None = None
    scale: float = 0.7

    @property
    def tokens(self) -> int:
        return sum(self.new)

    @property
    def starts(self) -> list[int]:
        return [sum(self.new[:i]) for i in range(len(self.new))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """The tensors of a batch. Every request's row lists slots in random order; slot 0 is nobody's."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    k_cache: Tensor
    v_cache: Tensor
    table: Tensor
    rows: Tensor
    sinks: Tensor | None
    loc: Tensor


def _tensors(batch: Batch) -> Tensors:
    """Fill a batch with random numbers; the cache already holds the new tokens' K and V."""
    generator = torch.Generator().manual_seed(batch.seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(batch.dtype)

    encoder = batch.encoder or [0] * len(batch.lengths)
    totals = [front + length for front, length in zip(encoder, batch.lengths, strict=True)]
    slots = torch.randperm(sum(totals), generator=generator) + 1
    table = torch.zeros(len(totals) + 1, max(totals, default=0) + 2, dtype=torch.int32)
    rows = torch.randperm(len(totals) + 1, generator=generator)[: len(totals)]
    key, value = (
        normal(batch.tokens, batch.kv_heads, batch.dim),
        normal(batch.tokens, batch.kv_heads, batch.v_dim),
    )
    k_cache = normal(sum(totals) + 1, batch.kv_heads, batch.dim)
    v_cache = normal(sum(totals) + 1, batch.kv_heads, batch.v_dim)
    used, loc = 0, []
    for row, total, new in zip(rows.tolist(), totals, batch.new, strict=True):
        own = slots[used : used + total]
        table[row, :total] = own.to(torch.int32)
        loc.append(own[total - new :])
        used += total
    flat = torch.cat(loc) if loc else torch.empty(0, dtype=torch.int64)
    k_cache[flat], v_cache[flat] = key, value
    return Tensors(
        query=normal(batch.tokens, batch.heads, batch.dim),
        key=key,
        value=value,
        output=torch.full((batch.tokens, batch.heads, batch.v_dim), math.nan, dtype=batch.dtype),
        k_cache=k_cache,
        v_cache=v_cache,
        table=table,
        rows=rows,
        sinks=normal(batch.heads) if batch.with_sinks else None,
        loc=flat,
    )


def _decode(
    batch: Batch,
    tensors: Tensors,
    *,
    store: bool = True,
    cross: bool = False,
    scales: tuple[float, float] = (1.0, 1.0),
) -> Tensor:
    torch.ops.sgl_kernel.decode_attention_cpu(
        tensors.query,
        tensors.k_cache,
        tensors.v_cache,
        *scales,
        tensors.output,
        tensors.key if store else None,
        tensors.value if store else None,
        tensors.loc,
        torch.zeros(len(batch.lengths), batch.heads, 8, batch.v_dim + 1),
        tensors.table,
        tensors.rows,
        torch.tensor(batch.lengths, dtype=torch.int64),
        batch.scale,
        batch.logit_cap,
        cross,
        batch.window,
        None if batch.encoder is None else torch.tensor(batch.encoder),
        tensors.sinks,
    )
    return tensors.output


def _extend(
    batch: Batch,
    tensors: Tensors,
    *,
    pass_new: bool = True,
    cross: bool = False,
    tree: Tensor | None = None,
    causal: bool = True,
    scales: tuple[float, float] = (1.0, 1.0),
    output: Tensor | None = None,
    starts: list[int] | None = None,
) -> Tensor:
    result = tensors.output if output is None else output
    torch.ops.sgl_kernel.extend_attention_cpu(
        tensors.query,
        tensors.key if pass_new else None,
        tensors.value if pass_new else None,
        result,
        tensors.k_cache,
        tensors.v_cache,
        *scales,
        tensors.table,
        tensors.rows,
        torch.tensor(batch.lengths, dtype=torch.int64),
        torch.tensor(batch.new, dtype=torch.int32),
        torch.tensor(batch.starts if starts is None else starts, dtype=torch.int32),
        max(batch.new, default=0),
        batch.scale,
        batch.logit_cap,
        cross,
        batch.window,
        None if batch.encoder is None else torch.tensor(batch.encoder),
        tensors.sinks,
        tree,
        causal,
    )
    return result


def _one_query(
    query: list[float], keys: list[list[float]], values: list[list[float]], batch: Batch, sink: float | None
) -> list[float]:
    """Attend with one query of one head, a key at a time."""
    weights = []
    for key in keys:
        score = batch.scale * sum(q * k for q, k in zip(query, key, strict=True))
        if batch.logit_cap > 0:
            score = batch.logit_cap * math.tanh(score / batch.logit_cap)
        weights.append(math.exp(score))
    total = sum(weights) + (0.0 if sink is None else math.exp(sink))
    return [sum(w * value[d] for w, value in zip(weights, values, strict=True)) / total for d in range(batch.v_dim)]


def _reference(batch: Batch, tensors: Tensors, visible: Visible, *, cross: bool = False) -> Tensor:
    """Compute the whole batch with Python floats."""
    encoder = batch.encoder or [0] * len(batch.lengths)
    k_cache, v_cache = tensors.k_cache.double().tolist(), tensors.v_cache.double().tolist()
    query = tensors.query.double().tolist()
    sinks = None if tensors.sinks is None else tensors.sinks.double().tolist()
    found = []
    for i, (length, new) in enumerate(zip(batch.lengths, batch.new, strict=True)):
        row = tensors.table[tensors.rows[i]].tolist()
        own = row[: encoder[i]] if cross else row[encoder[i] : encoder[i] + length]
        for number in range(new):
            seen = [slot for position, slot in enumerate(own) if cross or visible(number + length - new, position)]
            for head in range(batch.heads):
                kv_head = head // (batch.heads // batch.kv_heads)
                found.append(
                    _one_query(
                        query[batch.starts[i] + number][head],
                        [k_cache[slot][kv_head] for slot in seen],
                        [v_cache[slot][kv_head] for slot in seen],
                        batch,
                        None if sinks is None else sinks[head],
                    )
                )
    return torch.tensor(found, dtype=torch.float64).view(batch.tokens, batch.heads, batch.v_dim)


def _causal(window: int) -> Visible:
    return lambda own, other: other <= own and (window <= 0 or own - other < window)


def _assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=2e-5, atol=2e-6)


@st.composite
def batches(draw: st.DrawFn, *, decode: bool = False) -> Batch:
    requests = draw(st.integers(1, 3))
    kv_heads = draw(st.integers(1, 2))
    lengths = [draw(st.integers(1, 7)) for _ in range(requests)]
    return Batch(
        lengths=lengths,
        new=[1 if decode else draw(st.integers(0, length)) for length in lengths],
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        dim=draw(st.integers(1, 4)),
        v_dim=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 10_000)),
        dtype=draw(st.sampled_from([torch.float32, torch.float64])),
        window=draw(st.sampled_from([-1, 0, 0, 1, 2, 3, 20])),
        logit_cap=draw(st.sampled_from([0.0, 0.0, 0.5, 30.0])),
        with_sinks=draw(st.booleans()),
        encoder=draw(st.one_of(st.none(), st.lists(st.integers(1, 3), min_size=requests, max_size=requests))),
    )


@given(batches(decode=True))
def test_decode_is_attention_with_one_new_token_each(batch: Batch) -> None:
    tensors = _tensors(batch)
    expected = _reference(batch, tensors, _causal(batch.window))
    tensors.k_cache[tensors.loc] = 0  # decode has to store the new token itself
    tensors.v_cache[tensors.loc] = 0

    _assert_near(_decode(batch, tensors), expected)


@given(batches(), st.booleans())
def test_extend_is_causal_attention(batch: Batch, pass_new: bool) -> None:
    tensors = _tensors(batch)

    _assert_near(_extend(batch, tensors, pass_new=pass_new), _reference(batch, tensors, _causal(batch.window)))


@given(batches())
def test_without_causality_a_token_sees_all_of_its_request(batch: Batch) -> None:
    batch = replace(batch, window=0)
    tensors = _tensors(batch)

    _assert_near(_extend(batch, tensors, causal=False), _reference(batch, tensors, lambda _own, _other: True))


@given(batches(decode=True), st.booleans())
def test_cross_attention_sees_the_encoder_only_and_stores_nothing(batch: Batch, decode: bool) -> None:
    batch = replace(batch, encoder=[i + 1 for i in range(len(batch.lengths))], window=0)
    tensors = _tensors(batch)
    expected = _reference(batch, tensors, _causal(0), cross=True)
    before = tensors.k_cache.clone(), tensors.v_cache.clone()
    other = replace(tensors, key=tensors.key + 1, value=tensors.value + 1)

    _assert_near((_decode if decode else _extend)(batch, other, cross=True), expected)

    assert torch.equal(tensors.k_cache, before[0])
    assert torch.equal(tensors.v_cache, before[1])


def _random_tree(size: int, seed: int) -> list[int | None]:
    generator = torch.Generator().manual_seed(seed)
    choices = [int(torch.randint(0, node, (1,), generator=generator)) for node in range(1, size)]
    return [None, *choices]


def _path(parents: list[int | None], node: int) -> list[int]:
    """Return the nodes from the root down to this one."""
    path = [node]
    while (parent := parents[path[0]]) is not None:
        path.insert(0, parent)
    return path


def _tree_mask(parents: list[int | None]) -> Tensor:
    size = len(parents)
    return torch.tensor([[other in _path(parents, node) for other in range(size)] for node in range(size)])


@given(st.data(), batches())
def test_a_tree_node_sees_the_prefix_and_its_ancestors(data: st.DataObject, batch: Batch) -> None:
    batch = replace(batch, window=0)
    tensors = _tensors(batch)
    trees = [_random_tree(new, data.draw(st.integers(0, 999))) if new else [] for new in batch.new]
    mask = torch.cat([torch.empty(0, dtype=torch.bool), *(_tree_mask(tree).reshape(-1) for tree in trees if tree)])
    expected = []
    for i, tree in enumerate(trees):
        prefix = batch.lengths[i] - batch.new[i]

        def sees(own: int, other: int, tree: list[int | None] = tree, prefix: int = prefix) -> bool:
            return other < prefix or other - prefix in _path(tree, own - prefix)

        expected.append(_reference_of(batch, tensors, i, sees))

    _assert_near(_extend(batch, tensors, tree=mask), torch.cat(expected))


def _reference_of(batch: Batch, tensors: Tensors, i: int, visible: Visible) -> Tensor:
    """Compute request ``i`` alone."""
    own = slice(batch.starts[i], batch.starts[i] + batch.new[i])
    alone = replace(
        batch,
        lengths=[batch.lengths[i]],
        new=[batch.new[i]],
        encoder=None if batch.encoder is None else [batch.encoder[i]],
    )
    return _reference(alone, replace(tensors, query=tensors.query[own], rows=tensors.rows[i : i + 1]), visible)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 999), st.sampled_from([0, 1, 2, 3, 5]))
def test_a_tree_node_gets_what_plain_decode_of_its_path_gets(prefix: int, size: int, seed: int, window: int) -> None:
    batch = Batch(lengths=[prefix + size], new=[size], heads=4, kv_heads=2, dim=4, v_dim=3, seed=seed, window=window)
    tensors = _tensors(batch)
    parents = _random_tree(size, seed)

    verified = _extend(batch, tensors, tree=_tree_mask(parents).reshape(-1))

    slots = tensors.table[tensors.rows[0]].clone()
    for node in range(size):
        path = [prefix + ancestor for ancestor in _path(parents, node)]
        positions = [*range(prefix), *path]
        table = slots[positions].unsqueeze(0)
        one = replace(batch, lengths=[len(positions)], new=[1])
        decoded = _decode(
            one,
            replace(
                tensors,
                query=tensors.query[node : node + 1],
                output=torch.empty(1, batch.heads, batch.v_dim),
                table=table,
                rows=torch.tensor([0]),
            ),
            store=False,
        )
        _assert_near(verified[node : node + 1], decoded)


@given(batches())
def test_a_chain_as_a_tree_changes_nothing(batch: Batch) -> None:
    tensors = _tensors(batch)
    chains = [torch.ones(new, new, dtype=torch.bool).tril().reshape(-1) for new in batch.new]

    plain = _extend(batch, tensors, output=torch.zeros_like(tensors.output))
    chained = _extend(batch, tensors, tree=torch.cat(chains), output=torch.zeros_like(tensors.output))

    assert torch.equal(plain, chained)


def test_extend_takes_the_new_tokens_as_passed_not_as_cached() -> None:
    batch = Batch(lengths=[5, 2], new=[2, 2], heads=2, kv_heads=1, dim=3, v_dim=3, seed=21)
    tensors = _tensors(batch)
    expected = _reference(batch, tensors, _causal(0))
    tensors.k_cache[tensors.loc] = 0  # a cache of lower precision, at its worst
    tensors.v_cache[tensors.loc] = 0

    _assert_near(_extend(batch, tensors), expected)


@given(batches(decode=True))
def test_extending_by_one_token_is_decoding(batch: Batch) -> None:
    tensors = _tensors(batch)

    extended = _extend(batch, tensors, output=torch.zeros_like(tensors.output))

    _assert_near(_decode(batch, tensors, store=False), extended)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.booleans())
def test_larger_shapes_agree_with_torchs_own_attention(seed: int, tree: bool) -> None:
    batch = Batch(lengths=[70, 33, 9], new=[8, 33, 1], heads=8, kv_heads=2, dim=32, v_dim=16, seed=seed, scale=32**-0.5)
    tensors = _tensors(batch)
    trees = [_random_tree(new, seed) for new in batch.new]
    mask = torch.cat([_tree_mask(parents).reshape(-1) for parents in trees]) if tree else None

    found = _extend(batch, tensors, tree=mask)

    for i, (length, new, start) in enumerate(zip(batch.lengths, batch.new, batch.starts, strict=True)):
        slots = tensors.table[tensors.rows[i], :length].long()
        among_new = _tree_mask(trees[i]) if tree else torch.ones(new, new, dtype=torch.bool).tril()
        visible = torch.cat([torch.ones(new, length - new, dtype=torch.bool), among_new], dim=1)
        expected = torch.nn.functional.scaled_dot_product_attention(
            tensors.query[start : start + new].transpose(0, 1),
            tensors.k_cache[slots].transpose(0, 1),
            tensors.v_cache[slots].transpose(0, 1),
            attn_mask=visible,
            scale=batch.scale,
            enable_gqa=True,
        )
        torch.testing.assert_close(found[start : start + new], expected.transpose(0, 1), rtol=1e-4, atol=1e-5)


@given(batches(decode=True))
def test_decode_stores_k_and_v_at_their_slots_and_nowhere_else(batch: Batch) -> None:
    tensors = _tensors(batch)
    tensors.k_cache[tensors.loc] = 0
    tensors.v_cache[tensors.loc] = 0
    expected_k, expected_v = tensors.k_cache.clone(), tensors.v_cache.clone()
    for i, slot in enumerate(tensors.loc.tolist()):
        expected_k[slot], expected_v[slot] = tensors.key[i], tensors.value[i]

    _decode(batch, tensors)

    assert torch.equal(tensors.k_cache, expected_k)
    assert torch.equal(tensors.v_cache, expected_v)


def test_decode_without_a_key_stores_nothing() -> None:
    batch = Batch(lengths=[3], new=[1], heads=2, kv_heads=1, dim=2, v_dim=2, seed=1)
    tensors = _tensors(batch)
    before = tensors.k_cache.clone(), tensors.v_cache.clone()

    _decode(batch, tensors, store=False)

    assert torch.equal(tensors.k_cache, before[0])
    assert torch.equal(tensors.v_cache, before[1])


def test_extend_leaves_the_cache_and_foreign_rows_alone() -> None:
    batch = Batch(lengths=[4, 3], new=[2, 1], heads=2, kv_heads=1, dim=2, v_dim=2, seed=5)
    tensors = _tensors(batch)
    before = tensors.k_cache.clone(), tensors.v_cache.clone()
    spread = replace(
        tensors,
        query=torch.cat([tensors.query[:2], torch.zeros(2, 2, 2), tensors.query[2:]]),
        key=torch.cat([tensors.key[:2], torch.zeros(2, 1, 2), tensors.key[2:]]),
        value=torch.cat([tensors.value[:2], torch.zeros(2, 1, 2), tensors.value[2:]]),
    )
    output = torch.full((5, 2, 2), -7.0)

    _extend(batch, spread, output=output, starts=[0, 4])

    assert torch.equal(output[[0, 1, 4]], _extend(batch, tensors))
    assert torch.equal(output[2:4], torch.full((2, 2, 2), -7.0))
    assert torch.equal(tensors.k_cache, before[0])
    assert torch.equal(tensors.v_cache, before[1])


@pytest.mark.parametrize("decode", [True, False])
def test_what_lies_outside_the_window_has_no_influence(decode: bool) -> None:
    batch = Batch(lengths=[9], new=[1], heads=2, kv_heads=2, dim=4, v_dim=4, seed=3, window=4)
    tensors = _tensors(batch)
    attend = _decode if decode else _extend
    before = attend(batch, tensors).clone()
    row = tensors.table[tensors.rows[0]].long()

    tensors.k_cache[row[:5]] = 50.0
    tensors.v_cache[row[:5]] = 1e6
    assert torch.equal(attend(batch, tensors), before)

    tensors.v_cache[row[5]] += 1.0
    assert not torch.equal(attend(batch, tensors), before)


def test_a_huge_sink_takes_all_the_weight() -> None:
    batch = Batch(lengths=[4], new=[1], heads=2, kv_heads=1, dim=3, v_dim=3, seed=8)
    tensors = replace(_tensors(batch), sinks=torch.tensor([1e4, -1e4]))

    output = _decode(batch, tensors)

    assert torch.equal(output[:, 0], torch.zeros(1, 3))
    assert torch.equal(output[:, 1], _decode(batch, replace(tensors, sinks=None, output=torch.empty(1, 2, 3)))[:, 1])


@pytest.mark.parametrize("decode", [True, False])
def test_an_fp8_cache_is_read_through_its_scale(decode: bool) -> None:
    batch = Batch(lengths=[6, 3], new=[1, 1], heads=4, kv_heads=2, dim=4, v_dim=4, seed=11)
    exact = _tensors(batch)
    k8, v8 = (cache.to(torch.float8_e4m3fn) for cache in (exact.k_cache, exact.v_cache))
    coarse = replace(exact, k_cache=k8.float() * 0.5, v_cache=v8.float() * 2.0)
    expected = _reference(batch, coarse, _causal(0))
    stored = replace(exact, k_cache=k8, v_cache=v8)

    if decode:
        _assert_near(_decode(batch, stored, store=False, scales=(0.5, 2.0)), expected)
    else:
        _assert_near(_extend(batch, stored, pass_new=False, scales=(0.5, 2.0)), expected)


def test_bfloat16_is_computed_in_float32_and_rounded_once() -> None:
    batch = Batch(
        lengths=[40],
        new=[40],
        heads=4,
        kv_heads=2,
        dim=16,
        v_dim=16,
        seed=2,
        dtype=torch.bfloat16,
        scale=0.25,
    )
    tensors = _tensors(batch)

    found = _extend(batch, tensors)

    expected = _reference(batch, tensors, _causal(0)).to(torch.bfloat16)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2**-8, atol=1e-6)


BASE = Batch(lengths=[4, 2], new=[1, 1], heads=4, kv_heads=2, dim=3, v_dim=3, seed=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"k_cache": torch.zeros(7, 3, 3), "v_cache": torch.zeros(7, 3, 3)},
            "4 heads cannot share 3 KV heads evenly",
        ),
        ({"k_cache": torch.zeros(7, 2, 2)}, "key cache has shape [7, 2, 2], expected [*, *, 3]"),
        ({"v_cache": torch.zeros(6, 2, 3)}, "value cache has shape [6, 2, 3], expected [7, 2, *]"),
        ({"output": torch.zeros(2, 4, 2)}, "output has shape [2, 4, 2], expected [2, 4, 3]"),
        ({"rows": torch.tensor([0])}, "req_pool_indices has shape [1], expected [2]"),
        ({"rows": torch.tensor([0, 3])}, "request 3 is not in req_to_token"),
        ({"table": torch.zeros(3, 3, dtype=torch.int32)}, "positions [0, 4) are not in req_to_token"),
    ],
)
@pytest.mark.parametrize("decode", [True, False])
def test_tensors_that_do_not_fit_are_refused(change: dict[str, Tensor], message: str, decode: bool) -> None:
    tensors = replace(_tensors(BASE), rows=torch.tensor([0, 1]))
    tensors = replace(tensors, **change)

    with pytest.raises(ValueError, match=re.escape(message)):
        (_decode if decode else _extend)(BASE, tensors)


def test_wishes_that_cannot_be_met_are_refused() -> None:
    tensors = _tensors(BASE)
    with pytest.raises(ValueError, match="cross attention needs encoder_lens"):
        _decode(BASE, tensors, cross=True)
    with pytest.raises(ValueError, match="a sliding window needs causal attention"):
        _extend(replace(BASE, window=2), tensors, causal=False)
    with pytest.raises(ValueError, match="tree_mask has 1 elements, expected at least 2"):
        _extend(BASE, tensors, tree=torch.ones(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="a request of 0 tokens cannot have 1 new ones"):
        _extend(replace(BASE, lengths=[4, 0]), tensors)
