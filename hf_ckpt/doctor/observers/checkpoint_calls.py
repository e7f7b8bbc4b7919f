"""Notes the calls of torch's checkpoint in the forwards of a step, whoever makes them.

``torch.utils.checkpoint.checkpoint`` looks up two names in its own module: ``CheckpointFunction`` and
``_checkpoint_without_reentrant_generator``. While notes are taken, wrappers stand there; they hand everything on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.nn.utils import stateless
from torch.utils._pytree import tree_iter
from transformers import Cache

from ...compat.wrappers import local_shard
from ...engine.running.graph import is_in_backward
from ..facts import CallFacts
from ..place import PACKAGE, waiting_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: Where a layer runs whose saved tensors are recomputed, and where one is only traced.
RECOMPUTED = os.path.join(PACKAGE, "engine", "running") + os.sep
TRACING = os.path.join(PACKAGE, "engine", "tracing") + os.sep
#: What runs between a call of torch's checkpoint and the note of it; torch/_compile.py keeps dynamo out of the former.
_BETWEEN = (
    torch_checkpoint.__file__, __file__, contextlib.__file__, torch._compile.__file__,
    os.path.join(os.path.dirname(torch.__file__), "_dynamo") + os.sep,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """A parameter by the module that holds it: FSDP2 gives the forward another tensor than the optimizer."""

    module: torch.nn.Module
    name: str

    def fetch(self) -> torch.nn.Parameter | None:
        """What stands there now."""
        return self.module._parameters.get(self.name)


@dataclass(slots=True)
class NotedCall:
    """A call that was noted, its trainable parameters, and whether its output is flat (known when it returned)."""

    facts: CallFacts
    trained: tuple[Held, ...]
    is_flat: bool = True

    def parameters(self) -> list[torch.nn.Parameter]:
        """Its trainable parameters as they are by now."""
        found = [parameter for held in self.trained if (parameter := held.fetch()) is not None]
        # FSDP1 leaves a rank nothing of a parameter whose shard lies on another one.
        return [parameter for parameter in found if local_shard(parameter).numel()]

    def after_backward(self) -> CallFacts:
        """The call, and what became of its gradients by now; their values are not looked at."""
        here = self.parameters()
        lost = sum(parameter.grad is None for parameter in here)
        return replace(self.facts, trained=len(here), lost=lost, is_flat=self.is_flat)


@dataclass(slots=True)
class CheckpointCalls:
    """What was noted between :meth:`start` and :meth:`stop`."""

    found: list[NotedCall] = field(default_factory=list)
    _own: frozenset[int] = frozenset()
    _depth: int = 0
    _before: tuple[Any, Any] | None = None

    def start(self, model: torch.nn.Module) -> None:
        """Take notes of this model's calls from here on; what was noted before is forgotten."""
        self.stop()
        self._own = frozenset(map(id, (*model.parameters(), *model.buffers())))
        self.found = []
        self._depth = 0
        self._before = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator
        torch_checkpoint.CheckpointFunction = _Reentrant(self, self._before[0])  # type: ignore[misc, assignment]
        torch_checkpoint._checkpoint_without_reentrant_generator = functools.partial(_generator, self, self._before[1])

    def take(self) -> list[NotedCall]:
        """The calls noted since they were last taken."""
        found, self.found = self.found, []
        return found

    def stop(self) -> None:
        """Leave torch's module as it was; calling it again does nothing."""
        if self._before is not None:
            torch_checkpoint.CheckpointFunction = self._before[0]  # type: ignore[misc]
            torch_checkpoint._checkpoint_without_reentrant_generator = self._before[1]
            self._before = None

    @contextmanager
    def call(self, reentrant: bool, function: Any, preserve: bool, given: tuple[Any, ...]) -> Iterator[NotedCall]:
        """A call that runs inside."""
        frame = sys._getframe(2)
        noted = _note(function, given, CallFacts(
            reentrant=reentrant, place=waiting_place(frame), trained=0, lost=0, has_grad_input=False,
            preserves_rng=preserve, drops_out=False, has_cache=False, is_flat=True,
            is_inside=self._depth > 0 or _runs(frame, RECOMPUTED), is_given_values=_is_given_values(frame, self._own),
        ))  # fmt: skip
        if not (is_in_backward() or _is_ours(frame) or _runs(frame, TRACING)):
            self.found.append(noted)
        self._depth += 1
        try:
            yield noted
        finally:
            self._depth -= 1


def _note(function: Any, given: tuple[Any, ...], facts: CallFacts) -> NotedCall:
    modules = [inner for module in _modules_of(function) for inner in module.modules()]
    # An expert that no token was sent to is called with rows of none; other values than the model's own are not here.
    trained = (
        () if _is_empty(given) or facts.is_given_values else tuple(held for m in modules for held in _trained_in(m))
    )
    bound = tree_iter((given, getattr(function, "keywords", None)), is_leaf=_is_cache)
    seen = replace(
        facts,
        trained=len(trained),
        has_grad_input=any(isinstance(value, torch.Tensor) and value.requires_grad for value in given),
        drops_out=any(map(_is_dropout, modules)),
        has_cache=any(map(_is_cache, bound)),
        kinds=tuple(type(module).__name__ for module in _modules_of(function)),
    )
    return NotedCall(seen, trained)


def _trained_in(module: torch.nn.Module) -> Iterator[Held]:
    for name, parameter in module.named_parameters(recurse=False):
        if parameter.requires_grad and parameter.is_leaf:
            yield Held(module, name)


class _Reentrant:
    """Stands as ``CheckpointFunction``."""

    def __init__(self, calls: CheckpointCalls, kind: Any) -> None:
        self._calls = calls
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)

    def apply(self, function: Any, preserve: bool, *given: Any) -> Any:
        """What the class itself does."""
        with self._calls.call(True, function, preserve, given) as noted:
            output = self._kind.apply(function, preserve, *given)
        noted.is_flat = _is_flat(output)
        return output


def _generator(
    calls: CheckpointCalls, generator: Any, function: Any, preserve_rng_state: bool = True, *args: Any, **kwargs: Any
) -> Any:
    """Stands as ``_checkpoint_without_reentrant_generator``; of its arguments the first four are settings."""
    with calls.call(False, function, preserve_rng_state, args[4:]):
        return (yield from generator(function, preserve_rng_state, *args, **kwargs))


def _modules_of(function: Any) -> list[torch.nn.Module]:
    """The modules that a checkpointed function runs, where it shows them: itself, bound, partial, or closed over."""
    while isinstance(function, functools.partial):
        bound = [value for value in function.args if isinstance(value, torch.nn.Module)]
        if bound:
            return bound
        function = function.func
    if isinstance(function, torch.nn.Module):
        return [function]
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return [owner]
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_bound(cell)]
    return [value for value in cells if isinstance(value, torch.nn.Module)]


def has_gradient(parameter: torch.nn.Parameter) -> bool:
    """Whether this rank's part of its gradient is there and not zero."""
    return parameter.grad is not None and bool(local_shard(parameter.grad).any())


def _is_given_values(frame: FrameType | None, own: frozenset[int]) -> bool:
    """Whether ``torch.func.functional_call`` waits above, with tensors that are none of the model's own."""
    while frame is not None:
        if frame.f_code is stateless._functional_call.__code__:
            return any(id(value) not in own for value in frame.f_locals["parameters_and_buffers"].values())
        frame = frame.f_back
    return False


def _is_bound(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_empty(given: tuple[Any, ...]) -> bool:
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    return any(not tensor.numel() for tensor in tensors)


def _is_dropout(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.training and module.p > 0


def _is_cache(value: Any) -> bool:
    return isinstance(value, Cache)


def _is_flat(output: Any) -> bool:
    if isinstance(output, torch.Tensor):
        return True
    parts = output if type(output) is tuple else (output,)
    return all(isinstance(part, torch.Tensor) or not _holds_tensors(part) for part in parts)


def _holds_tensors(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_iter(value))


def _is_ours(frame: FrameType | None) -> bool:
    """Whether a region of a policy makes the call: the first frame outside torch's file and this one."""
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE + os.sep)


def _runs(frame: FrameType | None, folder: str) -> bool:
    """Whether code of this folder runs around the call."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            return True
        frame = frame.f_back
    return False
