"""Records what a layer does on fake tensors, below autograd: every op, alias, write and saved tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..random_state import can_redraw
from ..untraceable import UntraceableError
from .composites import pads_an_aligned_mask
from .fake_kernels import run_fake
from .flops import flops_of
from .ir import ENTRY, Buffer, Draw, Origin, Pack, Ref, SizeRef, TracedOp, Value
from .made_up import COLLECTIVE_NAMESPACES
from .op_arguments import draws_random_numbers, instances_in, tensors_written, uses_own_generator
from .split_ops import split
from .symbols import plain_size
from .written_state import args_to_run_again, check_not_read, is_idempotent_write, statistics_written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from ..layer.slots import Slot
    from .checks import Answers

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one trace. Enter it inside the fake mode, with :meth:`pack` as the saved-tensor hook."""

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        parameters: Sequence[torch.Tensor],
        slots: Sequence[Slot],
        answers: Answers,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answers = answers
        self.values: list[Value] = []
        self.buffers: list[Buffer] = []
        self.ops: list[TracedOp] = []
        self.packs: list[Pack] = []
        self.constants: list[torch.Tensor] = []
        #: The parameters and module buffers that the layer wrote in place.
        self.written_slots: set[int] = set()
        # Not the slots: torch may keep the hook of a trace, and with it this recorder, and they lead to the layer.
        self._slots = tuple((slot.path, slot.kind) for slot in slots)
        self._written_state: dict[int, str] = {}  # storage of a parameter or module buffer -> what wrote it
        self._alive: list[Any] = []  # an address must not be used again while its id is a key
        self._value_of: dict[int, int] = {}
        # Storage -> its current version. ``_cdata`` is the address of the StorageImpl (torch/csrc/Storage.cpp), which
        # views share; fake tensors have no memory, so ``data_ptr`` would not tell their storages apart.
        self._buffer_of: dict[int, int] = {}
        self._modules: list[str] = [""]
        self._last_draw: dict[torch.device, tuple[int, int]] = {}  # the op, and the packs there were before it
        for kind, tensors in (("input", inputs), ("parameter", parameters)):
            for index, tensor in enumerate(tensors):
                self._register(tensor, Origin(kind, index), None)

    def scope(self, name: str, module: nn.Module) -> None:
        """Attribute to ``name`` the ops that run inside ``module``."""

        def enter(*_: Any) -> None:
            self._modules.append(name)

        def leave(*_: Any) -> None:
            self._modules.pop()

        if name:
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave, always_call=True)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """The saved-tensor hook: note which value this is."""
        value = self._value_of.get(id(tensor))
        storage = tensor.untyped_storage()._cdata
        if storage not in self._buffer_of:
            raise UntraceableError("it saves a tensor that no traced op made")
        if value is None:
            value = self._known_window(tensor, storage)
        self.packs.append(Pack(len(self.packs), value, self._buffer_of[storage]))
        return tensor

    def check(self) -> None:
        """Raise UntraceableError if what backward or a rebuild reads was written after it was read."""
        check_not_read(self.ops, self.buffers, self._written_state)
        for pack in self.packs:
            storage = self.buffers[pack.buffer].storage
            if any(b.storage == storage and b.index > pack.buffer for b in self.buffers):
                raise UntraceableError(f"it writes saved tensor {pack.position} in place")

    def _known_window(self, tensor: torch.Tensor, storage: int) -> int:
        """The value that sees what ``tensor`` sees (autograd saves aliases), or a new one."""
        candidate = self._describe(tensor, self._buffer_of[storage], None)
        root = self.buffers[candidate.buffer].storage
        for value in self.values:
            if self.buffers[value.buffer].storage == root and value.same_window(candidate):
                return value.index
        self.values.append(candidate)
        return candidate.index

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self._answers.op()
        try:
            return self._run(func, args, kwargs or {})
        except BaseException as error:
            self._answers.failed(error)
            raise

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an op on fake tensors, and record it."""
        if not isinstance(func, OpOverload):
            raise UntraceableError(f"{func} is a higher-order operator")
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if pads_an_aligned_mask(func, args):
            func, args, kwargs = torch.ops.aten.alias.default, args[:1], {}
        if func.namespace in COLLECTIVE_NAMESPACES:
            raise UntraceableError(f"{func} is a collective")
        if func is torch.ops.aten.set_.source_Tensor and args[0] is args[1]:
            return args[0]  # torch.nn.utils.parametrize puts a weight into itself
        if is_idempotent_write(func, args, kwargs) and self._is_first_use(args[0]):
            return run_fake(func, args, kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            self._adopt_constants(args)
        elif any(not self._is_known(tensor) for tensor in instances_in(torch.Tensor, (args, kwargs))):
            raise UntraceableError(f"{func} reads a tensor that is no attribute of a module")
        noted = args_to_run_again(func, args)
        reads = self._versions(noted, kwargs)
        written = self._written(func, args, kwargs)
        templates = self._template(noted), {key: self._template(item) for key, item in kwargs.items()}
        gradients = sum(tensor.requires_grad for tensor in instances_in(torch.Tensor, (args, kwargs)))
        try:
            output = run_fake(func, args, kwargs)
        except DataDependentOutputException as error:
            if func is not torch.ops.aten._local_scalar_dense.default or args[0].dtype is not torch.bool:
                raise
            return self._answers.next(self, error)
        if written or any(True for _ in instances_in(torch.Tensor, output)):
            flops = flops_of(func, args, kwargs, output)
            draws = draws_random_numbers(func, templates)
            own = draws and uses_own_generator(func, templates)
            self._record(func, templates, reads, written, output, flops, gradients, draws=draws, own_generator=own)
        return output

    def note(
        self,
        op: Callable[..., tuple[torch.Tensor, ...]],
        args: tuple[Any, ...],
        outputs: Sequence[torch.Tensor],
        flops: int,
        drawn: torch.device | None,
    ) -> None:
        """Record an op that this mode did not see: ``op(*args)`` makes ``outputs``, each on a storage of its own.

        ``drawn`` is the device whose random numbers it draws.
        """
        if drawn is not None and any(tensor.device != drawn for tensor in outputs):
            raise UntraceableError(f"{op} draws random numbers of {drawn}")
        self._adopt_constants(args)
        templates = self._template(args), dict[str, Any]()
        reads = self._versions(args, {})
        gradients = sum(tensor.requires_grad for tensor in instances_in(torch.Tensor, args))
        self._record(op, templates, reads, [], tuple(outputs), flops, gradients, draws=drawn is not None)

    def _record(
        self,
        func: Callable[..., Any],
        templates: tuple[Any, dict[str, Any]],
        reads: tuple[int, ...],
        written: list[torch.Tensor],
        output: Any,
        flops: Any,
        gradients: int,
        *,
        draws: bool,
        own_generator: bool = False,
    ) -> None:
        index = len(self.ops)
        single = isinstance(output, torch.Tensor)
        flat = [output] if single else list(_flat(output))
        for tensor in written:
            self._next_version(tensor, index)
        before = len(self.buffers)
        outputs = tuple(self._output(item, index) for item in flat)
        writes = tuple(self._buffer_of[t.untyped_storage()._cdata] for t in written)
        made = tuple(range(before, len(self.buffers)))
        is_view = not written and not made
        obstacle, draw = "", None
        if draws:
            device = self.buffers[(writes + made)[0]].device
            if can_redraw(device) and not own_generator:
                draw = self._draw(index, device)
            else:
                obstacle = f"{func} draws random numbers"
        op = TracedOp(
            index, func, templates[0], templates[1], outputs, single, reads, writes + made, self._modules[-1],
            is_view, obstacle, flops, draw, gradients,
        )  # fmt: skip
        first, *second = split(op, self.values)
        self.ops.append(first)
        if second:
            self._give_to_second(second[0])

    def _draw(self, op: int, device: torch.device) -> Draw:
        previous, packs_then = self._last_draw.get(device, (None, 0))
        self._last_draw[device] = op, len(self.packs)
        if previous is None:
            return Draw(device, None, ENTRY)
        return Draw(device, previous, len(self.packs) - 1 if len(self.packs) > packs_then else None)

    def _give_to_second(self, apply: TracedOp) -> None:
        """The second half of a split op makes what the whole op was noted to make."""
        self.ops.append(apply)
        (value,) = (v for v in apply.outputs if v is not None)
        (buffer,) = apply.writes
        old_value, old = self.values[value], self.buffers[buffer]
        self.values[value] = Value(
            value, buffer, old_value.shape, old_value.stride, old_value.offset, old_value.dtype, apply.index
        )
        self.buffers[buffer] = Buffer(
            buffer, old.storage, Origin("op", apply.index), apply.index, old.base, old.nbytes, old.device
        )

    def _output(self, item: Any, op: int) -> int | None:
        if not isinstance(item, torch.Tensor):
            return None
        known = self._value_of.get(id(item))
        return self._register(item, Origin("op", op), op) if known is None else known

    def _register(self, tensor: torch.Tensor, origin: Origin, producer: int | None) -> int:
        storage = tensor.untyped_storage()
        buffer = self._buffer_of.get(storage._cdata)
        if buffer is None:
            buffer = len(self.buffers)
            self._buffer_of[storage._cdata] = buffer
            nbytes = plain_size(storage.nbytes())
            self.buffers.append(Buffer(buffer, buffer, origin, producer, len(self.values), nbytes, tensor.device))
        value = self._describe(tensor, buffer, producer)
        self.values.append(value)
        self._alive += (tensor, storage)  # a layer may give a tensor another storage (``weight.data = ...``)
        self._value_of[id(tensor)] = value.index
        return value.index

    def _describe(self, tensor: torch.Tensor, buffer: int, producer: int | None) -> Value:
        shape = tuple(plain_size(size) for size in tensor.shape)
        stride = tuple(plain_size(size) for size in tensor.stride())
        offset = plain_size(tensor.storage_offset())
        return Value(len(self.values), buffer, shape, stride, offset, tensor.dtype, producer)

    def _next_version(self, tensor: torch.Tensor, op: int) -> None:
        storage = tensor.untyped_storage()._cdata
        old = self.buffers[self._buffer_of[storage]]
        new = Buffer(len(self.buffers), old.storage, old.origin, op, old.base, old.nbytes, old.device)
        self.buffers.append(new)
        self._buffer_of[storage] = new.index

    def _written(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        written = list(tensors_written(func, args, kwargs))
        for tensor in (*written, *statistics_written(func, args)):
            buffer = self.buffers[self._buffer_of[tensor.untyped_storage()._cdata]]
            if buffer.origin.kind == "parameter":
                reason = f"{func} writes {self._slots[buffer.origin.index][0]} in place"
                self._written_state.setdefault(buffer.storage, reason)
                self.written_slots.add(buffer.origin.index)
            elif buffer.origin.kind != "op":
                raise UntraceableError(f"{func} writes an input of the layer in place")
        return written

    def _is_first_use(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is a parameter that no op used before. Each has one first use.

        A module buffer is state: two forwards may write other numbers to it before one backward.
        """
        index = self._buffer_of.get(tensor.untyped_storage()._cdata)
        if index is None or self.buffers[index].origin.kind != "parameter":
            return False
        slot = self.buffers[index].origin.index
        if self._slots[slot][1] == "_buffers":
            return False
        used = {b for op in self.ops if not op.is_view for b in (*op.reads, *op.writes)}
        if slot in self.written_slots or index in used:
            return False
        self.written_slots.add(slot)
        return True

    def _adopt_constants(self, args: tuple[Any, ...]) -> None:
        """Small tensors that the layer makes from Python numbers reach the mode as real tensors."""
        for tensor in instances_in(torch.Tensor, args):
            if not self._is_known(tensor):
                with _disable_current_modes():
                    self.constants.append(tensor.detach().clone())
                self._register(tensor, Origin("constant", len(self.constants) - 1), None)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, FakeTensor) or id(tensor) in self._value_of

    def _versions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        return tuple(
            dict.fromkeys(
                self._buffer_of[t.untyped_storage()._cdata] for t in instances_in(torch.Tensor, (args, kwargs))
            )
        )

    def _template(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Ref(self._value_of[id(value)], self._buffer_of[value.untyped_storage()._cdata])
        if isinstance(value, _SYMBOLS):
            size = plain_size(value)
            return size if isinstance(size, int) else SizeRef(size)
        if isinstance(value, tuple | list):
            return type(value)(self._template(item) for item in value)
        return value


def _flat(output: Any) -> Any:
    if isinstance(output, tuple | list):
        for item in output:
            yield from _flat(item)
    else:
        yield output
