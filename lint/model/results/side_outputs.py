"""What a checkpointed region hands out beside its result, for code outside of it to add up."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes, inner_nodes, is_inside
from ...facts.objects.classes import are_one_family
from ...facts.straight import only_value
from ...facts.values import Attr, Instance, Seq
from ...facts.values.grad_mode import GradMode
from ..calls.call_targets import call_targets
from ..calls.forward_hooks import is_output_in_hook
from ..calls.hooked_objects import is_on_gradient_free
from ..flow.recorded import recorded_nodes
from ..flow.statements import body_around
from ..tensors.batches import is_loss_for_trainer
from ..tensors.gradient_free import may_lack_graph
from .added_up import adds_up, is_list_of_elements, keeps
from .elements import elements_in
from .gathering import elements_of, gathered_by
from .given_on import given_as, given_on
from .giving_methods import giving_methods
from .handed_in import added_by, filled_lists, stored_in_given
from .kept_by_hooks import kept_by_hooks
from .stored import Stored, handed_out, has_graph, stored_outside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Function
    from ...facts.walk import Program
    from ..events import Checkpointing
    from ..regions.region import Region
    from ..run import Run

#: Functions and methods whose argument, or object, feeds no loss.
_SHOWS = frozenset(
    (
        *("print", "pprint", "float", "int", "item", "tolist", "numpy", "detach", "format"),
        *("info", "debug", "warning", "write", "set_postfix", "set_description"),
        *("log_dict", "log_metrics", "log_scalar", "log_metric", "add_scalar", "add_scalars"),
    )
)
_LOSSES = ("loss", "aux", "penalty", "regular", "objective")


class SideOutput(NamedTuple):
    """A tensor that a region stores outside of itself."""

    #: What it is stored under, as it is written.
    name: str
    #: Where it is stored.
    node: ast.AST
    #: Whether the conditions around that place surely hold.
    is_settled: bool = False


def side_outputs(run: Run, event: Checkpointing) -> Iterator[SideOutput]:
    """What the region of ``event`` stores and code outside of it adds to something, as a loss does."""
    region = run.region(event)
    inside = frozenset[ast.AST](function.node for function in region.functions)
    for stored in (*stored_outside(run, region), *kept_by_hooks(run, region), *stored_in_given(run, event, region)):
        if _is_added(run, stored, inside):
            yield SideOutput(stored.name, stored.node, stored.is_settled)
    for call in _appended(run, region):
        yield SideOutput(ast.unparse(call.node.args[0]), call.node)
    for filled in filled_lists(run, event, region):
        if _is_summed(run, filled, inside):
            yield SideOutput(filled.name, filled.node, filled.is_settled)


def _is_added(run: Run, stored: Stored, inside: frozenset[ast.AST]) -> bool:
    """Whether code outside of the functions ``inside`` adds to a loss what is ``stored``, whatever it calls it."""
    used = _used_outside(run.program, inside)
    known = [stored, *handed_out(run, stored, inside), *elements_in(used, stored), *given_on(used, stored)]
    lists = [*gathered_by(used, stored)]
    known += [element for name in lists for element in elements_of(used, name, stored)]
    if any(adds_up(node, name) for name in lists for node in used):
        return True
    known += [parameter for it in known for parameter in given_as(run, it, used)]
    if any(_adds(node, it) for it in known for node in used):
        return True
    return any(_is_gathered_for_loss(run, it, used, inside) for it in known)


def _is_summed(run: Run, filled: Stored, inside: frozenset[ast.AST]) -> bool:
    """Whether code outside of the functions ``inside`` adds up the list that is the variable ``filled``."""
    used = _used_outside(run.program, inside)
    variables = [filled, *(it for it in handed_out(run, filled, inside) if it.key is None)]
    return any(
        it.scope is not None and adds_up(node, it.name) and is_inside(node, it.scope)
        for it in variables
        for node in used
    )


def _is_gathered_for_loss(run: Run, stored: Stored, used: list[ast.AST], inside: AbstractSet[ast.AST]) -> bool:
    """Whether what is stored is put together, or made one number, by a call that feeds a loss or a backward pass."""
    names = frozenset(name for node in used for name in _gathered_under(node, stored))
    nodes = {node for node in used if _gathers(node, stored, names)}
    calls = [call for call in run.program.calls if call.node in nodes] if nodes else []
    if any(not may_lack_graph(call, sink) for call in calls for sink in run.losses.fed_by(call)):
        return True
    names_of_properties = frozenset(name for node in used for name in _property_giving(node, nodes))
    properties = [stored._replace(name=name, key=None, scope=None) for name in names_of_properties]
    gathered = [given for call in calls for given in _gathered_as(run, call, stored, inside)]
    gathered += [parameter for it in gathered for parameter in given_as(run, it, used)]
    return any(_is_trained_on(run, call) for call in calls) or any(
        _adds(node, given) for given in (*properties, *gathered) for node in used
    )


def _gathered_as(run: Run, call: Call, stored: Stored, inside: AbstractSet[ast.AST]) -> Iterator[Stored]:
    """What the function of ``call``, which puts ``stored`` together, and its callers call what that gives."""

    def is_kept(part: ast.AST) -> bool:
        return isinstance(part, ast.expr) and keeps(part, lambda it: it is call.node)

    body = body_around(run, call)
    for node in all_nodes(body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_kept(value):
                variable = Stored(name, stored.node, scope=body)
                yield from (variable, *handed_out(run, variable, inside))
    yield from handed_out(run, stored, inside, is_kept)
    function = call.place.function
    given = only_value(function.node) if function is not None else None
    if function is not None and given is not None and is_kept(given):
        method = Stored(f"{function.name}()", stored.node)
        yield from (method, *handed_out(run, method, inside))


def _property_giving(node: ast.AST, values: AbstractSet[ast.AST]) -> Iterator[str]:
    """The name of ``node`` when it is a property that gives one of ``values``: `net.balance_loss` reads it."""
    match node:
        case ast.FunctionDef(decorator_list=[ast.Name(id="property")], name=name, body=[*_, ast.Return(value=given)]):
            if given is not None and not values.isdisjoint(all_nodes(given)):
                yield name


def _is_trained_on(run: Run, call: Call) -> bool:
    """Whether a framework gets a loss with what ``call`` gives: `training_step` of Lightning returns it."""
    way = run.path_to(call)
    return bool(way) and is_loss_for_trainer(way[0].place.function) and all(map(run.losses.is_returned, way))


def _gathered_under(node: ast.AST, stored: Stored) -> Iterator[str]:
    """The name that ``node`` gives to a list of what is stored."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=held) if _is_list_of(held, stored):
            yield name


def _gathers(node: ast.AST, stored: Stored, names: AbstractSet[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=term, attr="sum" | "mean")) if _is_term(term, stored):
            return True
        case ast.Call(func=ast.Attribute(attr="stack" | "cat" | "concat" | "hstack"), args=[held, *_]):
            return _is_list_of(held, stored) or (isinstance(held, ast.Name) and held.id in names)
        case ast.Call(func=ast.Name(id="sum"), args=[ast.Name(id=name), *_]):
            return name in names
        case ast.Call():
            return keeps(node, stored.is_read_by)
    return False


def _is_list_of(node: ast.expr, stored: Stored) -> bool:
    match node:
        case ast.ListComp(elt=term) | ast.GeneratorExp(elt=term):
            return keeps(term, stored.is_read_by)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(keeps(part, stored.is_read_by) for part in parts)
    return False


def _appended(run: Run, region: Region) -> Iterator[Call]:
    """What the region appends to a list from outside of it, whose elements are added up there."""
    inside = frozenset[ast.AST](function.node for function in region.functions)
    for call in region.method_calls("append", "extend"):
        held, function = call.receiver, call.place.function
        own = isinstance(held, Seq) and held.place is not None and _is_in(held.place.function, inside)
        if not isinstance(held, Seq | Attr) or own or function is None or len(call.args) != 1:
            continue
        own_name = _list_name(run, call)
        names = [own_name, *giving_methods(run.program, own_name)]
        # Where sums are found says less than which of them are used, and is found once for the whole program.
        added = {node for node in _sums(run.program.trees) if any(adds_up(node, name) for name in names)}
        handed = [found for name in names for found in _handed_to(run, name)]
        added |= {node for body, given in handed for node in all_nodes(body) if adds_up(node, given)}
        if any(has_graph(run, value) for value in added_by(call)):
            computed = True
        else:
            hooks = [it for it in run.bodies.hooks if not is_on_gradient_free(run, it.call)]
            computed = is_output_in_hook(hooks, call.args[0])
        if added and computed and not added.isdisjoint(_used_outside(run.program, inside)):
            yield call


def _handed_to(run: Run, name: str) -> Iterator[tuple[ast.AST, str]]:
    """The functions of the program that are given the list, each with its parameter: `criterion(y, net.losses)`."""
    for call in run.program.calls:
        at = [index for index, given in enumerate(call.node.args) if is_list_of_elements(given, name)]
        for part in call_targets(call.func) if at else ():
            names = part.parameters()
            yield from ((part.function.node, names[index]) for index in at if index < len(names))


@lru_cache(maxsize=1)
def _sums(trees: tuple[ast.AST, ...]) -> list[ast.AST]:
    """The nodes of a program that may add up a list."""
    kinds = ast.Call | ast.For | ast.AugAssign | ast.BinOp
    return [node for tree in trees for node in all_nodes(tree) if isinstance(node, kinds)]


def _list_name(run: Run, call: Call) -> str:
    """What the list is called to which ``call`` appends; `*.losses` where one class alone has such an attribute."""
    match call.node.func:
        case ast.Attribute(value=ast.Attribute(value=ast.Name("self"), attr=field)):
            owners = [write.obj for write in run.writes if write.field == field]
            classes = [owner.cls for owner in owners if isinstance(owner, Instance)]
            is_one = len(classes) == len(owners) and are_one_family(classes)
            return f"*.{field}" if is_one else f"self.{field}"
        case ast.Attribute(value=held):
            return ast.unparse(held)
    return ""


def _is_in(function: Function | None, functions: AbstractSet[ast.AST]) -> bool:
    return function is not None and function.node in functions


@lru_cache(maxsize=8)
def _used_outside(program: Program, functions: frozenset[ast.AST]) -> list[ast.AST]:
    """Every node that is not in the body of one of ``functions`` and whose value may reach a loss."""
    found = list(_reached(program, functions, None))
    read = {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return list(_reached(program, functions, read))


def _reached(program: Program, functions: AbstractSet[ast.AST], read: AbstractSet[str] | None) -> Iterator[ast.AST]:
    """The nodes of the file, without what is only shown or has no gradient; ``read`` are the names read (None: all)."""

    def below(node: ast.AST) -> list[ast.AST]:
        left = (part for part in _parts(node) if part not in functions and not _is_only_shown(part))
        return [part for part in left if read is None or not _is_left(part, read)]

    off = (GradMode.OFF, GradMode.EITHER)
    return (node for tree in program.trees for node in recorded_nodes(tree, program.grad, below, off))


def _parts(node: ast.AST) -> list[ast.AST]:
    """The nodes right below ``node``, without entries of a dict that are no loss."""
    if isinstance(node, ast.Dict):
        return [value for key, value in zip(node.keys, node.values, strict=True) if _may_be_loss(key)]
    return inner_nodes(node)


def _is_only_shown(node: ast.AST) -> bool:
    """Whether what stands in ``node`` is printed, logged or made a number."""
    match node:
        case ast.Call(func=ast.Name(id="log") | ast.Attribute(attr="log"), args=[first, *_]):
            # `torch.log` gets a tensor, a logger a name or a dict.
            return isinstance(first, ast.Constant | ast.JoinedStr | ast.Dict)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in _SHOWS
        case ast.Assign(targets=[ast.Subscript(slice=key)]) | ast.AugAssign(target=ast.Subscript(slice=key)):
            return not _may_be_loss(key)
    return isinstance(node, ast.JoinedStr)


def _is_left(node: ast.AST, read: AbstractSet[str]) -> bool:
    """Whether ``node`` gives a value to a name that nothing reads."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            return name not in read
    return False


def _may_be_loss(key: ast.expr | None) -> bool:
    """Whether the entry of a dict under ``key`` may be a loss, by its name: statistics have others."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return any(word in key.value.lower() for word in _LOSSES)
    return True


def _adds(node: ast.AST, stored: Stored) -> bool:
    """Whether ``node`` is a sum with what is stored as a term."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_term(left, stored) or _is_term(right, stored)
        case ast.AugAssign(op=ast.Add(), value=value):
            return _is_term(value, stored)
        case ast.Call(func=ast.Name(id="sum"), args=[ast.GeneratorExp(elt=term) | ast.ListComp(elt=term), *_]):
            return _is_term(term, stored)
        case ast.Call(func=ast.Name(id="sum"), args=[ast.List(elts=terms) | ast.Tuple(elts=terms), *_]):
            return any(_is_term(term, stored) for term in terms)
    return False


def _is_term(node: ast.expr, stored: Stored) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_term(node.left, stored) or _is_term(node.right, stored)
    return stored.is_read_by(node)
