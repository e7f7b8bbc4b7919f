"""What forward hooks keep of the outputs of modules: in attributes, and in dicts of the functions or files around."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Dict
from ..calls.forward_hooks import output_of
from ..calls.hooked_objects import is_on_gradient_free
from ..conditions.contexts import is_plain
from .stored import Stored, is_of_one_family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Function
    from ..regions.region import Region
    from ..run import Run


def kept_by_hooks(run: Run, region: Region) -> Iterator[Stored]:
    """The outputs of modules of ``region`` that hooks store as they are."""
    hooks = [it for it in run.bodies.hooks if not is_on_gradient_free(run, it)]
    for function in region.functions if hooks else ():
        output = output_of(hooks, function)
        if output is not None:
            yield from _in_attributes(run, function, output)
            yield from _in_dicts(run, function, output)


def _in_attributes(run: Run, function: Function, output: str) -> Iterator[Stored]:
    for write in run.writes:
        if write.place.function is None or write.place.function.node is not function.node or write.is_item:
            continue
        is_output = isinstance(write.written, ast.Name) and write.written.id == output
        if is_output and is_plain(write.place) and is_of_one_family(run, write):
            yield Stored(write.field, write.node)


def _in_dicts(run: Run, function: Function, output: str) -> Iterator[Stored]:
    """`self.features[name] = output`, `features["mid"] = output`."""
    known = {write.node: write.field for write in run.writes if write.is_item}
    for node in all_nodes(function.node):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=held)], value=ast.Name(id=name)) if name == output:
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
