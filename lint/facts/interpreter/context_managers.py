"""`with`: what is entered, the body, what is left.

The body of a `@contextmanager` of the program is walked around the block: up to its `yield`, then the block, then the
rest. `__enter__` and `__exit__` of a class of the program are walked where they run.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ..identifiers import words_in
from ..objects.classes import ancestors
from ..objects.containers import iterate
from ..values import Attr, Call, Const, Dict, Function, Instance, Method, Result, Seq, Unknown, Value, options
from ..values.grad_mode import GradMode, GradState
from ..walk import Exit
from .bindings import assign
from .grad_mode import enter, leave, note_yield

if TYPE_CHECKING:
    from ..walk import Walk

_SWITCHES = frozenset(("no_grad", "inference_mode", "enable_grad", "set_grad_enabled"))
#: Context managers of torch that decorate functions, too.
_DECORATING = frozenset(("torch.nn.attention.sdpa_kernel", "torch.autocast", "torch.amp.autocast"))
_ENTER, _EXIT = ("__enter__", "__aenter__"), ("__exit__", "__aexit__")
#: On a `with` item, the calls of `__enter__` and `__exit__` that stand for it.
_CALLS = "_ckpt_lint_calls"


def with_block(walk: Walk, node: ast.With | ast.AsyncWith) -> bool:
    """`with`: the body under the contexts that it enters."""
    return _run_from(walk, node, 0)


def entered_by(function: Function) -> tuple[Value, ...]:
    """The contexts that decorators of ``function`` run its body in: `@sdpa_kernel(SDPBackend.MATH)`."""
    return tuple(decorator for decorator in function.decorators if decorates(decorator))


def decorates(context: Value) -> bool:
    """Whether ``context`` is one of torch that a function runs in which it decorates."""
    return isinstance(context, Result) and context.call.name in _DECORATING


def _run_from(walk: Walk, node: ast.With | ast.AsyncWith, index: int) -> bool:
    """The items of ``node`` from ``index`` on, and the body."""
    opened: list[WithBlock] = []
    ends: bool | None = None
    while ends is None and index + len(opened) < len(node.items):
        waiting = walk.block
        walk.block = block = WithBlock(walk, node, index + len(opened))
        value = walk.evaluate(block.item.context_expr)
        walk.block = waiting
        ends = block.ends  # A generator of the program has run the rest by now.
        if ends is None:
            block.open(value)
            opened.append(block)
    if ends is None:
        ends = walk.engine.execute(walk, node.body)
    for block in reversed(opened):
        block.close()
    return ends


class WithBlock:
    """What a `with` item is entered for: the items behind it and the body, which run once."""

    __slots__ = ("_before", "_context", "_entered", "_index", "_node", "_outside", "_walk", "ends")

    def __init__(self, walk: Walk, node: ast.With | ast.AsyncWith, index: int) -> None:
        self._walk = walk
        self._node = node
        self._index = index
        self._outside = walk.place
        #: The grad mode around the statement.
        self._before = walk.program.grad.current
        self._context: Value | None = None
        self._entered: Call | None = None
        #: Whether control left the body for good, where a generator ran it; None before that.
        self.ends: bool | None = None

    @property
    def item(self) -> ast.withitem:
        """What is entered."""
        return self._node.items[self._index]

    def open(self, context: Value) -> None:
        """Enter a context that is an object: what follows runs under it, until ``close()``."""
        walk = self._walk
        enter(walk, context)
        _note_entering(walk, self.item, context)
        self._context, self._entered = context, _call_of(walk, self.item, context, _ENTER)
        given = None if self._entered is None else _follow(walk, self._entered)
        self._begin(context if given is None else given, (*self._outside.contexts, context))

    def close(self) -> None:
        """Leave what was opened."""
        assert self._context is not None
        self._walk.place = self._outside
        self._exit(self._context, self._entered, self._before)
        leave(self._walk, self._context, self._before)

    def _exit(self, context: Value, entered: Call | None, before: GradState) -> None:
        """Run the `__exit__` of an object; where it is not walked whole, it undoes what `__enter__` did."""
        program = self._walk.program
        left, skipped = _call_of(self._walk, self.item, context, _EXIT), program.not_walked
        if left is None:
            return
        _follow(self._walk, left)
        is_whole = program.not_walked == skipped
        if not is_whole:
            program.grad.current = before
        if entered is not None:
            program.exits[entered] = Exit(left.order, is_whole)

    def run_at_yield(self, manager: Walk, given: Value, is_certain: bool) -> None:
        """Run where the generator ``manager`` hands over, surely (``is_certain``) or under a condition of its own."""
        grad, outside = self._walk.program.grad, self._outside
        at_yield, function = grad.current, manager.place.function
        entered: tuple[Value, ...] = manager.place.contexts
        if not is_certain:
            entered, given = outside.contexts, Unknown(self.item.context_expr)
            may_switch = function is not None and _SWITCHES & words_in(function.node)
            grad.current = GradState(GradMode.OPEN) if may_switch else at_yield
        during = grad.current
        around = self._walk.place
        self._begin(given, (*entered, Unknown(self.item.context_expr)))
        self.ends = _run_from(self._walk, self._node, self._index + 1)
        self._walk.place = around
        if grad.current is during:
            grad.current = at_yield

    def _begin(self, given: Value, contexts: tuple[Value, ...]) -> None:
        """Bind what entering gives, and stand in the block under ``contexts``."""
        walk, target = self._walk, self.item.optional_vars
        walk.place = self._outside
        if target is not None:
            assign(walk, target, given, self._node)
        walk.place = self._outside._replace(contexts=contexts)
        if isinstance(self._context, Result) and self._context.call.name == "contextlib.suppress":
            walk.place = walk.place._replace(tries=(*walk.place.tries, _as_try(self._context.call.node)))


def hand_over(walk: Walk, node: ast.Yield) -> Value:
    """`yield`: in a context manager that a `with` entered, the block runs here."""
    given = walk.evaluate(node.value) if node.value is not None else Const(None, node)
    _note(walk, given)
    note_yield(walk)
    block, walk.entered_for = walk.entered_for, None
    if block is not None:
        conditions = walk.place.guards[len(walk.begun_at.guards) :]
        block.run_at_yield(walk, given, all(guard.asserted for guard in conditions))
    return Unknown(node)


def hand_over_each(walk: Walk, node: ast.YieldFrom) -> Value:
    """`yield from`: what a loop over the value gives."""
    _note(walk, iterate(walk.evaluate(node.value), node.value))
    return Unknown(node)


def _note(walk: Walk, given: Value) -> None:
    """Remember what the generator hands over."""
    given = _in_any_iteration(given)
    walk.yielded.append(given)
    if walk.place.function is not None:
        walk.program.yielded.setdefault(walk.place.function.node, []).append(given)


def _in_any_iteration(value: Value) -> Value:
    """``value`` without its numbers and texts: the next iteration of a loop around the `yield` may have others."""
    match value:
        case Seq(kind, items, False):
            return Seq(kind, [_in_any_iteration(item) for item in items], False, value.node, value.place)
        case Dict(items, False):
            made = {key: _in_any_iteration(item) for key, item in items.items()}
            return Dict(made, False, value.node, value.place)
    return Unknown(value.node) if any(isinstance(option, Const) for option in options(value)) else value


def _call_of(walk: Walk, item: ast.withitem, context: Value, names: tuple[str, str]) -> Call | None:
    """The call of the method of these ``names`` that the class of ``context`` has; None when the program shows none."""
    if not isinstance(context, Instance):
        return None
    owners = (context.cls, *ancestors(context.cls))
    found = (owner.body.get(name) for owner in owners for name in names)
    method = next((member for member in found if isinstance(member, Function)), None)
    if method is None:
        return None
    call = Call(_written(item, names[0]), Method(context, method, None), walk.place, walk.program.next_order())
    call.grad = walk.program.grad.current
    call.open_args = names is _EXIT
    return call


def _note_entering(walk: Walk, item: ast.withitem, context: Value) -> None:
    """Record that an object is entered that was made elsewhere: `with self.store:`."""
    if isinstance(item.context_expr, ast.Call) or isinstance(context, Instance):
        return
    written = _written(item, _ENTER[0])
    call = Call(written, Attr(context, _ENTER[0], written.func), walk.place, walk.program.next_order())
    call.grad = walk.program.grad.current
    walk.program.calls.append(call)


def _follow(walk: Walk, call: Call) -> Value | None:
    """Walk the method that ``call`` is of."""
    walk.program.calls.append(call)
    match call.func:
        case Method(receiver, function):
            return walk.follow(function, call, receiver)
    return None


@lru_cache(maxsize=64)
def _as_try(suppress: ast.Call) -> ast.Try:
    """The `try` that `with suppress(TypeError):` stands for: one node, however often it is walked."""
    kinds = ast.copy_location(ast.Tuple(suppress.args, ast.Load()), suppress)
    handler = ast.copy_location(ast.ExceptHandler(kinds, None, [ast.copy_location(ast.Pass(), suppress)]), suppress)
    return ast.copy_location(ast.Try([], [handler], [], []), suppress)


def _written(item: ast.withitem, name: str) -> ast.Call:
    """The call of a method that ``item`` stands for: one node, however often it is walked."""
    calls: dict[str, ast.Call] = item.__dict__.setdefault(_CALLS, {})
    if name not in calls:
        at = item.context_expr
        func = ast.copy_location(ast.Attribute(at, name, ast.Load()), at)
        calls[name] = ast.copy_location(ast.Call(func, [], []), at)
    return calls[name]
