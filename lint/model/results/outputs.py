"""What comes out of a checkpointed region: the calls that run one, and what is computed from their results."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.parameters import positional_names
from ...facts.values import Function, Guess, Instance, Method, Result, equals, options, same
from ..calls.call_targets import call_targets
from ..conditions.guards import excludes_mode, own_guards, tests_training
from ..events import ApplyCheckpointing, Checkpointing, HfEnable, ModeSwitch, TrainerBuild
from ..flow.ordering import surely_before
from ..libraries.sharding import root
from ..libraries.trainer import enable_reentrant
from ..libraries.trainer_steps import reentrant_trainers
from ..state.modes import Modes
from ..tensors.gradient_free import is_always_gradient_free
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, Guard, Value
    from ...facts.walk import Write
    from ..events import Event
    from ..run import Run


class Forward(NamedTuple):
    """A call that runs a checkpointed region, and what checkpoints it."""

    call: Call
    cause: Event


def forwards(run: Run, calls: Iterable[Call], *, reentrant: bool) -> Iterator[Forward]:
    """Those of ``calls`` that certainly run a region of this variant: a checkpoint, or what contains one."""
    if reentrant and run.is_compiled:
        return
    events = {event.node: event for event in run.replayed(Checkpointing) if event.reentrant is reentrant}
    enables = [enable for enable in run.of(HfEnable) if enable_reentrant(run, enable) is reentrant]
    for call in calls:
        if is_always_gradient_free(call):
            continue
        if call.node in events:
            yield Forward(call, events[call.node])
            continue
        cause: Event | None = _inside(run, call, events) or _applied(run, call, events) or _enabled(run, call, enables)
        if cause is None and reentrant:
            cause = reentrant_trainers(run, call)
        if cause is not None:
            yield Forward(call, cause)


def _inside(run: Run, call: Call, events: dict[ast.Call, Checkpointing]) -> Checkpointing | None:
    if not events:
        return None
    called = [unwrapped(option) for option in options(call.func)]
    if not all(isinstance(option, Instance | Function | Method) for option in called):
        return None
    inside = [found for found in run.bodies.of(*called).calls if found.node in events]
    objects = [option for option in called if isinstance(option, Instance)]
    if any(option.guess is Guess.ONLY for option in objects):
        return None  # Nothing shows that `model` is this one.
    if any(option.call is None for option in objects):
        # Nor how a parameter, or `self`, was built.
        inside = [found for found in inside if all(map(tests_training, found.place.guards))]
    return next((events[found.node] for found in inside if not is_passed_over(run, call, found)), None)


def is_passed_over(run: Run, call: Call, checkpoint: Call) -> bool:
    """Whether the program switches off the condition around ``checkpoint``, which ``call`` leads to.

    By `eval()` in the function of ``call``, by an attribute that it sets to something else, or by an argument.
    """
    for guard in own_guards(checkpoint.place):
        if excludes_mode(guard, training=False) and any(
            switch.on is False and switch.order < call.order and switch.place.function is call.place.function
            for switch in run.of(ModeSwitch)
        ):
            return True
        asked = {part.attr for part in ast.walk(guard.test) if isinstance(part, ast.Attribute)}
        if any(write.field in asked and equals(write.value, guard.taken) is not True for write in _switched(run)):
            return True
        if _is_told_otherwise(call, checkpoint, guard):
            return True
    return False


def _switched(run: Run) -> Iterator[Write]:
    """The writes to attributes, but those of constructors."""
    for write in run.writes:
        function = write.place.function
        if not write.is_item and (function is None or function.name != "__init__"):
            yield write


def _is_told_otherwise(call: Call, checkpoint: Call, guard: Guard) -> bool:
    """Whether ``call`` gives the parameter that is the condition around ``checkpoint`` a constant against it."""
    test, taken = guard.plain
    for target in call_targets(unwrapped(call.func)) if isinstance(test, ast.Name) else ():
        if isinstance(test, ast.Name) and checkpoint.place.function is target.function:
            names = target.parameters()
            place = names.index(test.id) if test.id in names else len(call.args)
            if equals(call.argument(place, test.id), not taken) is True:
                return True
    return False


def _applied(run: Run, call: Call, events: dict[ast.Call, Checkpointing]) -> Checkpointing | None:
    """What wrapped blocks of the model that is called, and found some."""
    for event in events.values():
        if not isinstance(event, ApplyCheckpointing) or not same(unwrapped(event.model), unwrapped(call.func)):
            continue
        if surely_before(event.call, call) and run.region(event).functions:
            return event
    return None


def _enabled(run: Run, call: Call, enables: list[HfEnable]) -> HfEnable | None:
    if not isinstance(call.func, Result):
        return None
    for enable in enables:
        if root(enable.model) is root(call.func) and not enable.place.excludes(call.place):
            return None if _runs_in_eval(run, call) else enable
    return None


def _runs_in_eval(run: Run, call: Call) -> bool:
    """Whether ``call`` runs a model of transformers in eval mode, as it is loaded: it checkpoints nothing then."""
    model = root(call.func)
    if not isinstance(model, Result) or any(run.of(TrainerBuild)):
        return False
    modes = Modes(run, model)
    return not modes.escapes and modes.eval_at(call) is not None


def given_back(run: Run, forward: Forward) -> Iterator[Forward]:
    """The calls of the program's functions that give back what they compute from the result of ``forward``."""
    *outer, inner = run.path_to(forward.call) or [forward.call]
    for call in reversed(outer):
        function = inner.place.function
        returns = run.program.returns.get(function.node, []) if function is not None else []
        written = [it.node.value for it in returns if isinstance(it.node, ast.Return)]
        if not written or not all(it is not None and _gives(run, function, inner, it) for it in written):
            return
        yield Forward(call, forward.cause)
        inner = call


def _gives(run: Run, function: Function | None, call: Call, returned: ast.expr) -> bool:
    return Derived(run, function, [call], returned).holds(returned)


class Derived:
    """What the names of one function hold of the results of ``calls`` when ``place`` is reached, line by line."""

    __slots__ = ("_names", "_sources")

    def __init__(self, run: Run, function: Function | None, calls: list[Call], place: ast.expr) -> None:
        self._sources = {call.node for call in calls}
        self._names: set[str] = set()
        body = run.program.tree if function is None else function.node
        assignments = [node for node in ast.walk(body) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]
        for assignment in sorted(assignments, key=lambda node: node.lineno):
            if assignment.lineno < place.lineno and assignment.value is not None:
                self._assign(assignment, assignment.value)

    def _assign(self, assignment: ast.Assign | ast.AnnAssign | ast.AugAssign, value: ast.expr) -> None:
        targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
        names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        if self.holds(value):
            self._names |= names
        elif not isinstance(assignment, ast.AugAssign):
            self._names -= names

    def holds(self, expression: ast.AST) -> bool:
        """Whether ``expression`` is computed from one of the results, with its gradient."""
        if _is_cut(expression):
            return False
        nodes = ast.walk(expression)
        return any(node in self._sources or (isinstance(node, ast.Name) and node.id in self._names) for node in nodes)

    def holds_all(self, expression: ast.expr) -> bool:
        """Whether :meth:`holds` is true of ``expression``, of each element where it is a list."""
        parts = expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]
        return bool(parts) and all(map(self.holds, parts))


def feeds(run: Run, module: Value, event: Checkpointing) -> bool:
    """Whether what ``module`` gives goes into the region of ``event``, a call in the same function."""
    function, wanted = event.place.function, unwrapped(module)
    calls = [call for call in run.program.calls if call.place.function is function]
    calls = [call for call in calls if any(same(unwrapped(option), wanted) for option in options(call.func))]
    derived = Derived(run, function, calls, event.call.node) if calls else None
    given = (*event.call.node.args[1:], *(word.value for word in event.call.node.keywords))
    return derived is not None and any(map(derived.holds, given))


def _is_cut(expression: ast.AST) -> bool:
    """Whether the gradient of something in ``expression`` is cut off."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("detach", "item", "no_grad") for node in ast.walk(expression)
    )


def passed_from(run: Run, call: Call, given: ast.expr) -> Iterator[tuple[Function | None, ast.expr, Call]]:
    """Where ``given``, in an argument of ``call``, comes from: the functions, the expressions and the calls there.

    A parameter that the function has not bound anew is what its caller gave.
    """
    way = run.path_to(call)
    for depth, there in enumerate(reversed(way)):
        yield there.place.function, given, there
        outer = way[-2 - depth] if depth + 1 < len(way) else None
        function = there.place.function
        found = _argument_of(outer, function, given) if outer is not None and function is not None else None
        if found is None:
            return
        given = found


def _argument_of(call: Call, function: Function, given: ast.expr) -> ast.expr | None:
    """What ``call`` of ``function`` passes for the parameter that ``given`` is computed from alone."""
    names = {part.id for part in ast.walk(given) if isinstance(part, ast.Name)}
    parameters = positional_names(function.node)
    stored = {
        part.id for part in ast.walk(function.node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    asked = [name for name in parameters if name in names and name not in stored]
    if len(asked) != 1 or _is_cut(given) or any(isinstance(part, ast.Starred) for part in call.node.args):
        return None
    return call.written_arguments(parameters[function.owner is not None :]).get(asked[0])
