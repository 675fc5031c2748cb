"""The classes of a tree: their bases across files, the order in which Python looks attributes up, their subclasses."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sglforge.patches.anchors import dotted
from sglforge.patches.contracts.scopes import Binding, Definition, Imported, Scope, definitions
from sglforge.patches.contracts.tree import PatchedTree

_HEADER = re.compile(rb"^[ \t]*class[ \t]+\w+[ \t]*(?:\[.*?\])?[ \t]*\(", re.MULTILINE)
_AS = re.compile(rb"[ \t]+as[ \t]+(\w+)")
_ASSIGNED = re.compile(rb"[ \t]*(\w+)[ \t]*(?::[^=\n]+)?=[ \t]*(?:\w+\.)*")
_ENDS = re.compile(rb"[ \t]*(?:#.*)?$", re.MULTILINE)
_WORD = re.compile(rb"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A class of the tree: the file and the qualified name and line that it is defined with."""

    file: str
    name: str
    line: int
    node: ast.ClassDef = field(compare=False, repr=False)
    scope: Scope = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"`{self.name}` ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True)
class Outside:
    """A base that the tree does not define, with the dotted name that it is imported by."""

    name: str


Base = Known | Outside


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassGraph:
    """The classes of a tree, read as far as they are asked for.

    Bases are followed through imports, aliases and module attributes. Of a base that is bound in several places (the
    branches of an `if`, an `except ImportError`), the first one in the tree counts. What a class decorator returns is
    taken for the class.
    """

    tree: PatchedTree
    _classes: dict[str, dict[ast.ClassDef, Known]] = field(default_factory=dict)
    _scopes: dict[str, Scope | None] = field(default_factory=dict)
    _orders: dict[Known, tuple[Base, ...]] = field(default_factory=dict)
    _children: dict[Known, tuple[Known, ...]] = field(default_factory=dict)
    _headers: dict[str, frozenset[bytes]] = field(default_factory=dict)

    def classes(self, file: str) -> Sequence[Known]:
        """Return every class of a file, nested ones included."""
        return tuple(self._known(file).values())

    def resolve(self, file: str, scope: Scope, name: str) -> Base:
        """Return the class that a dotted name means in a scope of a file."""
        for found in self._candidates(file, scope, name, frozenset()):
            return found
        return Outside(full_name(scope, name))

    def bases(self, cls: Known) -> tuple[Base, ...]:
        """Return the bases of a class in their order; `object` and those that only help typing are left out."""
        return tuple(base for base in (self._base(cls, node) for node in cls.node.bases) if not _is_empty(base))

    def order(self, cls: Known) -> tuple[Base, ...]:
        """Return the class and its bases in the order in which Python looks attributes up (C3)."""
        if cls not in self._orders:
            self._orders[cls] = tuple(self._linear(cls, ()))
        return self._orders[cls]

    def subclasses(self, cls: Known) -> tuple[Known, ...]:
        """Return the subclasses of a class at any depth, anywhere in the tree, by file and line."""
        found: set[Known] = set()
        waiting = [cls]
        while waiting:
            for child in self._direct(waiting.pop()):
                if child not in found and child != cls:
                    found.add(child)
                    waiting.append(child)
        return tuple(sorted(found, key=lambda child: (child.file, child.line)))

    def is_rebound(self, cls: Known) -> bool:
        """Tell whether the name of a class is bound to something else as well, so that its instances may be others'."""
        return any(binding is not cls.node for binding in cls.scope.bindings.get(cls.node.name, ()))

    def _direct(self, cls: Known) -> tuple[Known, ...]:
        if cls not in self._children:
            self._children[cls] = tuple(
                child
                for file in self._naming(cls.node.name)
                for child in self.classes(file)
                if any(cls in self._every_base(child, node) for node in child.node.bases)
            )
        return self._children[cls]

    def _naming(self, name: str) -> Iterator[str]:
        """Yield the files with a class whose header names a class, by its name or by a name that stands for it."""
        names, mentioning = {name.encode()}, dict[str, bytes]()
        waiting = list(names)
        while waiting:
            word = waiting.pop()
            for file, raw in self.tree.sources.items():
                if word in raw:
                    mentioning[file] = raw
                    new = _aliases(word, raw) - names
                    names |= new
                    waiting += new
        for file, raw in mentioning.items():
            if file not in self._headers:
                self._headers[file] = frozenset(_words_of_headers(raw))
            if names & self._headers[file]:
                yield file

    def _base(self, cls: Known, node: ast.expr) -> Base:
        name = _class_name(node)
        found = [base for base in self._every_base(cls, node) if base != cls]
        return found[0] if found else Outside(full_name(cls.scope, name) if name else ast.unparse(node))

    def _every_base(self, cls: Known, node: ast.expr) -> Sequence[Known]:
        name = _class_name(node)
        return list(self._candidates(cls.file, cls.scope, name, frozenset())) if name else []

    def _linear(self, cls: Known, below: tuple[Known, ...]) -> list[Base]:
        bases = [base for base in self.bases(cls) if base not in below]
        lines: list[list[Base]] = [
            self._linear(base, (*below, cls)) if isinstance(base, Known) else [base] for base in bases
        ]
        return [cls, *_merge([*lines, list(bases)])]

    def _candidates(self, file: str, scope: Scope, name: str, seen: frozenset[tuple[str, str]]) -> Iterator[Known]:
        """Yield the classes of the tree that a name may mean; ``seen`` ends the search of imports in a circle."""
        if (file, name) in seen:
            return
        seen |= {(file, name)}
        head, _, rest = name.partition(".")
        bindings = scope.lookup(head)
        for binding in bindings:
            yield from self._bound(file, scope, binding, rest, seen)
        if not bindings:
            for around in (scope, *scope.outer):
                for star in around.bindings.get("*", ()):
                    if isinstance(star, Imported):
                        yield from self._bound(file, scope, Imported(star.module, star.level, head), rest, seen)

    def _bound(
        self, file: str, scope: Scope, binding: Binding, rest: str, seen: frozenset[tuple[str, str]]
    ) -> Iterator[Known]:
        match binding:
            case ast.ClassDef():
                known = self._known(file)[binding]
                name = f"{known.name}.{rest}" if rest else known.name
                yield from (other for other in self.classes(file) if other.name == name)
            case ast.expr():
                if alias := _class_name(binding):
                    yield from self._candidates(file, scope, f"{alias}.{rest}".rstrip("."), seen)
            case Imported(module=module, level=level, name=name):
                if target := self.tree.module_file(file, module, level):
                    wanted = ".".join(part for part in (name, rest) if part)
                    yield from self._within(target, wanted, seen)
            case None:
                return

    def _within(self, target: str, name: str, seen: frozenset[tuple[str, str]]) -> Iterator[Known]:
        """Yield what a dotted name means in a module or package."""
        found = False
        scope = self._scope(target)
        if scope and name:
            for known in self._candidates(target, scope, name, seen):
                found = True
                yield known
        head, _, rest = name.partition(".")
        if not found and rest and (inner := self.tree.inner(target, head)):
            yield from self._within(inner, rest, seen)

    def _known(self, file: str) -> dict[ast.ClassDef, Known]:
        if file not in self._classes:
            module = self.tree.module(file)
            self._classes[file] = {found.node: _known(file, found) for found in (definitions(module) if module else ())}
        return self._classes[file]

    def _scope(self, file: str) -> Scope | None:
        if file not in self._scopes:
            module = self.tree.module(file) if file.endswith(".py") else None
            self._scopes[file] = Scope(statements=module.body) if module else None
        return self._scopes[file]


def _known(file: str, found: Definition) -> Known:
    return Known(file=file, name=found.name, line=found.node.lineno, node=found.node, scope=found.scope)


def _class_name(node: ast.expr) -> str:
    """Return the dotted name of a class expression without its type arguments, or an empty text."""
    return dotted(node.value if isinstance(node, ast.Subscript) else node)


def full_name(scope: Scope, name: str) -> str:
    head, dot, rest = name.partition(".")
    for binding in scope.lookup(head):
        if isinstance(binding, Imported):
            parts = [part for part in (binding.module, binding.name) if part]
            return ".".join(parts) + dot + rest
    return f"builtins.{name}" if hasattr(builtins, head) else name


def _is_empty(base: Base) -> bool:
    """Tell whether a base gives its instances nothing."""
    return isinstance(base, Outside) and base.name in {
        "builtins.object",
        "abc.ABC",
        "typing.Generic",
        "typing.Protocol",
        "typing_extensions.Generic",
        "typing_extensions.Protocol",
    }


def _merge(lines: list[list[Base]]) -> Iterator[Base]:
    """Yield the C3 merge; where Python would refuse the bases, the first one left comes next."""
    while lines := [line for line in lines if line]:
        heads = [line[0] for line in lines]
        first = next((head for head in heads if not any(head in line[1:] for line in lines)), heads[0])
        yield first
        lines = [[base for base in line if base != first] for line in lines]


def _aliases(name: bytes, raw: bytes) -> set[bytes]:
    """Return the names that a file gives to a class: `import C as X`, `X = C`, `X = module.C`."""
    found: set[bytes] = set()
    position = raw.find(name)
    while position >= 0:
        end = position + len(name)
        start = raw.rfind(b"\n", 0, position) + 1
        if imported := _AS.match(raw, end):
            found.add(imported.group(1))
        elif (assigned := _ASSIGNED.fullmatch(raw, start, position)) and _ENDS.match(raw, end):
            found.add(assigned.group(1))
        position = raw.find(name, end)
    return found


def _words_of_headers(raw: bytes) -> Iterator[bytes]:
    """Yield the words between the parentheses of every class header."""
    for match in _HEADER.finditer(raw):
        depth, end = 1, match.end()
        while depth and end < len(raw):
            depth += {ord("("): 1, ord(")"): -1}.get(raw[end], 0)
            end += 1
        yield from _WORD.findall(raw, match.end(), end)
