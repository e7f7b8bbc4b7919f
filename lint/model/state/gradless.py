"""Which tensors certainly need no gradient: data, constants, what frozen modules or ``no_grad`` made of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.values import (
    Attr,
    Computed,
    Const,
    Element,
    Instance,
    Param,
    Ref,
    Result,
    Seq,
    Value,
    equals,
    is_absent,
    options,
    same,
)
from ..conditions.guards import own_guards
from ..events import Backward, GradientSwitch
from ..names import canonical
from ..types import bases, same_object
from .modes import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function
    from ..history import History

_FACTORIES = frozenset(
    f"torch.{name}"
    for name in (
        *("tensor", "zeros", "ones", "full", "empty", "arange", "linspace", "from_numpy", "as_tensor"),
        *("rand", "randn", "randint", "zeros_like", "ones_like", "rand_like", "randn_like"),
    )
)
#: Methods whose result needs a gradient exactly when their object does.
_KEEP = frozenset(
    (
        *("to", "cuda", "cpu", "float", "half", "bfloat16", "double", "type", "type_as", "contiguous", "clone"),
        *("view", "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "repeat", "expand"),
    )
)
#: Functions without weights: what they give needs a gradient exactly when what they get first does.
_FUNCTIONS = frozenset(
    (
        *("torch.cat", "torch.stack", "torch.concat", "torch.flatten", "torch.unsqueeze", "torch.permute"),
        *(f"torch.nn.functional.{name}" for name in ("interpolate", "pad", "normalize", "one_hot", "relu", "gelu")),
        *(f"torch.nn.functional.{name}" for name in ("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d")),
    )
)
#: Methods that write another tensor into their object.
_WRITES = ("copy_", "add_", "index_add_", "index_copy_", "index_put_", "scatter_", "scatter_add_", "masked_scatter_")
#: Methods after which a value carries no gradient.
_PLAIN = frozenset(("detach", "item", "tolist", "numpy", "size", "numel", "argmax", "bool", "long", "int"))
#: Functions that count.
_COUNTS = frozenset(("torch.bincount", "torch.histc", "torch.argmax", "torch.nn.functional.one_hot"))
#: Modules without weights: what they give needs a gradient exactly when what they get does.
_WITHOUT_WEIGHTS = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Identity", "Flatten", "Unflatten", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"),
        *("ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LeakyReLU", "Softmax", "Upsample", "ZeroPad2d"),
        *("MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "PixelShuffle"),
        *("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool2d"),
    )
)
_EMBEDDING = "torch.nn.Embedding"
_LOADER = "torch.utils.data.DataLoader"


def is_gradless(run: History, value: Value, depth: int = 8) -> bool:
    """Whether ``value`` is certainly a tensor that needs no gradient (or holds such tensors)."""
    return depth > 0 and all(_is_gradless(run, option, depth - 1) for option in options(value))


def _is_gradless(run: History, value: Value, depth: int) -> bool:
    match value:
        case Element(of=held):
            is_data = _is_loader(held) or _is_trained_on(run, value) or is_gradless(run, held, depth)
            return is_data and not _is_switched_on(run, value)
        case Computed(operands=operands):
            tensors = [operand for operand in operands if not isinstance(operand, Const)]
            return bool(tensors) and all(is_gradless(run, operand, depth) for operand in tensors)
        case Param() if _is_batch_of_lightning(value):
            return not _is_switched_on(run, value)
        case Param():
            calls = list(_calls_of_forward(run, value))
            # A file that only calls the model, to trace or to compare it, trains nothing.
            trains = any(run.of(Backward)) or any(_is_training_step(call.place.function) for call, _ in calls)
            return bool(calls) and trains and all(is_gradless(run, argument, depth) for _, argument in calls)
        case Result(call):
            return not _is_switched_on(run, value) and _makes_gradless(run, call, depth)
    return False


def _makes_gradless(run: History, call: Call, depth: int) -> bool:
    if call.method in _KEEP:
        return is_gradless(run, call.receiver, depth)
    if call.method == "detach" or (is_gradient_free(call) and isinstance(call.func, Result | Instance)):
        return True
    name = canonical(call.name)
    if name in _FUNCTIONS:
        first = call.argument(0)
        parts = first.items if isinstance(first, Seq) and not first.open else [first]
        return bool(parts) and all(is_gradless(run, part, depth) for part in parts)
    if name in _FACTORIES:
        wanted = call.keyword("requires_grad")
        plain = is_absent(wanted) is True or equals(wanted, False) is True
        return plain and not _is_filled(run, Result(call), depth)
    module = same_object(call.func)
    if isinstance(module, Result) and canonical(module.call.name) in _WITHOUT_WEIGHTS:
        return all(is_gradless(run, argument, depth) for argument in call.args)
    if isinstance(module, Result) and (is_frozen(run, module) or _is_made_frozen(module)):
        embeds = canonical(module.call.name) in (_EMBEDDING, f"{_EMBEDDING}.from_pretrained")
        return embeds or all(is_gradless(run, argument, depth) for argument in call.args)
    return False


def _is_filled(run: History, tensor: Result, depth: int) -> bool:
    """Whether something that may need a gradient is written into ``tensor``, which then needs one too."""
    written = [store.value for store in run.program.stores if same(store.obj, tensor)]
    for call in run.method_calls(*_WRITES):
        written += call.args if same(call.receiver, tensor) else []
    return not all(isinstance(value, Const) or is_gradless(run, value, depth) for value in written)


def _is_made_frozen(module: Result) -> bool:
    """Whether ``module`` is an embedding that is built from weights, which freezes it by default."""
    freeze = module.call.argument(1, "freeze")
    loaded = canonical(module.call.name) == f"{_EMBEDDING}.from_pretrained"
    return loaded and (is_absent(freeze) is True or equals(freeze, True) is True)


def _is_loader(value: Value) -> bool:
    """Whether a loop over ``value`` gives batches of data."""
    match value:
        case Result(call) if canonical(call.name) == _LOADER:
            return True
        case Result(call) if canonical(call.name) in ("tqdm.tqdm", "tqdm.auto.tqdm", "builtins.enumerate"):
            return bool(call.args) and _is_loader(call.args[0])
        case Result(call) if call.method in ("prepare", "prepare_data_loader"):
            return any(_is_loader(argument) for argument in call.args)
    return False


def _is_trained_on(run: History, element: Element) -> bool:
    """Whether ``element`` is what a loop with a backward pass in it goes through: batches, not results of modules."""
    match element.of:
        case Result(call) if not isinstance(call.func, Ref) and not call.method.endswith(("loader", "batches")):
            return False
        case Ref() | Param() | Attr() | Result():
            loops = (loop for backward in run.of(Backward) for loop in backward.place.loops)
            passed = any(isinstance(loop, ast.For) and loop.iter is element.node for loop in loops)
            return passed and not _is_optimized(run, element.of)
    return False


def _is_optimized(run: History, value: Value) -> bool:
    """Whether an optimizer gets ``value``: tensors that are trained, not data."""
    made = (call for call in run.program.calls if call.name.startswith("torch.optim."))
    given = (
        option for call in made for argument in (*call.args, *call.kwargs.values()) for option in options(argument)
    )
    return any(same(option, value) for option in given)


def _is_batch_of_lightning(param: Param) -> bool:
    """Whether ``param`` is the batch that Lightning gives to `training_step`."""
    names = [argument.arg for argument in param.function.node.args.args]
    return _is_training_step(param.function) and names[1:2] == [param.name]


def _is_training_step(function: Function | None) -> bool:
    owner = function.owner if function is not None and function.name == "training_step" else None
    return owner is not None and any(base.endswith(".LightningModule") for base in bases(owner))


def _calls_of_forward(run: History, param: Param) -> Iterator[tuple[Call, Value]]:
    """The calls of a module in this file, with what they pass for a parameter of its `forward`."""
    names = [argument.arg for argument in param.function.node.args.args]
    if param.function.name != "forward" or param.name not in names:
        return
    for call in run.program.calls:
        if isinstance(call.func, Instance) and call.func.cls is param.function.owner:
            yield call, call.argument(names.index(param.name) - 1, param.name)


def _is_switched_on(run: History, value: Value) -> bool:
    """Whether something sets ``requires_grad`` on the tensor."""
    switched = any(same(switch.target, value) for switch in run.of(GradientSwitch))
    return switched or any(same(call.receiver, value) for call in run.method_calls("retain_grad"))


def is_frozen(run: History, module: Value) -> bool:
    """Whether the program freezes exactly this module, without a condition, and never switches it on again."""
    found = list(run.of(GradientSwitch))
    certain = any(it.freezes and same(it.module, module) and not any(own_guards(it.place)) for it in found)
    undone = any(not it.freezes and (same(it.module, module) or not isinstance(it.module, Result)) for it in found)
    return certain and not undone


def may_be_frozen(run: History, *modules: Value) -> bool:
    """Whether the program freezes one of ``modules``, or something that may contain them, and leaves none trained."""
    return any(
        it.freezes
        and not it.is_partial
        and (not isinstance(it.module, Result) or any(same(it.module, module) for module in modules))
        for it in run.of(GradientSwitch)
    )


def carries_gradient(value: Value) -> bool:
    """Whether ``value`` is what a call computed, and neither detached nor a count."""
    while isinstance(value, Result | Computed):
        if isinstance(value, Computed):
            return any(map(carries_gradient, value.operands))
        call = value.call
        if call.method in _PLAIN or call.name in _COUNTS:
            return False
        if not call.method:
            return True
        value = call.receiver
    return False
