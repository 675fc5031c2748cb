"""`attribute-set`: every way in which an attribute is missing fires, and its near-identical twin stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from patching import Put, patch

from sglforge.errors import Severity
from sglforge.patches.result import TopicState

BASE = "class Base:\n    def __init__(self):\n        pass"
SETS = "class Base:\n    def __init__(self):\n        self.limit = 1"
READ = Put("prepend-to-body", "Worker.run", "if self.limit:\n    return None\n")
DEFAULT = Put("add-class-attribute", "Worker", "limit = 0\n")
FIRST = Put("prepend-to-body", "Worker.__init__", "self.limit = args.limit\n")
LAST = Put("append-to-body", "Worker.__init__", "self.limit = args.limit\n")

WORKER = """\
class Drafter:
    def __init__(self, args):
        self.args = args
        self.capture()

    def capture(self):
        return open(self.args)


class Worker:
    def __init__(self, args):
        self.args = args
        self.pool = args.make_pool()

    def run(self, batch):
        return self.pool[batch]
"""
CHILD = """\
from pkg.worker import Worker


class Child(Worker):
    def __init__(self, args):
        self.args = args
        self.pool = None
"""


def worker(init: str, *, head: str = "", base: str = "", decorator: str = "", body: str = "") -> str:
    """Return a module with one class `Worker`: the statements of its `__init__`, and a method to patch."""
    lines = "".join(f"        {line}\n" for line in init.splitlines())
    inside = "".join(f"    {line}\n" for line in body.splitlines())
    made = f"    def __init__(self, args):\n{lines}" if init else ""
    return (
        f"{head}\n\n{decorator}\nclass Worker{base}:\n{inside}{made}\n    def run(self, batch):\n        return batch\n"
    )


def test_the_seed_crash_names_both_classes_and_the_subclass(tmp_path: Path) -> None:
    wrong = Put("append-to-body", "Drafter.__init__", "self.limit = args.limit\n")
    result = patch(tmp_path, {"pkg/worker.py": WORKER, "pkg/child.py": CHILD}, READ, wrong)
    assert [topic.state for topic in result.topics] == [TopicState.REJECTED]
    assert result.tree_id is None
    assert (tmp_path / "tree/pkg/worker.py").read_text() == WORKER
    [finding] = result.findings
    assert (finding.code, finding.severity, finding.subject) == ("patch-attribute-unset", Severity.ERROR, "toy/one")
    assert finding.message == (
        "`self.limit` is read in `Worker.run` (pkg/worker.py:17) and set in `Drafter.__init__` (pkg/worker.py:5), "
        "which is another class: `Worker` and `Child` may lack it"
    )
    payload = tmp_path / "catalog/patches/toy/one/payload"
    assert finding.where == f"{payload}/0.py:1"
    assert finding.hint.endswith("and set it in the first statement of `Worker.__init__`")
    child = "`Child` (pkg/child.py:4): its own `Child.__init__` (pkg/child.py:5)"
    assert finding.detail == (
        "`Worker` (pkg/worker.py:11): its own `Worker.__init__` (pkg/worker.py:12) never sets it",
        f"{child} never sets it, nor runs `Worker.__init__` (pkg/worker.py:12)",
        f"read at pkg/worker.py:17, from {payload}/0.py:1",
        f"set at pkg/worker.py:5 in `Drafter.__init__`, from {payload}/1.py:1",
    )


def test_the_cure_that_the_hint_gives_is_accepted(tmp_path: Path) -> None:
    in_child = Put("prepend-to-body", "Child.__init__", "self.limit = args.limit\n", "pkg/child.py")
    result = patch(tmp_path, {"pkg/worker.py": WORKER, "pkg/child.py": CHILD}, READ, DEFAULT, FIRST, in_child)
    assert result.findings == ()
    assert result.topics[0].state is TopicState.APPLIED


SUBCLASSES = {
    "imported": "from pkg.worker import Worker\nclass Child(Worker):\n",
    "relative": "from .worker import Worker\nclass Child(Worker):\n",
    "renamed": "from pkg.worker import Worker as Base\nclass Child(Base):\n",
    "of a module": "import pkg.worker\nclass Child(pkg.worker.Worker):\n",
    "of a renamed module": "from pkg import worker as w\nclass Child(w.Worker):\n",
    "by a star": "from pkg.worker import *\nclass Child(Worker):\n",
    "by an alias": "from pkg.worker import Worker\nBase = Worker\nclass Child(Base):\n",
    "through the package": "from pkg import Exported\nclass Child(Exported):\n",
    "over a middle class": "from pkg.middle import Middle\nclass Child(Middle):\n",
    "with another base": "from pkg.worker import Worker\nfrom pkg.other import Other\nclass Child(Other, Worker):\n",
    "with type arguments": "from pkg.worker import Worker\nclass Child(Worker[int]):\n",
    "over several lines": "from pkg.worker import Worker\nclass Child(\n    Worker,\n):\n",
    "in a function": "def make():\n  from pkg.worker import Worker\n  class Child(Worker):\n",
    "after an import that may fail": "try:\n    from pkg.worker import Worker\nexcept ImportError:\n"
    "    Worker = object\nclass Child(Worker):\n",
}


@pytest.mark.parametrize("how", SUBCLASSES)
def test_a_subclass_anywhere_with_its_own_init_is_found(how: str, tmp_path: Path) -> None:
    files = {
        "pkg/worker.py": worker("pass"),
        "pkg/__init__.py": "from pkg.worker import Worker as Exported\n",
        "pkg/middle.py": "from pkg.worker import Worker\nclass Middle(Worker):\n    pass\n",
        "pkg/deep/child.py": SUBCLASSES[how].replace("from .worker", "from ..worker")
        + "    def __init__(self): pass\n",
    }
    [finding] = patch(tmp_path, files, READ, FIRST).findings
    assert finding.code == "patch-attribute-unset"
    assert "Child` may lack it" in finding.message
    assert "`Worker` and" not in finding.message


NO_SUBCLASSES = {
    "it calls super first": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    def __init__(self, args):\n        super().__init__(args)\n        open(args)\n",
    "it calls the base by name": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    def __init__(self, args):\n        Worker.__init__(self, args)\n",
    "it calls super with arguments": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    def __init__(self, args):\n        super(Child, self).__init__(args)\n",
    "it has no init": "from pkg.worker import Worker\nclass Child(Worker):\n    pass\n",
    "it overrides the method": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    def __init__(self): pass\n    def run(self, batch): return self.inner.run(batch)\n",
    "it has a default of its own": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    limit = 3\n    def __init__(self): pass\n",
    "it is a subclass of another Worker": "from pkg.other import Worker\nclass Child(Worker):\n"
    "    def __init__(self): pass\n",
    "it is one for type checkers only": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from pkg.worker import Worker\nelse:\n    from pkg.other import Worker\n"
    "class Child(Worker):\n    def __init__(self): pass\n",
    "it always raises": "from pkg.worker import Worker\nclass Child(Worker):\n"
    "    def __init__(self): raise NotImplementedError\n",
    "it only stands in a comment": "# class Child(Worker):\ntext = '''\nclass Child(Worker):\n    pass\n'''\n",
}


@pytest.mark.parametrize("how", NO_SUBCLASSES)
def test_a_subclass_that_runs_the_assignment_or_never_reads_is_not_named(how: str, tmp_path: Path) -> None:
    files = {
        "pkg/worker.py": worker("pass"),
        "pkg/other.py": "class Worker:\n    pass\n",
        "pkg/child.py": NO_SUBCLASSES[how],
    }
    assert patch(tmp_path, files, READ, FIRST).findings == ()


def test_an_overriding_method_that_calls_super_comes_to_the_read(tmp_path: Path) -> None:
    child = (
        "from pkg.worker import Worker\nclass Child(Worker):\n    def __init__(self): pass\n"
        "    def run(self, batch): return super().run(batch)\n"
    )
    [finding] = patch(tmp_path, {"pkg/worker.py": worker("pass"), "pkg/child.py": child}, READ, FIRST).findings
    assert "`Child` may lack it" in finding.message


MISSING = {
    "set after a call that can fail": (worker("open(args)"), LAST, "after `open(...)` on line 6, which can fail"),
    "set with a call that can fail": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "self.limit = args.get_limit()\n"),
        "after `args.get_limit(...)` on line 6",
    ),
    "set on one way only": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "if args.fast:\n    self.limit = 1\n"),
        "not on every way through `Worker.__init__`",
    ),
    "set in a loop": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "for one in args.all:\n    self.limit = one\n"),
        "not on every way",
    ),
    "set where an exception is swallowed": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "try:\n    self.limit = args.limit\nexcept Exception:\n    pass\n"),
        "not on every way",
    ),
    "set after a call in a try": (
        worker("try:\n    open(args)\nexcept OSError:\n    pass"),
        LAST,
        "after `open(...)`",
    ),
    "set where suppress swallows": (
        worker("pass", head="import contextlib"),
        Put("prepend-to-body", "Worker.__init__", "with contextlib.suppress(KeyError):\n    self.limit = args.limit\n"),
        "not on every way",
    ),
    "set after an early return": (
        worker("if args is None:\n    return\nself.args = args"),
        LAST,
        "not on every way",
    ),
    "set in a method that nothing calls": (
        worker("pass"),
        Put("append-to-body", "Worker", "def set_limit(self):\n    self.limit = 1\n"),
        "never sets it",
    ),
    "set in a nested function": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "def later():\n    self.limit = 1\n"),
        "never sets it",
    ),
    "set in a helper after a call": (
        worker("self.prepare(args)", body="def prepare(self, args):\n    open(args)"),
        Put("append-to-body", "Worker.prepare", "self.limit = 1\n"),
        "after `open(...)`",
    ),
    "set by a generator": (
        worker("self.prepare(args)", body="def prepare(self, args):\n    self.limit = 1\n    yield"),
        None,
        "never sets it",
    ),
    "deleted again": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "self.limit = 1\ndel self.limit\n"),
        "not on every way",
    ),
    "annotated only": (worker("pass"), Put("add-class-attribute", "Worker", "limit: int\n"), "never sets it"),
    "a slot only": (
        worker("pass"),
        Put("add-class-attribute", "Worker", "__slots__ = ('limit',)\n"),
        "never sets it",
    ),
    "no slot": (
        worker("pass", body="__slots__ = ('args',)"),
        FIRST,
        "have no place for it",
    ),
    "an attribute for type checkers": (
        worker("pass", head="from typing import TYPE_CHECKING", body="if TYPE_CHECKING:\n    limit = 0"),
        None,
        "never sets it",
    ),
    "an attribute of one branch": (
        worker("pass", head="import sys", body="if sys.platform:\n    limit = 0"),
        None,
        "never sets it",
    ),
    "a field of a class that is no dataclass": (
        worker("", base="(Base)", head="from dataclasses import dataclass\n@dataclass\nclass Base:\n    a: int"),
        Put("add-class-attribute", "Worker", "limit: int\n"),
        "the `__init__` that is made of the fields of `Base` has no such field",
    ),
    "a field that init leaves out": (
        worker("", decorator="@dataclass", head="from dataclasses import dataclass, field"),
        Put("add-class-attribute", "Worker", "limit: int = field(init=False)\n"),
        "fields of `Worker` has no such field",
    ),
    "no field of a struct": (
        worker("", base="(msgspec.Struct)", head="import msgspec", body="def __post_init__(self):\n    self.args = 1"),
        Put("prepend-to-body", "Worker.__post_init__", "self.limit = 1\n"),
        "have no place for it",
    ),
    "the init of another base": (
        worker("", base="(First, Base)", head=f"class First:\n    def __init__(self):\n        self.a = 1\n{SETS}"),
        None,
        "it runs `First.__init__` (pkg/worker.py:2) never sets it",
    ),
    "a super call on one way": (
        worker(
            "if args:\n    super().__init__()",
            base="(Base)",
            head=SETS,
        ),
        None,
        "not on every way",
    ),
    "a super call after one that can fail": (
        worker("open(args)\nsuper().__init__()", base="(Base)", head=BASE),
        Put("prepend-to-body", "Base.__init__", "self.limit = 1\n"),
        "after `open(...)`",
    ),
    "another class's private name": (
        worker(
            "super().__init__()", base="(Base)", head="class Base:\n    def __init__(self):\n        self.__limit = 1"
        ),
        Put("prepend-to-body", "Worker.run", "batch = self.__limit\n"),
        "never sets it",
    ),
}


@pytest.mark.parametrize("how", MISSING)
def test_an_attribute_that_may_be_missing_is_refused(how: str, tmp_path: Path) -> None:
    source, put, reason = MISSING[how]
    edits = [READ] if put is None else [put] if "__limit" in put.code else [READ, put]
    result = patch(tmp_path, {"pkg/worker.py": source}, *edits)
    assert [finding.code for finding in result.findings] == ["patch-attribute-unset"]
    assert any(reason in line for line in result.findings[0].detail), result.findings[0].detail


THERE = {
    "a class attribute": (worker("open(args)"), DEFAULT),
    "the first statement of init": (worker("open(args)"), FIRST),
    "both ways of an if": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "if args:\n    self.limit = 1\nelse:\n    self.limit = 2\n"),
    ),
    "every way that returns": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "if not args:\n    raise ValueError\nself.limit = 2\n"),
    ),
    "a try that raises again": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "try:\n    self.limit = args.limit\nexcept Exception:\n    raise\n"),
    ),
    "a try with another value": (
        worker("pass"),
        Put(
            "prepend-to-body", "Worker.__init__", "try:\n    self.limit = args\nexcept KeyError:\n    self.limit = 0\n"
        ),
    ),
    "a finally": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "try:\n    pass\nfinally:\n    self.limit = 0\n"),
    ),
    "every case of a match": (
        worker("pass"),
        Put(
            "prepend-to-body",
            "Worker.__init__",
            "match args:\n    case 1:\n        self.limit = 1\n    case _:\n        self.limit = 0\n",
        ),
    ),
    "a helper that is called first": (
        worker("self.prepare(args)\nopen(args)", body="def prepare(self, args):\n    pass"),
        Put("prepend-to-body", "Worker.prepare", "self.limit = args.limit\n"),
    ),
    "setattr": (worker("pass"), Put("prepend-to-body", "Worker.__init__", "setattr(self, 'limit', args.limit)\n")),
    "one of several targets": (
        worker("pass"),
        Put("prepend-to-body", "Worker.__init__", "self.a, (self.limit, *self.rest) = args\n"),
    ),
    "harmless calls before it": (
        worker(
            "logger.info('made %s', len(args))\nassert isinstance(args, int)\nself.a = list(args)"
            "\nself.b = getattr(args, 'b', None)\nsuper().__init__()"
        ),
        LAST,
    ),
    "the init of a base by super": (
        worker("super().__init__()\nopen(args)", base="(Base)", head=BASE),
        Put("prepend-to-body", "Base.__init__", "self.limit = 1\n"),
    ),
    "the init of a base that is inherited": (
        worker("", base="(Base)", head=BASE),
        Put("prepend-to-body", "Base.__init__", "self.limit = 1\n"),
    ),
    "the second of two bases, where the first has no init": (
        worker("", base="(First, Base)", head=f"{BASE}\nclass First:\n    pass"),
        Put("prepend-to-body", "Base.__init__", "self.limit = 1\n"),
    ),
    "a class attribute of a base": (
        worker("pass", base="(Base)", head="class Base:\n    a = 0"),
        Put("add-class-attribute", "Base", "limit = 0\n"),
    ),
    "both ways of a class body": (
        worker("pass", head="import sys", body="if sys.platform:\n    pass"),
        Put("append-to-body", "Worker", "if sys.platform:\n    limit = 0\nelse:\n    limit = 1\n"),
    ),
    "a property": (
        worker("pass"),
        Put("append-to-body", "Worker", "@property\ndef limit(self):\n    return 1\n"),
    ),
    "a method": (worker("pass"), Put("append-to-body", "Worker", "def limit(self):\n    return 1\n")),
    "a nested class": (worker("pass"), Put("append-to-body", "Worker", "class limit:\n    pass\n")),
    "an assignment to the class": (worker("pass"), Put("insert-after", "Worker", "Worker.limit = 0\n")),
    "a slot that is set": (worker("pass", body="__slots__ = ('limit',)"), FIRST),
    "a field": (
        worker("", decorator="@dataclass", head="from dataclasses import dataclass"),
        Put("add-class-attribute", "Worker", "limit: int\n"),
    ),
    "a field with a factory": (
        worker("", decorator="@dataclasses.dataclass(frozen=True)", head="import dataclasses"),
        Put("append-to-body", "Worker", "limit: list = dataclasses.field(default_factory=list)\n"),
    ),
    "an inherited field": (
        worker("", base="(Base)", head="from dataclasses import dataclass\n@dataclass\nclass Base:\n    a: int"),
        Put("add-class-attribute", "Base", "limit: int\n"),
    ),
    "a field of a base whose fields are set by super": (
        worker(
            "super().__init__(1, 2)",
            base="(Base)",
            head="from dataclasses import dataclass\n@dataclass\nclass Base:\n    a: int",
        ),
        Put("add-class-attribute", "Base", "limit: int\n"),
    ),
    "what runs after the fields are set": (
        worker(
            "",
            decorator="@dataclass",
            head="from dataclasses import dataclass",
            body="a: int\ndef __post_init__(self):\n    open(self.a)",
        ),
        Put("prepend-to-body", "Worker.__post_init__", "self.limit = self.a\n"),
    ),
    "a field of a struct": (
        worker("", base="(msgspec.Struct)", head="import msgspec"),
        Put("add-class-attribute", "Worker", "limit: int = 0\n"),
    ),
    "a decorated class": (worker("open(args)", decorator="@register('x')", head="from pkg import register"), DEFAULT),
    "a decorated init": (
        worker("pass").replace("    def __init__", "    @torch.no_grad()\n    def __init__"),
        FIRST,
    ),
    "a class that is never made": (worker("raise NotImplementedError"), None),
    "upstream reads it too": (worker("open(args)\nself.limit = 1", body="def a(self):\n    return self.limit"), None),
    "upstream surely sets it, however late": (worker("open(args)\nself.limit = 1"), None),
    "upstream sets it in one branch and reads it": (
        worker("if args:\n    self.limit = 1", body="def a(self):\n    return self.limit"),
        None,
    ),
    "an exception's arguments": (
        worker("pass", base="(Exception)"),
        Put("prepend-to-body", "Worker.run", "batch = self.args\n"),
    ),
    "what every object has": (worker("pass"), Put("prepend-to-body", "Worker.run", "batch = self.__class__\n")),
}


@pytest.mark.parametrize("how", THERE)
def test_an_attribute_that_is_there_is_accepted(how: str, tmp_path: Path) -> None:
    source, put = THERE[how]
    edits = [READ] if put is None else [put] if "limit" not in put.code else [READ, put]
    assert patch(tmp_path, {"pkg/worker.py": source}, *edits).findings == ()


def test_a_read_in_init_before_the_assignment_is_refused(tmp_path: Path) -> None:
    source = worker("self.limit = args.limit", body="def a(self):\n    return self.limit")
    put = Put("prepend-to-body", "Worker.__init__", "self.twice = self.limit * 2\n")
    [finding] = patch(tmp_path, {"pkg/worker.py": source}, put).findings
    assert "it is not set yet when `Worker.__init__`" in finding.detail[0]


def test_a_read_in_init_after_the_assignment_is_accepted(tmp_path: Path) -> None:
    put = Put("append-to-body", "Worker.__init__", "self.twice = self.limit * 2\n")
    assert patch(tmp_path, {"pkg/worker.py": worker("self.limit = args.limit")}, put).findings == ()


@pytest.mark.parametrize(("operation", "fires"), [("prepend-to-body", True), ("append-to-body", False)])
def test_a_helper_that_init_calls_too_early_is_refused(operation: str, fires: bool, tmp_path: Path) -> None:
    helper = Put("append-to-body", "Worker", "def check(self):\n    return self.limit\n")
    call = Put(operation, "Worker.__init__", "self.check()\n")
    result = patch(tmp_path, {"pkg/worker.py": worker("self.limit = args.limit")}, helper, call)
    assert [finding.code for finding in result.findings] == ["patch-attribute-unset"] * fires


HOST = "from pkg.worker import Worker\nclass Host(Worker):\n    def __init__(self):\n        {}\n"


@pytest.mark.parametrize(("line", "fires"), [("self.limit = 1", False), ("pass", True)])
def test_a_mixin_is_judged_by_the_classes_that_take_it(line: str, fires: bool, tmp_path: Path) -> None:
    files = {"pkg/worker.py": worker(""), "pkg/host.py": HOST.format(line)}
    result = patch(tmp_path, files, READ)
    assert [finding.code for finding in result.findings] == ["patch-attribute-unset"] * fires
    if fires:
        assert result.findings[0].message.endswith(": `Host` may lack it")


def test_a_name_that_is_nowhere_is_corrected(tmp_path: Path) -> None:
    put = Put("prepend-to-body", "Worker.run", "batch = self.polo\n")
    [finding] = patch(tmp_path, {"pkg/worker.py": worker("self.pool = 1\nself.size = 2")}, put).findings
    assert finding.hint == "did you mean `self.pool`?"


@pytest.mark.parametrize(
    ("put", "severity"),
    [
        (None, Severity.WARNING),
        (LAST, Severity.ERROR),
        (Put("add-class-attribute", "Worker", "limit: int\n"), Severity.ERROR),
        (DEFAULT, None),
    ],
)
def test_what_a_base_outside_of_the_tree_may_give_cannot_be_told(
    put: Put | None, severity: Severity | None, tmp_path: Path
) -> None:
    source = worker("super().__init__()", head="from torch import nn", base="(nn.Module)")
    result = patch(tmp_path, {"pkg/worker.py": source}, READ, *([put] if put else []))
    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])
    assert (result.tree_id is None) == (severity is Severity.ERROR)
    if severity is Severity.WARNING:
        assert result.findings[0].code == "patch-attribute-unknown"
        assert "torch.nn.Module, outside of the tree, may have it" in result.findings[0].detail[0]


def test_a_class_whose_name_is_bound_anew_cannot_be_told(tmp_path: Path) -> None:
    source = worker("") + "\n\nWorker = define(Worker)\n"
    [finding] = patch(tmp_path, {"pkg/worker.py": f"from pkg import define\n{source}"}, READ).findings
    assert finding.code == "patch-attribute-unknown"


def test_all_faults_of_a_topic_come_at_once(tmp_path: Path) -> None:
    both = Put("prepend-to-body", "Worker.run", "batch = self.one + self.two + self.one\n")
    result = patch(tmp_path, {"pkg/worker.py": worker("pass")}, both)
    assert [finding.message.split("`")[1] for finding in result.findings] == ["self.one", "self.two"]
