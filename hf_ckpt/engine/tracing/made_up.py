"""What a call makes that cannot run on fake tensors: it runs really, on made-up ones of the same shapes.

Integers are zeros, so that an index is a valid one. What a call reads off its tensors is made up too, so one that
decides by their values is refused, as it may make something else in the run: torch's own ops say when they hand out a
value, and what is out of torch's sight runs twice, on other values, and must make the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..random_state import (
    can_redraw,
    foreign_random_state,
    foreign_random_state_kept,
    have_drawn,
    random_state,
    random_state_kept,
)
from ..untraceable import UntraceableError
from .flops import flops_of
from .op_arguments import instances_in, tensors_written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch._ops import OpOverload

COLLECTIVE_NAMESPACES = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"})
_MASKS = (torch.bool, torch.uint8)
#: What floats are made up of, over and over; neighbours differ, so that a write shows.
_SMALL = tuple(0.25 + n / 32 for n in range(31))
_LARGE = tuple(4.0 * (n - 15) for n in range(31))


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
    """Run ``call`` twice on tensors made up for ``fakes``; it returns all tensors that come out of it.

    Raises UntraceableError where running it again might not be the same: it writes a tensor that it is given, decides
    by what its tensors hold, draws random numbers that are not torch's, or talks to other ranks.
    """
    with _disable_current_modes(), torch.no_grad():
        large = _outcome_on(call, fakes, _LARGE).windows
        outcome = _outcome_on(call, fakes, _SMALL)
    if large != outcome.windows:
        raise UntraceableError("it decides by what its tensors hold")
    return outcome


def _outcome_on(
    call: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    fakes: Sequence[torch.Tensor],
    values: Sequence[float],
) -> Outcome:
    """The outcome on tensors of these values."""
    made = {id(fake): _made_up(fake, values) for fake in fakes}
    given = [made[id(fake)] for fake in fakes]
    watch = _Watch(given)
    results, drawn = _drawing(lambda: _watched(watch, call, given), given)
    again = (_made_up(fake, values) for fake in fakes)
    if any(not torch.equal(_bits(one), _bits(other)) for one, other in zip(given, again, strict=True)):
        raise UntraceableError("it writes a tensor that it is given")
    fresh = fresh_of(results, given)
    if drawn is not None and not fresh:
        raise UntraceableError("it draws random numbers and makes no tensor")
    return Outcome(windows_of(results, given, fresh), fresh, watch.flops, drawn)


def _watched(
    watch: _Watch, call: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]], given: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    with watch:
        return call(given)


def _drawing(
    run: Callable[[], Sequence[torch.Tensor]], given: Sequence[torch.Tensor]
) -> tuple[Sequence[torch.Tensor], torch.device | None]:
    """What ``run`` returns, and the device whose random state it moved; all random states are brought back."""
    devices = tuple(dict.fromkeys(tensor.device for tensor in given if can_redraw(tensor.device)))
    with random_state_kept(devices), foreign_random_state_kept():
        before, foreign = [random_state(device) for device in devices], foreign_random_state()
        results = run()
        moved = [d for d, state in zip(devices, before, strict=True) if not torch.equal(state, random_state(d))]
        if have_drawn(foreign):
            raise UntraceableError("it draws from Python's or NumPy's random numbers")
    if len(moved) > 1:
        raise UntraceableError("it draws random numbers of several devices")
    return results, moved[0] if moved else None


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


def windows_of(
    results: Sequence[torch.Tensor], given: Sequence[torch.Tensor], fresh: Sequence[torch.Tensor]
) -> tuple[Window, ...]:
    """Where each of ``results`` lies. Raises UntraceableError where memory is seen as several dtypes."""
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


def anew(windows: Sequence[Window], given: int) -> tuple[Window | None, ...]:
    """The windows into storages that the call made, counted from 0; None for those into what it was given."""
    return tuple(None if w.base < given else replace(w, base=w.base - given, stride=_steps(w)) for w in windows)


def _steps(window: Window) -> tuple[int, ...]:
    """The strides that say where an element is."""
    return tuple(stride for size, stride in zip(window.shape, window.stride, strict=True) if size > 1)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts FLOPs, and stops what could be something else, or must not be, another time.

    A number that is read off a tensor decides, but for an integer that was drawn: a seed. A collective is stopped
    because other ranks take no part in a call on made-up tensors.
    """

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self._given = {tensor.untyped_storage()._cdata for tensor in given}
        #: Made from nothing that was given; held, so that no other tensor gets their identity.
        self._drawn: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in COLLECTIVE_NAMESPACES:
            raise UntraceableError(f"{func} is a collective")
        read = list(instances_in(torch.Tensor, (args, kwargs)))
        if _looks_at_values(func, args) and not self._are_seeds(read):
            raise UntraceableError(f"it decides by what its tensors hold ({func})")
        if any(tensor.untyped_storage()._cdata in self._given for tensor in tensors_written(func, args, kwargs)):
            raise UntraceableError("it writes a tensor that it is given")
        output = func(*args, **kwargs)
        made = list(instances_in(torch.Tensor, output))
        if all(id(tensor) in self._drawn for tensor in read):
            self._drawn |= {id(tensor): tensor for tensor in made}
        if made:
            self.flops += flops_of(func, args, kwargs, output)
        return output

    def _are_seeds(self, read: Sequence[torch.Tensor]) -> bool:
        return all(id(t) in self._drawn and not t.is_floating_point() and t.dtype is not torch.bool for t in read)


def _looks_at_values(func: OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether a number comes out of tensors, or the shape of the result depends on what they hold."""
    if func is torch.ops.aten.index.Tensor:
        return any(tensor.dtype in _MASKS for tensor in instances_in(torch.Tensor, args[1]))
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def _made_up(fake: torch.Tensor, values: Sequence[float]) -> torch.Tensor:
    """A real tensor with the metadata of ``fake``, of these values where it holds floats."""
    if not all(type(size) is int for size in (*fake.shape, *fake.stride())):
        raise UntraceableError("its sizes are symbols")
    count = 1 + sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride(), strict=True))
    count = max(count, 0) if fake.numel() else 0
    if fake.is_floating_point():
        few = torch.tensor(values, device=fake.device).to(fake.dtype)
        flat = few.repeat(-(-count // len(values)))  # no more memory than the tensor itself takes
    else:
        flat = torch.zeros(count, dtype=fake.dtype, device=fake.device)
    made = flat.as_strided(tuple(fake.shape), fake.stride(), 0)
    return made.requires_grad_(fake.requires_grad)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
