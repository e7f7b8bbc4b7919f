"""A rebuild through inductor: the same bits with fewer passes over memory.

Only ops whose result IEEE 754 fixes are fused (see exact_ops.py), with the casts between them kept and no contraction,
so the bits are equal by construction. Each kernel that inductor makes is compared with the uncompiled rebuild at its
first use all the same; a difference, or a compiler that fails, means that the slice runs uncompiled from then on.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import torch

from .bits import same_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .codegen import Rebuild
    from .ir import Trace

_LOGGER = logging.getLogger(__name__)
#: bf16 and fp16 intermediates are rounded as eager rounds them, and Triton does not contract multiply-adds.
_OPTIONS = {"emulate_precision_casts": True}


class CompiledRebuild:
    """Called like the rebuild it stands for. ``obstacle`` says why it runs uncompiled, "" while it does not.

    ``plain`` rebuilds the packs at ``positions`` of ``trace`` op by op; ``fusable`` does the same, with twins for what
    a compiler must not touch. Inductor compiles at the first call, and again for new shapes.
    """

    def __init__(self, trace: Trace, positions: Sequence[int], plain: Rebuild, fusable: Rebuild) -> None:
        self.obstacle = ""
        self._trace = trace
        self._positions = positions
        self._plain = plain
        self._compiled = torch.compile(fusable, fullgraph=True, backend=self._backend)
        self._ran = threading.local()

    def __call__(self, *arguments: Any) -> list[torch.Tensor]:
        """Rebuild, as ``Rebuild`` says. Under a dispatch mode, which must see every op, that is done uncompiled."""
        if self.obstacle or torch._C._len_torch_dispatch_stack():
            return self._plain(*arguments)
        self._ran.kernel = None
        try:
            tensors: list[torch.Tensor] = self._compiled(*arguments)
        except Exception as error:  # whatever a compiler raises, the rebuild itself is fine
            self._give_up(f"inductor failed ({type(error).__name__}: {_first_line(error)})")
            return self._plain(*arguments)
        kernel = self._ran.kernel
        return tensors if kernel is None or kernel.checked else self._check(kernel, tensors, arguments)

    def _check(self, kernel: _Kernel, tensors: list[torch.Tensor], arguments: tuple[Any, ...]) -> list[torch.Tensor]:
        expected = self._plain(*arguments)
        for position, ours, theirs in zip(self._positions, tensors, expected, strict=True):
            if not same_bits(ours, theirs):
                self._give_up(f"the compiled output of {self._trace.maker_of(position)} differs from the eager one")
                return expected
        kernel.checked = True
        return tensors

    def _backend(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        function: Any = compile_fx(graph, list(inputs), config_patches=_OPTIONS)
        return _Kernel(function, self._ran)

    def _give_up(self, obstacle: str) -> None:
        self.obstacle = obstacle
        _LOGGER.warning("%s: its rebuild runs uncompiled, because %s", self._trace.class_name, obstacle)


class _Kernel:
    """One compilation, and whether its results were seen to be equal. Notes, per thread, that it was the one to run."""

    def __init__(self, function: Callable[..., Any], ran: threading.local) -> None:
        self.checked = False
        self._function = function
        self._ran = ran

    def __call__(self, *inputs: Any) -> Any:
        self._ran.kernel = self
        return self._function(*inputs)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0][:200]
