"""Logits that are not there yet: a tensor that remembers how it would be computed.

In training, a causal language model computes logits for two readers: its loss, and whoever looks at ``outputs.logits``,
mostly nobody. :class:`DeferredLogits` serves the first without ever existing in full (see :mod:`.loss`), and is correct
for everybody else: whatever else is done with it first computes the real logits, with their graph.

Between the head and the loss models scale, cap or cast their logits (Cohere, Granite, Gemma). Those ops treat every
position alike; they are recorded and applied to each chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CkptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Step = Callable[[torch.Tensor], torch.Tensor]

#: Ops that act on every logit alone and make a new tensor of the same shape.
_POINTWISE: frozenset[Callable[..., Any]] = frozenset(
    getattr(owner, name)
    for owner in (torch, torch.Tensor)
    for name in (
        *("mul", "__mul__", "__rmul__", "div", "true_divide", "__truediv__", "add", "__add__", "__radd__"),
        *("sub", "__sub__", "tanh", "float", "half", "bfloat16", "to", "contiguous", "clone"),
    )
    if callable(getattr(owner, name, None)) and not isinstance(getattr(owner, name), torch.dtype)
)
#: What metadata a wrapper without storage can answer for itself.
_METADATA: frozenset[Callable[..., Any]] = frozenset(
    {
        *(getattr(torch.Tensor, n).__get__ for n in ("shape", "dtype", "device", "ndim", "layout", "is_cuda")),
        *(getattr(torch.Tensor, n).__get__ for n in ("requires_grad", "grad_fn", "is_leaf", "is_sparse")),
        *(getattr(torch.Tensor, n) for n in ("size", "dim", "numel", "nelement", "is_floating_point", "is_complex")),
        *(torch.is_floating_point, torch.is_complex, torch.numel),
    }
)


@dataclass(frozen=True)
class Recipe:
    """How to compute logits from hidden states.

    ``head`` maps ``[..., hidden]`` to ``[..., vocabulary]``; ``steps`` follow it. ``weights`` are the tensors the head
    reads, as they were when ``versions`` were taken. Autocast is entered again as it was.
    """

    head: Step
    weights: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]
    autocast: tuple[str, torch.dtype, bool]
    steps: tuple[Step, ...] = ()

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits of these hidden states, under the recorded autocast state."""
        kind, dtype, enabled = self.autocast
        with torch.autocast(kind, dtype=dtype, enabled=enabled):
            logits = self.head(hidden)
            for step in self.steps:
                logits = step(logits)
        return logits

    def then(self, step: Step) -> Recipe:
        """The same recipe with one more step."""
        return Recipe(self.head, self.weights, self.versions, self.autocast, (*self.steps, step))


def autocast_state(device: torch.device) -> tuple[str, torch.dtype, bool]:
    """Device type, dtype and whether autocast is on."""
    return device.type, torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type)


class DeferredLogits(torch.Tensor):
    """Logits ``[batch, tokens, vocabulary]`` (any leading shape) known by their recipe only.

    Reading them in any way but the recorded pointwise ops computes them. They say ``requires_grad=False`` of
    themselves, so that wrappers which look for graphs in a model's outputs pass them by; the computed ones have theirs.
    """

    hidden: torch.Tensor
    recipe: Recipe
    computed: torch.Tensor | None

    @staticmethod
    def __new__(cls, hidden: torch.Tensor, recipe: Recipe, width: int, dtype: torch.dtype) -> DeferredLogits:
        """Logits of ``hidden`` ``[..., hidden]``, ``width`` wide; nothing is allocated."""
        shape = (*hidden.shape[:-1], width)
        self = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=hidden.device)
        self.hidden, self.recipe, self.computed = hidden, recipe, None
        return self

    def compute(self) -> torch.Tensor:
        """The real logits, with their graph; computed once.

        Raises CkptError when the head's weights have changed since the forward, for then they would be other logits.
        """
        if self.computed is None:
            if tuple(w._version for w in self.recipe.weights) != self.recipe.versions:
                raise CkptError(
                    "outputs.logits are read after the weights changed, and head(chunks) did not keep them: read them "
                    "before optimizer.step(), or train without head(chunks)"
                )
            with torch.enable_grad():
                self.computed = self.recipe(self.hidden)
        return self.computed

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Record pointwise ops, answer metadata, and compute the logits for anything else."""
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, DeferredLogits) and first.computed is None:
            if func in _METADATA:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
            if func in _POINTWISE and _same_everywhere(args[1:], kwargs):
                return first._record(func, args[1:], kwargs)
        real_args, real_kwargs = torch.utils._pytree.tree_map_only(
            DeferredLogits, DeferredLogits.compute, (tuple(args), dict(kwargs))
        )
        return func(*real_args, **real_kwargs)

    def _record(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> DeferredLogits:
        """The logits after one more step; a sample on one element tells their dtype."""
        sample = func(torch.empty((1,) * self.dim(), dtype=self.dtype, device="meta"), *_scalars(args), **kwargs)
        recipe = self.recipe.then(lambda logits: func(logits, *args, **kwargs))
        return DeferredLogits(self.hidden, recipe, self.shape[-1], sample.dtype)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Below autograd the graph would be lost: refuse rather than train on wrong gradients."""
        raise CkptError(
            f"{func} reached logits that head(chunks) did not compute: train without head(chunks), and please report"
        )

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeferredLogits(shape={tuple(self.shape)}, dtype={self.dtype})"


def _same_everywhere(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the other operands are plain values that treat every position alike and carry no gradient."""
    return all(
        value is None
        or isinstance(value, bool | int | float | torch.dtype | torch.memory_format)
        or (isinstance(value, torch.Tensor) and type(value) is not DeferredLogits and _is_scalar(value))
        for value in (*args, *kwargs.values())
    )


def _is_scalar(value: torch.Tensor) -> bool:
    return value.dim() == 0 and not value.requires_grad


def _scalars(args: Sequence[Any]) -> list[Any]:
    """The operands for the dtype sample, which lives on the meta device."""
    return [a.to("meta") if isinstance(a, torch.Tensor) else a for a in args]
