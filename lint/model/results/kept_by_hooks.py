"""What forward hooks keep of the outputs of modules: in attributes, and in dicts of the functions or files around."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Dict
from ..calls.forward_hooks import output_of, runs_beside
from ..calls.hooked_objects import is_on_gradient_free
from ..conditions.contexts import is_plain
from .added_up import keeps
from .stored import Stored, is_of_one_family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Function
    from ..regions.region import Region
    from ..run import Run

#: The key of an entry that is not told from others; whoever goes through all of them comes to it.
_NO_KEY = ""


def kept_by_hooks(run: Run, region: Region) -> Iterator[Stored]:
    """The outputs of modules of ``region`` that hooks store as they are."""
    hooks = [it for it in run.bodies.hooks if not is_on_gradient_free(run, it.call)]
    for function in region.functions if hooks else ():
        output = output_of(hooks, function)
        if output is not None:
            yield from _in_attributes(run, function, output)
            beside = runs_beside(hooks, function, region.modules)
            for stored in _in_dicts(run, function, output):
                # Which entry is that of a module of the region is not shown.
                yield stored._replace(key=_NO_KEY) if beside and stored.key is None else stored


def keeps_output(value: ast.expr, output: str) -> bool:
    """Whether ``value`` is the variable ``output``, a part of it, or computed from that with its gradient."""
    return keeps(value, lambda node: _is_part(node, output))


def _is_part(node: ast.expr, output: str) -> bool:
    match node:
        case ast.Name(id=name):
            return name == output
        case ast.Subscript(value=inner) | ast.Attribute(value=inner, attr="last_hidden_state" | "hidden_states"):
            return _is_part(inner, output)
        case ast.IfExp(body=one, orelse=other):
            return keeps_output(one, output) and keeps_output(other, output)
    return False


def _in_attributes(run: Run, function: Function, output: str) -> Iterator[Stored]:
    for write in run.writes:
        if write.place.function is None or write.place.function.node is not function.node or write.is_item:
            continue
        is_kept = write.written is not None and keeps_output(write.written, output)
        if is_kept and is_plain(write.place) and is_of_one_family(run, write):
            yield Stored(write.field, write.node)


def _in_dicts(run: Run, function: Function, output: str) -> Iterator[Stored]:
    """`self.features[name] = output`, `features["mid"] = output`."""
    known = {write.node: write.field for write in run.writes if write.is_item}
    for node in all_nodes(function.node):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=held)], value=value) if keeps_output(value, output):
                match held:
                    case ast.Attribute(value=ast.Name("self"), attr=field):
                        yield Stored(field, node, known.get(node))
                    case ast.Name(id=variable):
                        made = function.scope.look_up(variable)
                        if isinstance(made, Dict) and made.place is not None:
                            around = made.place.function
                            scope = run.program.tree if around is None else around.node
                            if scope is not function.node:
                                yield Stored(variable, node, known.get(node), scope)
