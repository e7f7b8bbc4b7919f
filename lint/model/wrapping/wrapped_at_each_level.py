"""Functions that put `checkpoint_wrapper` around every module of a model by hand, inside of one another."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, returned_by
from ...facts.parameters import positional_names
from ...facts.surroundings import parents_in
from ..conditions.guards import own_guards, own_loops
from ..flow.statements import body_around
from ..regions.module_tree import module_tree
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...facts.values import FunctionNode, Guard
    from ..events import CheckpointWrap
    from ..run import Run

_ALL = frozenset(("nn.Module", "torch.nn.Module", "Module"))
#: Modules of torch that have others in them.
_HOLD = frozenset(("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict", "torch.nn.TransformerEncoder"))


def wraps_each_level(run: Run, wrap: CheckpointWrap) -> bool:
    """Whether ``wrap`` goes around each module of a model and around those in it, whatever their classes."""
    if not all(map(_lets_modules_pass, own_guards(wrap.place))):
        return False
    function = wrap.place.function
    if function is None or function.is_lambda:
        return _replaces_in_loop(run, wrap)
    recurses = _replaces_children(wrap, function.node) or _gives_back(wrap, function.node)
    if not recurses:
        return _replaces_in_loop(run, wrap) or (_is_applied(run, function.node) and _replaces(run, wrap))
    return _has_levels(run, function.node)


def _lets_modules_pass(guard: Guard) -> bool:
    """Whether a condition leaves out the model itself, what is wrapped already, or leaves: `if name:`, `if kids:`."""
    test, taken = guard.plain
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return ast.unparse(kind) in _ALL if taken else ast.unparse(kind).endswith("CheckpointWrapper")
        case ast.Name(id=name):
            return taken and "name" in name
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.NotEq() as compares], comparators=[other]):
            is_empty = isinstance(other, ast.Constant) and other.value == ""
            return is_empty and "name" in name and isinstance(compares, ast.NotEq) is taken
        case ast.Compare(left=ast.Name(), ops=[ast.Is() | ast.IsNot() as compares], comparators=[ast.Name()]):
            return isinstance(compares, ast.IsNot) is taken
    return False


def _replaces_children(wrap: CheckpointWrap, function: FunctionNode) -> bool:
    """`for name, child in module.named_children(): wrap_all(child); setattr(module, name, wrapper(child))`."""
    loop = next(reversed([*own_loops(wrap.place)]), None)
    parameters = positional_names(function)
    if not isinstance(loop, ast.For) or _parent_of_children(loop.iter) not in parameters:
        return False
    child = _last_name(loop.target)
    given = _wrapped_by(wrap)
    is_child = given is not None and (_is_named(given, child) or _calls_itself(given, function, child))
    recurses = any(_calls_itself(part, function, child) for part in _unconditional(loop.body, child))
    return is_child and recurses and _is_put_back(wrap.node, parents_in(function))


def _wrapped_by(wrap: CheckpointWrap) -> ast.expr | None:
    return next(iter(wrap.node.args), None)


def _gives_back(wrap: CheckpointWrap, function: FunctionNode) -> bool:
    """A loop that does `setattr(module, name, wrap_all(child))`, and `return wrapper(module)` behind it."""
    given = _wrapped_by(wrap)
    if not isinstance(given, ast.Name) or given.id not in positional_names(function):
        return False
    if not any(value is wrap.node for value in returned_by(function)) or any(own_loops(wrap.place)):
        return False
    return any(_refills(statement, given.id, function) for statement in getattr(function, "body", ()))


def _refills(statement: ast.stmt, module: str, function: FunctionNode) -> bool:
    """Whether a loop puts what ``function`` gives for each child of ``module`` in the place of the child."""
    if not isinstance(statement, ast.For) or _parent_of_children(statement.iter) != module:
        return False
    child, parents = _last_name(statement.target), parents_in(function)
    calls = [part for part in _unconditional(statement.body, child) if _calls_itself(part, function, child)]
    return any(_is_put_back(call, parents) for call in calls)


def _replaces_in_loop(run: Run, wrap: CheckpointWrap) -> bool:
    """`for name, module in reversed(list(net.named_modules())): setattr(parent, last, wrapper(module))`.

    Or in two loops, over all modules and the children of each. In the order of the model the parent that is found by
    its name is the wrapper already, and nothing runs what that is given.
    """
    given = _wrapped_by(wrap)
    loops = [loop for loop in own_loops(wrap.place) if isinstance(loop, ast.For)]
    is_of_all = [loop for loop in loops if _goes_through_modules(loop.iter)]
    if not is_of_all or not isinstance(given, ast.Name):
        return False
    if len(loops) == 1:
        is_upwards = ast.unparse(loops[0].iter).startswith("reversed(")
        return is_upwards and _is_named(given, _last_name(loops[0].target)) and _replaces(run, wrap)
    outer, inner = loops[0], loops[-1]
    is_child = _parent_of_children(inner.iter) == _last_name(outer.target) and _is_named(
        given, _last_name(inner.target)
    )
    return len(loops) == 2 and is_child and _replaces(run, wrap)


def _replaces(run: Run, wrap: CheckpointWrap) -> bool:
    return _is_put_back(wrap.node, parents_in(body_around(run, wrap.call)))


def _is_applied(run: Run, function: FunctionNode) -> bool:
    """Whether `net.apply` runs ``function``, which goes through the children of what it gets, for each module."""
    loops = [part for part in getattr(function, "body", ()) if isinstance(part, ast.For)]
    of_children = any(_parent_of_children(loop.iter) in positional_names(function)[:1] for loop in loops)
    name = getattr(function, "name", "")
    return of_children and any(
        [ast.unparse(given) for given in call.node.args] == [name] for call in run.method_calls("apply")
    )


def _has_levels(run: Run, function: FunctionNode) -> bool:
    """Whether what the function is given, as far as that is shown, has modules inside of modules."""
    for call in run.program.calls:
        target = getattr(call.func, "node", None)
        within = call.place.function is not None and call.place.function.node is function
        if target is function and call.args and not within:
            tree = module_tree(unwrapped(call.args[0]))
            if tree is not None and len(tree.own) < 2 and _HOLD.isdisjoint(tree.torch):
                return False
    return True


def _goes_through_modules(iterated: ast.expr) -> bool:
    """`list(net.modules())`, `net.named_modules()`."""
    match iterated:
        case ast.Call(func=ast.Name(id="list" | "tuple" | "reversed"), args=[inner]):
            return _goes_through_modules(inner)
        case ast.Call(func=ast.Attribute(attr="items"), args=[]) as call:
            return _goes_through_modules(call.func.value) if isinstance(call.func, ast.Attribute) else False
        case ast.Call(func=ast.Name(id="dict"), args=[inner]):
            return _goes_through_modules(inner)
    return isinstance(iterated, ast.Call) and getattr(iterated.func, "attr", "") in ("modules", "named_modules")


def _parent_of_children(iterated: ast.expr) -> str:
    """`module` of `list(module.named_children())` and `module._modules.items()`."""
    match iterated:
        case ast.Call(func=ast.Name(id="list" | "tuple" | "dict"), args=[inner]):
            return _parent_of_children(inner)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="named_children" | "children"), args=[]):
            return name
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr="_modules"), attr="items"), args=[]
        ):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="items"), args=[]):
            return _parent_of_children(inner)
    return ""


def _last_name(target: ast.expr) -> str:
    """`child` of `name, child`."""
    last = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target
    return last.id if isinstance(last, ast.Name) else ""


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _calls_itself(node: ast.AST, function: FunctionNode, child: str) -> bool:
    """Whether ``node`` calls ``function`` with the variable ``child``."""
    if not isinstance(node, ast.Call) or not any(_is_named(given, child) for given in node.args):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return bool(called) and called == getattr(function, "name", "")


def _unconditional(body: list[ast.stmt], child: str) -> Iterator[ast.AST]:
    """The nodes of ``body`` under no condition, or one that asks nothing but whether ``child`` has children."""
    for statement in body:
        if isinstance(statement, ast.If):
            if _asks_for_module(statement.test):
                yield from _unconditional(statement.body, child)
                continue
            if any(isinstance(part, ast.Continue | ast.Break | ast.Return) for part in all_nodes(statement)):
                return
            if _asks_for_children(statement.test, child):
                yield from _unconditional(statement.body, child)
        elif not isinstance(statement, ast.For | ast.While | ast.Try | ast.With):
            yield from all_nodes(statement)


def _asks_for_module(test: ast.expr) -> bool:
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return ast.unparse(kind) in _ALL
    return False


def _asks_for_children(test: ast.expr, child: str) -> bool:
    """`if len(list(child.children())) > 0:`."""
    methods = {part.attr for part in ast.walk(test) if isinstance(part, ast.Attribute)}
    is_negated = any(isinstance(part, ast.Not | ast.Eq | ast.Lt | ast.LtE) for part in ast.walk(test))
    return methods in ({"children"}, {"named_children"}) and child in names_in(test) and not is_negated


def _is_put_back(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether ``node``, or the variable that holds it, goes into an attribute: `setattr(module, name, wrapped)`."""
    holder = parents.get(node)
    match holder:
        case ast.Call(func=ast.Name(id="setattr"), args=[_, _, value]):
            return value is node
        case ast.Call(func=ast.Attribute(attr="add_module" | "register_module" | "set_submodule"), args=[_, value]):
            return value is node
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(attr="_modules"))]):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            reads = [part for part in parents if isinstance(part, ast.Name) and part.id == name]
            return any(_is_put_back(part, parents) for part in reads if isinstance(part.ctx, ast.Load))
    return False
