"""A checkpoint inside the region of another one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import attributes_in as names_of_attributes
from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes
from ...facts.objects.classes import ancestors, method_of
from ...facts.values import Class, Instance, Method, Result, options
from ..calls.call_targets import call_targets
from ..calls.put_back import given_for
from ..conditions.constructed import comes_out_as
from ..conditions.first_iteration import depends_on_iteration
from ..conditions.guards import own_guards, own_loops, tests_gradients, tests_training
from ..events import BlockWrapping, Checkpoint, Checkpointing, CheckpointSequential, CheckpointWrap
from ..flow.iterations import goes_through_all
from ..flow.mentions import attributes_in
from ..names import canonical
from ..tensors.gradient_free import is_gradient_free
from .bodies import classes_checked
from .free_variables import names_bound_by
from .given_parameters import NOTHING_GIVEN, GivenParameters
from .residuals import is_residual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function, Guard, Value
    from ..run import Run

#: Modules that keep nothing for the backward pass, or nothing that costs.
_KEEPS_NOTHING = ("Identity", "Dropout", "Flatten", "Unflatten")
#: Attributes that say in which mode a module runs, or autograd.
_MODES = frozenset(("training", "is_grad_enabled"))
#: How many calls of the file are followed from a checkpointed block to a part that checkpoints itself.
_DEPTH = 3
#: Of how many parts a block is made at most that are checkpointed by themselves; more are a stage.
_PARTS = 3


def nested_checkpoint(run: Run, outer: Checkpointing) -> Nested | None:
    """The checkpoint that certainly runs inside ``outer`` and makes its own region run a third time; None for none."""
    inner = _inner_checkpoint(run, outer)
    if inner is None:
        return None
    # A function that others give other blocks to is right for those.
    several = len({other.place.stack for other in run.calls_at(outer.node)}) > 1
    at = _call_in_loop(run, outer) if several and isinstance(outer, Checkpoint) else None
    return Nested(outer.node if at is None else at.node, inner)


def _inner_checkpoint(run: Run, outer: Checkpointing) -> ast.AST | None:
    targets = [part.function for value in _checkpointed(run, outer) for part in call_targets(value)]
    if not targets or attributes_in(run.program).may_set("forward"):
        return None
    events = {id(event.node): event for event in run.of(Checkpointing)}
    search = _Search(run, outer, events, _given_by(outer))
    return next(filter(None, (search.inside(function, False, _DEPTH) for function in targets)), None)


def _given_by(outer: Checkpointing) -> GivenParameters:
    """What ``outer`` gives for the parameters of what it runs, or leaves to what they are bound to early."""
    if isinstance(outer, Checkpoint):
        return GivenParameters(outer.function, outer.inputs, outer.function_kwargs)
    return NOTHING_GIVEN


def _checkpointed(run: Run, outer: Checkpointing) -> list[Value]:
    match outer:
        case Checkpoint() if _call_in_loop(run, outer) is not None:
            return [outer.function]
        case Checkpoint():
            # One wrapper may be around blocks and around other modules.
            entered = options(outer.function)
            return [
                it for option in entered for it in (option, *_of_derived(run, outer, option)) if _is_one_of_many(it)
            ]
        case CheckpointWrap():
            return [outer.module]
        case BlockWrapping():
            accepted = classes_checked(outer.check, run.bodies)
            return [cls.instance for cls in accepted if isinstance(cls, Class)]
    return []


def _is_one_of_many(module: Value) -> bool:
    """Whether a loop builds the modules of which ``module`` is one: `[Wrapper(Block()) for _ in range(12)]`."""
    module = module.receiver if isinstance(module, Method) else module
    return isinstance(module, Instance) and module.call is not None and bool(module.call.place.loops)


def _of_derived(run: Run, outer: Checkpoint, method: Value) -> Iterator[Method]:
    """The method that ``outer`` is given, of each object that is made of a class that derives from its own.

    The class itself only says how its objects run: `def forward(self, x): return checkpoint(self.compute, x)`.
    """
    function = outer.place.function
    if not isinstance(method, Method) or not isinstance(method.receiver, Instance) or function is None:
        return
    if not _is_alike_for_all(function):
        return
    for call in run.program.calls:
        cls = call.func
        if isinstance(cls, Class) and method_of(cls, "forward") is function:
            own = method_of(cls, method.function.name)
            if own is not None and method.receiver.cls in (cls, *ancestors(cls)):
                yield Method(Instance(cls, call), own, call.node)


def _is_alike_for_all(forward: Function) -> bool:
    """Whether the conditions in ``forward`` ask for a mode alone, for nothing that only some objects have."""
    tests = (node.test for node in all_nodes(forward.node) if isinstance(node, ast.If | ast.IfExp))
    return all(names_of_attributes(test) <= _MODES and names_in(test) <= {"self", "torch"} for test in tests)


def _call_in_loop(run: Run, outer: Checkpoint) -> Call | None:
    """The call, of ``outer`` or of a function that makes it, whose loop checkpoints another block in each iteration.

    One around a whole model is another matter.
    """
    given = outer.node.args[0] if outer.node.args else None
    for call in reversed(run.path_to(outer.call)):
        if given is None:
            return None
        read = names_in(given)
        if any(not read.isdisjoint(names_bound_by(loop)) for loop in call.place.loops):
            return call
        function, caller = call.place.function, _caller(run, call)
        given = given_for(function, caller, given) if function is not None and caller is not None else None
    return None


def _caller(run: Run, call: Call) -> Call | None:
    callers = run.callers_of(call.place)
    return callers[-1] if callers else None


class Nested(NamedTuple):
    """A checkpoint around a block that checkpoints a part of itself."""

    #: The outer checkpoint, or the call of the function that makes it for others too.
    node: ast.Call
    inner: ast.AST


class _Search(NamedTuple):
    """The search for checkpoints that always run, once, inside ``outer``."""

    run: Run
    outer: Checkpointing
    events: dict[int, Checkpointing]
    #: What `outer` gives for the parameters of what it runs.
    given: GivenParameters

    def inside(self, function: Function, is_followed: bool, depth: int) -> ast.AST | None:
        """The inner checkpoint in the body of ``function``, or of what that surely calls.

        Several of them, one after the other, make a stage, which a checkpoint may be around on purpose: then None.
        Those that are added to what they get are the layers of one block, as a few modules of different classes are.

        Args:
            function: What runs inside ``outer``.
            is_followed: Whether work that keeps tensors surely follows it there.
            depth: How many calls further down are looked at.
        """
        calls = self.run.bodies.calls_in(function)
        checkpointed = {call.node for call in calls if self._checkpoints(call, calls, depth)}
        are_layers = len(checkpointed) < 2 or all(is_residual(node, function.node) for node in checkpointed)
        if not are_layers and not _are_parts([call for call in calls if call.node in checkpointed]):
            return None
        for call in calls:
            inner = self.events.get(id(call.node)) or _wrapped_inside(self.run, call, self.outer)
            # The same wrapper may be around the block and around a part of it.
            is_other = inner is not None and (inner.node is not self.outer.node or depth < _DEPTH)
            is_inner = isinstance(inner, Checkpoint | CheckpointSequential | CheckpointWrap) and is_other
            called = self._called(call, calls) if inner is None and depth else None
            if (not is_inner and called is None) or not self._is_taken_once(call):
                continue
            keeps = is_followed or any(_keeps(other, call, self.events) for other in calls)
            if called is not None and (found := self.inside(called, keeps, depth - 1)) is not None:
                return found
            if inner is not None and is_inner and self._runs_thrice(inner, keeps):
                return inner.node
        return None

    def _checkpoints(self, call: Call, beside: list[Call], depth: int) -> bool:
        """Whether ``call`` is a checkpoint, or leads to one."""
        if id(call.node) in self.events or _wrapped_here(self.run, call) is not None:
            return True
        called = self._called(call, beside) if depth else None
        return called is not None and any(
            self._checkpoints(inner, inside, depth - 1)
            for inside in (self.run.bodies.calls_in(called),)
            for inner in inside
        )

    def _called(self, call: Call, beside: list[Call]) -> Function | None:
        """The one function of the file whose body ``call`` runs, each time that its text among ``beside`` is met."""
        targets = self._targets(call)
        if len(targets) != 1 or is_gradient_free(call):
            return None
        # What is one of several things is met once for each of them.
        met = {
            target.node if target is not None else None
            for it in beside
            if it.node is call.node
            for target in self._targets(it)
        }
        return targets[0] if len(met) == 1 else None

    def _targets(self, call: Call) -> list[Function | None]:
        """The functions that ``call`` may run; None for what the file does not show."""
        found: list[Function | None] = []
        for option in options(self.given.called_by(call)):
            found += [target.function for target in call_targets(option)] or [None]
        return found

    def _is_taken_once(self, call: Call) -> bool:
        """Whether every run in train mode of the function around ``call`` comes to it exactly once."""
        reached = self.run.region(self.outer).conditions
        guards = [*reached.get((call.node, ""), own_guards(call.place))]
        # A part may be in eval mode while what is around it trains.
        is_in_train = not guards or "eval" not in attributes_in(self.run.program).read
        return is_in_train and not any(own_loops(call.place)) and all(map(self._holds, guards))

    def _holds(self, guard: Guard) -> bool:
        """Whether the condition holds in train mode, in which the non-reentrant variant runs with gradients on."""
        if tests_training(guard) or comes_out_as(self.run, guard.test) is guard.taken:
            return True
        return self.outer.reentrant is False and tests_gradients(guard)

    def _runs_thrice(self, inner: Checkpointing, is_followed: bool) -> bool:
        variants = self.outer.reentrant, inner.reentrant
        return True in variants or (variants == (False, False) and is_followed)


def _are_parts(calls: list[Call]) -> bool:
    """Whether ``calls`` run a few modules of which no two are of one class: no block after block."""
    classes: dict[ast.Call, set[Class | None]] = {}
    for call in calls:
        found = {option.cls if isinstance(option, Instance) else None for option in options(call.func)}
        classes.setdefault(call.node, set()).update(found)
    kinds = set().union(*classes.values())
    return None not in kinds and len(kinds) == sum(map(len, classes.values())) == len(classes) <= _PARTS


def is_run_before_more(run: Run, whole: Class, part: Class) -> bool:
    """Whether the forward pass of ``whole`` runs a ``part``, and after it a layer that keeps tensors.

    The recomputation of a non-reentrant checkpoint stops where it has the last tensor that was saved: a part behind
    that does not run in it.
    """
    own = (it for it in run.bodies.of(whole.instance).functions if it.owner in (whole, *ancestors(whole)))
    for calls in map(run.bodies.calls_in, own):
        runs = (it for it in calls if any(isinstance(way, Instance) and way.cls is part for way in options(it.func)))
        if any(_keeps(later, call, {}) for call in runs for later in calls):
            return True
    return False


def _wrapped_here(run: Run, call: Call) -> CheckpointWrap | None:
    """The wrapping of the module that ``call`` runs."""
    if not isinstance(call.func, Result):
        return None
    made = call.func.call.node
    return next((wrap for wrap in run.of(CheckpointWrap) if wrap.node is made), None)


def _wrapped_inside(run: Run, call: Call, outer: Checkpointing) -> CheckpointWrap | None:
    """The wrapping of the module that ``call`` runs, where it surely is in a block that ``outer`` goes around.

    Each may go around some of the blocks: `layers[:6]` and `layers[6:]`.
    """
    wrap = _wrapped_here(run, call)
    if wrap is None or wrap.place.excludes(outer.place):
        return None
    is_in_turn = bool(wrap.place.loops) and wrap.place.loops == outer.place.loops
    if is_in_turn:
        return None if wrap.place.deeper_than(outer.place) else wrap
    is_for_all = not depends_on_iteration(wrap.place) and all(map(goes_through_all, own_loops(wrap.place)))
    return wrap if is_for_all else None


def _keeps(later: Call, call: Call, events: dict[int, Checkpointing]) -> bool:
    """Whether ``later``, in the same body, surely runs after ``call`` and keeps tensors for the backward pass."""
    is_one_run = (later.place.walk, later.place.stack) == (call.place.walk, call.place.stack)
    if not is_one_run or later.order <= call.order or later.place.deeper_than(call.place) or later.place.loops:
        return False
    return id(later.node) in events or all(_is_layer(option) for option in options(later.func))


def _is_layer(value: Value) -> bool:
    match value:
        case Result(made):
            name = canonical(made.name)
            return name.startswith("torch.nn.") and not name.endswith(_KEEPS_NOTHING)
        case Instance(_, made):
            return made is not None
    return False
