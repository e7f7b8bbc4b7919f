"""Checkpoints of which nothing comes: no backward pass runs their region again."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.objects.containers import container_kind
from ...facts.values import Attr, Element, Function, Instance, Method, Result, equals, options
from ...facts.values.grad_mode import GradMode
from ..conditions.contexts import is_plain
from ..conditions.guards import tests_training
from ..events import Checkpoint, CheckpointSequential, CheckpointWrap
from ..flow.recorded import recorded_nodes
from ..flow.unused import dropped_at, is_unused
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Place, Value
    from ..events import Event
    from ..history import History

#: Containers of modules that a loop goes through.
_LISTS = ("ModuleList", "Sequential")
#: What a benchmark asks of its input, too.
_ASKED = ("shape", "size", "device", "dtype", "numel", "ndim")
#: Method names that change their object.
_CHANGES = ("append", "extend", "add", "update", "insert", "put", "setdefault", "copy_", "backward", "register_buffer")


def is_dropped(run: History, event: Event) -> bool:
    """Whether nothing uses what the checkpoint or the wrapper ``event`` gives, and its region leaves nothing else."""
    if event.place.tries or not is_plain(event.place):
        return False
    match event:
        case CheckpointWrap():
            return is_unused(run, event.call)
        case Checkpoint():
            return is_unused(run, event.call) and _gives_nothing_else(run, event)
    return False


def dropping_call(run: History, event: Event) -> Call | None:
    """The call of a function that returns what ``event`` gives, where this caller, and not each, uses none of it."""
    if not isinstance(event, Checkpoint | CheckpointWrap) or is_dropped(run, event):
        return None
    at = dropped_at(run, event.call)
    if at is None or at is event.call or event.place.tries or not is_plain(event.place):
        return None
    if not all(map(tests_training, event.place.beyond(at.place))):
        return None  # The function may go another way, and change in place what it got.
    return at if isinstance(event, CheckpointWrap) or _gives_nothing_else(run, event) else None


def _gives_nothing_else(run: History, event: Checkpoint) -> bool:
    """Whether the region leaves nothing but its result, and who drops that does not only want it to run."""
    hooked = any(True for _ in run.method_calls("register_forward_hook"))
    at = dropped_at(run, event.call)
    return not hooked and at is not None and _only_returns(run, event, at)


def is_whole(event: Event) -> bool:
    """Whether ``event`` runs its modules as one segment, which torch does not checkpoint: the last one never is."""
    return isinstance(event, CheckpointSequential) and equals(event.segments, 1) is True


def _only_returns(run: History, event: Checkpoint, at: Call) -> bool:
    """Whether what is checkpointed certainly does nothing but return a value, which ``at`` drops."""
    region = run.region(event)
    if any(_has_effects(run, function) for function in region.functions):
        return False
    if all(_is_module(option) for option in options(event.function)):
        return _in_module(at.place) or _goes_on_with_input(run, event, at)
    return any(
        returned.value.node is not None and not isinstance(returned.value.node, ast.Constant | ast.Return)
        for function in region.functions[:1]
        for returned in run.program.returns.get(function.node, ())
    )


def _is_module(value: Value) -> bool:
    return isinstance(value, Instance | Element) or (
        isinstance(value, Result) and value.call.name.startswith("torch.nn.")
    )


def _goes_on_with_input(run: History, event: Checkpoint, at: Call) -> bool:
    """Whether a loop runs the blocks of a module, each with the same input, and what follows it uses that input."""
    loop = at.place.loops[-1] if at.place.loops else None
    around = at.place.function.node if at.place.function is not None else run.program.tree
    match loop, at.node.args[:2]:
        case ast.For(end_lineno=int(end)), [ast.Name(id=block), ast.Name(id=name)]:
            chosen = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
            uses = [part for part in ast.walk(around) if isinstance(part, ast.Name) and part.id == name]
            bound = any(isinstance(part.ctx, ast.Store) and loop.lineno <= part.lineno <= end for part in uses)
            # Its shape is the same whatever the blocks do.
            asked = {part.value for part in ast.walk(around) if isinstance(part, ast.Attribute) and part.attr in _ASKED}
            later = any(isinstance(part.ctx, ast.Load) and part.lineno > end and part not in asked for part in uses)
            blocks = block in chosen and all(_is_block(run, option) for option in options(event.function))
            return blocks and later and not bound and event.call.grad_mode is not GradMode.OFF
    return False


def _is_block(run: History, value: Value) -> bool:
    """Whether ``value`` is a module, or one of those that an attribute of a module of the program lists."""
    match value:
        case Instance(cls=cls):
            return "torch.nn.Module" in bases(cls)
        case Element(of=Element() as slice_of):
            return _is_block(run, slice_of)
        case Result(call) if call.name.startswith("torch.nn."):
            return equals(call.keyword("inplace"), True) is False
        case Element(of=Attr(name=name)):
            modules = [cls for cls in run.program.classes if "torch.nn.Module" in bases(cls)]
            listed = [cls.fields[name] for cls in modules if name in cls.fields]
            return bool(listed) and all(container_kind(held) in _LISTS for held in listed)
        case Element(of=Result(call)):
            return call.method in ("children", "modules")
    return False


def _in_module(place: Place) -> bool:
    """Whether ``place`` is in a method of an `nn.Module` of the file."""
    function = place.function
    return function is not None and function.owner is not None and "torch.nn.Module" in bases(function.owner)


def _has_effects(run: History, function: Function) -> bool:
    """Whether running it may leave a tensor with a gradient, or anything but a number, somewhere else."""
    known = _effects(run)
    if function.node not in known:
        known[function.node] = _may_leave_something(run, function)
    return known[function.node]


@lru_cache(maxsize=1)
def _effects(run: History) -> dict[ast.AST, bool]:
    """What is found out of the functions of one run."""
    return {}


def _may_leave_something(run: History, function: Function) -> bool:
    recorded = list(recorded_nodes(function.node, run.program.grad))
    counted = {part for node in recorded for part in _counted(node)}
    return any(_leaves_something(run, node) for node in recorded if node not in counted)


def _leaves_something(run: History, node: ast.AST) -> bool:
    match node:
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()) | ast.Global() | ast.Nonlocal():
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return (name in _CHANGES or name.endswith("_")) and not _runs_what_is_shown(run, node)
    return False


def _runs_what_is_shown(run: History, call: ast.AST) -> bool:
    """Whether ``call`` runs a module or a method of the program, however it is called: `self.update(x)`."""
    called = [option for made in run.calls_at(call) for option in options(made.func)]
    return bool(called) and all(isinstance(it, Method) or _is_module(it) for it in called)


def _counted(node: ast.AST) -> Iterator[ast.AST]:
    """What ``node`` counts or sets to a constant: `self.calls += 1`."""
    match node:
        case ast.AugAssign(target=target, value=ast.Constant()) | ast.Assign(targets=[target], value=ast.Constant()):
            yield from ast.walk(target)
