"""Results of checkpoints that a loss gets detached, and nothing else of it has a gradient."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

from ...facts.objects.classes import method_of
from ...facts.values import Class, Element, Function, Instance, Param, Result, options, same
from ..calls.own_forward import written_out
from ..events import Checkpoint, Detach
from ..flow.frames import call_beside
from ..frozen.freezing import may_be_frozen
from ..frozen.optimized import are_left_out, are_optimized
from ..names import canonical
from ..state.lightning_training import is_in_training_step
from ..tensors.gradient_free import is_gradient_free, may_lack_graph
from ..types import prepares, same_object

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Sequence

    from ...facts.values import Call, Value
    from ..run import Run

#: A call that gives something on, and the one inside of it whose result that is.
_Way: TypeAlias = "tuple[Call, Call | None]"
#: What trains nothing by itself.
_FUNCTIONS = (
    *("torch.", "builtins.", "math.", "numpy.", "datasets.", "transformers.AutoTokenizer", "transformers.get_"),
    *("accelerate.", "lightning.Fabric", "pytorch_lightning.Fabric"),
)
_TENSOR_METHODS = frozenset(
    (
        *("mean", "sum", "pow", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "float"),
        *("to", "cuda", "cpu", "half", "double", "contiguous", "clone", "detach", "norm", "abs", "square"),
        *("log", "exp", "parameters", "named_parameters", "train", "requires_grad_"),
    )
)


def cut_off_from_loss(run: Run, cut: Call, source: Checkpoint) -> Call | None:
    """The backward pass whose loss gets what ``source`` gave only as ``cut`` detached it, and nothing else that trains.

    A target that is detached stands beside something that trains, and an optimizer does not get what gives it. For a
    loss that a training step of Lightning returns, it is the call of that step that comes to ``cut``.
    """
    given = call_beside(run, source.call, cut) or source.call
    if is_gradient_free(cut) or cut.place.deeper_than(given.place) or not may_train(run, source):
        return None
    if learns_beside(run, cut, source) or _may_learn_elsewhere(run, source):
        return None
    ways = list(_given_by(run, cut))
    return next(_losses(run, ways), None) or next(_returned_losses(run, ways), None)


def learns_beside(run: Run, cut: Call, source: Checkpoint) -> bool:
    """Whether a loss, or the caller, gets what ``source`` gave besides what ``cut`` leaves of it."""
    given = call_beside(run, source.call, cut) or source.call
    return run.losses.is_returned(given) or any(run.losses.fed_by(source.call))


def _may_learn_elsewhere(run: Run, source: Checkpoint) -> bool:
    """Whether some loss may have a gradient to what ``source`` gives another time, when nothing cuts it off."""
    alike = (it for it in run.of(Checkpoint) if it.node is source.node or _runs_elsewhere(it, source))
    open_ends = (it for it in alike if it.call not in _cut_off(run) and not is_gradient_free(it.call))
    return any(not _is_given_to_nobody(run, event.call) for event in open_ends)


@lru_cache(maxsize=1)
def _cut_off(run: Run) -> frozenset[Call]:
    """What gives something that is detached somewhere."""
    return frozenset(call for event in run.of(Detach) for call in computed_from(run, event.source))


def _runs_elsewhere(event: Checkpoint, source: Checkpoint) -> bool:
    """Whether another function than that of ``source`` runs its module; in one, it may be another layer of a list."""
    return event.place.function is not source.place.function and same(event.function, source.function)


def _is_given_to_nobody(run: Run, call: Call) -> bool:
    """Whether ``call`` is what a function returns that nobody calls."""
    function = call.place.function
    asked = function is None or function.name in ("forward", "training_step")
    return not asked and len(run.path_to(call)) == 1 and run.losses.is_returned(call)


def _losses(run: Run, ways: list[_Way]) -> Iterator[Call]:
    """The backward passes that get what one of ``ways`` gives, and nothing else that trains."""
    for given, inner in ways:
        module = same_object(given.func)
        is_meant_to_train = isinstance(module, Instance) and are_optimized(run, module)
        for sink in run.detached_losses.fed_by(given):
            beside = run.detached_losses.beside(given, sink)
            if inner is not None and not run.detached_losses.takes_element(inner, given, sink):
                continue
            if not may_lack_graph(given, sink) and (is_meant_to_train or not _some_train(run, beside, ways)):
                yield sink


def _returned_losses(run: Run, ways: list[_Way]) -> Iterator[Call]:
    """The calls in training steps of Lightning whose results, one of ``ways``, are all that the loss comes from."""
    if any(write.field == "automatic_optimization" for write in run.writes):
        return
    for given, inner in ways:
        path = run.path_to(given)
        start = next((depth for depth, call in enumerate(path) if is_in_training_step(call)), len(path))
        if path[start:] and all(map(run.detached_losses.is_returned, path[start:])):
            beside = run.detached_losses.beside_returned(path[start])
            is_whole = inner is None or run.detached_losses.takes_element(inner, given, None)
            if is_whole and not is_gradient_free(path[start]) and not _some_train(run, beside, ways):
                yield path[start]


def _some_train(run: Run, beside: list[ast.Call], ways: list[_Way]) -> bool:
    return any(_trains(run, node) for node in beside if not any(given.node is node for given, _ in ways))


def computed_from(run: Run, value: Value) -> Iterator[Call]:
    """The calls that ``value`` is the result of, or is computed of by what has no parameters: `h.mean(1)`."""
    waiting = [*options(value)]
    seen: set[Call] = set()
    while waiting:
        match waiting.pop(0):
            case Element(of=held):
                waiting += options(held)
            case Result(call) if call not in seen:
                seen.add(call)
                yield call
                if call.method in _TENSOR_METHODS:
                    # One of several tensors may be the object.
                    waiting += [option for way in run.calls_at(call.node) for option in options(way.receiver)]
                elif canonical(call.name).startswith("torch."):
                    waiting += options(call.argument(0))


def _given_by(run: Run, cut: Call, inner: Call | None = None, depth: int = 3) -> Iterator[_Way]:
    """The call, and those of the module whose `forward`, or what that leaves its work to, returns what it gives."""
    yield cut, inner
    for call in (cut, *run.path_to(cut)[-2::-1]) if depth else ():
        if not run.detached_losses.is_returned(call):
            return
        for forward in _forwards_of(run, call):
            yield from _given_by(run, forward, call, depth - 1)


def _forwards_of(run: Run, call: Call) -> Sequence[Call]:
    """The calls of the module in whose `forward`, or what that leaves its work to, ``call`` stands."""
    function = call.place.function
    owner = function.owner if function is not None else None
    forward = method_of(owner, "forward") if owner is not None else None
    if forward is None or function is None or written_out(forward, owner).node is not function.node:
        return ()
    return run.forwards.get(forward.node, ())


def may_train(run: Run, source: Checkpoint) -> bool:
    """Whether what the checkpoint runs is not frozen, and not left out of all optimizers, as far as that is shown."""
    modules = [option for option in options(source.function) if isinstance(option, Instance | Result | Element | Param)]
    return not may_be_frozen(run, *modules) and not are_left_out(run, *modules)


def _trains(run: Run, node: ast.Call) -> bool:
    """Whether what is called may have parameters that a gradient goes to; building a module gives it none."""
    return any(map(partial(_may_train, run), run.calls_at(node)))


def _may_train(run: Run, call: Call) -> bool:
    if isinstance(call.func, Function):
        inside = run.bodies.of(call.func)
        return bool(inside.modules) or any(_computes(it) for it in inside.calls) or not inside.calls
    return _computes(call) and not prepares(call)


def _computes(call: Call) -> bool:
    return (
        not isinstance(call.func, Class)
        and not canonical(call.name).startswith(_FUNCTIONS)
        and call.method not in _TENSOR_METHODS
    )
