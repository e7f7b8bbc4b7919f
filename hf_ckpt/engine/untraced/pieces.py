"""The pieces of a layer that cannot be traced: sublayers and modules in them, of which a plan replays some."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from torch import nn

from ...policy.decision import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: The name of the layer itself: the piece around all others.
LAYER = ""
#: The most pieces of a layer. Every level of modules that leaves the layer within them is offered.
MOST_PIECES = 32
#: The sublayers whose modules are pieces too. What an expert saves depends on the tokens that it is given.
_DIVIDED = (Role.ATTENTION, Role.MLP)


def pieces_of(layer: nn.Module, sublayers: Mapping[Role, tuple[str, ...]]) -> dict[str, str]:
    """The name of each piece, with the name of the smallest one around it.

    Args:
        layer: The layer.
        sublayers: Names of its modules by role.
    """
    found = _once(layer, dict.fromkeys(outermost(sublayers), LAYER))
    divided = {name for role in _DIVIDED for name in sublayers.get(role, ())}
    level = [name for name in found if name in divided]
    while level:
        inner = {piece: name for name in level for piece in _inside(layer.get_submodule(name), name)}
        if len(found) + len(inner) > MOST_PIECES:
            break
        found = _once(layer, found | inner)
        level = [name for name in inner if name in found]
    return found


def _once(layer: nn.Module, pieces: Mapping[str, str]) -> dict[str, str]:
    """``pieces`` without the further names of one module, whose forward can be caught once."""
    first: dict[int, str] = {}
    for name in pieces:
        first.setdefault(id(layer.get_submodule(name)), name)
    return {name: pieces[name] for name in first.values()}


def outermost(sublayers: Mapping[Role, tuple[str, ...]]) -> list[str]:
    """The names of sublayers that are inside no other one."""
    return without_inner({name for names in sublayers.values() for name in names})


def without_inner(names: Iterable[str]) -> list[str]:
    """Those of the modules called ``names`` that are inside no other one of them."""
    chosen = sorted(names)
    return [n for n in chosen if not any(n.startswith(f"{other}.") for other in chosen)]


def _inside(module: nn.Module, name: str) -> Iterator[str]:
    """The names of the outermost modules in ``module`` whose forward may be run under a checkpoint."""
    for attribute, child in module.named_children():
        path = f"{name}.{attribute}"
        if attribute == "parametrizations":  # they make a weight, whoever asks for it
            continue
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            classes = [type(member) for member in child.children()]
            if len(classes) == len(set(classes)):  # several of one class may be experts
                yield from _inside(child, path)
        elif inspect.isfunction(forward := type(child).forward) and forward is not nn.Module.forward:
            yield path
