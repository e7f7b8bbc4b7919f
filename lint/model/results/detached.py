"""Results of checkpoints that a loss gets detached, and nothing else of it has a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import method_of
from ...facts.values import Class, Element, Instance, Param, Result, options
from ..calls.own_forward import written_out
from ..frozen.freezing import may_be_frozen
from ..frozen.optimized import are_left_out, are_optimized
from ..names import canonical
from ..tensors.gradient_free import is_gradient_free, may_lack_graph
from ..types import same_object

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ...facts.values import Call, Value
    from ..events import Checkpoint
    from ..run import Run

#: What trains nothing by itself.
_FUNCTIONS = ("torch.", "builtins.", "math.", "numpy.")
_TENSOR_METHODS = frozenset(
    (
        *("mean", "sum", "pow", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "float"),
        *("to", "cuda", "cpu", "half", "double", "contiguous", "clone", "detach", "norm", "abs", "square"),
        *("log", "exp"),
    )
)


def cut_off_from_loss(run: Run, cut: Call, source: Checkpoint) -> Call | None:
    """The backward pass whose loss gets what ``source`` gave only as ``cut`` detached it, and nothing else that trains.

    A target that is detached stands beside something that trains, and an optimizer does not get what gives it.
    """
    if is_gradient_free(cut) or run.losses.is_returned(source.call) or any(run.losses.fed_by(source.call)):
        return None
    if not may_train(run, source):
        return None
    ways = list(_given_by(run, cut))
    for given in ways:
        module = same_object(given.func)
        is_meant_to_train = isinstance(module, Instance) and are_optimized(run, module)
        for sink in run.detached_losses.fed_by(given):
            beside = [node for node in run.detached_losses.beside(given, sink) if not _is_one_of(node, ways)]
            trains = not is_meant_to_train and any(_trains(run, node) for node in beside)
            if not may_lack_graph(given, sink) and not trains:
                return sink
    return None


def _is_one_of(node: ast.Call, calls: list[Call]) -> bool:
    return any(call.node is node for call in calls)


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


def _given_by(run: Run, cut: Call) -> Iterator[Call]:
    """The call, and those of the module whose `forward`, or what that leaves its work to, returns what it gives."""
    yield cut
    function = cut.place.function
    owner = function.owner if function is not None else None
    forward = method_of(owner, "forward") if owner is not None else None
    if forward is None or function is None or not run.detached_losses.is_returned(cut):
        return
    if written_out(forward, owner).node is function.node:
        yield from run.forwards.get(forward.node, ())


def may_train(run: Run, source: Checkpoint) -> bool:
    """Whether what the checkpoint runs is not frozen, and not left out of all optimizers, as far as that is shown."""
    modules = [option for option in options(source.function) if isinstance(option, Instance | Result | Element | Param)]
    return not may_be_frozen(run, *modules) and not are_left_out(run, *modules)


def _trains(run: Run, node: ast.Call) -> bool:
    """Whether what is called may have parameters that a gradient goes to; building a module gives it none."""
    return any(
        not isinstance(call.func, Class)
        and not canonical(call.name).startswith(_FUNCTIONS)
        and call.method not in _TENSOR_METHODS
        for call in run.calls_at(node)
    )
