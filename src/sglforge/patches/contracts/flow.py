"""One run of a method: what is surely set on `self` at each point of it, and what is read before that."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sglforge.patches.anchors import dotted
from sglforge.patches.contracts import calls
from sglforge.patches.contracts.bodies import generated_fields
from sglforge.patches.contracts.classes import Known, Outside
from sglforge.patches.contracts.members import Initializer, Members, Method, mangled
from sglforge.patches.contracts.scopes import Function, never

_UNKNOWN = Outside("")
_WITHOUT_EFFECT = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Most nodes of a tree: nothing is read on `self`, set or called in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of the patched tree, with the text of what stands there where that helps."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An attribute of `self` that is read or (``is_set``) set, in a method.

    ``order`` counts the events of a run. ``after`` is the first call before it that can fail. ``now`` is False in a
    nested function, which runs later if at all; ``depth`` counts the calls from the method that the run began with.
    """

    attribute: str
    place: Place
    method: Method
    order: int
    is_set: bool
    after: Place | None
    now: bool
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What holds at a point on every way to it.

    ``present``: attributes that are set. ``ready``: those that were set before any call that can fail. ``risk``: the
    first such call.
    """

    present: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    risk: Place | None = None

    def without(self, names: set[str]) -> State:
        """Return the state in which attributes may be gone."""
        return replace(self, present=self.present - names, ready=self.ready - names) if names else self

    def with_attributes(self, names: frozenset[str]) -> State:
        """Return the state in which attributes are known to be there, without anything having set them."""
        return replace(self, present=self.present | names) if names else self


@dataclass(slots=True, kw_only=True)
class _Frame:
    method: Method
    me: str | None
    depth: int
    live: bool = True
    guards: int = 0
    returns: list[State] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Run:
    """A run of methods on an instance of a class, calls to its own methods and to bases followed.

    ``depth`` limits the calls that are followed, ``allowed`` are the only attributes that the instance takes, None for
    any. ``reads`` are the reads of attributes that are not surely set there, ``sets`` the assignments, ``ran`` the
    methods that ran, ``outside`` the bases outside of the tree whose `__init__` ran.
    """

    members: Members
    instance: Known
    depth: int = 8
    allowed: frozenset[str] | None = None
    reads: list[Event] = field(default_factory=list)
    sets: list[Event] = field(default_factory=list)
    ran: list[Method] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    _risks: list[Place] = field(default_factory=list)
    _gone: list[str] = field(default_factory=list)
    _stack: list[Method] = field(default_factory=list)

    def call(self, method: Method, state: State) -> State | None:
        """Run a method and return what holds when it returns, or None when it always raises."""
        parameters = [*method.function.args.posonlyargs, *method.function.args.args]
        frame = _Frame(method=method, me=parameters[0].arg if parameters else None, depth=len(self._stack))
        self.ran.append(method)
        self._stack.append(method)
        end = self._block(method.function.body, state, frame)
        self._stack.pop()
        return _merged([*frame.returns, end])

    def initialize(self, init: Initializer, state: State) -> State | None:
        """Run an ``__init__`` and return what holds afterwards, or None when it always raises."""
        match init:
            case Method():
                return self.call(init, state)
            case Known():
                names = frozenset(generated_fields(self.members.graph, init))
                ready = state.ready if state.risk else state.ready | names
                state = replace(state, present=state.present | names, ready=ready)
                then = self.members.find(self.members.graph.order(self.instance), "__post_init__")
                return self.call(then, state) if isinstance(then, Method) else state
            case Outside():
                self.outside.append(init.name)
                return state
            case None:
                return state

    # statements

    def _block(self, statements: Sequence[ast.stmt], state: State | None, frame: _Frame) -> State | None:
        for statement in statements:
            if state is None:
                break
            state = self._statement(statement, state, frame)
        return state

    def _statement(self, node: ast.stmt, state: State, frame: _Frame) -> State | None:
        match node:
            case ast.If():
                return self._if(node, state, frame)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, state, frame)
            case ast.Try() | ast.TryStar():
                return self._try(node, state, frame)
            case ast.With() | ast.AsyncWith():
                return self._with(node, state, frame)
            case ast.Match():
                return self._match(node, state, frame)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._definition(node, state, frame)
            case ast.Return(value=value):
                frame.returns.append(self._expression(value, state, frame))
                return None
            case ast.Raise():
                self._children(node, state, frame)
                return None
            case ast.Break() | ast.Continue():
                return None
            case _:
                return self._simple(node, state, frame)

    def _simple(self, node: ast.stmt, state: State, frame: _Frame) -> State:
        match node:
            case ast.Assign(targets=targets, value=value):
                state = self._expression(value, state, frame)
                for target in targets:
                    state = self._store(target, state, frame)
                return state
            case ast.AnnAssign(target=target, value=value):
                return self._store(target, self._expression(value, state, frame), frame) if value else state
            case ast.AugAssign(target=target, value=value):
                if attribute := self._own(target, frame):
                    self._read(attribute, target, state, frame)
                return self._store(target, self._expression(value, state, frame), frame)
            case ast.Delete(targets=targets):
                for target in targets:
                    if attribute := self._own(target, frame):
                        self._read(attribute, target, state, frame)
                        self._gone.append(attribute)
                        state = state.without({attribute})
                return state
            case _:
                return self._children(node, state, frame)

    def _if(self, node: ast.If, state: State, frame: _Frame) -> State | None:
        known = never(node.test)
        if known is not None:
            return self._block(node.orelse if known else node.body, state, frame)
        true, false = self._known_when(node.test, frame)
        state = self._expression(node.test, state, frame)
        return _merged(
            [
                self._block(node.body, state.with_attributes(true), frame),
                self._block(node.orelse, state.with_attributes(false), frame),
            ]
        )

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, state: State, frame: _Frame) -> State | None:
        mark = self._mark()
        inside = state
        if isinstance(node, ast.While):
            state = self._expression(node.test, state, frame)
            inside = state.with_attributes(self._known_when(node.test, frame)[0])
        else:
            state = self._expression(node.iter, state, frame)
            inside = self._store(node.target, state, frame)
        self._block(node.body, inside, frame)
        state = self._interrupted(mark, state)
        return _merged([state, self._block(node.orelse, state, frame)])  # a `break` leaves the `else` out

    def _try(self, node: ast.Try | ast.TryStar, state: State, frame: _Frame) -> State | None:
        mark, returns = self._mark(), len(frame.returns)
        guarded = any(_catches_attribute_error(handler) for handler in node.handlers)
        frame.guards += guarded
        body = self._block(node.body, state, frame)
        frame.guards -= guarded
        thrown = self._interrupted(mark, state)
        ends = [self._block(node.orelse, body, frame)]
        ends += [self._block(handler.body, thrown, frame) for handler in node.handlers]
        end, last = _merged(ends), self._mark()
        swallows = any(isinstance(inner, ast.Return) for line in node.finalbody for inner in ast.walk(line))
        after = self._block(node.finalbody, _merged([end, thrown]) if swallows or not end else end, frame)
        frame.returns[returns:] = [self._interrupted(last, state) for state in frame.returns[returns:]]
        return after if end else None

    def _with(self, node: ast.With | ast.AsyncWith, state: State, frame: _Frame) -> State | None:
        for item in node.items:
            state = self._expression(item.context_expr, state, frame)
            if item.optional_vars:
                state = self._store(item.optional_vars, state, frame)
        mark = self._mark()
        body = self._block(node.body, state, frame)
        if any(_suppresses(item.context_expr) for item in node.items):
            return _merged([body, self._interrupted(mark, state)])
        return body

    def _match(self, node: ast.Match, state: State, frame: _Frame) -> State | None:
        state = self._expression(node.subject, state, frame)
        ends: list[State | None] = []
        for case in node.cases:
            inside = self._expression(case.guard, state, frame)
            ends.append(self._block(case.body, inside, frame))
            if case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                return _merged(ends)
        return _merged([*ends, state])

    def _definition(self, node: Function | ast.ClassDef, state: State, frame: _Frame) -> State:
        """Look into a nested function or class: it may read `self`, at any later time."""
        own = set[str]()
        if isinstance(node, Function):
            arguments = node.args
            own = {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}
        self._later(node.body, own, state, frame)
        return state

    def _later(self, body: Sequence[ast.stmt], own: set[str], state: State, frame: _Frame) -> None:
        me = None if frame.me in own else frame.me
        inner = replace(frame, me=me, live=False, guards=0, returns=[])
        self._block(body, state, inner)

    # expressions

    def _expression(self, node: ast.AST | None, state: State, frame: _Frame) -> State:
        if isinstance(node, _WITHOUT_EFFECT):
            return state
        match node:
            case None:
                return state
            case ast.Call():
                return self._call(node, state, frame)
            case ast.Attribute(ctx=ast.Load()):
                if attribute := self._own(node, frame):
                    self._read(attribute, node, state, frame)
                    return state
                return self._expression(node.value, state, frame)
            case ast.BoolOp():
                return self._either(node, state, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                true, false = self._known_when(test, frame)
                state = self._expression(test, state, frame)
                ways = [
                    self._expression(body, state.with_attributes(true), frame),
                    self._expression(orelse, state.with_attributes(false), frame),
                ]
                return _merged_all(ways)
            case ast.Lambda(args=arguments, body=body):
                own = {argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)}
                self._later([ast.Expr(value=body)], own, state, frame)
                return state
            case _:
                return self._children(node, state, frame)

    def _children(self, node: ast.AST, state: State, frame: _Frame) -> State:
        for child in ast.iter_child_nodes(node):
            state = self._expression(child, state, frame)
        return state

    def _either(self, node: ast.BoolOp, state: State, frame: _Frame) -> State:
        """Evaluate `and` and `or`: only the first operand surely runs."""
        first, *others = node.values
        outcome = 0 if isinstance(node.op, ast.And) else 1
        result = state = self._expression(first, state, frame)
        known = self._known_when(first, frame)[outcome]
        for other in others:
            state = self._expression(other, state.with_attributes(known), frame)
            known |= self._known_when(other, frame)[outcome]
        return replace(result, risk=state.risk)

    def _call(self, node: ast.Call, state: State, frame: _Frame) -> State:
        state = self._expression(node.func, state, frame)
        for argument in (*node.args, *node.keywords):
            state = self._expression(argument, state, frame)
        if frame.me:
            if attribute := calls.attribute_set(node, frame.me):
                return self._set(attribute, node, state, frame)
            if attribute := calls.attribute_got(node, frame.me):
                self._read(attribute, node, state, frame)
                return state
        if calls.is_harmless(node):
            return state
        target = self._target(node, frame)
        if isinstance(target, Method):
            followed = self.call(target, state) if self._is_followed(target, frame) else None
            return followed or self._risky(node, state, frame)
        if not frame.live or target == _UNKNOWN or _called_name(node) != "__init__":
            return self._risky(node, state, frame)
        state = self.initialize(target, state) or state
        return self._risky(node, state, frame) if isinstance(target, Outside) else state

    def _target(self, node: ast.Call, frame: _Frame) -> Initializer:
        """Return the method that a call on `self`, on `super()` or on a base with `self` runs."""
        graph, owner = self.members.graph, frame.method.owner
        order = graph.order(self.instance)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
                after = order[order.index(owner) + 1 :] if owner in order else graph.order(owner)[1:]
                return self.members.find(after, name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=receiver), attr=name)) if receiver == frame.me:
                return self.members.find(order, name)
            case ast.Call(func=ast.Attribute(value=base, attr=name), args=[ast.Name(id=first), *_]) if (
                first == frame.me and dotted(base)
            ):
                found = graph.resolve(owner.file, owner.scope, dotted(base))
                return self.members.find(graph.order(found), name) if isinstance(found, Known) else found
            case _:
                return _UNKNOWN

    def _is_followed(self, method: Method, frame: _Frame) -> bool:
        deeper = frame.live and len(self._stack) < self.depth and method not in self._stack
        return deeper and self.members.runs_when_called(method)

    # attributes of self

    def _own(self, node: ast.AST, frame: _Frame) -> str | None:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == frame.me:
                return mangled(attribute, frame.method.owner)
            case _:
                return None

    def _store(self, target: ast.expr, state: State, frame: _Frame) -> State:
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner in targets:
                    state = self._store(inner, state, frame)
                return state
            case ast.Starred(value=value):
                return self._store(value, state, frame)
            case ast.Name(id=name):
                if name == frame.me:
                    frame.me = None
                return state
            case _:
                if attribute := self._own(target, frame):
                    return self._set(attribute, target, state, frame)
                return self._children(target, state, frame)

    def _set(self, attribute: str, node: ast.AST, state: State, frame: _Frame) -> State:
        if frame.live:
            self.sets.append(self._event(attribute, node, state, frame, is_set=True))
        if self.allowed is not None and attribute not in self.allowed:
            return state
        names = frozenset({attribute})
        ready = state.ready if state.risk else state.ready | names
        return replace(state, present=state.present | names, ready=ready)

    def _read(self, attribute: str, node: ast.AST, state: State, frame: _Frame) -> None:
        if attribute not in state.present and not frame.guards:
            self.reads.append(self._event(attribute, node, state, frame, is_set=False))

    def _event(self, attribute: str, node: ast.AST, state: State, frame: _Frame, *, is_set: bool) -> Event:
        return Event(
            attribute=attribute,
            place=self._place(node, frame),
            method=frame.method,
            order=len(self.reads) + len(self.sets),
            is_set=is_set,
            after=state.risk,
            now=frame.live,
            depth=frame.depth,
        )

    def _risky(self, node: ast.Call, state: State, frame: _Frame) -> State:
        if state.risk or not frame.live:
            return state
        self._risks.append(self._place(node, frame, dotted(node.func) or ast.unparse(node.func)))
        return replace(state, risk=self._risks[-1])

    def _mark(self) -> tuple[int, int]:
        return len(self._risks), len(self._gone)

    def _interrupted(self, mark: tuple[int, int], state: State) -> State:
        """Return what still holds of a state after something that began at a mark ended anywhere in it."""
        risks, gone = self._risks[mark[0] :], self._gone[mark[1] :]
        return replace(state, risk=state.risk or next(iter(risks), None)).without(set(gone))

    def _place(self, node: ast.AST, frame: _Frame, text: str = "") -> Place:
        return Place(file=frame.method.owner.file, line=getattr(node, "lineno", 0), text=text)

    def _known_when(self, test: ast.expr, frame: _Frame) -> tuple[frozenset[str], frozenset[str]]:
        return calls.known_when(test, frame.me)


def _merged(states: Sequence[State | None]) -> State | None:
    """Return what holds on all of several ways; a way that does not arrive does not count."""
    arriving = [state for state in states if state is not None]
    return _merged_all(arriving) if arriving else None


def _merged_all(states: Sequence[State]) -> State:
    return State(
        present=frozenset.intersection(*(state.present for state in states)),
        ready=frozenset.intersection(*(state.ready for state in states)),
        risk=next((state.risk for state in states if state.risk), None),
    )


def _catches_attribute_error(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(dotted(error) == "AttributeError" for error in caught)


def _suppresses(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "suppress"


def _called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""
