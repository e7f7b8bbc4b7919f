"""From one call of a layer to its trace, on fake tensors: no memory, no random numbers, no side effects."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..attributes import AttributesBefore
from ..layer.calls import flatten, numbers_in, unflatten, with_numbers
from ..layer.fake_layer import fake_layer_of
from ..layer.slots import slots_of
from ..random_state import foreign_random_state, foreign_random_state_kept, have_drawn
from ..untraceable import UntraceableError, in_words
from .cached_results import caches_of_its_own
from .checks import RefusedError, recorded_with_every_answer
from .choices import with_single_choices
from .composites import python_composites
from .fake_mode import static_mode, symbolic_mode
from .ir import Trace
from .opaque import as_one_op, functions_behind
from .recorder import Recorder
from .symbols import SymbolicInputs
from .undisturbed import collections_after, interrupts_after
from .written_state import check_not_shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch._subclasses.fake_tensor import FakeTensorMode

    from ..layer.calls import LayerCall
    from ..layer.slots import Slot
    from .checks import Answers
    from .ir import Saved
    from .opaque import FunctionClass
    from .symbols import Guards

_DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


def trace_call(
    call: LayerCall,
    *,
    symbolic: bool = True,
    device: torch.device | None = None,
    free: frozenset[int] = frozenset(),
    in_python: bool = False,
) -> Trace:
    """Trace one call of a layer. Only the metadata of parameters and arguments is read, so meta tensors will do.

    ``symbolic`` makes one trace for all batch sizes and lengths. ``device`` traces as if on that device.
    ``free`` are positions among the ints in the arguments: they become symbols too. ``in_python`` takes composite ops
    apart in Python, which leaves more sizes open.
    Raises UntraceableError, with the reason, when the trace could not be faithful.
    """
    if device is not None and device.type == "cuda" and not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        # Fake tensors on a device that torch was built without end the process, not the call.
        raise UntraceableError("this build of torch knows no CUDA, so it cannot be planned for")
    try:
        with _without_torchs_log(), interrupts_after(), collections_after(), foreign_random_state_kept():
            before = foreign_random_state()
            with _unchanged(call.layer):
                recorder, endings, guards, slots = _recorded(call, symbolic, device, free, in_python)
            if have_drawn(before):  # what was drawn would be a constant of the trace
                raise UntraceableError("it draws from Python's or NumPy's random numbers", is_final=True)
    except UntraceableError:
        raise
    except RefusedError as refused:
        raise _obstacle(refused.error, is_final=not functions_behind(refused.error)) from refused
    except _DATA_DEPENDENT as error:
        # An autograd Function may be one op of another trace, whatever it asks.
        is_final = not isinstance(error, GuardOnDataDependentSymNode) and not functions_behind(error)
        raise UntraceableError(f"its shapes depend on data ({_op_of(error)})", is_final=is_final) from error
    except UnsupportedOperatorException as error:
        raise UntraceableError(f"{_op_of(error)} cannot run on fake tensors") from error
    except Exception as error:
        # Whatever a kernel or a layer raises on fake tensors, the layer itself is fine.
        raise _obstacle(error) from error
    return Trace(
        class_name=type(call.layer).__name__,
        symbolic=symbolic,
        guards=guards,
        values=tuple(recorder.values),
        buffers=tuple(recorder.buffers),
        ops=tuple(with_single_choices(recorder.ops, recorder.values)),
        packs=tuple(recorder.packs),
        constants=tuple(recorder.constants),
        slots=slots,
        endings=endings,
    )


def _recorded(
    call: LayerCall, symbolic: bool, device: torch.device | None, free: frozenset[int], in_python: bool
) -> tuple[Recorder, tuple[tuple[Saved, ...], ...], Guards, tuple[str, ...]]:
    """The record; autograd Functions that cannot run on fake tensors are found one by one, and are one op each."""
    opaque: tuple[FunctionClass, ...] = ()
    while True:
        try:
            return _record(call, symbolic, device, free, in_python, opaque)
        except Exception as error:
            # Symbols cannot run for real, and another device than the layer's may be none of this machine's.
            # An error with a name in this frame would hold it, the frame the error, and both what the forward holds.
            found = () if symbolic or device is not None else functions_behind(getattr(error, "error", error))
            if not found or found[0] in opaque:
                raise
            opaque += found


def _record(
    call: LayerCall,
    symbolic: bool,
    device: torch.device | None,
    free: frozenset[int],
    in_python: bool,
    opaque: tuple[FunctionClass, ...],
) -> tuple[Recorder, tuple[tuple[Saved, ...], ...], Guards, tuple[str, ...]]:
    leaves: list[torch.Tensor] = []
    structure = flatten((call.args, call.kwargs), leaves)
    slots = slots_of(call.layer)
    mode = symbolic_mode() if symbolic else static_mode()
    inputs = SymbolicInputs(mode, device)
    fakes = [inputs.fake(leaf) for leaf in leaves]
    values = tuple(numbers_in(structure))
    numbers = [inputs.number(n, i) if i in free else n for i, n in enumerate(values)]
    given = _Given(with_numbers(structure, iter(numbers)), fakes, slots, device)

    def run(answers: Answers) -> Recorder:
        with python_composites() if in_python else nullcontext():
            return _run(call, given, mode, opaque, answers)

    recorder, endings = recorded_with_every_answer(run)
    return recorder, endings, inputs.guards(leaves, values), tuple(slot.path for slot in slots)


@dataclass(frozen=True, slots=True)
class _Given:
    """What every run of one trace is given: the arguments, by their structure and fake tensors, and the layer's slots.

    The layer is traced as if on ``device``.
    """

    structure: Any
    fakes: list[torch.Tensor]
    slots: tuple[Slot, ...]
    device: torch.device | None


def _run(
    call: LayerCall, given: _Given, mode: FakeTensorMode, opaque: tuple[FunctionClass, ...], answers: Answers
) -> Recorder:
    """Run the layer on fake tensors once."""
    scopes: list[tuple[str, torch.nn.Module]] = []
    fake_layer, parameters = fake_layer_of(
        call.layer, given.slots, mode, lambda name, module: scopes.append((name, module)), given.device
    )
    recorder = Recorder(given.fakes, parameters, given.slots, answers)
    for name, module in scopes:
        recorder.scope(name, module)
    args, kwargs = unflatten(given.structure, given.fakes)
    cached = torch.is_autocast_cache_enabled()
    try:
        torch.set_autocast_cache_enabled(False)  # a cache of fake weights would outlive the trace
        with (
            caches_of_its_own(call.layer, recorder.ops),
            mode,
            recorder,
            torch.enable_grad(),
            as_one_op(opaque, recorder),
            torch.autograd.graph.saved_tensors_hooks(recorder.pack, _read_in_the_forward),
        ):
            call.on(fake_layer, args, kwargs)
    finally:
        torch.set_autocast_cache_enabled(cached)
    answers.check()
    recorder.check()
    check_not_shared(recorder.written_slots, given.slots)
    return recorder


@contextmanager
def _unchanged(layer: torch.nn.Module) -> Iterator[None]:
    """Inside, a run of the copy of ``layer`` changes nothing of the layer itself, which is as it was when it ends."""
    before = AttributesBefore(layer, copies=False)
    try:
        yield
    finally:
        is_changed = not before.are_current()
        if is_changed:
            before.put()
    if is_changed:
        what = "an object in a container, an array, a random number generator, or another module's attribute"
        raise UntraceableError(f"it changes {what}", is_final=True)


def _read_in_the_forward(tensor: torch.Tensor) -> NoReturn:
    raise UntraceableError("its forward runs a backward of its own")


@contextmanager
def _without_torchs_log() -> Iterator[None]:
    """Torch logs a traceback where a kernel has no symbolic sizes (torch/_subclasses/fake_tensor.py).

    The trace says it as its reason, and only where no other way to trace the layer is left.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _obstacle(error: Exception, *, is_final: bool = False) -> UntraceableError:
    return UntraceableError(f"it could not be traced ({in_words(error)})", is_final=is_final)


def _op_of(error: Exception) -> str:
    return str(getattr(error, "func", "")) or str(error).splitlines()[0]
