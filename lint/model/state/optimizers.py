"""Steps of optimizers: which weights one changes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.objects.classes import is_run_as_written, method_of
from ...facts.values import Call, Computed, Dict, Element, Function, Instance, Result, Seq, Value, equals, options
from ..frozen.freezing import may_be_frozen
from ..names import canonical
from ..types import class_names, unwrapped
from .weights import are_held_alone, is_certainly_one, weights_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..run import Run
    from .weights import Built

#: What gives the parameters that it gets, all or those that train.
_JOINING = frozenset(("builtins.list", "builtins.tuple", "builtins.set", "itertools.chain"))
_OPTIMIZERS = ("torch.optim.", "bitsandbytes.optim.")
_SCALERS = frozenset(("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"))
#: What a condition may ask a parameter for that leaves those of every layer in: `p.requires_grad`, `p.ndim > 1`.
_ASKED = frozenset(("requires_grad", "ndim", "dim", "shape"))


def changes_weights(run: Run, step: Call, model: Value, again: dict[Built, Result]) -> bool:
    """Whether ``step`` is one of an optimizer over all of ``model``, or over some of the weights that run ``again``."""
    trained = list(_trained_by(run, step))
    if any(is_certainly_one(run, unwrapped(module), model) for module in trained):
        return True
    if any(run.calls_to("copy.deepcopy", "copy.copy")):
        return False  # A copy has its own weights, built by the same calls.
    return any(_trains(run, module, again, step) for module in trained)


def _trains(run: Run, module: Value, again: dict[Built, Result], step: Call) -> bool:
    """Whether ``module`` holds one of the weights that run ``again``, and they are not frozen."""
    module = unwrapped(module)
    made = module.call if isinstance(module, Instance | Result) else None
    if made is None or made.place.loops != step.place.loops[: len(made.place.loops)]:
        return False  # A loop may have built several of it.
    held = weights_in(module)
    shared = (weights for built, weights in again.items() if built in held)
    return any(are_held_alone(run, weights, held) and not may_be_frozen(run, weights) for weights in shared)


def _trained_by(run: Run, step: Call) -> Iterator[Value]:
    """The modules whose parameters, all of them, ``step`` changes; a step of a scaler is one of what it is given."""
    stepping = step.argument(0, "optimizer") if class_names(step.receiver) & _SCALERS else step.receiver
    for option in options(stepping):
        for optimizer in _configured(run, unwrapped(option)):
            known = isinstance(optimizer, Result) and optimizer.call.name.startswith(_OPTIMIZERS)
            if isinstance(optimizer, Result) and known and equals(optimizer.call.argument(1, "lr"), 0, 0.0) is not True:
                yield from _owners(run, optimizer.call.argument(0, "params"))


def _configured(run: Run, optimizer: Value) -> Iterator[Value]:
    """The optimizer itself; for what `self.optimizers()` gives, what Lightning got from `configure_optimizers`."""
    match optimizer:
        case Result(call) if (given := _given_to_lightning(run, call)) is not None:
            yield from given[:1] if len(given) == 1 else ()
        case Element(of=Result(call), index=int(index)) if (given := _given_to_lightning(run, call)) is not None:
            yield from given[index : index + 1] if index >= 0 else ()
        case _:
            yield optimizer


def _given_to_lightning(run: Run, asked: Call) -> list[Value] | None:
    """The optimizers of the module whose `optimizers()` is ``asked``; None for another call."""
    module = asked.receiver
    if asked.method != "optimizers" or not isinstance(module, Instance):
        return None
    function = method_of(module.cls, "configure_optimizers")
    returned = run.program.returns.get(function.node, []) if function is not None else []
    if function is None or len(returned) != 1 or not is_run_as_written(function):
        return []
    return list(_optimizers_in(returned[0].value))


def _optimizers_in(given: Value) -> Iterator[Value]:
    """The optimizers among what `configure_optimizers` returns, in order; the schedulers behind them left out."""
    match given:
        case Seq(items=[Seq(items=optimizers, open=False), Seq()], open=False):
            yield from optimizers
        case Seq(items=items, open=False):
            for item in items:
                yield from _optimizers_in(item)
        case Dict():
            yield given.get("optimizer")
        case _:
            yield given


def _owners(run: Run, held: Value) -> Iterator[Value]:
    """The modules all of whose parameters ``held`` is, or has beside others: `a.parameters()`, a list, a group."""
    match held:
        case Result(call) if call.method == "parameters":
            yield call.receiver
        case Result(call) if canonical(call.name) in _JOINING:
            yield from (owner for part in (*call.args, *call.spread) for owner in _owners(run, part))
        case Result(call) if call.name == "itertools.chain.from_iterable":
            yield from (owner for part in call.args for owner in _owners(run, part))
        case Result(Call(name="builtins.filter", args=[Function(ast.Lambda(body=ast.expr() as test)), part])):
            yield from _owners(run, part) if _leaves_layers_in(test, names_in(test)) else ()
        case Computed(operands=parts):
            yield from (owner for part in parts for owner in _owners(run, part))
        case Dict() as group:
            if equals(group.get("lr"), 0, 0.0) is not True:
                yield from _owners(run, group.get("params"))
        case Seq(node=ast.ListComp() | ast.GeneratorExp() as made):
            yield from _owners_passed(run, held, made)
        case Seq(items=items):
            yield from (owner for part in (*items, *_spread(run, held)) for owner in _owners(run, part))


def _owners_passed(run: Run, listed: Seq, made: ast.ListComp | ast.GeneratorExp) -> Iterator[Value]:
    """The modules of whose parameters the comprehension ``made`` leaves out none that trains."""
    elements = names_in(made.elt) | {"len"}
    if not all(_leaves_layers_in(test, elements) for generator in made.generators for test in generator.ifs):
        return
    for item in listed.items:
        match item:
            case Element(of=Result(call)) if call.method == "parameters":
                yield from _receivers(run, call)
            case Element(of=Element(of=Result(call)), index=1) if call.method == "named_parameters":
                yield from _receivers(run, call)
            case Dict() | Result():
                yield from _owners(run, item)


def _receivers(run: Run, made: Call) -> Iterator[Value]:
    """The objects whose method ``made`` calls in turn, one for each element that a comprehension goes through."""
    turns = (call for call in run.calls_at(made.node) if call.is_repeated_by(made))
    yield from (option for call in turns for option in options(call.receiver))


def _leaves_layers_in(test: ast.expr, elements: frozenset[str]) -> bool:
    """Whether ``test`` asks the parameters ``elements`` whether they train, or for several dimensions."""
    parts = [*ast.walk(test)]
    asked = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    least = all(isinstance(part, ast.Gt | ast.GtE) for part in parts if isinstance(part, ast.cmpop))
    turned = any(isinstance(part, ast.Not) for part in parts)
    return bool(asked) and asked <= _ASKED and least and not turned and names_in(test) <= elements


def _spread(run: Run, listed: Value) -> Iterator[Value]:
    """What the calls give that a display spreads: `a.parameters()` of `[*a.parameters(), *b.parameters()]`."""
    match listed.node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            spread = (part.value for part in parts if isinstance(part, ast.Starred))
            calls = (call for part in spread if isinstance(part, ast.Call) for call in run.calls_at(part))
            yield from (Result(call) for call in calls)
