"""The classes and the lists of modules of the file that torch's checkpoint wrappers go around."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Class, Instance, Result, options, same
from ..events import ApplyCheckpointing
from ..names import canonical
from ..types import unwrapped
from .region import classes_checked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call
    from ...facts.walk import Program, Write
    from ..events import CheckpointWrap, WrapperCheckpointing
    from ..history import History


def wrapped_classes(run: History, event: WrapperCheckpointing) -> list[Class]:
    """The classes that the check of ``event`` accepts, or those of the module that it wraps."""
    if isinstance(event, ApplyCheckpointing):
        return [cls for cls in classes_checked(event.check, run.bodies) if isinstance(cls, Class)]
    return [option.cls for option in options(unwrapped(event.module)) if isinstance(option, Instance)]


def lists_of_wrapped(run: History, wrap: CheckpointWrap) -> Iterator[Write]:
    """Where an attribute gets a list of modules, each wrapped by ``wrap``, that nothing changes later."""
    for write in run.writes:
        held = write.value
        if isinstance(held, Result) and not write.is_item and _wraps_each(held.call, wrap):
            again = (other for other in run.writes if other is not write and other.field == write.field)
            replaced = any(same(other.obj, write.obj) for other in again)
            added = any(same(call.receiver, held) for call in run.method_calls("append", "extend", "insert"))
            if not replaced and not added and not _stores_into(run.program, write.field):
                yield write


def _wraps_each(made: Call, wrap: CheckpointWrap) -> bool:
    match made.node.args:
        case [ast.GeneratorExp(elt=wrapped) | ast.ListComp(elt=wrapped)]:
            return wrapped is wrap.node and canonical(made.name) == "torch.nn.ModuleList"
    return False


def _stores_into(program: Program, field: str) -> bool:
    """Whether the program puts something into an attribute of this name: `self.blocks[0] = plain`."""
    for node in (node for tree in program.trees for node in all_nodes(tree)):
        match node:
            case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store() | ast.Del()) if name == field:
                return True
    return False
