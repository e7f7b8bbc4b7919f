"""``torch.autograd.Function``s that cannot run on fake tensors (Liger's, Unsloth's, FLA's kernels): each is one op.

Its inputs are its arguments; its results are its outputs and what it saved besides. To rebuild one of these its forward
runs again, on a context that nobody reads. Such a trace holds for one set of shapes.
"""

from __future__ import annotations

import inspect
import threading
import types
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, _is_setup_context_defined
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_iter, tree_unflatten

from ..layer.fake_layer import fake_like
from ..untraceable import UntraceableError
from .made_up import anew, fresh_of, outcome_of, windows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import CodeType

    from .made_up import Outcome, Window
    from .recorder import Recorder

#: Arguments that mean the same in every call.
_PLAIN = (
    int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, type, types.FunctionType,
    types.BuiltinFunctionType,
)  # fmt: skip

FunctionClass = type[Function]


def functions_behind(error: BaseException) -> tuple[FunctionClass, ...]:
    """The innermost autograd Function in whose forward an error was raised, and those that share this forward."""
    codes = []
    frame = error.__traceback__
    while frame is not None:
        codes.append(frame.tb_frame.f_code)
        frame = frame.tb_next
    functions: dict[CodeType | None, tuple[FunctionClass, ...]] = {}
    for function in _subclasses(Function):
        functions[_code_of(function)] = (*functions.get(_code_of(function), ()), function)
    return next((functions[code] for code in reversed(codes) if code in functions), ())


def _code_of(function: FunctionClass) -> CodeType | None:
    return getattr(inspect.unwrap(function.forward), "__code__", None)


def _subclasses(function: FunctionClass) -> Iterator[FunctionClass]:
    for found in function.__subclasses__():
        yield found
        yield from _subclasses(found)


@contextmanager
def as_one_op(functions: Sequence[FunctionClass], recorder: Recorder) -> Iterator[None]:
    """Inside, on this thread, each of these Functions is one op of the trace that ``recorder`` makes."""
    forwards = {function: function.forward for function in functions}  # some may inherit the forward of others
    with ExitStack() as stack:
        for function, forward in forwards.items():
            stack.enter_context(_replaced(function, forward, recorder))
        yield


@contextmanager
def _replaced(function: FunctionClass, original: Callable[..., Any], recorder: Recorder) -> Iterator[None]:
    # THPFunction_apply looks ``forward`` up on the class at every call (torch/csrc/autograd/python_function.cpp).
    thread, own = threading.get_ident(), function.__dict__.get("forward")

    def forward(*args: Any) -> Any:
        ctx, *rest = (None, *args) if _has_own_setup(function) else args
        traced = any(isinstance(leaf, FakeTensor) for leaf in tree_iter(rest))
        if not traced or threading.get_ident() != thread:  # a run of this op, or of one that it is part of
            return original(*args)
        return _one_op(function, ctx, tuple(rest), recorder)

    function.forward = staticmethod(forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        if own is None:
            del function.forward
        else:
            function.forward = own  # type: ignore[method-assign]


def _has_own_setup(function: FunctionClass) -> bool:
    """Whether ``forward`` is given no context: ``setup_context`` is."""
    return bool(_is_setup_context_defined(function.setup_context))  # type: ignore[no-untyped-call]


def _one_op(function: FunctionClass, ctx: FunctionCtx | None, args: tuple[Any, ...], recorder: Recorder) -> Any:
    """Record the op and return fake results, with what the Function said of them to its context."""
    leaves, spec = tree_flatten(args)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    strange = next((leaf for leaf in leaves if not isinstance(leaf, (torch.Tensor, *_PLAIN))), None)
    if strange is not None:
        raise UntraceableError(f"{function.__name__} is given a {type(strange).__name__}")
    again = RunAgain(function, getattr(ctx, "needs_input_grad", ()), _autocast_of(tensors))
    results: list[_Results] = []

    def call(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        real = iter(given)
        arguments = [next(real) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        results[:] = [again.run(*tree_unflatten(arguments, spec))]
        return results[0].tensors

    try:
        outcome = outcome_of(call, tensors)
    except UntraceableError as error:
        raise UntraceableError(f"{function.__name__} cannot run again: {error.reason}") from error
    fresh = _fakes(outcome, tensors)
    if fresh:
        again = replace(again, made=anew(outcome.windows, len(tensors)))
        recorder.note(again, args, fresh, outcome.flops, outcome.drawn)
    return results[0].repeat(ctx, _on_bases(outcome, tensors, fresh))


def _autocast_of(tensors: Sequence[torch.Tensor]) -> tuple[str, torch.dtype] | None:
    kind = tensors[0].device.type if tensors else "cpu"
    return (kind, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None


def _fakes(outcome: Outcome, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A fake tensor for each storage that the call made."""
    mode = next(tensor for tensor in tensors if isinstance(tensor, FakeTensor)).fake_mode
    with _disable_current_modes():
        return [fake_like(tensor.detach(), mode) for tensor in outcome.fresh]


def _on_bases(outcome: Outcome, tensors: Sequence[torch.Tensor], fresh: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A fake tensor for all that came out: what went in, what stands for a storage, and views of both."""
    bases = [*tensors, *fresh]
    results = []
    for window in outcome.windows:
        base = bases[window.base]
        if window.base < len(tensors):
            is_base = window.given is not None
        else:
            is_base = (tuple(base.shape), base.stride(), 0) == (window.shape, window.stride, window.offset)
        offset = base.storage_offset() + window.offset
        results.append(base if is_base else base.as_strided(window.shape, window.stride, offset))
    return results


@dataclass(frozen=True, slots=True)
class _Results:
    """What a forward returned, and what it told its context; tensors by their places in ``tensors``."""

    tensors: list[torch.Tensor]
    returned: Any
    saved: tuple[int | None, ...]
    without_gradient: tuple[int, ...]

    def repeat(self, ctx: FunctionCtx | None, tensors: Sequence[torch.Tensor]) -> Any:
        """Tell ``ctx`` the same of other tensors, and return them in the same way."""
        if ctx is not None:
            saved = [None if place is None else tensors[place] for place in self.saved]
            ctx.save_for_backward(*saved)  # type: ignore[arg-type]
            ctx.mark_non_differentiable(*(tensors[place] for place in self.without_gradient))
        other = {id(ours): theirs for ours, theirs in zip(self.tensors, tensors, strict=True)}
        if isinstance(self.returned, tuple):
            return tuple(other.get(id(item), item) for item in self.returned)
        return other[id(self.returned)]


def _results_of(ctx: FunctionCtx, returned: Any) -> _Results:
    if getattr(ctx, "dirty_tensors", ()):
        raise UntraceableError("it writes a tensor that it is given")
    saved, silent = getattr(ctx, "to_save", ()), getattr(ctx, "non_differentiable", ())
    items = (*(returned if isinstance(returned, tuple) else (returned,)), *saved, *silent)
    tensors = list({id(item): item for item in items if isinstance(item, torch.Tensor)}.values())
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    return _Results(tensors, returned, tuple(places.get(id(t)) for t in saved), tuple(places[id(t)] for t in silent))


@dataclass(frozen=True, slots=True, eq=False)
class RunAgain:
    """The op: runs the Function's forward and returns, for each storage that it makes, a tensor on it.

    ``made`` says which tensors that is when it was traced; what else is made is an error.
    """

    function: FunctionClass
    needs_input_grad: tuple[bool, ...]
    autocast: tuple[str, torch.dtype] | None
    made: tuple[Window | None, ...] = ()

    def __str__(self) -> str:
        return self.function.__qualname__

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """What the rebuild calls."""
        given = [leaf for leaf in tree_flatten(args)[0] if isinstance(leaf, torch.Tensor)]
        results = self.run(*args).tensors
        fresh = fresh_of(results, given)
        if anew(windows_of(results, given, fresh), len(given)) != self.made:
            raise RuntimeError(
                f"{self} makes other tensors than when it was traced, so its forward depends on what its tensors hold: "
                "leave this layer out of the policy"
            )
        return fresh

    def run(self, *args: Any) -> _Results:
        """The forward, on a context of its own, under the autocast that it was traced under."""
        ctx = FunctionCtx()
        ctx.needs_input_grad = self.needs_input_grad  # type: ignore[attr-defined]
        contexts = () if _has_own_setup(self.function) else (ctx,)
        with self._autocast(), torch.no_grad():
            return _results_of(ctx, self.function.forward(*contexts, *args))

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        kind, dtype = self.autocast
        return torch.autocast(kind, dtype=dtype, cache_enabled=False)
