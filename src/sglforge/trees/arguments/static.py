"""Read the options of a tree off its syntax; nothing of it is run.

Three shapes are known: ``add_cli_args`` with one call for each option (0.5.9 to 0.5.13.post1), fields of the
dataclass ``ServerArgs`` annotated ``A[T, "help"]`` or ``A[T, Arg(...)]`` (0.5.14 to 0.5.19), and the same fields in
the structs of ``arg_groups/fields`` (from 0.5.20 on). They mix: each later one still has calls of the first kind.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from sglforge.trees.arguments.constants import UNKNOWN, Definition, Module, Place, Sources, unreadable
from sglforge.trees.arguments.fields import fields_of, registration
from sglforge.trees.arguments.files import SERVER_ARGS, SchemaFiles
from sglforge.trees.arguments.model import Argument
from sglforge.trees.arguments.registered import argument, of_call

_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
_FROM_FIELDS = "add_cli_args_from_dataclass"
_DEPTH = 8


def read_static(files: SchemaFiles) -> tuple[Argument, ...]:
    """Return the options that the syntax of a tree states, in the order in which they are added.

    Raises RenderError ``arguments-unreadable`` with the place of what has another shape than the known ones.
    """
    sources = Sources(files.all)
    module = sources.module(SERVER_ARGS)
    server_args = module.definitions.get("ServerArgs") if module else None
    adder = _method(server_args, "add_cli_args") if server_args else None
    if module is None or adder is None:
        where = f"{files.needed[SERVER_ARGS]}:1"
        raise unreadable("there is no class ServerArgs with a method add_cli_args", where)
    reading = _Reading(sources=sources)
    reading.follow(adder, module, frozenset({_first_parameter(adder, module)}), _DEPTH)
    return tuple(reading.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What was found so far, and where names are looked up."""

    sources: Sources
    found: list[Argument] = field(default_factory=list)

    def follow(self, function: ast.FunctionDef, module: Module, parsers: frozenset[str], depth: int) -> None:
        """Read a function that adds options to the parser that its parameters are named by."""
        values: dict[str, object] = dict.fromkeys(_parameters(function), UNKNOWN)
        self._block(function.body, _Scope(module=module, parsers=set(parsers), values=values, depth=depth))

    def _block(self, body: list[ast.stmt], scope: _Scope) -> None:
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Call() as call):
                    self._call(call, scope)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value, scope)
                case ast.If(body=body, orelse=other):
                    self._block([*body, *other], scope)
                    scope.forget(statement)
                case ast.With(body=body):
                    self._block(body, scope)
                case ast.Return(value=ast.Name() | None):
                    pass
                case _:
                    scope.forget(statement)
                    if scope.mentions(statement):
                        raise unreadable(
                            "what this statement does to the parser is not known", scope.module.where(statement)
                        )

    def _assign(self, name: str, value: ast.expr, scope: _Scope) -> None:
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attribute)) if owner in scope.parsers:
                if attribute in _GROUPS:
                    scope.parsers.add(name)
                else:
                    self._call(value, scope)
            case _:
                if scope.mentions(value):
                    raise unreadable("what becomes of the parser here is not known", scope.module.where(value))
                scope.values[name] = self.sources.value(value, scope.place())

    def _call(self, call: ast.Call, scope: _Scope) -> None:
        match call.func:
            case ast.Attribute(value=ast.Name(id=owner), attr="add_argument") if owner in scope.parsers:
                self.found.append(argument(of_call(call, scope.place(), self.sources)))
                return
            case ast.Attribute(value=ast.Name(id=owner)) if owner in scope.values:
                scope.values[owner] = UNKNOWN  # `choices.append(...)`
            case _:
                pass
        if not scope.mentions(call):
            return
        callee = self._callee(call.func, scope.module)
        if callee is None or not isinstance(callee.node, ast.FunctionDef) or not scope.depth:
            raise unreadable("what this call does to the parser is not known", scope.module.where(call))
        if callee.node.name == _FROM_FIELDS:
            self._from_fields(call, scope)
            return
        names = _parameters(callee.node)
        passed = {names[i] for i, given in enumerate(call.args[: len(names)]) if scope.is_parser(given)}
        passed |= {word.arg for word in call.keywords if word.arg and scope.is_parser(word.value)}
        if not passed:
            raise unreadable("how the parser is passed on here is not known", scope.module.where(call))
        self.follow(callee.node, callee.module, frozenset(passed), scope.depth - 1)

    def _from_fields(self, call: ast.Call, scope: _Scope) -> None:
        record = self.sources.definition(call.args[1], scope.module) if len(call.args) == 2 else None
        if record is None or call.keywords:
            raise unreadable("which record the options are made from is not known", scope.module.where(call))
        for entry in fields_of(record, self.sources):
            if made := registration(entry, self.sources):
                self.found.append(argument(made))

    def _callee(self, func: ast.expr, module: Module) -> Definition | None:
        match func:
            case ast.Name():
                return self.sources.definition(func, module)
            case ast.Attribute(value=ast.Name() as owner, attr=name):
                cls = self.sources.definition(owner, module)
                method = _method(cls.node, name) if cls and isinstance(cls.node, ast.ClassDef) else None
                return Definition(module=cls.module, node=method) if cls and method else None
            case _:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The inside of a function: which names are parsers, and what the others hold."""

    module: Module
    parsers: set[str]
    values: dict[str, object]
    depth: int

    def place(self) -> Place:
        return Place(module=self.module, values=self.values)

    def is_parser(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.parsers

    def mentions(self, node: ast.AST) -> bool:
        return any(isinstance(inner, ast.Name) and inner.id in self.parsers for inner in ast.walk(node))

    def forget(self, statement: ast.stmt) -> None:
        """Drop what a statement may have changed."""
        for node in ast.walk(statement):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
                    self.values[name] = UNKNOWN
                case _:
                    pass


def _method(cls: ast.AST, name: str) -> ast.FunctionDef | None:
    body = cls.body if isinstance(cls, ast.ClassDef) else []
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _first_parameter(function: ast.FunctionDef, module: Module) -> str:
    names = [name for name in _parameters(function) if name not in {"cls", "self"}]
    if not names:
        raise unreadable("add_cli_args takes no parser", module.where(function))
    return names[0]
