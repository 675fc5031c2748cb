"""What the tests of patch series share."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_series import WORKER, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(root=tmp_path / "catalog", tree=tmp_path / "tree")
    bench.fill({"pkg/worker.py": WORKER, "pkg/__init__.py": "", "pkg/other.py": "def f():\n    pass\n"})
    return bench
