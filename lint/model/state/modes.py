"""Train and eval mode: what the program last said about a model before a forward pass."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import words_in
from ...facts.objects.classes import ancestors, is_manager, is_plain, is_run_as_written
from ...facts.surroundings import parents_in
from ...facts.values import Attr, Class, Dict, Function, Instance, Method, Ref, Result, Seq, Value, one, options, same
from ..events import Backward, HfEnable, ModeSwitch, TorchCheckpoint, TrainerBuild
from ..flow.loops_around import Iteration, iterations_around
from ..flow.mentions import attributes_in
from ..flow.uses import objects_in
from ..tensors.gradient_free import is_gradient_free
from ..types import bases, class_names, is_accelerator, is_fabric, is_loaded, unwrapped, whole_model
from .lightning_training import lightning_trains, one_step
from .trained import follows_training

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Loop
    from ..events import Checkpointing
    from ..history import History

#: Names of flags that hold in the last iteration of a loop.
_LAST = re.compile(r"last|final|done|stop")
#: Libraries whose functions leave the mode of a model alone; a Trainer does not.
_LEAVE_MODE = ("torch.", "peft.", "accelerate.", "transformers.", "bitsandbytes.", "builtins.", "copy.")


class Modes:
    """What a program does with the mode of a model, of which ``models`` are the ways it is loaded or built."""

    __slots__ = ("_holder", "_run", "_switches", "escapes", "forwards", "models")

    def __init__(self, run: History, *models: Result | Instance, holder: Class | None = None) -> None:
        self._run = run
        #: The class that holds the models and that a launcher trains, which leaves the modes as they are.
        self._holder = holder
        self.models = models
        #: The calls of the model itself, in program order.
        self.forwards = [call for call in run.uses.calls.of(*models) if self._is_certainly_model(call.func)]
        # `train()` of what may be the model takes back an `eval()`, which counts for what certainly is.
        self._switches = [
            switch
            for switch in run.uses.switches.of(*models)
            if (self._is_certainly_model if switch.on is False else self._is_model)(switch.receiver)
        ]
        #: Whether code that is not shown may switch the mode.
        self.escapes = (
            any(not self._is_model(switch.receiver) for switch in run.uses.trained)
            or any(self._hands_over(call) for call in run.uses.handed_over.of(*models))
            or any(run.uses.switchers.of(*models))
            or any(self._is_model(it.value) and not self._is_own(it.obj) for it in run.uses.writes.of(*models))
        )

    def _is_model(self, value: Value) -> bool:
        return all(any(same(inner, model) for model in self.models) for inner in objects_in(value))

    def _is_certainly_model(self, value: Value) -> bool:
        return all(any(one(inner, model) for model in self.models) for inner in objects_in(value))

    def _is_own(self, value: Value) -> bool:
        """Whether the program shows everything that the object or container ``value`` does with what it holds."""
        if isinstance(value, Dict | Seq):
            return not self._is_given_away(value)
        if not isinstance(value, Instance):
            return False
        if is_plain(value.cls):
            return not self._is_given_away(value)
        return value.cls is self._holder or self._is_left_alone(value)

    def _is_left_alone(self, module: Instance) -> bool:
        """Whether ``module`` is in no other, and nothing in the program puts any module in train mode."""
        if set(bases(module.cls)) != {"torch.nn.Module"}:
            return False
        if any(switch.on is not False for switch in self._run.of(ModeSwitch)) or self._run.uses.trained:
            return False
        return not self._is_given_away(module) and not any(True for _ in self._run.uses.writes.of(module))

    def _is_given_away(self, holder: Value) -> bool:
        """Whether code that is not shown gets ``holder``, and the model with it."""
        return any(map(self._is_foreign, self._run.uses.handed_over.of(holder)))

    def _hands_over(self, call: Call) -> bool:
        given = any(self._is_model(value) for value in (*call.args, *call.kwargs.values()))
        return given and self._is_foreign(call)

    def _is_foreign(self, call: Call) -> bool:
        """Whether ``call`` may switch the mode of what it is given."""
        match call.func:
            case (Function() as function) | Method(function=function):
                is_shown = is_run_as_written(function) or self._is_entered(call, function)
                return bool(function.around) or not is_shown
            case Ref("functools.partial") if call.args and isinstance(call.args[0], Function):
                return not is_run_as_written(call.args[0])
            case Ref(name):
                return not name.startswith(_LEAVE_MODE) or name.endswith("Trainer")
            case Attr(base=base):
                return not (is_accelerator(base) or is_fabric(base))
            case Class() as built:
                return built is not self._holder and not is_plain(built)  # All it does with the model is shown.
        return True

    def _is_entered(self, call: Call, function: Function) -> bool:
        """Whether ``call`` makes a context manager of the program and enters it: its body is run around the block."""
        if not is_manager(function) or len(function.decorators) > 1:
            return False
        around = call.place.function
        match parents_in(self._run.program.tree if around is None else around.node).get(call.node):
            case ast.withitem() | ast.Call(func=ast.Attribute(attr="enter_context" | "enter_async_context")):
                return True
        return False

    def eval_at(self, forward: Call) -> ast.AST | None:
        """What put the model in eval mode for ``forward``; None when it is in train mode or that is not known."""
        before = [switch for switch in self._switches if switch.order < forward.order and not _apart(switch, forward)]
        if before and before[-1].on is False and not before[-1].place.deeper_than(forward.place):
            return before[-1].node
        if not before and self._is_loaded() and not self._may_be_switched_elsewhere(forward):
            return self.models[0].node
        left = (self._left_in_eval(iteration, forward) for iteration in self._iterations_around(forward))
        return next((node for node in left if node is not None), None)

    def stays_in_eval(self) -> bool:
        """Whether the script puts the model in eval mode before it first runs, and nothing takes it back."""
        first = min((call.order for call in self.forwards), default=0)
        before = [switch for switch in self._switches if switch.order < first and _always_runs(switch)]
        if self.escapes or not before or before[-1].on is not False:
            return False
        return not any(switch.on is not False for switch in self._switches if switch.order > before[-1].order)

    def _may_be_switched_elsewhere(self, forward: Call) -> bool:
        """Whether a function that may run before the one that leads to ``forward``, as `__init__`, calls `train()`."""
        return any(switch.on is not False and switch.place.walk != forward.place.walk for switch in self._switches)

    def _is_loaded(self) -> bool:
        kinds = [class_names(model) if is_loaded(model) else () for model in self.models]
        return all(any(name.startswith("transformers.") for name in names) for names in kinds)

    def _left_in_eval(self, iteration: Iteration, forward: Call) -> ast.AST | None:
        """The ``eval()`` in an iteration of a loop that still holds when the next iteration comes to ``forward``."""
        switches = [switch for switch in self._switches if iteration.first <= switch.order <= iteration.last]
        last = switches[-1] if switches else None
        if last is None or last.order < forward.order or any(switch.on is not False for switch in switches):
            return None
        if _leaves(iteration.loop, (*last.place.stack, last.node)) or _may_be_in_the_last(last, forward):
            return None
        return last.node

    def _iterations_around(self, forward: Call) -> Iterator[Iteration]:
        """The loops around ``forward``, and around the calls that led to it, all with the same model."""
        made = {loop for model in self.models if model.call is not None for loop in model.call.place.loops}
        return (found for found in iterations_around(self._run, forward) if found.loop not in made)


class TrainedInEval(NamedTuple):
    """What leaves a model in eval mode, and the forward pass that is trained."""

    cause: ast.AST
    forward: Call


def trained_in_eval(run: History, enable: HfEnable) -> TrainedInEval | None:
    """Whether the model that ``enable`` checkpoints is certainly trained in eval mode by a loop of the program."""
    if any(run.of(TrainerBuild)):
        return None  # It switches the mode itself.
    if attributes_in(run.program).may_set("training"):
        return None  # `layer.training = True` makes the layers checkpoint.
    # One event for each way the model may have been built.
    found = [unwrapped(whole_model(other.model)) for other in run.of(HfEnable) if other.node is enable.node]
    models = [option for option in found if isinstance(option, Result)]
    if len(models) < len(found) or _are_of_one_helper(models):
        return None
    holder = _holder(run, enable, models)
    if holder is not None:
        return _in_steps(run, Modes(run, *models, holder=holder), holder)
    modes = Modes(run, *models)
    forwards = (call for call in modes.forwards if call.order > enable.order and _is_trained(run, call))
    first = None if modes.escapes else next(forwards, None) or _run_by_module(run, modes)
    cause = modes.eval_at(first) if first is not None else None
    return None if first is None or cause is None else TrainedInEval(cause, first)


def _run_by_module(run: History, modes: Modes) -> Call | None:
    """The forward pass of the model in that of a module of the program which holds it, and which is trained."""
    for held in run.uses.writes.of(*modes.models):
        module = held.obj
        if isinstance(module, Instance) and any(_is_trained(run, call) for call in run.uses.calls.of(module)):
            inside = {call.node for call in run.bodies.of(module).calls}
            return next((call for call in modes.forwards if call.node in inside and not is_gradient_free(call)), None)
    return None


def _holder(run: History, enable: HfEnable, models: list[Result]) -> Class | None:
    """The class whose object Lightning trains and that holds the model, which it loads itself or is given."""
    function = enable.place.function
    owner = function.owner if function is not None else None
    owners = [cls for cls in run.program.classes if owner is None or owner in (cls, *ancestors(cls))]
    return next((cls for cls in owners if _holds(cls, models) and lightning_trains(run, cls)), None)


def _holds(cls: Class, models: list[Result]) -> bool:
    fields = (field for owner in (cls, *ancestors(cls)) for field in owner.fields.values())
    held = (option for field in fields for option in options(field))
    return any(one(unwrapped(whole_model(value)), model) for value in held for model in models)


def _in_steps(run: History, modes: Modes, holder: Class) -> TrainedInEval | None:
    """The same for a model that a step of ``holder`` runs: Lightning (2.2 and later) trains it in the mode it is in."""
    if modes.escapes or any(switch.on is not False for switch in run.of(ModeSwitch)):
        return None
    step = one_step(holder)
    inside = {call.node for call in run.bodies.of(step).calls} if step is not None else set()
    forwards = (call for call in modes.forwards if call.node in inside and not is_gradient_free(call))
    first = next(forwards, None)
    cause = modes.eval_at(first) if first is not None else None
    return None if first is None or cause is None else TrainedInEval(cause, first)


def _are_of_one_helper(models: list[Result]) -> bool:
    """Whether some of ``models`` are two objects that one expression gave to two callers."""
    return any(same(left, right) and not one(left, right) for left, right in combinations(models, 2))


def _is_trained(run: History, forward: Call) -> bool:
    """Whether a backward pass follows in the same run of the program."""
    return not is_gradient_free(forward) and any(
        it.order > forward.order and it.place.walk == forward.place.walk and not it.place.excludes(forward.place)
        for it in run.of(Backward)
    )


def _always_runs(switch: ModeSwitch) -> bool:
    place = switch.place
    return place.walk == 0 and not place.guards and not place.loops and not place.tries


class ScriptModes:
    """The models of the file that a script builds and runs, and what it leaves in eval mode for the whole training."""

    def __init__(self, run: History) -> None:
        self._run = run
        self._in_eval: dict[Instance, bool] = {}

    def models_in_eval(self, event: Checkpointing) -> bool:
        """Whether the script trains every model that comes to the checkpoint ``event`` in eval mode."""
        models = list(self._models_around(event))
        return bool(models) and all(map(self._stays_in_eval, models))

    def _stays_in_eval(self, model: Instance) -> bool:
        if model not in self._in_eval:
            self._in_eval[model] = Modes(self._run, model).stays_in_eval()
        return self._in_eval[model]

    def region_in_eval(self, event: Checkpointing) -> bool:
        """Whether the script puts all that runs again because of ``event`` in eval mode, and nothing takes it back."""
        if not self._put_in_eval or not any(self._models_around(event)):
            return False
        inside = {part for part in self._run.region(event).conditions if isinstance(part[0], ast.ClassDef) or part[1]}
        return bool(inside) and any(inside <= parts for parts in self._put_in_eval)

    @cached_property
    def _put_in_eval(self) -> list[AbstractSet[object]]:
        """What each `eval()` before the end of the training, that no later switch takes back, puts in eval mode."""
        switches = list(self._run.of(ModeSwitch))
        last = max((switch.order for switch in switches if switch.on is not False), default=0)
        lasting = [it for it in switches if it.on is False and it.order > last and _always_runs(it)]
        lasting = [it for it in lasting if not self._is_behind_training(it)]
        return [self._run.bodies.of(unwrapped(switch.receiver)).conditions.keys() for switch in lasting]

    def _is_behind_training(self, switch: ModeSwitch) -> bool:
        """Whether the training is over at ``switch``, or a part of it that was in train mode: an epoch before it."""
        trained = [it.order for it in self._run.of(Backward) if it.place.walk == switch.place.walk]
        return (bool(trained) and max(trained) < switch.order) or follows_training(self._run, switch.call)

    @cached_property
    def _models(self) -> list[Instance]:
        """The models of the file that the script runs."""
        program, script = self._run.program, self._run.program.script
        if script is None:
            return []
        called = {option for call in program.calls if call.place.walk == 0 for option in options(call.func)}
        return [model for model in called if isinstance(model, Instance) and model.cls.node in script.built]

    def _models_around(self, event: Checkpointing) -> Iterator[Instance]:
        """Those models that come to ``event``, or hold what it wraps."""
        return (model for model in self._models if comes_to(self._run, model, event))


def comes_to(run: History, model: Instance, event: Checkpointing) -> bool:
    """Whether running ``model`` comes to the checkpoint ``event``, or ``model`` holds what that wraps."""
    inside = run.bodies.of(model)
    if isinstance(event, TorchCheckpoint):
        return inside.makes_call(event.node)
    return not run.region(event).conditions.keys().isdisjoint(inside.conditions)


def _apart(switch: ModeSwitch, forward: Call) -> bool:
    return switch.place.walk != forward.place.walk or switch.place.excludes(forward.place)


def _leaves(loop: Loop, way: tuple[ast.AST, ...]) -> bool:
    """Whether a branch of ``loop`` that holds a step of ``way``, the calls to a statement, also ends the loop."""
    for branch in ast.walk(loop):
        if isinstance(branch, ast.If):
            for body in (branch.body, branch.orelse):
                inside = [part for statement in body for part in ast.walk(statement)]
                ends = any(isinstance(part, ast.Break | ast.Return | ast.Raise) for part in inside)
                if ends and not {id(step) for step in way}.isdisjoint(map(id, inside)):
                    return True
    return False


def _may_be_in_the_last(switch: ModeSwitch, forward: Call) -> bool:
    """Whether a condition may choose the last iteration for ``switch``: `if i == len(loader) - 1`, `if is_last`."""
    around = {(guard.test, guard.taken) for guard in forward.place.guards}
    own = (guard for guard in switch.place.guards if (guard.test, guard.taken) not in around)
    return any(_may_ask_for_the_last(guard.test) for guard in own)


def _may_ask_for_the_last(test: ast.AST) -> bool:
    parts = list(ast.walk(test))
    if any(isinstance(part, ast.Mod) for part in parts):
        return False  # Every so many iterations.
    if any(_LAST.search(name) for name in words_in(test)):
        return True
    equalities = (part for part in parts if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq))
    return any(not isinstance(part.comparators[0], ast.Constant) for part in equalities)
