"""`attribute-set`: which code of a topic counts as a read of `self`, and which guards make it safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import Put, patch

WORKER = "class Worker:\n    def __init__(self, args):\n        pass\n    def run(self, batch):\n        return batch\n"

READS = {
    "in a nested function": "def later():\n    return self.limit\n",
    "in a lambda": "later = lambda: self.limit\n",
    "in a comprehension": "batch = [one for one in batch if one < self.limit]\n",
    "in an f-string": "batch = f'{self.limit}'\n",
    "by adding to it": "self.limit += 1\n",
    "by deleting it": "del self.limit\n",
    "through it": "batch = self.limit.size\n",
    "by calling it": "batch = self.limit()\n",
    "by writing into it": "self.limit.size = 1\n",
    "by getattr without a default": "batch = getattr(self, 'limit')\n",
    "after a guard of something else": "if hasattr(self, 'other'):\n    batch = self.limit\n",
    "where the guard says no": "if not hasattr(self, 'limit'):\n    batch = self.limit\n",
    "or without it": "batch = hasattr(self, 'limit') or self.limit\n",
    "where it is set on one way": "if batch:\n    self.limit = 1\nbatch = self.limit\n",
    "where another exception is caught": "try:\n    batch = self.limit\nexcept KeyError:\n    pass\n",
}


@pytest.mark.parametrize("how", READS)
def test_every_kind_of_read_is_seen(how: str, tmp_path: Path) -> None:
    put = Put("prepend-to-body", "Worker.run", READS[how])
    [finding] = patch(tmp_path, {"pkg/worker.py": WORKER}, put).findings
    assert finding.code == "patch-attribute-unset"


SAFE = {
    "with a default": "batch = getattr(self, 'limit', 0)\n",
    "behind hasattr": "if hasattr(self, 'limit'):\n    batch = self.limit\n",
    "after hasattr": "batch = hasattr(self, 'limit') and self.limit\n",
    "behind hasattr in an expression": "batch = self.limit if hasattr(self, 'limit') else 0\n",
    "behind not hasattr": "if not hasattr(self, 'limit'):\n    return 0\nbatch = self.limit\n",
    "set where it was missing": "if not hasattr(self, 'limit'):\n    self.limit = 0\nbatch = self.limit\n",
    "not without it": "batch = not hasattr(self, 'limit') or self.limit\n",
    "behind getattr": "if getattr(self, 'limit', None) is not None:\n    batch = self.limit\n",
    "behind getattr that is none": "if getattr(self, 'limit', None) is None:\n    return 0\nbatch = self.limit\n",
    "where AttributeError is caught": "try:\n    batch = self.limit\nexcept (KeyError, AttributeError):\n    pass\n",
    "set before": "self.limit = 1\nbatch = self.limit\n",
    "set before, for a lambda": "self.limit = 1\nlater = lambda: self.limit\n",
    "set only": "self.limit = 1\n",
    "of another object": "batch = batch.limit\n",
    "of a parameter of the same name": "later = lambda self: self.limit\n",
    "of a nested function's own self": "def later(self):\n    return self.limit\n",
    "of a nested class's own self": "class Inner:\n    def a(this):\n        this.b = 1\n        return this.b\n",
    "of a name that is bound anew": "self = batch\nbatch = self.limit\n",
}


@pytest.mark.parametrize("how", SAFE)
def test_a_guarded_read_is_none(how: str, tmp_path: Path) -> None:
    put = Put("prepend-to-body", "Worker.run", SAFE[how])
    assert patch(tmp_path, {"pkg/worker.py": WORKER}, put).findings == ()


@pytest.mark.parametrize(
    ("decorator", "code", "fires"),
    [
        ("", "this.limit", True),
        ("@torch.no_grad()\n    ", "this.limit", True),
        ("@staticmethod\n    ", "this.limit", False),
        ("@classmethod\n    ", "this.limit", False),
        ("", "self.limit", False),
    ],
)
def test_self_is_the_first_parameter_of_a_method(decorator: str, code: str, fires: bool, tmp_path: Path) -> None:
    source = f"self = object()\nclass Worker:\n    {decorator}def run(this, batch):\n        return batch\n"
    result = patch(tmp_path, {"pkg/worker.py": source}, Put("prepend-to-body", "Worker.run", f"batch = {code}\n"))
    assert [finding.code for finding in result.findings] == ["patch-attribute-unset"] * fires
