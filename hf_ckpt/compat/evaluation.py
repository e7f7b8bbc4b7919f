"""What a running evaluation of transformers' Trainer has gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_iter
from transformers.trainer_pt_utils import EvalLoopContainer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

_LOOP = "evaluation_loop"


def gathered_predictions(frames: Iterable[FrameType]) -> Iterator[torch.Tensor]:
    """The tensors in the containers of an evaluation loop (its locals, in transformers/trainer.py) among the frames.

    Of no other frame are locals read: before Python 3.13 that makes a copy of them which lives as long as the frame,
    and one that holds the error that goes through the frame is a cycle.
    """
    for frame in frames:
        for value in list(frame.f_locals.values()) if frame.f_code.co_name == _LOOP else ():
            if isinstance(value, EvalLoopContainer):
                yield from (leaf for leaf in tree_iter(value.tensors) if isinstance(leaf, torch.Tensor))
