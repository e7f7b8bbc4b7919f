"""Notes every operator of the checkpointed functions of a step, once in the forward and once in the recompute."""

from __future__ import annotations

import hashlib
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from ..compat.wrappers import clean_name, local_shard
from ..doctor.place import waiting_place
from ..engine.random_state import foreign_random_state, have_drawn
from .bypass import stand_in_for_checkpoint
from .divergence import Op, Outside
from .standing import plain_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..doctor.place import Place


@dataclass(slots=True)
class LoggedCall:
    """One call of torch's checkpoint.

    Attributes:
        place: The line of the user's code that makes it.
        preserves_rng: Whether it brings torch's random state back.
        has_cells: Whether its function closes over variables.
        forward: Its operators in the forward.
        again: Those of its recompute; None where there was none.
        draws_elsewhere: Whether it drew from random numbers that torch does not bring back.
        moves_itself: Whether its forward changed attributes or buffers of the model.
        cuts_off: Whether it is a reentrant one and none of the tensors that it was given requires a gradient.
    """

    place: Place | None
    preserves_rng: bool
    has_cells: bool
    forward: list[Op] = field(default_factory=list)
    again: list[Op] | None = None
    draws_elsewhere: bool = False
    moves_itself: bool = False
    cuts_off: bool = False


class RecomputeLog:
    """The calls of a step that runs inside :meth:`taken`, in their order.

    Attributes:
        calls: What was noted.
        functions: Classes of autograd Functions of the user's own that ran, by the module that ran them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.calls: list[LoggedCall] = []
        self.functions: dict[str, list[type]] = {}
        self._model = model
        self._modules = {id(module): clean_name(name) for name, module in model.named_modules()}
        named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
        self._names = {id(tensor): clean_name(name) for name, tensor in named}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take notes inside."""
        reentrant = _Reentrant(self, torch_checkpoint.CheckpointFunction)
        generator = torch_checkpoint._checkpoint_without_reentrant_generator

        def around(function: Any, preserve: bool, *args: Any, **kwargs: Any) -> Iterator[None]:
            call = self._begin(function, preserve)
            inner = generator(self._recompute(call, function), preserve, *args, **kwargs)
            next(inner)
            try:
                with self._forward(call):  # on top of what a context_fn put there, which answers for some operators
                    yield
            except BaseException as error:
                inner.throw(error)
                raise
            yield from inner

        apply = torch.autograd.Function.__dict__["apply"]
        log = self

        def logged_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            log.functions.setdefault(log.module_above(sys._getframe(1)), []).append(cls)
            return apply.__get__(None, cls)(*args, **kwargs)

        torch.autograd.Function.apply = classmethod(logged_apply)  # type: ignore[method-assign, assignment]
        try:
            with stand_in_for_checkpoint(reentrant, around):
                yield
        finally:
            torch.autograd.Function.apply = apply  # type: ignore[method-assign]

    def module_above(self, frame: Any) -> str:
        """The name of the module whose forward runs nearest above a frame; "" for none."""
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, torch.nn.Module) and id(owner) in self._modules:
                return self._modules[id(owner)]
            frame = frame.f_back
        return ""

    def name_of(self, tensor: torch.Tensor) -> str:
        """The name of a parameter or buffer; "" for any other tensor."""
        return self._names.get(id(tensor), "")

    def _begin(self, function: Any, preserve: bool) -> LoggedCall:
        call = LoggedCall(waiting_place(sys._getframe(1)), preserve, bool(getattr(function, "__closure__", None)))
        self.calls.append(call)
        return call

    @contextmanager
    def _forward(self, call: LoggedCall) -> Iterator[None]:
        drawn, state = foreign_random_state(), self._state()
        with _Notes(self, call.forward):
            yield
        call.draws_elsewhere = have_drawn(drawn)
        call.moves_itself = self._state() != state

    def _recompute(self, call: LoggedCall, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            call.again = []
            with _Notes(self, call.again):
                return function(*args, **kwargs)

        return run

    def _state(self) -> str:
        plain = [str(plain_attributes(module)) for module in self._model.modules()]
        return str((plain, [buffer._version for buffer in self._model.buffers()]))


class _Reentrant:
    """Stands as ``CheckpointFunction``."""

    def __init__(self, log: RecomputeLog, kind: Any) -> None:
        self._log = log
        self._kind = kind

    def apply(self, function: Any, preserve: bool, *args: Any) -> Any:
        """What the class itself does, each run of the function noted."""
        call = self._log._begin(function, preserve)
        call.cuts_off = not any(isinstance(value, torch.Tensor) and value.requires_grad for value in args)
        again = self._log._recompute(call, function)
        ran = False

        def run(*given: Any) -> Any:
            nonlocal ran
            if ran:
                return again(*given)
            ran = True
            with self._log._forward(call):
                return function(*given)

        return self._kind.apply(run, preserve, *args)


class _Notes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes each operator that runs under it to a list."""

    def __init__(self, log: RecomputeLog, ops: list[Op]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._log = log
        self._ops = ops
        self._made: set[int] = set()
        self._kept: list[torch.Tensor] = []  # an id is one tensor's only while that is alive

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = list(tree_iter((args, kwargs or {})))
        outside = tuple(
            Outside(self._log.name_of(leaf), contents(leaf))
            for leaf in leaves
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._made
        )
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_iter(result) if isinstance(leaf, torch.Tensor)]
        self._made |= set(map(id, made))
        self._kept += made
        frame = sys._getframe(1)
        self._ops.append(Op(
            str(func), outside, tuple(_word(leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor)),
            _results(str(func), made), torch.Tag.nondeterministic_seeded in func.tags,
            self._log.module_above(frame), waiting_place(frame),
        ))  # fmt: skip
        return result


def _results(name: str, made: list[torch.Tensor]) -> tuple[str, ...]:
    """The contents of the first result: the others are masks, seeds and scratch, some of them never written."""
    return () if not made or "empty" in name else (contents(made[0]),)


def _word(value: object) -> str:
    return "a generator" if isinstance(value, torch.Generator) else repr(value)


def contents(tensor: torch.Tensor) -> str:
    """A digest of shape, type and every bit of a tensor; of one without memory, the first two."""
    told = f"{tuple(tensor.shape)} {tensor.dtype}"
    if tensor.device.type == "meta" or tensor.layout is not torch.strided:
        return told
    # A copy: NumPy makes the storage that it looks into one that FSDP cannot resize.
    part = local_shard(tensor.detach()).to("cpu", copy=True).contiguous().reshape(-1)
    bits = part.view(torch.uint8).numpy().tobytes()
    return f"{told} {hashlib.blake2b(bits, digest_size=16).hexdigest()}"
