"""Certifies the first training step of a Trainer before it is taken."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch._dynamo.eval_frame import OptimizedModule

from .._undo import AttributeChange
from .certificate import Certificate, Verdict
from .certify import certify

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from transformers import Trainer

    from ..handle import Handle


def certify_with(trainer: Trainer, certify_first: Callable[[Callable[[], torch.Tensor]], None]) -> AttributeChange:
    """Hand the first micro-batch of a training to ``certify_first``, as a step that can be run any number of times."""
    return AttributeChange(trainer, "training_step", CertifiedStep(trainer, certify_first))


@dataclass(frozen=True, slots=True)
class CertifiedStep:
    """Stands as ``trainer.training_step`` until it is called; ``certify_first`` takes it off."""

    trainer: Trainer
    certify_first: Callable[[Callable[[], torch.Tensor]], None]

    def __call__(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Certify the step, then take it."""
        self.certify_first(lambda: self.trainer.training_step(model, copy.copy(inputs), *args, **kwargs))
        return self.trainer.training_step(model, inputs, *args, **kwargs)


def certificate_of(
    trainer: Trainer, model: torch.nn.Module, step: Callable[[], torch.Tensor], put_on: Callable[[], Handle] | None
) -> Certificate:
    """The certificate of a Trainer's step; not proven where a step cannot be run twice."""
    if getattr(trainer, "is_deepspeed_enabled", False):
        return Certificate(Verdict.UNPROVEN, reason="DeepSpeed's engine runs every step once: verify without DeepSpeed")
    if getattr(trainer.args, "torch_compile", False) or any(map(_is_compiled, model.modules())):
        return Certificate(Verdict.UNPROVEN, reason="a compiled step sums in another order: verify without it")
    return certify(model, step, put_on, owners=(trainer,))


def _is_compiled(module: torch.nn.Module) -> bool:
    """Whether ``torch.compile(module)`` or ``module.compile()`` stands around its forward."""
    return isinstance(module, OptimizedModule) or module._compiled_call_impl is not None
