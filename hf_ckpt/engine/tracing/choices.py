"""Choices are made once: which experts a token goes to, which keys a query looks at.

A rebuild gives the forward's bits again where kernels are deterministic. Where one is not, or a library update makes
one so, a last bit of a router's logits decides between two experts, and backward would go through other ones than the
forward did. So an index that was chosen by comparing floats is kept, under every policy: it takes kilobytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...op_catalogue import traits_of
from .ir import Ref
from .op_arguments import instances_in
from .split_ops import SECOND_HALVES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ir import TracedOp, Value


def with_single_choices(ops: Sequence[TracedOp], values: Sequence[Value]) -> list[TracedOp]:
    """``ops``, those marked as not to be run again that choose by floats what other ops then read."""
    read = {b for op in ops if not op.is_view and op.target not in SECOND_HALVES for b in op.reads}
    return [replace(op, obstacle=_why(op)) if _chooses(op, values, read) else op for op in ops]


def _chooses(op: TracedOp, values: Sequence[Value], read: set[int]) -> bool:
    if not traits_of(op.name).chooses:
        return False
    compared = next(instances_in(Ref, op.args), None)
    if compared is None or not values[compared.value].dtype.is_floating_point:
        return False
    chosen = (values[v] for v in op.outputs if v is not None)
    return any(value.dtype is torch.int64 and value.buffer in read for value in chosen)


def _why(op: TracedOp) -> str:
    return f"{op.name} in {op.module or 'the layer'} makes a choice, which is not made twice"
