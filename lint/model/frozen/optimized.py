"""Which modules the optimizers of a program get: what none of them gets does not train, frozen or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.containers import children_of
from ...facts.values import Dict, Instance, Result, Seq, Unknown, Value, options, same
from ..types import same_object, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..run import Run

_OPTIMIZERS = "torch.optim."
#: What else is in that package.
_NO_OPTIMIZERS = (f"{_OPTIMIZERS}lr_scheduler.", f"{_OPTIMIZERS}swa_utils.")


def are_left_out(run: Run, *modules: Value) -> bool:
    """Whether the program builds optimizers, and all of them certainly get the parameters of other modules alone."""
    made = [call for call in run.program.calls if call.name.startswith(_OPTIMIZERS)]
    made = [call for call in made if not call.name.startswith(_NO_OPTIMIZERS)]
    given = [owner for call in made for owner in _owners(call.argument(0, "params"))]
    known = bool(given) and not any(isinstance(owner, Unknown) for owner in given)
    return known and bool(modules) and not any(_may_hold(owner, module) for owner in given for module in modules)


def are_optimized(run: Run, module: Value) -> bool:
    """Whether an optimizer of the program certainly gets the parameters of ``module``."""
    made = [call for call in run.program.calls if call.name.startswith(_OPTIMIZERS)]
    return any(same(same_object(owner), module) for call in made for owner in _owners(call.argument(0, "params")))


def _owners(held: Value) -> Iterator[Value]:
    """The modules whose parameters ``held`` is; something unknown for what is no list of these alone."""
    for option in options(held):
        match option:
            case Result(call) if call.method == "parameters":
                yield call.receiver
            case Dict() as group:
                yield from _owners(group.get("params"))
            case Seq(items=items, open=False):
                yield from (owner for item in items for owner in _owners(item))
            case _:
                yield Unknown(option.node)


def _may_hold(owner: Value, module: Value) -> bool:
    """Whether ``module`` may be a part of ``owner``: it is, or the program does not show which of them is what."""
    wanted, waiting, seen = unwrapped(module), [owner], set[int]()
    while waiting and _is_shown(wanted):
        for value in map(unwrapped, options(waiting.pop())):
            if same(value, wanted) or not _is_shown(value):
                return True
            if id(value) not in seen:
                seen.add(id(value))
                waiting += children_of(value)
    return not _is_shown(wanted)


def _is_shown(module: Value) -> bool:
    return isinstance(module, Instance) or (isinstance(module, Result) and module.call.name.startswith("torch."))
