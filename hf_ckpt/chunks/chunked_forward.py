"""The ``forward`` of a part that runs in chunks: an instance attribute of its module while it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..engine.random_state import foreign_random_state, have_drawn
from ..errors import ModelStructureError
from ..head.pieces import weights_in, weights_of
from ..policy.decision import Role
from .apart import problem_of
from .function import cut, in_chunks, tokens_in
from .whole import why_whole

if TYPE_CHECKING:
    from collections.abc import Callable


class Use:
    """What the part of this name did since it was installed, where gradients were recorded."""

    __slots__ = ("in_chunks", "known_apart", "name", "whole", "why_whole")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Calls that ran in chunks, and calls that did not.
        self.in_chunks = 0
        self.whole = 0
        #: Why the latest of these did not, in a clause.
        self.why_whole = ""
        #: Whether its tokens were seen to be computed apart from each other.
        self.known_apart = False

    def note(self, why_whole: str) -> None:
        """Another call, in chunks unless something says why not."""
        if why_whole:
            self.whole += torch.is_grad_enabled()
            self.why_whole = why_whole
        else:
            self.in_chunks += torch.is_grad_enabled()


class ChunkedForward:
    """Runs a part of this ``role`` in chunks while it trains; ``outside`` says that it is in no layer.

    A trace knows an object on a module by its attributes (engine/layer/binding.py): they never change, and are equal
    where parts are.
    """

    def __init__(
        self, name: str, module: torch.nn.Module, chunks: int, role: Role = Role.MLP, *, outside: bool = False
    ) -> None:
        self.module = module
        self.chunks = chunks
        self.role = role
        self.outside = outside
        self.previous: Callable[..., Any] | None = module.__dict__.get("forward")
        self.use = Use(name)

    @property
    def name(self) -> str:
        """Its name in the model."""
        return self.use.name

    @property
    def term(self) -> str:
        """The term of the policy that cuts it."""
        return f"{self.role}({self.chunks})"

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes without chunks."""
        if self.previous is not None:
            return self.previous(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def trained(self) -> list[torch.Tensor]:
        """The leaves among its weights that get gradients, as they stand in the module now."""
        return _trained(weights_of(self.module))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The part's result: in chunks in training, as the module computes it otherwise."""
        if not (self.module.training or torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return self.compute(*args, **kwargs)
        parts = tuple(self.module.modules())
        weights = weights_in(parts)
        whole = why_whole(parts, weights, args, kwargs, self.chunks)
        if not (args and isinstance(args[0], FakeTensor)):  # a trace is no call
            self.use.note(whole)
        if whole:
            return self.compute(*args, **kwargs)
        if self.use.known_apart or isinstance(args[0], FakeTensor):
            return in_chunks(self, _trained(weights), args[0], self.chunks)
        return self._checked(args[0], _trained(weights))

    def _checked(self, hidden: torch.Tensor, trained: list[torch.Tensor]) -> torch.Tensor:
        """The part in chunks, the first time. Raises ModelStructureError where chunks would change its result."""
        dimension = tokens_in(hidden)
        tokens = max(2, hidden.shape[dimension] // self.chunks)
        problem = None
        if hidden.shape[dimension] >= tokens:
            first = cut(hidden.detach(), dimension, 0, tokens)
            problem = problem_of(self.module, self.compute, first, narrows=self.role is Role.MLP)
        self._refuse(problem or "")
        drawn = foreign_random_state()
        result = in_chunks(self, trained, hidden, self.chunks)
        if have_drawn(drawn):
            self._refuse("draws random numbers of Python's or NumPy's, which backward cannot draw again")
        self.use.known_apart = problem == ""
        return result

    def _refuse(self, problem: str) -> None:
        if problem:
            raise ModelStructureError(
                f"`{self.name}` ({type(self.module).__name__}) {problem}: chunks would change its result, so leave "
                f"{self.term} out of the policy"
            )


def _trained(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    return [weight for weight in weights if weight.requires_grad and weight.is_leaf]
