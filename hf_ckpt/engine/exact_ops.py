"""What a compiler may fuse without changing a bit, and how every other op is kept out of its reach.

IEEE 754 fixes the result of an addition, a product and a conversion to the last bit, and moving memory rounds nothing:
fused or not, vectorised or not, these come out the same, as long as no multiply-add is contracted and no intermediate
is wider than its dtype. The result of a reduction, a matrix product, exp or tanh depends on who computes it. Such an op
is called through its *twin*: the same eager kernel under a name that inductor knows nothing about.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from .fast_ops import kernel_for
from .randomness import apply_dropout

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ir import Trace, TracedOp

_NAMESPACE = "hf_ckpt"
_ROUNDED_ONCE = frozenset({"add", "sub", "mul", "neg", "abs", "relu", "maximum", "minimum", "_to_copy", "rsub"})
_MEMORY = frozenset(
    {
        "arange", "cat", "clone", "copy", "fill", "full", "full_like", "lift_fresh_copy", "masked_fill", "ones",
        "ones_like", "scalar_tensor", "stack", "tril", "triu", "where", "zero", "zeros", "zeros_like",
    }
)  # fmt: skip
_LOGIC = frozenset(
    {"bitwise_and", "bitwise_not", "bitwise_or", "eq", "ge", "gt", "le", "logical_and", "logical_not", "lt", "ne"}
)
_EXACT = _ROUNDED_ONCE | _MEMORY | _LOGIC


def is_exact(op: TracedOp, trace: Trace) -> bool:
    """Whether the op's result is the same bits whatever code computes it."""
    if op.is_view or op.target is apply_dropout:
        return True
    if not isinstance(op.target, torch._ops.OpOverload) or _is_complex(op, trace):
        return False
    name = op.target._schema.name.removeprefix("aten::")
    if name == "pow":
        return op.args[1:] == (2,)
    return name.removesuffix("_") in _EXACT and op.kwargs.get("alpha", 1) == 1


def obstacle_to_compiling(op: TracedOp, trace: Trace) -> str:
    """Why the op can be neither fused nor given a twin: it writes, or its result shares memory. "" if it can."""
    if is_exact(op, trace):
        return ""
    schema = getattr(op.target, "_schema", None)
    if schema is None or any(argument.alias_info is not None for argument in (*schema.arguments, *schema.returns)):
        return f"{op.name} in {op.module or 'the layer'} writes in place"
    return ""


def compilable_kernel(op: TracedOp, trace: Trace) -> Callable[..., Any]:
    """The callable a compiled slice uses for ``op``."""
    return kernel_for(op) if is_exact(op, trace) else _TWINS.of(op.target)


class _Twins:
    """Ops of our own that run another op's kernel, made when first needed."""

    def __init__(self) -> None:
        self._library = torch.library.Library(_NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
        self._made: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def of(self, target: Any) -> Any:
        """The twin of an OpOverload that neither writes nor returns a view."""
        with self._lock:
            if target not in self._made:
                self._made[target] = self._make(target)
            return self._made[target]

    def _make(self, target: Any) -> Any:
        schema = str(target._schema)
        name = f"{target._schema.name.replace('::', '_')}_{target._schema.overload_name or 'default'}"
        # Strides choose the kernel's path, and so its rounding: the compiler must not change them.
        define, implement = self._library.define, self._library.impl
        define(name + schema[schema.index("(") :], tags=(torch.Tag.needs_exact_strides,))  # type: ignore[no-untyped-call]
        implement(name, target, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{_NAMESPACE}::{name}", target, lib=self._library)
        return getattr(torch.ops.hf_ckpt, name).default


_TWINS = _Twins()


def _is_complex(op: TracedOp, trace: Trace) -> bool:
    """Complex products are several real ones, and kernels contract them."""
    return any(value is not None and trace.values[value].dtype.is_complex for value in op.outputs)
