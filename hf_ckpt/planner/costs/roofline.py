"""What it takes to run an op again, by roofline. Pure arithmetic, no torch.

The time of an op is the larger of compute (FLOPs over the rate of its class) and memory traffic (bytes over bandwidth),
plus the host's time for one op; on an accelerator the host runs ahead, so there it is the larger of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...op_catalogue import Cost, traits_of
from .problem import Kind
from .transient import transient_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...ledger import LayerLedger, Op

#: What the backward of attention takes of its forward: five products instead of two (FlashAttention-2, 2.3.2).
ATTENTION_BACKWARD = 2.5


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured rates of one device.

    ``matmul`` and ``attention`` are FLOP/s by dtype class (``"half"``, ``"single"``); ``stream``, ``special`` (by dtype
    class), ``gather`` and ``random`` bytes/s of ops of each :class:`~hf_ckpt.op_catalogue.Cost`; ``host_link`` bytes/s
    to host memory (None: there is no such link); ``per_op`` the host's seconds an op; ``per_layer`` the seconds that
    replaying anything adds to a layer beside its ops; ``asynchronous`` whether the host runs ahead of the device.
    """

    device: str
    matmul: Mapping[str, float]
    attention: Mapping[str, float]
    stream: float
    special: Mapping[str, float]
    gather: float
    random: float
    per_op: float
    per_layer: float
    host_link: float | None = None
    asynchronous: bool = False


def dtype_class(dtype: str) -> str:
    """``"half"`` for two-byte floats (``"torch.bfloat16"``, ``"float16"``), else ``"single"``."""
    return "half" if dtype.removeprefix("torch.") in {"bfloat16", "float16"} else "single"


def op_seconds(op: Op, dtype: str, rates: Calibration) -> float:
    """Seconds to run ``op`` once.

    Args:
        op: The op, with its FLOPs and the bytes it reads and writes.
        dtype: Dtype of its first output.
        rates: Measured rates of the device.
    """
    if op.seconds is not None:
        return op.seconds
    by_class = rates.attention if traits_of(op.name).attention else rates.matmul
    compute = op.flops / by_class[dtype_class(dtype)]
    work = max(compute, op.traffic / _bytes_per_second(op, dtype, rates))
    return max(work, rates.per_op) if rates.asynchronous else work + rates.per_op


def _bytes_per_second(op: Op, dtype: str, rates: Calibration) -> float:
    match traits_of(op.name).cost:
        case Cost.SPECIAL:
            return rates.special[dtype_class(dtype)]
        case Cost.GATHER:
            return rates.gather
        case Cost.RANDOM:
            return rates.random
    return rates.stream


def backward_seconds(op: Op, seconds: float) -> float:
    """Seconds of the backward of ``op``, whose forward takes ``seconds``.

    A product takes a product for each of its gradients. What maps memory reads what it was given beside the gradient,
    and takes twice as long; sums and casts pass on the gradient alone.
    """
    traits = traits_of(op.name)
    if not op.gradients:
        return 0.0
    if traits.attention:
        return ATTENTION_BACKWARD * seconds
    if traits.product:
        return seconds * min(op.gradients, 2)
    return seconds * (2 if traits.reads_input or traits.reads_output else 1)


def kind_of(ledger: LayerLedger, rates: Calibration, *, gradients: int = 0) -> Kind:
    """The planner's view of layers with this ledger.

    Args:
        ledger: Buffers and ops of one layer.
        rates: Measured rates of the device.
        gradients: Bytes of parameter gradients of one backward.
    """
    seconds = tuple(
        op_seconds(op, ledger.buffers[op.outputs[0]].dtype if op.outputs else "", rates) for op in ledger.ops
    )
    forward = sum(seconds)
    return Kind(
        ledger,
        seconds,
        transient=transient_bytes(ledger, gradients=gradients),
        gradients=gradients,
        forward=forward,
        backward=sum(map(backward_seconds, ledger.ops, seconds)),
    )
