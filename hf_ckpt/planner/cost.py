"""What it takes to run an op again, by roofline, and what a layer's backward needs on top. Pure arithmetic, no torch.

The time of an op is the larger of compute (FLOPs over the rate of its class) and memory traffic (bytes over bandwidth),
plus the host's time for one op; on an accelerator the host runs ahead, so there it is the larger of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ledger import Source
from .problem import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..ledger import Buffer, LayerLedger, Op

#: Ops whose arithmetic (exponentials, roots) costs a CPU more than the traffic does; parts of their names.
SPECIAL = ("silu", "gelu", "sigmoid", "tanh", "exp", "softmax", "pow", "rsqrt", "sqrt", "log", "sin", "cos", "erf")

#: Ops whose backward does not read what they return: such a tensor is saved for its readers only. Parts of names.
READ_BY_OTHERS = (".mm", ".addmm", ".bmm", ".add", ".mul", ".sub", ".silu", ".gelu", ".cat", ".clone", "._to_copy")

#: The share of a layer's forward that its backward takes: a matmul has two gradients.
BACKWARD_PER_FORWARD = 2.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured rates of one device.

    ``matmul`` and ``attention`` are FLOP/s by dtype class (``"half"``, ``"single"``); ``stream`` and ``special``
    bytes/s of element-wise ops that only move data, and of those in :data:`SPECIAL`; ``host_link`` bytes/s to host
    memory (None: there is no such link); ``per_op`` the host's seconds an op; ``per_layer`` the seconds that watching
    what autograd saves adds to a layer; ``asynchronous`` whether the host runs ahead of the device.
    """

    device: str
    matmul: Mapping[str, float]
    attention: Mapping[str, float]
    stream: float
    special: float
    per_op: float
    per_layer: float
    host_link: float | None = None
    asynchronous: bool = False


def dtype_class(dtype: str) -> str:
    """``"half"`` for two-byte floats (``"torch.bfloat16"``, ``"float16"``), else ``"single"``."""
    return "half" if dtype.removeprefix("torch.") in {"bfloat16", "float16"} else "single"


def op_seconds(op: Op, dtype: str, rates: Calibration) -> float:
    """Seconds to run ``op`` once; ``dtype`` is that of its first output."""
    by_class = rates.attention if "attention" in op.name else rates.matmul
    compute = op.flops / by_class[dtype_class(dtype)]
    is_special = any(word in op.name for word in SPECIAL) and "attention" not in op.name
    memory = op.traffic / (rates.special if is_special else rates.stream)
    work = max(compute, memory)
    return max(work, rates.per_op) if rates.asynchronous else work + rates.per_op


def transient_bytes(ledger: LayerLedger) -> int:
    """Bytes alive at the worst moment of one layer's backward, the tensors it saved included.

    Backward goes through the ops in reverse. At an op, what was saved for it and for the ops before it is alive, and so
    are the gradients of what crosses it: made before or by it, read by or after it. Running the layer again comes
    first, with every saved tensor and the gradient of the output, plus the temporaries of the forward. The gradients of
    what an addition adds are one tensor, that of the sum.
    """
    last_reader = _last_readers(ledger)
    gradient = _gradient_storages(ledger)
    needed_from = _first_users(ledger)
    made = [b for b in ledger.buffers if b.source in (Source.ACTIVATION, Source.RANDOM, Source.INPUT)]
    saved = {b.index for b in ledger.saved_activations()}
    worst = 0
    for op in reversed(ledger.ops):
        alive = sum(b.nbytes for b in made if b.index in saved and needed_from[b.index] <= op.index)
        crossing = {
            gradient[b.index]: b.nbytes
            for b in made
            if _differentiable(b) and _born(b) <= op.index <= last_reader[b.index]
        }
        worst = max(worst, alive + sum(crossing.values()))
    return max(worst, _replay_bytes(ledger, last_reader))


def _replay_bytes(ledger: LayerLedger, last_reader: Mapping[int, int]) -> int:
    """Bytes alive at the worst moment of running the whole layer again, with the gradient of its output."""
    activations = [b for b in ledger.buffers if b.source in (Source.ACTIVATION, Source.RANDOM)]
    worst = 0
    for op in ledger.ops:
        so_far = (b for b in activations if _born(b) <= op.index)
        worst = max(worst, sum(b.nbytes for b in so_far if b.saved or last_reader[b.index] >= op.index))
    output = ledger.buffers[ledger.ops[-1].outputs[0]].nbytes if ledger.ops and ledger.ops[-1].outputs else 0
    return worst + output


def _last_readers(ledger: LayerLedger) -> dict[int, int]:
    """The last op that reads each buffer; one never read lives until the end."""
    last = {b.index: len(ledger.ops) for b in ledger.buffers}
    last |= {b: op.index for op in ledger.ops for b in op.inputs}
    return last


def _first_users(ledger: LayerLedger) -> list[int]:
    """For each buffer, the op whose backward is the last to need it: its first reader, or the op that made it."""
    first = [len(ledger.ops)] * len(ledger.buffers)
    for op in reversed(ledger.ops):
        for b in op.inputs:
            first[b] = op.index
    for buffer in ledger.buffers:
        if buffer.producer is not None:
            name = ledger.ops[buffer.producer].name.rpartition(".")[0]
            if not name.endswith(READ_BY_OTHERS):
                first[buffer.index] = buffer.producer
    return first


def _gradient_storages(ledger: LayerLedger) -> list[int]:
    """For each buffer, the buffer whose gradient is stored with its own."""
    stands_for = list(range(len(ledger.buffers)))
    for op in reversed(ledger.ops):
        if op.name.startswith("aten.add.") and op.outputs:
            total = ledger.buffers[op.outputs[0]]
            for b in op.inputs:
                if ledger.buffers[b].nbytes == total.nbytes:
                    stands_for[b] = stands_for[total.index]
    return stands_for


def _born(buffer: Buffer) -> int:
    return -1 if buffer.producer is None else buffer.producer


def _differentiable(buffer: Buffer) -> bool:
    return "float" in buffer.dtype


def kind_of(ledger: LayerLedger, rates: Calibration, *, gradients: int = 0) -> Kind:
    """The planner's view of layers with this ledger; ``gradients``: bytes of parameter gradients of one backward."""
    seconds = tuple(
        op_seconds(op, ledger.buffers[op.outputs[0]].dtype if op.outputs else "", rates) for op in ledger.ops
    )
    forward = sum(seconds)
    return Kind(
        ledger,
        seconds,
        transient=transient_bytes(ledger),
        gradients=gradients,
        forward=forward,
        backward=BACKWARD_PER_FORWARD * forward,
    )
