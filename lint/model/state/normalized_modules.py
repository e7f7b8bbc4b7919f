"""Modules that the program gives a `spectral_norm` after they were made: one by one, in loops, by `model.apply`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.composed import composed
from ...facts.identifiers import names_in
from ...facts.parameters import positional_names
from ...facts.values import Element, Function, Instance, Result, Value, one, options
from ..conditions.guards import own_guards
from ..frozen.module_loops import is_of
from ..frozen.named_modules import chains_in
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Loop
    from ..regions.region import Region
    from ..run import Run

_ALL, _DIRECT = ("modules", "named_modules"), ("children", "named_children")
_LISTS = ("builtins.list", "builtins.tuple", "builtins.reversed")
_REMOVING = (
    *("torch.nn.utils.remove_spectral_norm", "torch.nn.utils.parametrize.remove_parametrizations"),
    "torch.nn.utils.parametrizations.remove_parametrizations",
)
#: How many loops and lists are looked through.
_HOPS = 6


class _Tree(NamedTuple):
    """Where modules are taken from: a model, and whether from all of it or from what it holds itself."""

    root: Value
    is_deep: bool
    #: What takes them, where that is no loop around the call itself.
    by: ast.Call | None = None


def normalized_in(run: Run, region: Region, names: tuple[str, ...]) -> Iterator[ast.Call]:
    """The calls of functions of these ``names`` that make or change a module which runs in ``region``."""
    yield from (made.call.node for made in region.modules_of(*names))
    calls = [*run.calls_to(*names)]
    if not calls or any(run.calls_to(*_REMOVING)):
        return
    for call in calls:
        target = call.argument(0, "module")
        tree = _tree_of(run, call, target)
        parts = region.modules if tree is None else [part for part in region.modules if _is_in(part, tree)]
        for part in parts:
            is_it = tree is not None or (_is_shown(call, target) and any(one(it, part) for it in options(target)))
            is_chosen = tree is not None or bool(call.place.loops)
            if is_it and isinstance(part, Result) and (not is_chosen or _comes_to(run, call, part)):
                yield call.node if tree is None or tree.by is None else tree.by
                break


def _is_shown(call: Call, target: Value) -> bool:
    """Whether ``call`` comes to all that ``target`` may be: one module, those of a display, or the children of one."""
    if len(options(target)) == 1:
        return True
    match call.place.loops[-1:]:
        case [ast.For(iter=ast.Tuple() | ast.List())]:
            return True
        case [ast.For(iter=ast.Call(func=ast.Attribute(attr=name), args=[]))]:
            return name in _DIRECT
    return False


def _tree_of(run: Run, call: Call, target: Value) -> _Tree | None:
    """What ``target``, in a loop or a function that goes through modules, is taken from; None for one module."""
    function = call.place.function
    if function is not None and _gets_parameter(call, function) and (applying := _applied(run, call, function)):
        return _Tree(applying.receiver, True, applying.node)
    if function is not None and _calls_itself(function):
        callers = run.callers_of(call.place) or []
        given = [it for it in callers if isinstance(it.func, Function) and it.func.node is function.node]
        return _Tree(given[0].args[0], True) if given and given[0].args else None
    return _taken_from(target, call.place.loops)


def _taken_from(value: Value, loops: tuple[Loop, ...]) -> _Tree | None:
    """The model whose modules a loop takes ``value`` from, perhaps by way of lists and of other modules of it.

    What a list was made of may have been chosen where that was made: one of ``loops`` must take it itself.
    """
    is_here = is_deep = False
    for _ in range(_HOPS):
        match value:
            case Element(of=inner):
                is_here = is_here or any(value.node is getattr(loop, "iter", None) for loop in loops)
                value = inner
            case Result() if not is_here:
                return None
            case Result(call) if call.name in _LISTS and call.args:
                value = call.args[0]
            case Result(call) if call.method in _ALL:
                value, is_deep = call.receiver, True
            case Result(call) if call.method in _DIRECT:
                value = call.receiver
            case _:
                break
    return _Tree(value, is_deep) if is_here and isinstance(value, Instance) else None


def _gets_parameter(call: Call, function: Function) -> bool:
    """Whether ``call`` gets what ``function`` gets."""
    names = positional_names(function.node)
    return any(isinstance(it, ast.Name) and it.id in names for it in call.node.args[:1])


def _applied(run: Run, call: Call, function: Function) -> Call | None:
    """What runs ``function`` on the modules of a model: `model.apply(function)`, which is read as a call of it, too."""
    found = [it for it in run.method_calls("apply") for given in it.args[:1] if _is_function(given, function)]
    lines = {it.node.lineno for it in found}
    is_read_so = all(caller.lineno in lines for caller in call.place.stack[-1:])
    return found[0] if len(found) == 1 and is_read_so else None


def _is_function(value: Value, function: Function) -> bool:
    return isinstance(value, Function) and value.node is function.node


def _calls_itself(function: Function) -> bool:
    return function.owner is None and function.name in names_in(function.node) and bool(positional_names(function.node))


def _is_in(part: Value, tree: _Tree) -> bool:
    """Whether ``part`` is a module of the ``tree``."""
    root = unwrapped(tree.root)
    if not isinstance(root, Instance):
        return one(root, part)
    chains = [chain for chain in chains_in(root) if tree.is_deep or len(chain) == 1]
    return any(chain[-1][1] is part or one(chain[-1][1], part) for chain in chains)


def _comes_to(run: Run, call: Call, part: Result) -> bool:
    """Whether the conditions around ``call`` in its function choose ``part`` by its class, or nothing."""

    def ask(test: ast.AST) -> bool | None:
        return _is_so(run, test, part)

    return all(composed(guard.test, ask) is guard.taken for guard in own_guards(call.place))


def _is_so(run: Run, test: ast.AST, part: Result) -> bool | None:
    """Whether ``test`` is true of the module ``part``; None where it asks for anything but its class."""
    match test:
        case ast.Call(func=ast.Name("isinstance"), args=[_, _]):
            answers = {is_of(part, call.argument(1)) for call in run.calls_at(test)}
            return answers.pop() if len(answers) == 1 else None
        case ast.Call(func=ast.Name("hasattr"), args=[_, ast.Constant(value="weight")]):
            return True
    return None
