"""What the contracts say about classes and runs, held against Python itself on random programs."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from types import CodeType

from hypothesis import given, settings
from hypothesis import strategies as st

from sglforge.patches.contracts.classes import ClassGraph, Known
from sglforge.patches.contracts.construction import Construction, Constructions
from sglforge.patches.contracts.members import Members
from sglforge.patches.contracts.tree import PatchedTree
from sglforge.patches.pytext import read

NAMES = "ABCDEFG"
ATTRIBUTES = ("a", "b", "c")


def graph_of(source: str) -> ClassGraph:
    return ClassGraph(tree=PatchedTree(root=Path("/nowhere"), texts={"m.py": read(source.encode(), "m.py")}))


@st.composite
def hierarchies(draw: st.DrawFn) -> str:
    """Draw a module of classes, each with any of the ones above it as bases."""
    lines = []
    for index, name in enumerate(NAMES):
        bases = draw(st.lists(st.sampled_from(NAMES[:index]), unique=True, max_size=3)) if index else []
        lines.append(f"class {name}({', '.join(bases)}):\n    pass\n")
    return "".join(lines)


@given(hierarchies())
def test_classes_are_looked_up_in_the_order_of_python(source: str) -> None:
    namespace: dict[str, type] = {}
    try:
        exec(source, namespace)
    except TypeError:  # there is no order that respects the bases
        return
    graph = graph_of(source)
    for cls in graph.classes("m.py"):
        order = [base.name for base in graph.order(cls) if isinstance(base, Known)]
        assert order == [base.__name__ for base in namespace[cls.name].__mro__[:-1]]


def block(choice: random.Random, depth: int = 3) -> list[str]:
    """Make the lines of a block: assignments, calls that may fail, branches, loops, ways out."""
    return [line for _ in range(choice.randint(1, 3)) for line in statement(choice, depth)]


def statement(choice: random.Random, depth: int) -> list[str]:
    """Make the lines of a statement."""
    name = choice.choice(ATTRIBUTES)
    plain = [f"self.{name} = 1", "fail()", f"self.{name} = fail()", f"setattr(self, '{name}', 1)", "self.help()"]
    plain += ["pass", "return", "raise ValueError", f"self.{name} = len('x')", "ways.yes and fail()"]
    plain += [f"if hasattr(self, '{name}'): del self.{name}", f"self.{name} = fail() if ways.yes else 1"]
    kind = choice.choice(["plain", "plain", "if", "try", "finally", "for", "while", "with", "match"])
    if kind == "plain" or not depth:
        return [choice.choice(plain)]
    inner = [f"    {line}" for line in block(choice, depth - 1)]
    other = [f"    {line}" for line in block(choice, depth - 1)]
    rest = choice.random() < 0.5
    match kind:
        case "if":
            return ["if ways.yes:", *inner, *(["else:", *other] if rest else [])]
        case "try":
            caught = choice.choice(["KeyError", "Exception"])
            return ["try:", *inner, f"except {caught}:", *other, *(["else:", "    self.c = 1"] if rest else [])]
        case "finally":
            return ["try:", *inner, "finally:", *(other if rest else [f"    self.{name} = 2"])]
        case "for":
            end = choice.choice(["    break", "    continue", "    pass"])
            return ["for _ in ways.some:", *inner, end, *(["else:", *other] if rest else [])]
        case "while":
            return ["while ways.yes:", *inner]
        case "with":
            return ["with suppress(KeyError):", *inner]
        case _:
            last = ["    case _:", *(f"    {line}" for line in other)] if rest else []
            return ["match ways.yes:", "    case True:", *(f"    {line}" for line in inner), *last]


def program(seed: int) -> str:
    """Make a class whose ``__init__`` and helper do anything, and a subclass that may call the ``__init__``."""
    choice = random.Random(seed)
    helper = [line.replace("self.help()", "pass") for line in block(choice)]
    call = choice.choice(["super().__init__()", "Base.__init__(self)", "pass"])
    lines = ["from contextlib import suppress", "class Base:", "    def __init__(self):"]
    lines += [f"        {line}" for line in block(choice)]
    lines += ["    def help(self):", *(f"        {line}" for line in helper)]
    lines += ["class Child(Base):", "    def __init__(self):", f"        {call}"]
    return "\n".join([*lines, *(f"        {line}" for line in block(choice)), ""])


class Ways:
    """Decide at random which way a run takes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._left = 200

    @property
    def yes(self) -> bool:
        self._left -= 1
        return self._left > 0 and self._random.random() < 0.5

    @property
    def some(self) -> range:
        self._left -= 1
        return range(self._random.randrange(3) if self._left > 0 else 0)


def made(source: str, name: str, *, seed: int, always: bool) -> tuple[object, bool]:
    """Run a class's ``__init__`` and return the instance and whether it came to its end; calls fail at random."""
    chance = random.Random(seed)

    def fail() -> int:
        if always or chance.random() < 0.4:
            raise chance.choice([KeyError, OSError])
        return 1

    namespace: dict[str, object] = {"fail": fail, "ways": Ways(seed)}
    exec(compiled(source), namespace)
    exec(f"instance = {name}.__new__({name})", namespace)
    try:
        exec("instance.__init__()", namespace)
    except (KeyError, OSError, ValueError, AttributeError):
        return namespace["instance"], False
    return namespace["instance"], True


@lru_cache(maxsize=1)
def compiled(source: str) -> CodeType:
    return compile(source, "m.py", "exec")


def construction(source: str, name: str) -> Construction:
    graph = graph_of(source)
    [cls] = [cls for cls in graph.classes("m.py") if cls.name == name]
    return Constructions(members=Members(graph=graph)).of(cls)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9).map(program), st.sampled_from(["Base", "Child"]))
def test_what_counts_as_set_is_set_whichever_way_a_run_takes(source: str, name: str) -> None:
    end = construction(source, name).end
    for seed in range(20):
        instance, finished = made(source, name, seed=seed, always=False)
        if finished:
            assert end is not None, source
            assert end.present <= vars(instance).keys(), source
            assert end.ready <= end.present


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9).map(program), st.sampled_from(["Base", "Child"]))
def test_what_counts_as_set_before_any_failure_is_there_when_the_first_call_fails(source: str, name: str) -> None:
    source = source.replace("raise ValueError", "pass")  # a call on a way that raises anyhow does not count
    end = construction(source, name).end
    for seed in range(20):
        instance, _ = made(source, name, seed=seed, always=True)
        assert end is not None
        assert end.ready <= vars(instance).keys(), source
