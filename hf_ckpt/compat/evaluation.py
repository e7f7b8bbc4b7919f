"""What a running evaluation of transformers' Trainer has gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_iter
from transformers.trainer_pt_utils import EvalLoopContainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType


def gathered_predictions(frames: Iterable[FrameType]) -> Iterator[torch.Tensor]:
    """The tensors in the containers of an evaluation loop (its locals, in transformers/trainer.py) among the frames."""
    for frame in frames:
        for value in list(frame.f_locals.values()):
            if isinstance(value, EvalLoopContainer):
                yield from (leaf for leaf in tree_iter(value.tensors) if isinstance(leaf, torch.Tensor))
