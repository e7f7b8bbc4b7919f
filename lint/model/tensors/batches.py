"""What a batch of data is: what a loop over a loader gives, and what Lightning gives to the steps of a module."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import is_inside
from ...facts.values import Attr, Dict, Element, Function, Instance, Param, Ref, Result, Seq, options, same
from ..events import Backward, GradientSwitch
from ..names import canonical
from ..types import bases, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value
    from ..history import History

_LOADER = "torch.utils.data.DataLoader"
#: Calls that give the elements of their first argument.
_PASS = frozenset(("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.trange", "itertools.islice", "itertools.cycle"))
_PASS_BUILTINS = frozenset(f"builtins.{name}" for name in ("enumerate", "iter", "list", "reversed"))
#: Functions that read what a training goes through from a file: nothing computed it here.
_READ = frozenset(("torch.load", "numpy.load", "pickle.load", "json.load", "joblib.load"))
#: Names of data; results of a model are called otherwise, or are not known to be data.
_NAMES_DATA = re.compile(r"(loaders?|batches|datasets?|data_?iter|iterator)\d*$|(^|_)(data|rows|dl|ds|train_?set)$")
#: Steps of a LightningModule: what they get first is a batch.
_STEPS = ("training_step", "validation_step", "test_step", "predict_step")
#: Hooks of a LightningModule that see a batch before its steps.
_HOOKS = (
    *("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"),
    *("on_train_batch_start", "on_validation_batch_start"),
)
#: Functions that make what a loader gives.
_ITEM_METHODS = ("__getitem__", "__getitems__", "__iter__", "collate_fn", "collate")


def is_batch(run: History, element: Element) -> bool:
    """Whether ``element`` is what a loop over a loader, or `next`, gives: batches, not results of modules."""
    if _is_loader(run, element.of) or _is_drawn(run, element):
        return True
    return _trains_on(run, element) and _names_data(element) and not _is_optimized(run, element.of)


def _is_drawn(run: History, element: Element) -> bool:
    """Whether ``element`` is `images[chosen]` in a training loop, of tensors that were read from a file."""
    held = _root(element)
    if not isinstance(element.node, ast.Subscript) or not isinstance(held, Result):
        return False
    if canonical(held.call.name) not in _READ or _has_optimized_part(run, held):
        return False
    if any(not switch.freezes for switch in run.of(GradientSwitch)):
        return False  # What is switched on may be a part of it under another name.
    return any(is_inside(element.node, loop) for loop in _training_loops(run))


def _root(value: Value) -> Value:
    """What ``value`` is an element of, at any depth."""
    while isinstance(value, Element):
        value = value.of
    return value


def yielded_as(run: History, element: Element) -> list[Value]:
    """What ``element`` is where a loop over an object gives it whose `__iter__` yields it; none where that is open."""
    match element.of:
        case Instance(cls):
            body = cls.body.get("__iter__")
            return run.program.yielded.get(body.node, []) if isinstance(body, Function) else []
        case Element() as outer:
            found = [_part(held, element.index) for value in yielded_as(run, outer) for held in options(value)]
            return [part for part in found if part is not None] if None not in found else []
    return []


def _part(held: Value, index: object) -> Value | None:
    match held:
        case Seq(items=items) if isinstance(index, int) and not held.open and -len(items) <= index < len(items):
            return items[index]
        case Dict(items=entries) if isinstance(index, str):
            return entries.get(index)
    return None


def is_lightning_batch(run: History, param: Param) -> bool:
    """Whether ``param`` is the batch that Lightning gives to a step, as the loader made it."""
    step = param.function
    names = [argument.arg for argument in step.node.args.args]
    if not _is_step(step) or names[1:2] != [param.name] or run.calls_of(step):
        return False
    return step.owner is not None and not any(hook in step.owner.body for hook in _HOOKS)


def is_training_step(function: Function | None) -> bool:
    """Whether Lightning trains on what ``function`` returns."""
    return function is not None and function.name == "training_step" and _is_step(function)


def is_loss_for_trainer(function: Function | None) -> bool:
    """Whether a trainer of Lightning or transformers runs a backward pass on what ``function`` returns."""
    if function is None or function.owner is None or function.name != "compute_loss":
        return is_training_step(function)
    return any(
        base.startswith(("transformers.", "trl.")) and base.endswith("Trainer") for base in bases(function.owner)
    )


def _is_step(function: Function) -> bool:
    owner = function.owner if function.name in _STEPS else None
    return owner is not None and any(base.endswith(".LightningModule") for base in bases(owner))


def _is_loader(run: History, value: Value) -> bool:
    """Whether a loop over ``value`` gives batches of a DataLoader of the file."""
    match _looked_through(value):
        case Result(call) if canonical(call.name) == _LOADER:
            return not _items_need_gradients(run, call)
        case Result(call) if call.method in ("prepare", "prepare_data_loader"):
            return any(_is_loader(run, argument) for argument in call.args)
    return False


def _looked_through(value: Value) -> Value:
    """What a loop over ``value`` goes through: the loader for `tqdm(enumerate(loader))`."""
    while isinstance(value, Result) and value.call.args:
        name = canonical(value.call.name)
        if name not in _PASS and value.call.name not in _PASS_BUILTINS:
            break
        value = value.call.args[0]
    return unwrapped(value)


def _items_need_gradients(run: History, loader: Call) -> bool:
    """Whether the functions that make a batch switch gradients on in it."""
    collate = [option for option in options(loader.keyword("collate_fn")) if isinstance(option, Function)]
    makers = {function.node for function in collate}
    around = [it.place for it in run.of(GradientSwitch) if not it.freezes]
    return any(
        place.function is not None
        and (place.function.name in _ITEM_METHODS or not makers.isdisjoint((place.function.node, *place.callees)))
        for place in around
    )


def _trains_on(run: History, element: Element) -> bool:
    """Whether a backward pass is in the loop that gives ``element`` or behind it, or follows the `next` that does."""
    if element.node in _trained_on(run):
        return True
    asked = [call for call in run.calls_to("builtins.next") if call.node is element.node]
    return any(it.order > call.order and it.place.walk == call.place.walk for it in run.of(Backward) for call in asked)


@lru_cache(maxsize=1)
def _trained_on(run: History) -> frozenset[ast.AST]:
    """What loops go through that come to a backward pass, in functions that they call or define too, or before one."""
    backwards = list(run.of(Backward))
    found: set[ast.AST] = {loop.iter for loop in _training_loops(run)}
    last: dict[tuple[int, tuple[ast.Call, ...]], int] = {}
    for backward in backwards:
        way = backward.place.walk, backward.place.stack
        last[way] = max(last.get(way, 0), backward.order)
    for call in run.program.calls:
        if call.place.loops and call.order < last.get((call.place.walk, call.place.stack), 0):
            found.update(loop.iter for loop in call.place.loops if isinstance(loop, ast.For | ast.AsyncFor))
    return frozenset(found)


@lru_cache(maxsize=1)
def _training_loops(run: History) -> list[ast.For | ast.AsyncFor]:
    """The loops that come to a backward pass, in functions that they call or define too."""
    found: dict[ast.For | ast.AsyncFor, None] = {}
    for backward in run.of(Backward):
        for call in run.path_to(backward.call) or [backward.call]:
            function = call.place.function
            around = (*call.place.loops, *(function.place.loops if function is not None else ()))
            found.update((loop, None) for loop in around if isinstance(loop, ast.For | ast.AsyncFor))
    return [*found]


def _names_data(element: Element) -> bool:
    """Whether what ``element`` is taken from has the name of data."""
    held = _looked_through(element.of)
    return _is_named_data(held) or (_may_be_data(held) and bool(_NAMES_DATA.search(_written_name(element.node))))


def _is_named_data(value: Value) -> bool:
    match value:
        case Ref(name):
            return bool(_NAMES_DATA.search(name.rpartition(".")[2]))
        case Param(name) | Attr(name=name):
            return bool(_NAMES_DATA.search(name))
        case Result(call) if canonical(call.name) in _READ:
            return True
        case Result(call) if call.method:
            return bool(_NAMES_DATA.search(call.method)) or _is_named_data(call.receiver)
        case Result(call):
            return _may_be_data(value) and bool(_NAMES_DATA.search(call.called))
        case Element(of=(Ref() | Param() | Attr() | Element()) as held):
            return _is_named_data(held)
    return False


def _may_be_data(value: Value) -> bool:
    """Whether a function that is not torch's made it, so that its name is all that tells."""
    match value:
        case Result(call):
            return isinstance(call.func, Ref) and not call.name.startswith(("torch.", "builtins."))
        case Element(of=held):
            return _may_be_data(held)
    return isinstance(value, Ref | Param | Attr)


def _written_name(passed: ast.AST | None) -> str:
    """The name of what a loop goes through: `train_dl` for `enumerate(tqdm(train_dl))`."""
    match passed:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="enumerate" | "tqdm" | "iter" | "next"), args=[first, *_]):
            return _written_name(first)
    return ""


def _is_optimized(run: History, value: Value) -> bool:
    """Whether an optimizer gets ``value``: tensors that are trained, not data."""
    held = _looked_through(value)
    return any(same(part, held) for part in _optimized(run))


def _has_optimized_part(run: History, value: Value) -> bool:
    """Whether an optimizer gets something that was taken out of ``value``."""
    return any(same(_root(part), value) for part in _optimized(run))


def _optimized(run: History) -> Iterator[Value]:
    """What optimizers get."""
    made = (call for call in run.program.calls if call.name.startswith("torch.optim."))
    return (part for call in made for argument in (*call.args, *call.kwargs.values()) for part in _parts(argument))


def _parts(value: Value, depth: int = 4) -> Iterator[Value]:
    """``value`` and what lists and dicts in it hold."""
    for option in options(value):
        yield option
        match option:
            case Seq(items=items) if depth:
                held: list[Value] = items
            case Dict(items=entries) if depth:
                held = list(entries.values())
            case _:
                held = []
        for part in held:
            yield from _parts(part, depth - 1)
