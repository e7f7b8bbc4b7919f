"""What a call makes that cannot run on fake tensors: it runs once, really, on made-up ones of the same shapes.

Integers are zeros, so that an index is a valid one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..random_state import can_redraw, random_state, random_state_kept
from ..untraceable import UntraceableError
from .flops import flops_of
from .nested import instances_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch._ops import OpOverload

COLLECTIVE_NAMESPACES = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"})


@dataclass(frozen=True, slots=True)
class Window:
    """A tensor that came out of a call: where it lies in storage number ``base``.

    The storages of the tensors that went in are counted first, then those that the call made. ``given`` is the place
    among the tensors that went in, where it is one of them itself.
    """

    base: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    given: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call made: all tensors that came out, and of each storage that is new the tensor that stands for it.

    ``flops`` are those of the torch ops inside; ``drawn`` the device whose random state the call moved.
    """

    windows: tuple[Window, ...]
    fresh: tuple[torch.Tensor, ...]
    flops: int
    drawn: torch.device | None


def outcome_of(
    call: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]], fakes: Sequence[torch.Tensor]
) -> Outcome:
    """Run ``call`` on tensors made up for ``fakes``; it returns all tensors that come out of it.

    Raises UntraceableError where running it again would not be the same: it writes a tensor that it is given, or talks
    to other ranks.
    """
    with _disable_current_modes(), torch.no_grad():
        given = [_made_up(fake) for fake in fakes]
        devices = tuple(dict.fromkeys(tensor.device for tensor in given if can_redraw(tensor.device)))
        watch = _Watch()
        with random_state_kept(devices):
            before = [random_state(device) for device in devices]
            with watch:
                results = call(given)
            moved = [d for d, state in zip(devices, before, strict=True) if not torch.equal(state, random_state(d))]
        if len(moved) > 1:
            raise UntraceableError("it draws random numbers of several devices")
        if any(
            not torch.equal(_bits(tensor), _bits(_made_up(fake))) for tensor, fake in zip(given, fakes, strict=True)
        ):
            raise UntraceableError("it writes a tensor that it is given")
        fresh = fresh_of(results, given)
        return Outcome(_windows(results, given, fresh), fresh, watch.flops, moved[0] if moved else None)


def fresh_of(results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """One tensor for each storage behind ``results`` that is behind none of ``given``, in order."""
    known = {tensor.untyped_storage()._cdata for tensor in given}
    found = {}
    for tensor in results:
        key = tensor.untyped_storage()._cdata
        if key not in known and key not in found:
            found[key] = _whole(tensor)
    return tuple(found.values())


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or all of its storage where it is a part only."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor if tensor.numel() == count else tensor.as_strided((count,), (1,), 0)


def _windows(
    results: Sequence[torch.Tensor], given: Sequence[torch.Tensor], fresh: Sequence[torch.Tensor]
) -> tuple[Window, ...]:
    bases = [*given, *fresh]
    places = {tensor.untyped_storage()._cdata: place for place, tensor in enumerate(bases)}
    itself = {id(tensor): place for place, tensor in enumerate(given)}
    windows = []
    for tensor in results:
        base = places[tensor.untyped_storage()._cdata]
        if tensor.dtype is not bases[base].dtype:
            raise UntraceableError("it sees one piece of memory as several dtypes")
        shape, stride, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        windows.append(Window(base, shape, stride, offset, tensor.dtype, itself.get(id(tensor))))
    return tuple(windows)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs, and stops a collective: other ranks do not take part in a call on made-up tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func.namespace in COLLECTIVE_NAMESPACES:
            raise UntraceableError(f"{func} is a collective")
        output = func(*args, **(kwargs or {}))
        if any(True for _ in instances_in(torch.Tensor, output)):
            self.flops += flops_of(func, args, kwargs or {}, output)
        return output


def _made_up(fake: torch.Tensor) -> torch.Tensor:
    """A real tensor with the metadata of ``fake``; neighbours differ, so that a write shows."""
    if not all(type(size) is int for size in (*fake.shape, *fake.stride())):
        raise UntraceableError("its sizes are symbols")
    count = 1 + sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride(), strict=True))
    count = max(count, 0) if fake.numel() else 0
    if fake.is_floating_point():
        flat = ((torch.arange(count, device=fake.device) % 31) / 32 + 0.25).to(fake.dtype)
    else:
        flat = torch.zeros(count, dtype=fake.dtype, device=fake.device)
    made = flat.as_strided(tuple(fake.shape), fake.stride(), 0)
    return made.requires_grad_(fake.requires_grad)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
