"""How composite ops are taken apart while a layer is traced.

The run takes them apart in C++. Some of that code asks for the value of a size where it need not (``matmul``, and in
torch 2.11 ``linear``), which ties a trace to one length. torch has the same ops in Python, where sizes stay symbols;
the outcome is mostly the same, and the comparison at the first use tells where it is not.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher

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


@contextmanager
def python_composites() -> Iterator[None]:
    """Take composite ops apart in Python on this thread, as far as that is what the C++ code does."""
    with _LOCK:
        taken = [(op, key, op.py_kernels.pop(key)) for op in _UNLIKE_CPP for key in _KEYS if key in op.py_kernels]
        _forget_dispatch()
        try:
            with enable_python_dispatcher():
                yield
        finally:
            for op, key, kernel in taken:
                op.py_kernels[key] = kernel
            _forget_dispatch()


def _forget_dispatch() -> None:
    for op in _UNLIKE_CPP:
        op._dispatch_cache.clear()
