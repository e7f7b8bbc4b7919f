"""Which of what a Trainer says about its optimizer tells most about the memory it takes."""

from __future__ import annotations

from typing import Any

import torch


def best_known(optimizer: Any, name: str) -> torch.optim.Optimizer | str:
    """The optimizer itself (its state may be there already), or its ``TrainingArguments.optim`` name.

    DeepSpeed puts objects of its own in the optimizer's place, whose class says nothing about their state.
    """
    inner = getattr(optimizer, "optimizer", optimizer)
    return optimizer if isinstance(inner, torch.optim.Optimizer) else name
