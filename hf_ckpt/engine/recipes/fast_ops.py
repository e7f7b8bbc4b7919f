"""The cheapest way to call an op from Python.

An ``OpOverload`` checks its arguments against a schema on every call; torch's own generated bindings of the same op do
not. They run the same kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tracing.ir import TracedOp

_aten = torch.ops.aten
_BINDINGS: dict[Any, Callable[..., Any]] = {
    _aten.add.Tensor: torch.add,
    _aten.mul.Tensor: torch.mul,
    _aten.sub.Tensor: torch.sub,
    _aten.div.Tensor: torch.div,
    _aten.pow.Tensor_Scalar: torch.pow,
    _aten.mean.dim: torch.mean,
    _aten.rsqrt.default: torch.rsqrt,
    _aten.neg.default: torch.neg,
    _aten.cat.default: torch.cat,
    _aten.mm.default: torch.mm,
    _aten.bmm.default: torch.bmm,
    _aten.addmm.default: torch.addmm,
    _aten.baddbmm.default: torch.baddbmm,
    _aten.t.default: torch.Tensor.t,
    _aten.view.default: torch.Tensor.view,
    _aten.expand.default: torch.Tensor.expand,
    _aten.transpose.int: torch.Tensor.transpose,
    _aten.permute.default: torch.Tensor.permute,
    _aten.unsqueeze.default: torch.Tensor.unsqueeze,
    _aten.detach.default: torch.Tensor.detach,
    _aten.clone.default: torch.clone,
    _aten.tanh.default: torch.tanh,
    _aten.sigmoid.default: torch.sigmoid,
    _aten.silu.default: torch._C._nn.silu,
    _aten.gelu.default: torch._C._nn.gelu,
    _aten.native_layer_norm.default: torch.native_layer_norm,
}
#: Their result is always one dense row-major block, whatever the inputs' strides.
ROW_MAJOR = frozenset({_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default})


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``aten._to_copy`` when only the dtype is given."""
    return x.to(dtype, copy=True)


def kernel_for(op: TracedOp) -> Callable[..., Any]:
    """The callable a slice uses for ``op``: same arguments, same result."""
    if op.target is _aten._to_copy.default and set(op.kwargs) == {"dtype"}:
        return cast
    return _BINDINGS.get(op.target, op.target)
