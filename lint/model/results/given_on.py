"""What else a program calls what a region stores: `self.total = self.moe.aux`, a method that returns it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.straight import only_value
from ..calls.call_targets import call_targets
from .stored import Stored

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from ..run import Run


def given_on(nodes: Iterable[ast.AST], stored: Stored) -> Iterator[Stored]:
    """What else ``nodes``, outside of the region, call the tensor that is ``stored``."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value) if stored.is_read_by(value):
                yield Stored(name, stored.node)
            case ast.FunctionDef(name=name) if not node.decorator_list:
                given = only_value(node)
                if given is not None and stored.is_read_by(given):
                    yield Stored(f"{name}()", stored.node)


def given_as(run: Run, stored: Stored, nodes: Container[ast.AST]) -> Iterator[Stored]:
    """The parameters of functions to which calls among ``nodes`` give what is ``stored``: `criterion(out, y, aux)`."""
    for call in run.program.calls:
        at = [index for index, given in enumerate(call.node.args) if stored.is_read_by(given)]
        words = [word.arg for word in call.node.keywords if word.arg is not None and stored.is_read_by(word.value)]
        if (not at and not words) or call.node not in nodes:
            continue
        for part in call_targets(call.func):
            names = part.parameters()
            found = [*(names[index] for index in at if index < len(names)), *(word for word in words if word in names)]
            yield from (Stored(name, stored.node, scope=part.function.node) for name in found)
