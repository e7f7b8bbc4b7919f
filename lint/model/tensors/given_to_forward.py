"""What the calls of a module in the file give its `forward`, and whether a training comes to one of them."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.parameters import defaults
from ...facts.values import Absent, Const, Instance, Param, options
from ...facts.values.grad_mode import GradMode
from ..calls.call_targets import call_targets
from ..events import TrainerBuild
from ..state.trained import is_trained
from ..types import unwrapped
from .batches import is_training_step
from .gradient_free import is_gradient_free
from .tensor_parts import part_of

if TYPE_CHECKING:
    from ...facts.values import Call, Function, Value
    from ..history import History

#: More calls of one module are not followed.
_CALLS = 8


def calls_of_forward(run: History, param: Param) -> list[tuple[Call, Value]]:
    """The calls of a module in this file, with what they pass for a parameter of its `forward`."""
    names = [argument.arg for argument in param.function.node.args.args]
    if param.function.name != "forward" or param.name not in names:
        return []
    position = names.index(param.name) - 1
    default = defaults(param.function.node).get(param.name)
    given = [(call, call.argument(position, param.name)) for call in run.forwards.get(param.function.node, ())]
    if not isinstance(default, ast.Constant):
        return given
    return [(call, Const(default.value, default) if isinstance(value, Absent) else value) for call, value in given]


def is_trained_with(run: History, forward: Function, given: list[tuple[Call, Value]]) -> bool:
    """Whether one of the few calls of ``forward`` is trained; a file that only traces or compares a model has none."""
    if len(given) > _CALLS:
        return False
    return forward.node in _trained_forwards(run) or any(_is_of_training_step(run, value) for _, value in given)


@lru_cache(maxsize=1)
def _trained_forwards(run: History) -> frozenset[ast.AST]:
    """The methods `forward` that a training comes to: through the model that it calls, from one module to the next."""
    recorded = {node: [it for it in calls if not _may_be_unrecorded(it)] for node, calls in run.forwards.items()}
    known = {node for node, calls in recorded.items() if any(_is_trained(run, call) for call in calls)}
    reached_from: dict[ast.AST, list[ast.AST]] = {}
    for node, calls in recorded.items():
        # Methods that a `forward` calls belong to it.
        for function in ((run.path_to(call) or [call])[0].place.function for call in calls):
            if function is not None and function.name == "forward":
                reached_from.setdefault(function.node, []).append(node)
    known |= _forwards_of_trainers(run)
    left = [*known]
    while left:
        more = [node for node in reached_from.get(left.pop(), ()) if node not in known]
        known.update(more)
        left += more
    return frozenset(known)


def is_given_by_trainer(run: History, param: Param) -> bool:
    """Whether ``param`` is what a Trainer of transformers gives the own model that it trains: tensors of a collator."""
    return param.function.name == "forward" and param.function.node in _forwards_of_trainers(run)


@lru_cache(maxsize=1)
def _forwards_of_trainers(run: History) -> frozenset[ast.AST]:
    """The methods `forward` of own models that a Trainer of transformers trains and nothing else calls."""
    built = [it for it in run.of(TrainerBuild) if it.call.name.startswith("transformers.")]
    models = [option for it in built for option in options(unwrapped(it.model)) if isinstance(option, Instance)]
    found = {target.function.node for model in models for target in call_targets(model)}
    return frozenset(node for node in found if node not in run.forwards)


def _is_trained(run: History, call: Call) -> bool:
    """Whether a backward pass follows ``call``, or one of what a step that it stands in gives to its trainer."""
    return is_trained(run, call) or any(is_training_step(step.place.function) for step in run.path_to(call) or [call])


def _may_be_unrecorded(call: Call) -> bool:
    """Whether gradients may be off at ``call``: a teacher that is only asked trains nothing."""
    return is_gradient_free(call) or call.grad_mode is GradMode.OPEN


def _is_of_training_step(run: History, value: Value) -> bool:
    """Whether ``value`` is a part of the batch that Lightning trains on."""
    found = (part_of(run, option) for option in options(value))
    roots = (part.root for part in found if part is not None)
    return any(isinstance(root, Param) and is_training_step(root.function) for root in roots)
