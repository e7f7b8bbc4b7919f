"""The ``forward`` of an MLP that runs in chunks: an instance attribute of the MLP while it is installed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..engine.random_state import can_redraw, random_state_kept
from ..errors import ModelStructureError
from ..head.pieces import weights_of
from .function import TOKENS, in_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: By how much of its largest value a result may differ in rounding when fewer rows are computed.
_ROUNDING = 1e-3
_HALF_PRECISION_ROUNDING = 5e-2


class Use:
    """What the MLP of this name did since it was installed."""

    __slots__ = ("in_chunks", "known_apart", "name", "whole")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Calls that ran in chunks.
        self.in_chunks = 0
        #: Why a training call did not, in a clause; "" where all did.
        self.whole = ""
        #: Whether its tokens were seen to be computed apart from each other.
        self.known_apart = False


class ChunkedForward:
    """Runs an MLP in chunks while it trains.

    A trace knows an object on a module by its attributes (engine/layer/binding.py): they never change, and are equal
    where MLPs are.
    """

    def __init__(self, name: str, module: torch.nn.Module, chunks: int) -> None:
        self.module = module
        self.chunks = chunks
        self.previous: Callable[..., Any] | None = module.__dict__.get("forward")
        self.use = Use(name)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes without chunks."""
        if self.previous is not None:
            return self.previous(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def trained(self) -> list[torch.Tensor]:
        """The weights that get gradients, as they stand in the module now."""
        return [weight for weight in weights_of(self.module) if weight.requires_grad]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The MLP's result: in chunks in training, as the module computes it otherwise."""
        if not (self.module.training or torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return self.compute(*args, **kwargs)
        whole = self._why_whole(args, kwargs)
        if whole:
            self.use.whole = whole
            return self.compute(*args, **kwargs)
        if not isinstance(args[0], FakeTensor):
            self._see_tokens_apart(args[0])
            self.use.in_chunks += 1
        return in_chunks(self, args[0], self.chunks)

    def _why_whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if len(args) != 1 or kwargs or not isinstance(args[0], torch.Tensor) or args[0].dim() < -TOKENS:
            return "it is given something else than one tensor of hidden states"
        if not all(weight.is_leaf for weight in self.trained()):
            return "FSDP1 makes its weights out of one flat parameter: use FSDP2 (`fsdp_version: 2`)"
        if args[0].shape[TOKENS] < self.chunks:
            return f"a batch has fewer than {self.chunks} tokens"
        return ""

    def _see_tokens_apart(self, hidden: torch.Tensor) -> None:
        """Compare two tokens at once with the same two one by one, the first time. Raises ModelStructureError."""
        if self.use.known_apart or hidden.shape[TOKENS] < 2:
            return
        two = hidden.detach().narrow(TOKENS, 0, 2).contiguous()
        drawn_from = [hidden.device] if can_redraw(hidden.device) else []
        with torch.no_grad(), random_state_kept(drawn_from), _in_eval_mode(self.module):
            at_once = self.compute(two)
            one_by_one = [self.compute(two.narrow(TOKENS, token, 1).contiguous()) for token in range(2)]
        if not _agree(at_once, one_by_one, two):
            raise ModelStructureError(
                f"`{self.use.name}` ({type(self.module).__name__}) does not compute each token apart from the others: "
                f"chunks would change its result, so leave mlp({self.chunks}) out of the policy"
            )
        self.use.known_apart = True


def _agree(at_once: Any, one_by_one: list[Any], hidden: torch.Tensor) -> bool:
    if not isinstance(at_once, torch.Tensor) or at_once.shape[:-1] != hidden.shape[:-1]:
        return False
    difference = (at_once - torch.cat(one_by_one, TOKENS)).abs().max()
    rounding = _ROUNDING if at_once.dtype in (torch.float32, torch.float64) else _HALF_PRECISION_ROUNDING
    return bool(difference <= rounding * at_once.abs().max())


@contextmanager
def _in_eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Without dropout, and without a change to statistics."""
    training = [part for part in module.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True
