"""Options that are made from the fields of a record: ``name: A[T, "help"]`` and ``name: A[T, Arg(...)]``.

The rules are those of SGLang's ``add_cli_args_from_dataclass``, the same in 0.5.14 to 0.5.23.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sglforge.trees.arguments.constants import UNKNOWN, Definition, Module, Place, Sources, unreadable
from sglforge.trees.arguments.registered import Action, Registration, action_of, function_name

_ANNOTATED = frozenset({"A", "Annotated"})
_COLLECTS = "collect_input_fields"
_NO_DEFAULT = object()
_NAMES: Mapping[str, str] = {"str": "str", "int": "int", "float": "float"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An annotated name of a record, as it is written."""

    name: str
    annotation: ast.expr
    value: ast.expr | None
    module: Module
    where: str


def fields_of(record: Definition, sources: Sources) -> list[Field]:
    """Return the fields that a record has: those that its module collects from other structs, then its own.

    Raises RenderError ``arguments-unreadable`` where it collects them from something that is not written out.
    """
    found: dict[str, Field] = {}
    for struct in (*_collected(record.module, sources), record):
        for node in struct.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                where = struct.module.where(node)
                # Declared again, a field keeps its place and is what the last declaration says.
                found[name] = Field(
                    name=name, annotation=node.annotation, value=node.value, module=struct.module, where=where
                )
    return list(found.values())


def registration(entry: Field, sources: Sources) -> Registration | None:
    """Return how a field is registered as an option; None for one that is no option.

    Raises RenderError ``arguments-unreadable`` for an annotation of another shape than the known ones.
    """
    match entry.annotation:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[inner, *metadata])) if name in _ANNOTATED:
            arg = _arg(metadata, entry, sources)
        case _:
            return None
    if arg is None or arg.value("no_cli") is True:
        return None
    names = [arg.value("cli_name") or f"--{entry.name.replace('_', '-')}", *_aliases(arg, entry)]
    options = [name for name in names if isinstance(name, str)]
    if len(options) != len(names):
        raise unreadable(f"the names of the option for `{entry.name}` are not written out", entry.where)
    keywords: dict[str, object] = {"dest": entry.name, "help": arg.value("help")}
    default = _default(entry, sources)
    if default is not _NO_DEFAULT:
        keywords["default"] = default
    if "action" in arg.nodes:
        return _with_action(arg, options, keywords, entry, sources)
    type_, action = _typed(arg, inner, keywords, entry, required=default is _NO_DEFAULT)
    return Registration(names=options, keywords=keywords, type=type_, action=action, where=entry.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arg:
    """What is written about an option beside its type."""

    nodes: Mapping[str, ast.expr]
    place: Place
    sources: Sources

    def value(self, name: str) -> object:
        node = self.nodes.get(name)
        return None if node is None else self.sources.value(node, self.place)


def _collected(module: Module, sources: Sources) -> Iterator[Definition]:
    for statement in module.body:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[given]) if name == _COLLECTS:
                    yield from _structs(given, module, sources)
                case _:
                    pass


def _structs(node: ast.expr, module: Module, sources: Sources) -> Iterator[Definition]:
    bound = module.bound.get(node.id) if isinstance(node, ast.Name) else None
    listed = bound.value if isinstance(bound, ast.Assign) else node
    if not isinstance(listed, ast.List | ast.Tuple):
        raise unreadable("the records that the options are collected from are not written out", module.where(node))
    for element in listed.elts:
        struct = sources.definition(element, module)
        if struct is None or not isinstance(struct.node, ast.ClassDef):
            raise unreadable(f"there is no class {ast.unparse(element)} to collect options from", module.where(element))
        yield struct


def _arg(metadata: list[ast.expr], entry: Field, sources: Sources) -> _Arg | None:
    """Return the first of the metadata that makes an option of a field: a help text or an ``Arg``."""
    place = Place(module=entry.module)
    for node in metadata:
        match node:
            case ast.Call(func=ast.Name(id="Arg"), args=[], keywords=keywords):
                nodes = {word.arg: word.value for word in keywords if word.arg}
                if len(nodes) == len(keywords):
                    return _Arg(nodes=nodes, place=place, sources=sources)
                raise unreadable(f"what is said about `{entry.name}` is not written out", entry.where)
            case ast.Call(func=ast.Name(id="Arg")):
                raise unreadable(f"what is said about `{entry.name}` is not named", entry.where)
            case ast.Call():
                continue  # markers of other kinds: a namespace, a derived value
            case _:
                text = sources.value(node, place)
                if isinstance(text, str) or isinstance(node, ast.JoinedStr):
                    return _Arg(nodes={"help": node}, place=place, sources=sources)
                raise unreadable(f"what is said about `{entry.name}` is not known", entry.where)
    return None


def _aliases(arg: _Arg, entry: Field) -> list[object]:
    found = arg.value("aliases") or []
    if not isinstance(found, list | tuple):
        raise unreadable(f"the other names of the option for `{entry.name}` are not written out", entry.where)
    return list(found)


def _with_action(
    arg: _Arg, options: list[str], keywords: dict[str, object], entry: Field, sources: Sources
) -> Registration:
    nodes = dict(_pairs(arg.nodes.get("action_kwargs"), entry))
    keywords |= {name: sources.value(node, arg.place) for name, node in nodes.items() if name != "type"}
    return Registration(
        names=options,
        keywords=keywords,
        type=function_name(nodes["type"]) if "type" in nodes else None,
        action=action_of(arg.nodes["action"], entry.module, sources),
        where=entry.where,
    )


def _pairs(node: ast.expr | None, entry: Field) -> Iterator[tuple[str, ast.expr]]:
    if node is None:
        return
    if not isinstance(node, ast.Dict):
        raise unreadable(f"the keywords of the option for `{entry.name}` are not written out", entry.where)
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise unreadable(f"the keywords of the option for `{entry.name}` are not written out", entry.where)
        yield key.value, value


def _typed(
    arg: _Arg, annotation: ast.expr, keywords: dict[str, object], entry: Field, *, required: bool
) -> tuple[str | None, Action]:
    """Add what follows from a field's type; return the function that reads a value, and the action."""
    inner = _without_none(annotation)
    parser = function_name(arg.nodes["type_parser"]) if "type_parser" in arg.nodes else None
    plain = Action(defaults={})
    match inner:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=chosen):
            literals = chosen.elts if isinstance(chosen, ast.Tuple) else [chosen]
            values = [arg.sources.value(node, arg.place) for node in literals]
            keywords["choices"] = arg.value("choices") or values
            return parser or _NAMES.get(type(values[0]).__name__, "str"), plain
        case ast.Subscript(value=ast.Name(id="List" | "list"), slice=element) if parser is None:
            keywords["nargs"] = arg.value("nargs") or "+"
            keywords["choices"] = arg.value("choices") or None
            return _reads(element), plain
        case ast.Name(id="bool"):
            return None, Action(name="store_true", defaults={})
        case ast.Constant(value=str()):
            raise unreadable(f"the type of `{entry.name}` is written as text", entry.where)
        case _:
            keywords["nargs"] = arg.value("nargs") or None
            keywords["choices"] = arg.value("choices") or None
            keywords["required"] = arg.value("required") is True or ("required" not in arg.nodes and required)
            return parser or _reads(inner), plain


def _without_none(node: ast.expr) -> ast.expr:
    """Return the type inside ``Optional[T]``, ``Union[T, None]`` or ``T | None``, else the type itself."""
    match node:
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return inner
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=types)):
            rest = [inner for inner in types if not _is_none(inner)]
            return rest[0] if len(rest) == 1 < len(types) else node
        case ast.BinOp(op=ast.BitOr(), left=left, right=right) if _is_none(left) != _is_none(right):
            return right if _is_none(left) else left
        case _:
            return node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _reads(node: ast.expr) -> str:
    return _NAMES.get(node.id, "str") if isinstance(node, ast.Name) else "str"


def _default(entry: Field, sources: Sources) -> object:
    """Return the default of a field, UNKNOWN for one that is computed, ``_NO_DEFAULT`` where there is none."""
    place = Place(module=entry.module)
    match entry.value:
        case None:
            return _NO_DEFAULT
        case ast.Call(func=ast.Attribute(attr="field") | ast.Name(id="field"), args=[], keywords=keywords):
            given = {word.arg: word.value for word in keywords}
            match given.get("default_factory"):
                case ast.Name(id="list"):
                    return []
                case ast.Name(id="dict"):
                    return {}
                case ast.Lambda(body=body):
                    return sources.value(body, place)
                case None:
                    return sources.value(given["default"], place) if "default" in given else _NO_DEFAULT
                case _:
                    return UNKNOWN
        case value:
            return sources.value(value, place)
