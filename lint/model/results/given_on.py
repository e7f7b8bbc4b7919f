"""What else a program calls what a region stores: `self.total = self.moe.aux`, a method that returns it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.straight import only_value
from .stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
