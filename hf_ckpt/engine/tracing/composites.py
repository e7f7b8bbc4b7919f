"""How composite ops are taken apart while a layer is traced.

The run takes them apart in C++. Some of that code asks for the value of a size where it need not (``matmul``, and in
torch 2.11 ``linear``), which ties a trace to one length. torch has the same ops in Python, where sizes stay symbols;
the outcome is mostly the same, and the comparison at the first use tells where it is not.

Attention has no Python version. Its C++ code pads a mask for CUDA's memory-efficient kernel where rows start at no
multiple of 8 numbers, and every mask whose strides are symbols (``aligned_tensor`` in
aten/src/ATen/native/transformers/attention.cpp). A trace follows the run: there, alignment is a guard.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher

from ...devices.attention import is_aligned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._ops import OpOverload

_aten = torch.ops.aten
#: Their Python versions compute something else than the C++ ones: other random draws, other saved tensors.
_UNLIKE_CPP: tuple[OpOverload, ...] = (
    _aten.dropout.default, _aten.native_batch_norm.default, _aten.lstm.input, _aten.lstm.data, _aten.gru.input,
    _aten.gru.data, _aten.rnn_tanh.input, _aten.rnn_tanh.data, _aten.rnn_relu.input, _aten.rnn_relu.data,
)  # fmt: skip
_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
_LOCK = threading.RLock()
#: What may pad a mask, which argument that is, and what it pads it with.
_ATTENTION: tuple[OpOverload, ...] = (_aten.scaled_dot_product_attention.default,)
_MASK = 3
_PAD = _aten.constant_pad_nd.default


class _Inside(threading.local):
    """Whether this thread is taking apart attention with a mask."""

    masked_attention = False


_INSIDE = _Inside()


@contextmanager
def python_composites() -> Iterator[None]:
    """Take composite ops apart in Python on this thread, as far as that is what the C++ code does."""
    with _LOCK:
        taken = [(op, key, op.py_kernels.pop(key)) for op in _UNLIKE_CPP for key in _KEYS if key in op.py_kernels]
        for op in _ATTENTION:
            op.py_kernels[DispatchKey.CompositeImplicitAutograd] = partial(_attention, op)
        _forget_dispatch()
        try:
            with enable_python_dispatcher():
                yield
        finally:
            for op, key, kernel in taken:
                op.py_kernels[key] = kernel
            for op in _ATTENTION:
                del op.py_kernels[DispatchKey.CompositeImplicitAutograd]
            _forget_dispatch()


def _attention(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The C++ code of attention, in sight of :func:`pads_an_aligned_mask`."""
    mask = args[_MASK] if len(args) > _MASK else kwargs.get("attn_mask")
    _INSIDE.masked_attention = mask is not None  # without one, queries, keys and values may be padded
    try:
        return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
    finally:
        _INSIDE.masked_attention = False


def pads_an_aligned_mask(func: OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether this is attention padding a mask that the run does not pad. The answer is a guard of the trace."""
    return func is _PAD and _INSIDE.masked_attention and is_aligned(args[0].stride())


def _forget_dispatch() -> None:
    for op in (*_UNLIKE_CPP, *_ATTENTION):
        op._dispatch_cache.clear()
