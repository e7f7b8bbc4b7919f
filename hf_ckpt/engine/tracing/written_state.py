"""State that a layer writes in its forward and reads for nothing else: running statistics, a counter of batches.

The forward writes it, once. A rebuild does not: nothing that is saved depends on it, so no op that writes it is run
again. A batch norm in training is run again without its running statistics, as it normalises with those of the batch;
any other op that writes state and makes something else too cannot be traced. What a layer reads *and* writes cannot
either: in backward something else stands there than the forward read. But for a write that comes before every read and
changes nothing when it is made again (Gemma 3n clamps a weight): what the forward read stands there from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch._ops import OpOverload

    from ..layer.slots import Slot
    from .ir import Buffer, TracedOp

#: ``(input, weight, bias, running_mean, running_var, training, ...)``. Their kernels write the running statistics in
#: training, which their schemas do not say (aten/src/ATen/native/native_functions.yaml).
_BATCH_NORMS = frozenset(
    {
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten.cudnn_batch_norm.default,
        torch.ops.aten.miopen_batch_norm.default,
    }
)
_STATISTICS = slice(3, 5)
_TRAINING = 5

#: Made twice with the same numbers they are made once.
_IDEMPOTENT = frozenset(
    {
        torch.ops.aten.abs_.default,
        torch.ops.aten.clamp_.default,
        torch.ops.aten.clamp_max_.default,
        torch.ops.aten.clamp_min_.default,
        torch.ops.aten.fill_.Scalar,
        torch.ops.aten.relu_.default,
        torch.ops.aten.zero_.default,
    }
)


def is_idempotent_write(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the op writes its first argument, and would change nothing the next time."""
    numbers = (*args[1:], *kwargs.values())  # a symbol may be another number the next time
    return func in _IDEMPOTENT and all(type(number) in (int, float, bool, type(None)) for number in numbers)


def statistics_written(func: OpOverload, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    """The running statistics that this call writes though its schema does not say so."""
    if func not in _BATCH_NORMS or not args[_TRAINING]:
        return ()
    return tuple(tensor for tensor in args[_STATISTICS] if tensor is not None)


def args_to_run_again(func: OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with which the op makes the same again, and writes no running statistics."""
    if not statistics_written(func, args):
        return args
    return (*args[: _STATISTICS.start], None, None, *args[_STATISTICS.stop :])


def check_not_read(ops: Sequence[TracedOp], buffers: Sequence[Buffer], written: Mapping[int, str]) -> None:
    """Raise UntraceableError where an op makes anything from state that the layer writes, other than that state.

    Args:
        ops: What was recorded.
        buffers: The versions of all storages.
        written: What was written in place, by storage, in words.
    """
    for op in ops:
        if op.is_view:
            continue
        made = {buffers[buffer].storage for buffer in op.writes}
        state = [buffers[b].storage for b in (*op.reads, *op.writes) if buffers[b].storage in written]
        # An op that writes state and makes a result too would write it once more when the result is rebuilt.
        if state and not (made <= written.keys() and made.issuperset(state)):
            raise UntraceableError(written[state[0]])


def check_not_shared(written: Iterable[int], slots: Sequence[Slot]) -> None:
    """Raise UntraceableError where a tensor that the layer writes has two names: a trace takes them for two tensors."""
    for index in written:
        tensor = slots[index].fetch()
        if sum(slot.fetch() is tensor for slot in slots) > 1:
            raise UntraceableError(f"{slots[index].path} is written in place, and it has another name in the layer")
