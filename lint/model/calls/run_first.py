"""Blocks that run before the checkpoint does, `checkpoint(self.block(x))`, and blocks of torch that take one input."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.values import Computed, Instance, Result, options
from ..branches.parting import are_switches
from ..events import Checkpoint
from ..names import canonical
from ..types import bases
from .block_arguments import may_be_replaced, may_expect_error
from .call_targets import call_targets

if TYPE_CHECKING:
    from ...facts.values import Value
    from ..run import Run

#: Modules of torch whose `forward` takes one tensor.
_OF_ONE = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Sequential", "Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "LayerNorm", "GroupNorm", "RMSNorm"),
        *("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GELU", "ReLU", "SiLU", "Tanh", "Sigmoid", "Dropout"),
    )
)


def result_given_as_function(run: Run, event: Checkpoint) -> ast.Call | None:
    """The call of a module, `self.block(x)`, whose result ``event`` gets to call; None where it gives no tensor."""
    written = event.node.args[0] if event.node.args else None
    if not isinstance(written, ast.Call) or event.place.tries or may_expect_error(run, event.place):
        return None
    given = list(options(event.function))
    is_result = all(
        isinstance(it, Result) and it.call.node is written and _gives_tensor(run, it.call.func) for it in given
    )
    return written if is_result else None


def _gives_tensor(run: Run, module: Value) -> bool:
    """Whether calling ``module`` certainly gives what a computation does, and no function."""
    match module:
        case Result(call):
            return canonical(call.name) in _OF_ONE
        case Instance(cls) if "torch.nn.Module" in bases(cls):
            returned = [run.program.returns.get(target.function.node, []) for target in call_targets(module)]
            values = [option for found in returned for it in found for option in options(it.value)]
            return bool(values) and all(isinstance(it, Computed) or _is_computed(it) for it in values)
    return False


def _is_computed(value: Value) -> bool:
    """Whether ``value`` is what a layer, a function of torch or a method of what these give returns."""
    if not isinstance(value, Result):
        return False
    called = value.call
    return isinstance(called.func, Result) or canonical(called.name).startswith("torch.") or bool(called.method)


def misfit_of_one_input(run: Run, event: Checkpoint) -> str | None:
    """Why what ``event`` gives does not fit a module of torch that takes one input, as the end of a sentence."""
    modules = list(options(event.function))
    if not all(isinstance(it, Result) and canonical(it.call.name) in _OF_ONE for it in modules):
        return None
    is_open = event.call.open_args or event.call.open_kwargs or event.call.is_given_elsewhere(Checkpoint.OWN)
    if is_open or event.place.tries or not are_switches(event.place) or may_replace(run, event):
        return None
    count = len(event.call.args) - 1
    return f"takes 1 argument, not {count}" if count > 1 else None


def may_replace(run: Run, event: Checkpoint) -> bool:
    """Whether the program may change what the module does with its arguments, or expects an error."""
    return may_be_replaced(run, "forward") or may_expect_error(run, event.place)
