"""Contracts on what diffs and text edits bring, with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import Put, patch

from sglforge.patches.result import PatchResult

WORKER = """\
class Worker:
    def __init__(self, args):
        self.args = args

    def run(self, batch):
        one = batch
        two = batch
        return one, two
"""
CHILD = """\
from pkg.worker import Worker


class Child(Worker):
    def __init__(self, args):
        pass
"""
READ = """\
# a carried change
--- a/pkg/worker.py
+++ b/pkg/worker.py
@@ -5,4 +5,6 @@
     def run(self, batch):
-        one = batch
+        one = 1
         two = batch
+        if one:
+            two = self.limit
         return one, two
"""
SET = """\
--- a/pkg/worker.py
+++ b/pkg/worker.py
@@ -2,3 +2,4 @@ class Worker:
     def __init__(self, args):
+        self.limit = 0
         self.args = args

"""
NEW = """\
--- /dev/null
+++ b/pkg/child.py
@@ -0,0 +1,6 @@
+from pkg.worker import Worker
+
+
+class Child(Worker):
+    def __init__(self, args):
+        pass
"""
GONE = """\
--- a/pkg/child.py
+++ /dev/null
@@ -1,6 +0,0 @@
-from pkg.worker import Worker
-
-
-class Child(Worker):
-    def __init__(self, args):
-        pass
"""


def diff(text: str) -> Put:
    return Put("", "", text, "", "diff")


def told(result: PatchResult) -> str:
    [finding] = result.findings
    assert finding.code == "patch-attribute-unset"
    return finding.message


def test_what_a_diff_adds_is_judged_with_its_lines(tmp_path: Path) -> None:
    result = patch(tmp_path, {"pkg/worker.py": WORKER}, diff(READ))
    assert "`Worker.run` (pkg/worker.py:9): `Worker` may lack it" in told(result)
    assert result.findings[0].where == f"{tmp_path}/catalog/patches/toy/one/payload/0.py:10"


def test_lines_are_found_after_other_edits(tmp_path: Path) -> None:
    between = Put("insert-after", "Worker.run", "def other(self):\n    pass\n")
    above = Put("prepend-to-body", "Worker.__init__", "self.one = 1\nself.two = 2\n")
    inside = Put("insert-before", "        two = batch", "        print(1)\n", "pkg/worker.py", "text")
    result = patch(tmp_path, {"pkg/worker.py": WORKER}, diff(READ), between, above, inside)
    assert "(pkg/worker.py:12)" in told(result)
    assert result.findings[0].where == f"{tmp_path}/catalog/patches/toy/one/payload/0.py:10"


def test_two_diffs_that_belong_together_are_accepted(tmp_path: Path) -> None:
    assert patch(tmp_path, {"pkg/worker.py": WORKER}, diff(READ), diff(SET)).findings == ()


def test_a_class_in_a_new_file_is_seen(tmp_path: Path) -> None:
    result = patch(tmp_path, {"pkg/worker.py": WORKER}, diff(READ), diff(SET), diff(NEW))
    assert told(result).endswith(": `Child` may lack it")


@pytest.mark.parametrize(("limit", "fires"), [("limit = 0", False), ("size = 0", True)])
def test_a_base_in_a_new_file_is_read(limit: str, fires: bool, tmp_path: Path) -> None:
    base = f"--- /dev/null\n+++ b/pkg/base.py\n@@ -0,0 +1,2 @@\n+class Base:\n+    {limit}\n"
    source = WORKER.replace("class Worker:", "from pkg.base import Base\nclass Worker(Base):")
    read = Put("prepend-to-body", "Worker.run", "batch = self.limit\n")
    result = patch(tmp_path, {"pkg/worker.py": source, "pkg/__init__.py": ""}, read, diff(base))
    assert [finding.code for finding in result.findings] == ["patch-attribute-unset"] * fires


@pytest.mark.parametrize("deleted", [True, False])
def test_a_class_in_a_deleted_file_is_not(deleted: bool, tmp_path: Path) -> None:
    edits = [diff(READ), diff(SET), *([diff(GONE)] if deleted else [])]
    result = patch(tmp_path, {"pkg/worker.py": WORKER, "pkg/child.py": CHILD}, *edits)
    assert (result.findings == ()) == deleted


def test_what_a_text_edit_adds_is_judged_with_its_lines(tmp_path: Path) -> None:
    put = Put("insert-before", "        two = batch", "        # limited\n        batch = self.limit\n", kind="text")
    result = patch(tmp_path, {"pkg/worker.py": WORKER}, put)
    assert "(pkg/worker.py:8)" in told(result)
    assert result.findings[0].where == f"{tmp_path}/catalog/patches/toy/one/payload/0.py:2"


def test_lines_of_a_payload_in_another_file_style_are_found(tmp_path: Path) -> None:
    put = Put("prepend-to-body", "Worker.run", '# limited\n\ntext = """\na\n"""\nbatch = self.limit\n')
    result = patch(tmp_path, {"pkg/worker.py": WORKER.replace("    ", "\t").replace("\n", "\r\n")}, put)
    assert "(pkg/worker.py:11)" in told(result)
    assert result.findings[0].where == f"{tmp_path}/catalog/patches/toy/one/payload/0.py:6"
