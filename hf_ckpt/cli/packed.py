"""Makes the model of a plan compute as it will with weights in 4 bit."""

from __future__ import annotations

import torch
from torch import nn

from ..planner.memory.quantised import quantised_weights


class _PackedLinear(nn.Linear):
    """Computes in the type of its weight and returns that of its input (Linear4bit in bitsandbytes/nn/modules.py)."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input.to(self.weight.dtype)).to(input.dtype)


def pack(model: nn.Module, *, widen: bool) -> None:
    """Let the frozen linear layers of ``model`` compute as packed ones.

    Args:
        model: A model with adapters, on any device; its weights stay as they are.
        widen: Whether all other weights go to float32, as by peft's ``prepare_model_for_kbit_training``; hidden states
            are float32 then.
    """
    packed = quantised_weights(model)
    for module in model.modules():
        if type(module) is nn.Linear and id(module.weight) in packed:
            module.__class__ = _PackedLinear
    for parameter in model.parameters() if widen else ():
        if id(parameter) not in packed:
            parameter.data = parameter.data.float()
