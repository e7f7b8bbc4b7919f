"""Which modules are frozen: certainly, or for all that is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Const, Function, Method, Result, equals, is_absent, same
from ..conditions.guards import own_guards
from ..events import GradientSwitch
from ..names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value
    from ..history import History

EMBEDDING = "torch.nn.Embedding"
#: How functions are named that freeze a module, or do so by what they are told.
_FREEZES = re.compile(r"^_?(freeze|frozen|set_requires_grad|toggle_(requires_)?grad)")


def is_frozen(run: History, module: Value) -> bool:
    """Whether the program freezes exactly this module, without a condition, and never switches it on again."""
    found = list(run.of(GradientSwitch))
    certain = any(it.freezes and same(it.module, module) and not any(own_guards(it.place)) for it in found)
    undone = any(not it.freezes and (same(it.module, module) or not isinstance(it.module, Result)) for it in found)
    return certain and not undone


def is_made_frozen(module: Result) -> bool:
    """Whether ``module`` is an embedding that is built from weights, which freezes it by default."""
    freeze = module.call.argument(1, "freeze")
    loaded = canonical(module.call.name) == f"{EMBEDDING}.from_pretrained"
    return loaded and (is_absent(freeze) is True or equals(freeze, True) is True)


def may_be_frozen(run: History, *modules: Value) -> bool:
    """Whether the program freezes one of ``modules``, or something that may contain them, and leaves none trained."""
    switched = (it.module for it in run.of(GradientSwitch) if it.freezes and not it.is_partial)
    return any(_may_hold(frozen, modules) for frozen in (*switched, *_frozen_by_name(run)))


def _may_hold(frozen: Value, modules: tuple[Value, ...]) -> bool:
    return not isinstance(frozen, Result) or any(same(frozen, module) for module in modules)


def _frozen_by_name(run: History) -> Iterator[Value]:
    """What functions get that are not shown and that freeze by their name: `BaseFinetuning.freeze(self.encoder)`."""
    for call in run.program.calls:
        if _FREEZES.match(call.called) and not isinstance(call.func, Function | Method):
            yield from _frozen_parts(call)


def _frozen_parts(call: Call) -> Iterator[Value]:
    if call.args or call.kwargs:
        yield from (given for given in (*call.args, *call.kwargs.values()) if not isinstance(given, Const))
    elif call.method:
        yield call.receiver
