"""The draft tree, against trees held as dictionaries and walked one node at a time."""

import re
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)
from sgl_kernel.draft_tree import FULL_MASK, QLEN_ONLY
from torch import Tensor

UNTOUCHED = -7


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A token tree: ``parents[i]`` is the parent of node ``i``, None where it has none."""

    parents: list[int | None]

    @property
    def size(self) -> int:
        return len(self.parents)

    def path(self, node: int) -> list[int]:
        """Return the node and its ancestors, upwards."""
        path = [node]
        while (parent := self.parents[path[-1]]) is not None:
            path.append(parent)
        return path

    def children(self, node: int) -> list[int]:
        return [child for child in range(self.size) if self.parents[child] == node]

    def mask(self) -> list[list[bool]]:
        return [[other in self.path(node) for other in range(self.size)] for node in range(self.size)]

    def first_children(self) -> list[int]:
        return [min(self.children(node), default=-1) for node in range(self.size)]

    def next_siblings(self) -> list[int]:
        found = []
        for node, parent in enumerate(self.parents):
            siblings = [] if parent is None else [other for other in self.children(parent) if other > node]
            found.append(min(siblings, default=-1))
        return found


@st.composite
def trees(draw: st.DrawFn, size: int) -> Tree:
    """Draw any tree whose ancestors have smaller numbers."""
    return Tree(parents=[None, *(draw(st.integers(0, node - 1)) for node in range(1, size))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What EAGLE hands over for one request, and the tree it means."""

    parent_list: list[int]
    selected: list[int]
    tree: Tree


@st.composite
def drafts(draw: st.DrawFn, topk: int, depth: int, size: int) -> Draft:
    """Draft ``depth`` steps with ``topk`` branches and select ``size - 1`` candidates, parents first."""
    parent_of: dict[int, int | None] = dict.fromkeys(range(topk))
    parent_list = [-1]
    latest = list(range(topk))
    for _ in range(depth - 1):
        chosen = draw(st.permutations(latest))[:topk]
        parent_list += chosen
        first = len(parent_of)
        latest = list(range(first, first + topk * topk))
        parent_of |= {first + i: chosen[i // topk] for i in range(topk * topk)}
    selected: list[int] = []
    while len(selected) < size - 1:
        ready = [
            candidate
            for candidate, parent in parent_of.items()
            if candidate not in selected and (parent is None or parent in selected)
        ]
        selected.append(draw(st.sampled_from(ready)))
    selected.sort()
    node = {candidate: i + 1 for i, candidate in enumerate(selected)}
    parents: list[int | None] = [None]
    for candidate in selected:
        parent = parent_of[candidate]
        parents.append(0 if parent is None else node[parent])
    return Draft(parent_list=parent_list, selected=selected, tree=Tree(parents=parents))


def _links(batch: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    buffer = torch.full((3, batch, n), -1, dtype=torch.int64)
    return buffer[0], buffer[1], buffer[2]


def _assert_links(found: tuple[Tensor, Tensor, Tensor], expected: list[Tree]) -> None:
    index, first_child, sibling = found
    n = expected[0].size
    assert index.tolist() == [[b * n + node for node in range(n)] for b in range(len(expected))]
    assert first_child.tolist() == [tree.first_children() for tree in expected]
    assert sibling.tolist() == [tree.next_siblings() for tree in expected]


@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_selected_candidates_become_the_tree_they_mean(data: st.DataObject, topk: int, depth: int, batch: int) -> None:
    available = topk + (depth - 1) * topk * topk
    size = data.draw(st.integers(1, min(available, 7) + 1))
    requests = [data.draw(drafts(topk, depth, size)) for _ in range(batch)]
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=batch, max_size=batch))
    links = _links(batch, size)
    positions = torch.full((batch * size,), UNTOUCHED)
    mask = torch.ones(batch * size * size, dtype=torch.bool)

    build_tree_kernel_efficient_cpu(
        torch.tensor([request.parent_list for request in requests]),
        torch.tensor([request.selected for request in requests], dtype=torch.int64).view(batch, size - 1),
        torch.tensor(lengths),
        mask,
        positions,
        *links,
        topk,
        depth,
        size,
        QLEN_ONLY,
    )

    _assert_links(links, [request.tree for request in requests])
    assert mask.view(batch, size, size).tolist() == [request.tree.mask() for request in requests]
    assert positions.tolist() == [
        length + len(request.tree.path(node)) - 1
        for request, length in zip(requests, lengths, strict=True)
        for node in range(size)
    ]


@given(st.data(), st.integers(1, 3))
def test_a_full_mask_holds_the_same_tree_behind_untouched_prefix_columns(data: st.DataObject, batch: int) -> None:
    topk, depth, size = 2, 3, 6
    requests = [data.draw(drafts(topk, depth, size)) for _ in range(batch)]
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=batch, max_size=batch))
    cells = sum(size * (length + size) for length in lengths)
    before = data.draw(st.lists(st.booleans(), min_size=cells, max_size=cells))
    mask = torch.tensor(before)

    build_tree_kernel_efficient_cpu(
        torch.tensor([request.parent_list for request in requests]),
        torch.tensor([request.selected for request in requests]),
        torch.tensor(lengths),
        mask,
        torch.empty(batch * size, dtype=torch.int64),
        *_links(batch, size),
        topk,
        depth,
        size,
        FULL_MASK,
    )

    expected: list[bool] = []
    for request, length in zip(requests, lengths, strict=True):
        for row in request.tree.mask():
            expected += before[len(expected) : len(expected) + length] + row
    assert mask.tolist() == expected


def test_a_drafted_example_by_hand() -> None:
    # Step 1 drafts 0 and 1 behind the root; step 2 drafts 2, 3 behind candidate 1 and 4, 5 behind 0.
    links = _links(1, 5)
    mask = torch.zeros(25, dtype=torch.bool)
    positions = torch.zeros(5, dtype=torch.int64)

    build_tree_kernel_efficient_cpu(
        torch.tensor([[-1, 1, 0]]),
        torch.tensor([[0, 1, 3, 4]]),
        torch.tensor([10]),
        mask,
        positions,
        *links,
        2,
        2,
        5,
        QLEN_ONLY,
    )

    assert positions.tolist() == [10, 11, 11, 12, 12]
    assert mask.view(5, 5).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert [table.tolist() for table in links] == [
        [[0, 1, 2, 3, 4]],
        [[1, 4, 3, -1, -1]],
        [[-1, 2, -1, -1, -1]],
    ]


def test_a_single_step_needs_no_parent_list() -> None:
    links = _links(2, 3)
    mask = torch.zeros(18, dtype=torch.bool)

    build_tree_kernel_efficient_cpu(
        torch.empty(2, 0, dtype=torch.int64),
        torch.tensor([[0, 1], [0, 2]]),
        torch.tensor([4, 5]),
        mask,
        torch.zeros(6, dtype=torch.int64),
        *links,
        3,
        1,
        3,
        QLEN_ONLY,
    )

    _assert_links(links, [Tree(parents=[None, 0, 0])] * 2)


def test_a_candidate_without_its_parent_gets_no_links() -> None:
    links = _links(1, 3)
    mask = torch.ones(9, dtype=torch.bool)

    build_tree_kernel_efficient_cpu(
        torch.tensor([[-1, 1, 0]]),
        torch.tensor([[0, 2]]),  # candidate 2 belongs to candidate 1, which is not there
        torch.tensor([0]),
        mask,
        torch.zeros(3, dtype=torch.int64),
        *links,
        2,
        2,
        3,
        QLEN_ONLY,
    )

    assert links[1].tolist() == [[1, -1, -1]]
    assert links[2].tolist() == [[-1, -1, -1]]
    assert mask.view(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize(
    ("selected", "mask_cells", "mode", "message"),
    [
        ([[0, 1, 2]], 9, QLEN_ONLY, "selected_index has shape [1, 3], expected [1, 2]"),
        ([[0, 6]], 9, QLEN_ONLY, "the group of selected_index has values in [0, 3], expected [0, 2]"),
        ([[0, 1]], 8, QLEN_ONLY, "tree_mask has 8 elements, expected at least 9"),
        ([[0, 1]], 20, FULL_MASK, "tree_mask has 20 elements, expected at least 21"),
        ([[0, 1]], 9, 2, "tree_mask_mode 2 is not supported"),
    ],
)
def test_a_wrong_tree_is_refused(selected: list[list[int]], mask_cells: int, mode: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_tree_kernel_efficient_cpu(
            torch.tensor([[-1, 1, 0]]),
            torch.tensor(selected),
            torch.tensor([4]),
            torch.ones(mask_cells, dtype=torch.bool),
            torch.zeros(3, dtype=torch.int64),
            *_links(1, 3),
            2,
            2,
            3,
            mode,
        )


@given(st.data(), st.integers(1, 7), st.integers(1, 3), st.sampled_from([torch.int32, torch.int64]))
def test_a_mask_gives_back_its_tree(data: st.DataObject, size: int, batch: int, dtype: torch.dtype) -> None:
    expected = [data.draw(trees(size)) for _ in range(batch)]
    lengths = data.draw(st.lists(st.integers(0, 50), min_size=batch, max_size=batch))
    mask = torch.tensor([tree.mask() for tree in expected])
    noise = data.draw(st.lists(st.booleans(), min_size=batch * size * size, max_size=batch * size * size))
    above_diagonal = torch.ones(size, size, dtype=torch.bool).triu(1)
    mask |= torch.tensor(noise).view(batch, size, size) & above_diagonal
    spare = 4
    positions = torch.full((batch * size + spare,), UNTOUCHED)
    links = _links(batch, size)

    reconstruct_indices_from_tree_mask(
        torch.cat([mask.reshape(-1), torch.ones(spare, dtype=torch.bool)]),
        torch.tensor([*lengths, 99], dtype=dtype),
        positions,
        *links,
        batch,
        size,
    )

    _assert_links(links, expected)
    assert (
        positions.tolist()
        == [
            length + len(tree.path(node)) - 1
            for tree, length in zip(expected, lengths, strict=True)
            for node in range(size)
        ]
        + [UNTOUCHED] * spare
    )


def test_a_node_without_ancestors_has_neither_parent_nor_sibling() -> None:
    links = _links(1, 4)
    mask = torch.eye(4, dtype=torch.bool)
    mask[1, 0] = mask[3, 2] = True
    positions = torch.zeros(4, dtype=torch.int64)

    reconstruct_indices_from_tree_mask(mask.reshape(-1), torch.tensor([8]), positions, *links, 1, 4)

    _assert_links(links, [Tree(parents=[None, 0, None, 2])])
    assert positions.tolist() == [8, 9, 8, 9]


def test_a_mask_buffer_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="tree_mask has 4 elements, expected at least 9"):
        reconstruct_indices_from_tree_mask(
            torch.ones(4, dtype=torch.bool), torch.tensor([1]), torch.zeros(3), *_links(1, 3), 1, 3
        )


def _verify(
    requests: list[tuple[Tree, list[int], list[int]]], width: int
) -> tuple[list[int], list[list[int]], list[int]]:
    """Run the kernel on (tree, token of each node, the target's choice at each node)."""
    batch, n = len(requests), requests[0][0].size
    predicts = torch.full((batch * n,), UNTOUCHED, dtype=torch.int32)
    accept_index = torch.full((batch, width), -1, dtype=torch.int32)
    accept_token_num = torch.full((batch,), UNTOUCHED, dtype=torch.int32)
    verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accept_token_num,
        candidates=torch.tensor([tokens for _, tokens, _ in requests]),
        retrive_index=torch.arange(batch * n).view(batch, n),
        retrive_next_token=torch.tensor([tree.first_children() for tree, _, _ in requests]),
        retrive_next_sibling=torch.tensor([tree.next_siblings() for tree, _, _ in requests]),
        target_predict=torch.tensor([choices for _, _, choices in requests]),
    )
    return predicts.tolist(), accept_index.tolist(), accept_token_num.tolist()


@given(st.data(), st.integers(1, 8), st.integers(1, 3), st.integers(1, 5))
def test_the_accepted_path_follows_the_targets_choices(data: st.DataObject, size: int, batch: int, width: int) -> None:
    few = st.lists(st.integers(0, 2), min_size=size, max_size=size)
    requests = [(data.draw(trees(size)), data.draw(few), data.draw(few)) for _ in range(batch)]
    expected_predicts = [UNTOUCHED] * (batch * size)
    expected_index, expected_num = [], []
    for b, (tree, tokens, choices) in enumerate(requests):
        path = [0]
        while len(path) < width:
            fitting = [child for child in tree.children(path[-1]) if tokens[child] == choices[path[-1]]]
            if not fitting:
                break
            path.append(fitting[0])
        for node in path:
            expected_predicts[b * size + node] = choices[node]
        expected_index.append([b * size + node for node in path] + [-1] * (width - len(path)))
        expected_num.append(len(path) - 1)

    assert _verify(requests, width) == (expected_predicts, expected_index, expected_num)


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_a_chain_is_accepted_up_to_its_first_wrong_token(right: list[bool]) -> None:
    size = len(right) + 1
    chain = Tree(parents=[None, *range(size - 1)])
    choices = [100 + node for node in range(size)]
    tokens = [0] + [choices[i] if ok else -1 for i, ok in enumerate(right)]
    accepted = right.index(False) if False in right else len(right)

    predicts, index, number = _verify([(chain, tokens, choices)], size)

    assert number == [accepted]
    assert index[0][: accepted + 1] == list(range(accepted + 1))
    assert predicts[accepted] == choices[accepted]


def test_a_second_branch_is_taken_when_the_first_is_wrong() -> None:
    tree = Tree(parents=[None, 0, 0, 1, 2])

    predicts, index, number = _verify([(tree, [5, 6, 7, 8, 9], [7, 1, 9, 1, 4])], 3)

    assert number == [2]
    assert index == [[0, 2, 4]]
    assert predicts == [7, UNTOUCHED, 9, UNTOUCHED, 4]


def test_tables_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="target_predict has shape"):
        verify_tree_greedy_cpu(
            torch.zeros(3),
            torch.zeros(1, 3),
            torch.zeros(1),
            torch.zeros(1, 3),
            *_links(1, 3),
            torch.zeros(1, 2),
        )


@given(st.data(), st.integers(1, 3), st.integers(1, 4))
def test_a_built_mask_rebuilds_the_same_links(data: st.DataObject, topk: int, depth: int) -> None:
    size = min(topk + (depth - 1) * topk * topk, 7) + 1
    request = data.draw(drafts(topk, depth, size))
    built, rebuilt = _links(1, size), _links(1, size)
    mask = torch.ones(size * size, dtype=torch.bool)
    positions, again = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
    length = torch.tensor([9])

    build_tree_kernel_efficient_cpu(
        torch.tensor([request.parent_list]),
        torch.tensor([request.selected]),
        length,
        mask,
        positions,
        *built,
        topk,
        depth,
        size,
        QLEN_ONLY,
    )
    reconstruct_indices_from_tree_mask(mask, length, again, *rebuilt, 1, size)

    assert all(torch.equal(one, other) for one, other in zip(built, rebuilt, strict=True))
    assert torch.equal(positions, again)
