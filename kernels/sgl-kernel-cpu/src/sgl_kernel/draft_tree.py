"""Build, rebuild and verify the token tree of speculative decoding.

A tree has ``n = draft_token_num`` nodes per request. Node 0, the root, is the last committed token; a node's
ancestors have smaller numbers than the node. Three tables of shape [bs, n] link the nodes:
``retrive_index`` (the node's row in the flat batch, ``b * n + node``), ``retrive_next_token`` (its first
child) and ``retrive_next_sibling`` (the next child of its parent), -1 for none. An ancestor mask [bs, n, n]
says which nodes a node sees. ("retrive" is how SGLang spells these arguments, and it passes them by name.)
"""

import torch
from torch import Tensor

from sgl_kernel.checks import require, require_numel, require_range, require_shape

FULL_MASK = 0
"""A mask row has ``seq_len + n`` columns: the committed tokens, then the tree."""
QLEN_ONLY = 1
"""A mask row has the tree's ``n`` columns only; what SGLang uses on the CPU."""


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int = FULL_MASK,
) -> None:
    """Turn the candidates that EAGLE selected into a tree.

    Candidates are numbered as they were drafted, in groups of ``topk`` that share a parent. Group 0 hangs
    on the root; the parent of group ``g > 0`` is candidate ``parent_list[b, g]``. Siblings keep the order of
    their node numbers. A node whose parent was not selected (SGLang selects no such node) gets no links.
    Called by ``kernels/ops/speculative/spec_tree.py``, ``build_tree_kernel_efficient_func``, on behalf of
    ``srt/speculative/eagle_utils.py``, ``build_tree_kernel_efficient``.

    Args:
        parent_list: [bs, topk * (depth - 1) + 1] int64; [bs, 0] will do when every node hangs on the root.
        selected_index: [bs, n - 1] int64, the candidate behind nodes 1 .. n-1, ascending.
        verified_seq_len: [bs] int64, committed tokens, the tree not counted.
        tree_mask: flat bool, **written** in the tree's columns: bs * n * n cells (QLEN_ONLY), or
            sum(verified_seq_len) * n + bs * n * n (FULL_MASK; other columns stay as the caller filled them).
        positions: [bs * n] int64, **written**: ``verified_seq_len`` plus the node's depth.
        retrive_index: [bs, n] int64, **written**.
        retrive_next_token: [bs, n] int64, **written**.
        retrive_next_sibling: [bs, n] int64, **written**.
        topk: candidates per group.
        depth: draft steps, the largest depth of a node.
        draft_token_num: n.
        tree_mask_mode: FULL_MASK or QLEN_ONLY; bit-packed masks have no user on the CPU.

    Raises:
        ValueError: when shapes do not fit, a group is not in ``parent_list``, or the mode is another.
    """
    batch, n = verified_seq_len.numel(), draft_token_num
    require(int(tree_mask_mode) in (FULL_MASK, QLEN_ONLY), f"tree_mask_mode {tree_mask_mode} is not supported")
    require_shape("selected_index", selected_index, (batch, n - 1))
    require_shape("parent_list", parent_list, (batch, None))
    parent = _parents_from_candidates(parent_list, selected_index, topk)
    mask, node_depth = _ancestors(parent, depth)
    _write_links(parent, retrive_index, retrive_next_token, retrive_next_sibling)
    _table("positions", positions, batch, n).copy_(verified_seq_len.reshape(batch, 1) + node_depth)
    flat_mask = tree_mask.view(-1)
    if int(tree_mask_mode) == QLEN_ONLY:
        require_numel("tree_mask", flat_mask, batch * n * n)
        flat_mask[: batch * n * n].view(batch, n, n).copy_(mask)
        return
    require_numel("tree_mask", flat_mask, n * (int(verified_seq_len.sum()) + batch * n))
    offset = 0
    for b, length in enumerate(verified_seq_len.tolist()):
        cells = n * (length + n)
        flat_mask[offset : offset + cells].view(n, length + n)[:, length:].copy_(mask[b])
        offset += cells


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Rebuild positions and links from an ancestor mask; NGRAM drafts come with a mask only.

    A node without an ancestor has no parent and no sibling. Called by
    ``kernels/ops/speculative/reconstruct_tree.py``, ``reconstruct_indices_from_tree_mask_func``, on behalf of
    ``srt/speculative/ngram_worker.py``.

    Args:
        tree_mask: flat bool, at least bs * n * n cells; ``[b, i, j]`` with ``j < i``: ``j`` is an ancestor
            of ``i``.
        verified_seq_len: [bs] integer, committed tokens, the tree not counted.
        positions: [bs * n] int64, **written**: ``verified_seq_len`` plus the number of ancestors.
        retrive_index: [bs, n] int64, **written**.
        retrive_next_token: [bs, n] int64, **written**.
        retrive_next_sibling: [bs, n] int64, **written**.
        batch_size: bs; every tensor may be a larger buffer of which the front is used.
        draft_token_num: n.

    Raises:
        ValueError: when a buffer is too small.
    """
    n = draft_token_num
    require_numel("verified_seq_len", verified_seq_len, batch_size)
    require_numel("tree_mask", tree_mask, batch_size * n * n)
    mask = tree_mask.reshape(-1)[: batch_size * n * n].view(batch_size, n, n).to(torch.bool)
    ancestors = mask & torch.ones(n, n, dtype=torch.bool).tril(-1)
    nearest = torch.where(ancestors, torch.arange(n), -1).amax(dim=2)
    _write_links(nearest, retrive_index, retrive_next_token, retrive_next_sibling)
    seq_len = verified_seq_len.reshape(-1)[:batch_size].unsqueeze(1)
    _table("positions", positions, batch_size, n).copy_(seq_len + ancestors.sum(dim=2))


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Accept the longest path of drafts that the target model would have produced itself.

    From the root, go to the child whose token is the target's choice at the current node, as long as there is
    one. Called by ``kernels/ops/speculative/spec_tree.py``, ``verify_tree_greedy_func``, with names.

    Args:
        predicts: [bs * n] int32, **written** at the nodes of the path: the target's choice there, the last of
            which is the bonus token.
        accept_index: [bs, depth + 1] int32, the front of each row is **written**: the path as rows of the
            flat batch, the root first. The caller fills it with -1 before.
        accept_token_num: [bs] int32, **written**: accepted drafts, the root not counted.
        candidates: [bs, n] integer, the token of each node.
        retrive_index: [bs, n] integer.
        retrive_next_token: [bs, n] integer.
        retrive_next_sibling: [bs, n] integer.
        target_predict: [bs, n] integer, the target's choice at each node.

    Raises:
        ValueError: when shapes do not fit.
    """
    require_shape("candidates", candidates, (None, None))
    batch, n = candidates.shape
    for name, tensor in (
        ("retrive_index", retrive_index),
        ("retrive_next_token", retrive_next_token),
        ("retrive_next_sibling", retrive_next_sibling),
        ("target_predict", target_predict),
    ):
        require_shape(name, tensor, (batch, n))
    require_shape("accept_index", accept_index, (batch, None))
    require_shape("accept_token_num", accept_token_num, (batch,))
    require_numel("predicts", predicts, batch * n)
    choice = target_predict.reshape(-1).tolist()
    path_rows: list[int] = []
    tables = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        strict=True,
    )
    for b, (token, row, first_child, sibling) in enumerate(tables):
        path = [row[0]]
        node = 0
        while len(path) < accept_index.shape[1]:
            node = first_child[node]
            while node != -1 and token[node] != choice[path[-1]]:
                node = sibling[node]
            if node == -1:
                break
            path.append(row[node])
        accept_index[b, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[b] = len(path) - 1
        path_rows += path
    rows = torch.tensor(path_rows, dtype=torch.int64)
    predicts[rows] = target_predict.reshape(-1)[rows].to(predicts.dtype)


def _parents_from_candidates(parent_list: Tensor, selected_index: Tensor, topk: int) -> Tensor:
    """Name the parent of each node, [bs, n] int64; -1 for the root and where the parent was not selected."""
    batch = selected_index.shape[0]
    group = selected_index // topk
    require_range("the group of selected_index", group, 0, max(parent_list.shape[1] - 1, 0))
    on_root = group == 0
    if parent_list.shape[1] == 0:
        parent = torch.zeros_like(group)
    else:
        candidate = parent_list.gather(1, group)
        node = _first_true(candidate.unsqueeze(2) == selected_index.unsqueeze(1))
        parent = torch.where(on_root, 0, torch.where(node >= 0, node + 1, -1))
    return torch.cat([torch.full((batch, 1), -1, dtype=torch.int64), parent], dim=1)


def _ancestors(parent: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Walk up from every node at once.

    Args:
        parent: [bs, n] int64, -1 for none.
        depth: steps to walk.

    Returns:
        The mask [bs, n, n] bool of what a node sees (itself, its ancestors, and always the root), and the
        number of steps it took to the root, [bs, n] int64.
    """
    batch, n = parent.shape
    mask = torch.zeros(batch, n, n, dtype=torch.bool)
    mask[:, :, 0] = True
    steps = torch.zeros(batch, n, dtype=torch.int64)
    node = torch.arange(n).repeat(batch, 1)
    for _ in range(depth):
        below_root = node > 0
        steps += below_root
        mask.scatter_(2, node.clamp_min(0).unsqueeze(2), True)
        node = torch.where(below_root, parent.gather(1, node.clamp_min(0)), node)
    return mask, steps


def _write_links(
    parent: Tensor, retrive_index: Tensor, retrive_next_token: Tensor, retrive_next_sibling: Tensor
) -> None:
    """Fill the three link tables from [bs, n] parent nodes (-1 for none)."""
    batch, n = parent.shape
    number = torch.arange(n)
    is_child = parent.unsqueeze(1) == number.unsqueeze(1)
    is_later_sibling = (
        (parent.unsqueeze(2) == parent.unsqueeze(1)) & (parent >= 0).unsqueeze(2) & (number.unsqueeze(1) < number)
    )
    _table("retrive_index", retrive_index, batch, n).copy_(torch.arange(batch * n).view(batch, n))
    _table("retrive_next_token", retrive_next_token, batch, n).copy_(_first_true(is_child))
    _table("retrive_next_sibling", retrive_next_sibling, batch, n).copy_(_first_true(is_later_sibling))


def _first_true(match: Tensor) -> Tensor:
    """Find the first True along the last dimension, -1 where there is none."""
    if match.shape[-1] == 0:
        return torch.full(match.shape[:-1], -1, dtype=torch.int64)
    return torch.where(match.any(dim=-1), match.to(torch.uint8).argmax(dim=-1), -1)


def _table(name: str, buffer: Tensor, batch: int, n: int) -> Tensor:
    """View the front of a buffer as [batch, n], so that writing to the view writes to the buffer."""
    require_numel(name, buffer, batch * n)
    return buffer.view(-1)[: batch * n].view(batch, n)
