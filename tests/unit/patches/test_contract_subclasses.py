"""`subclass-assigned`: a class default that stays in a subclass is assigned there too, refused, or said to be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import Put, patch

from sglforge.errors import Severity
from sglforge.patches.result import PatchResult

WORKER = """\
class Other:
    def __init__(self, args):
        pass


class Worker:
    def __init__(self, args):
        open(args)

    def run(self, batch):
        return batch
"""
CHILD = """\
from pkg.worker import Worker


class Child(Worker):
    def __init__(self, args):
        pass
"""
ARGS = """\
class Args:
    batch_limit = kind = other = 0
    every = ()

    def check(self):
        pass
"""
FILES = {"pkg/worker.py": WORKER, "pkg/child.py": CHILD, "pkg/args.py": ARGS}
READ = Put("prepend-to-body", "Worker.run", "if self.limit:\n    return None\n")
DEFAULT = Put("add-class-attribute", "Worker", "limit = 0\n")
ASSIGN = Put("prepend-to-body", "Worker.__init__", "self.limit = args.batch_limit\n")
REFUSE = "if self.batch_limit > 0 and self.kind == 'child':\n    raise ValueError('limits do not work with Child')\n"
DECLARED = """
[[contracts.refused]]
attribute = "limit"
classes = ["Child"]
setting = "batch_limit"
message = "do not work with Child"
"""


def check(code: str) -> Put:
    return Put("append-to-body", "Args.check", code, "pkg/args.py")


def codes(result: PatchResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_subclass_that_never_runs_the_assignment_is_named(tmp_path: Path) -> None:
    [finding] = patch(tmp_path, FILES, READ, DEFAULT, ASSIGN).findings
    payload = tmp_path / "catalog/patches/toy/one/payload"
    assert (finding.code, finding.severity) == ("patch-attribute-unassigned-in-subclass", Severity.ERROR)
    assert finding.where == f"{payload}/1.py:1"
    assert finding.message == (
        "`limit` of `Worker` stays at its class default (pkg/worker.py:7) in `Child`, where no assignment of it runs"
    )
    assert finding.detail == (
        "`Child` (pkg/child.py:4): `Child.__init__` (pkg/child.py:5) runs",
        f"set at pkg/worker.py:9 in `Worker.__init__`, from {payload}/2.py:1",
    )


SILENT = {
    "it assigns too": CHILD,
    "it calls super, however late": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    def __init__(self, args):\n        open(args)\n        super().__init__(args)\n",
    "it has a default of its own": "from pkg.worker import Worker\nclass Child(Worker):\n    limit = 3\n"
    "    def __init__(self, args):\n        pass\n",
    "it inherits init": "from pkg.worker import Worker\nclass Child(Worker):\n    pass\n",
    "it is never made": "from pkg.worker import Worker\nclass Child(Worker):\n    def __init__(self, args):\n"
    "        raise NotImplementedError\n",
}


@pytest.mark.parametrize("how", SILENT)
def test_a_subclass_that_does_not_keep_the_default_unseen_is_not_named(how: str, tmp_path: Path) -> None:
    own = Put("prepend-to-body", "Child.__init__", "self.limit = args.batch_limit\n", "pkg/child.py")
    edits = [READ, DEFAULT, ASSIGN, *([own] if how == "it assigns too" else [])]
    assert patch(tmp_path, {**FILES, "pkg/child.py": SILENT[how]}, *edits).findings == ()


def test_an_assignment_through_a_helper_counts_in_both(tmp_path: Path) -> None:
    helper = Put(
        "append-to-body", "Worker", "def take(self, args):\n    open(args)\n    self.limit = args.batch_limit\n"
    )
    calls = [
        Put("prepend-to-body", "Worker.__init__", "self.take(args)\n"),
        Put("prepend-to-body", "Child.__init__", "self.take(args)\n", "pkg/child.py"),
    ]
    assert patch(tmp_path / "both", FILES, READ, DEFAULT, helper, *calls).findings == ()
    one = patch(tmp_path / "one", FILES, READ, DEFAULT, helper, calls[0])
    assert codes(one) == ["patch-attribute-unassigned-in-subclass"]


def test_a_default_that_nothing_assigns_is_a_constant(tmp_path: Path) -> None:
    assert patch(tmp_path, FILES, READ, DEFAULT).findings == ()


def test_a_declared_refusal_is_accepted(tmp_path: Path) -> None:
    assert patch(tmp_path, FILES, READ, DEFAULT, ASSIGN, check(REFUSE), more=DECLARED).findings == ()


REFUSES = {
    "an else": "if self.batch_limit <= 0:\n    pass\nelse:\n    raise ValueError('limits do not work with Child')\n",
    "an elif": "if self.kind:\n    pass\nelif self.batch_limit:\n    raise ValueError('do not work with Child')\n",
    "two conditions": "if self.batch_limit:\n    if self.kind:\n        raise ValueError('do not work with Child')\n",
    "getattr": "if getattr(self, 'batch_limit', 0):\n    raise ValueError(f'{self.kind}: do not work with Child')\n",
    "a loop": "for _ in self.every:\n    if self.batch_limit:\n        raise ValueError('do not ' 'work with Child')\n",
    "a try that ends it": "try:\n    if self.batch_limit:\n        raise ValueError('do not work with Child')\n"
    "finally:\n    pass\n",
}


@pytest.mark.parametrize("how", REFUSES)
def test_a_refusal_may_be_written_in_many_ways(how: str, tmp_path: Path) -> None:
    put = check(REFUSES[how])
    assert patch(tmp_path, FILES, READ, DEFAULT, ASSIGN, put, more=DECLARED).findings == ()


REFUSES_NOT = {
    "no raise": "logger = 'do not work with Child'\n",
    "another message": "if self.batch_limit:\n    raise ValueError('no')\n",
    "no condition": "raise ValueError('do not work with Child')\n",
    "another setting": "if self.other:\n    raise ValueError('do not work with Child')\n",
    "a raise that is caught": "try:\n    if self.batch_limit:\n        raise ValueError('do not work with Child')\n"
    "except ValueError:\n    pass\n",
    "a function of its own": "if self.batch_limit:\n    def later():\n"
    "        raise ValueError('do not work with Child')\n",
}


@pytest.mark.parametrize("how", REFUSES_NOT)
def test_a_declared_refusal_that_is_not_there_is_refused(how: str, tmp_path: Path) -> None:
    [finding] = patch(tmp_path, FILES, READ, DEFAULT, ASSIGN, check(REFUSES_NOT[how]), more=DECLARED).findings
    assert finding.code == "patch-refusal-missing"
    assert "`batch_limit`" in finding.message
    assert finding.where == f"{tmp_path}/catalog/patches/toy/one/patch.toml:10"


def test_a_refusal_of_upstreams_is_none(tmp_path: Path) -> None:
    files = {**FILES, "pkg/args.py": ARGS.replace("pass", REFUSE.replace("\n", "\n        "))}
    put = check("self.kind = 'x'\n")
    assert codes(patch(tmp_path, files, READ, DEFAULT, ASSIGN, put, more=DECLARED)) == ["patch-refusal-missing"]


def test_a_refusal_for_another_class_or_attribute_does_not_help(tmp_path: Path) -> None:
    for number, wrong in enumerate((("Child", "Chidl"), ('"limit"', '"limits"'))):
        more = DECLARED.replace(f'"{wrong[0]}"', f'"{wrong[1]}"') if number == 0 else DECLARED.replace(*wrong)
        finding, unknown = patch(
            tmp_path / str(number), FILES, READ, DEFAULT, ASSIGN, check(REFUSE), more=more
        ).findings
        assert (unknown.code, wrong[1].strip('"') in unknown.message) == ("patch-declaration-unknown", True)
        assert unknown.hint == f"did you mean `{wrong[0].strip(chr(34))}`?"
        assert finding.code == "patch-attribute-unassigned-in-subclass"
        assert finding.hint == ("the topic declares `Chidl`: correct the name" if number == 0 else finding.hint)


def test_a_default_that_is_right_can_be_said_to_be(tmp_path: Path) -> None:
    more = '[[contracts.defaulted]]\nattribute = "limit"\nclasses = ["Child"]\nreason = "it has no batches"\n'
    assert patch(tmp_path, FILES, READ, DEFAULT, ASSIGN, more=more).findings == ()


SAID = '[[contracts.defaulted]]\nattribute = "limit"\nclasses = ["Child"]\nreason = "it has no batches"\n'


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (SAID.replace("Child", "Gone"), "`Gone` is no subclass of `Worker`"),
        (SAID.replace("Child", "Other"), "`Other` is no subclass of `Worker`"),
        (SAID.replace("limit", "gone"), "`gone` is no class attribute that the topic brings"),
    ],
)
def test_a_declaration_about_nothing_is_refused(tmp_path: Path, more: str, said: str) -> None:
    own = Put("prepend-to-body", "Child.__init__", "self.limit = 1\n", "pkg/child.py")
    result = patch(tmp_path / "one", FILES, READ, DEFAULT, ASSIGN, own, more=more)
    [finding] = result.findings
    assert (finding.code, finding.severity) == ("patch-declaration-unknown", Severity.ERROR)
    assert said in finding.message
    assert finding.where == f"{tmp_path}/one/catalog/patches/toy/one/patch.toml:9"
    assert (result.tree_id, result.topics[0].state) == (None, "rejected")
    apart = more + 'versions = ">=2"\n'  # this tree is 1.0
    assert patch(tmp_path / "two", FILES, READ, DEFAULT, ASSIGN, own, more=apart).findings == ()


def test_a_declaration_for_other_versions_exempts_nothing(tmp_path: Path) -> None:
    found = codes(patch(tmp_path, FILES, READ, DEFAULT, ASSIGN, more=SAID + 'versions = ">=2"\n'))
    assert found == ["patch-attribute-unassigned-in-subclass"]


def test_a_default_that_only_another_class_sets_is_shown(tmp_path: Path) -> None:
    wrong = Put("append-to-body", "Other.__init__", "self.limit = args.batch_limit\n")
    result = patch(tmp_path, FILES, READ, DEFAULT, wrong)
    [finding] = result.findings
    assert (finding.code, finding.severity) == ("patch-attribute-stays-default", Severity.WARNING)
    assert "`Other.__init__` (pkg/worker.py:4), which sets it, is of another class" in finding.message
    assert result.tree_id is not None


def test_a_field_that_another_class_sets_for_itself_is_not_shown(tmp_path: Path) -> None:
    args = f"from dataclasses import dataclass\n@dataclass\n{ARGS}"
    field = Put("append-to-body", "Args", "limit: int = 0\n", "pkg/args.py")
    both = Put("prepend-to-body", "Other.__init__", "self.limit = args.limit\n")
    assert patch(tmp_path, {**FILES, "pkg/args.py": args}, field, both).findings == ()
