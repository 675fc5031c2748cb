"""What is installed is the shipped topic."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest
from speculation.lab.mutations import DECODE, NAMES, TOPIC


def methods(payload: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse((TOPIC / "payload" / payload).read_text()).body:
        assert isinstance(node, ast.FunctionDef)
        yield node


@pytest.mark.parametrize("payload", [DECODE, NAMES, "worker_graphs.py"])
def test_the_worker_has_the_payload(payload: str) -> None:
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

    (worker,) = ast.parse(inspect.getsource(EAGLEWorkerV2)).body
    assert isinstance(worker, ast.ClassDef)
    installed = {node.name: ast.dump(node) for node in worker.body if isinstance(node, ast.FunctionDef)}
    for node in methods(payload):
        assert installed[node.name] == ast.dump(node), node.name
