"""The first layers of a model, and what is below them, frozen by loops over the names of its parameters."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import is_inside
from ..conditions.guards import own_guards
from ..events.training import subscripts_around, subscripts_behind
from ..known_models.backbones import BACKBONES
from ..texts.passing_names import is_named_in, name_passes
from .frozen_layers import given

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...facts.values import Guard
    from ..events import GradientSwitch
    from ..history import History
    from ..known_models.backbones import Backbone

#: The layers that are asked for: the first one, and some behind it.
_ASKED = (0, *range(1, 48, 5))


class _NameTest(NamedTuple):
    """A switch of gradients, and what the loop over names around it asks of them."""

    switch: GradientSwitch
    #: The path from the model to what the loop goes through.
    prefix: str
    guards: tuple[Guard, ...]
    #: None where all that the path leads to is switched.
    loop: ast.For | None
    meant: Callable[[ast.expr], ast.expr | None]

    def comes_to(self, name: str) -> bool | None:
        """Whether the loop comes to a parameter of the model and switches it; None where that is open."""
        if not name.startswith(self.prefix):
            return False
        inner, loop = name.removeprefix(self.prefix), self.loop
        answers = {loop and name_passes(guard, loop, inner, self.meant) for guard in self.guards}
        return False if False in answers else (None if None in answers else True)


def first_layers_by_name(
    run: History,
    freezes: Sequence[tuple[GradientSwitch, tuple[str, ...]]],
    thaws: Sequence[tuple[GradientSwitch, tuple[str, ...]]],
) -> GradientSwitch | None:
    """The switch that freezes the first layers of a model by their names, if all that is below them is frozen too.

    Args:
        run: The run.
        freezes: What switches gradients of one model off, each with the path from it to what that is done to.
        thaws: What switches them on.

    Returns:
        None where some family of models would have a part of that frozen alone, or where a switch is not understood.
    """
    off, on = SwitchedNames(run, freezes), SwitchedNames(run, thaws)
    if not off.tests or len(on.tests) < len(thaws):
        return None
    found: list[GradientSwitch] = []
    for backbone in BACKBONES:
        layers = [backbone.layer_parameters(number) for number in _ASKED]
        names = (backbone.parameters_below(), *layers)
        below, first, *rest = ([_frozen_by(off, on, name) for name in part] for part in names)
        others = [switch for part in rest for switch in part]
        if not any((*first, *others)) or all((*below, *first, *others)):
            continue  # The names of layers are those of other models, or what trains is no part of them.
        if not all((*below, *first)) or first[0] is None:
            return None
        found.append(first[0])
    return found[0] if found else None


def _frozen_by(off: SwitchedNames, on: SwitchedNames, name: str) -> GradientSwitch | None:
    """What freezes the parameter called ``name`` for good; None where it may train."""
    return None if on.may_come_to(name) else off.switch_of(name)


class SwitchedNames:
    """The parameters of a model that switches of gradients come to, by the names of these parameters.

    Args:
        run: The run.
        switches: Switches, each with the path from the model to what that is done to; one of some layers by another
            way than their names is left out.
    """

    def __init__(self, run: History, switches: Sequence[tuple[GradientSwitch, tuple[str, ...]]]) -> None:
        self.tests = [test for switch, path in switches if (test := _test_of(run, switch, path)) is not None]

    def switch_of(self, name: str) -> GradientSwitch | None:
        """The switch that certainly comes to the parameter called ``name``."""
        return next((test.switch for test in self.tests if test.comes_to(name)), None)

    def may_come_to(self, name: str) -> bool:
        """Whether one of the switches may come to it."""
        return any(test.comes_to(name) is not False for test in self.tests)

    def spares_a_layer(self, backbone: Backbone) -> bool:
        """Whether a parameter of one of the layers is certainly left alone."""
        names = (name for number in _ASKED for name in backbone.layer_parameters(number))
        return any(not self.may_come_to(name) for name in names)


def _test_of(run: History, switch: GradientSwitch, path: tuple[str, ...]) -> _NameTest | None:
    """What the loop over names around ``switch`` asks of them; None for a switch of some layers by another way."""
    loop = switch.place.loops[-1] if switch.place.loops else None
    named = loop if isinstance(loop, ast.For) and is_named_in(loop) else None
    guards = tuple(guard for guard in switch.place.guards if named is not None and is_inside(guard.test, named))
    is_part = named is None and any((*subscripts_around(switch), *subscripts_behind(switch.module)))
    if is_part or any(guard not in guards for guard in own_guards(switch.place)):
        return None

    def meant(node: ast.expr) -> ast.expr | None:
        return given(run, switch, node.id) if isinstance(node, ast.Name) else None

    return _NameTest(switch, "".join(f"{part}." for part in path), guards, named, meant)
