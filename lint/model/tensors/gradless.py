"""Which tensors certainly need no gradient: data, constants, what frozen modules or ``no_grad`` made of them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.attributes import get_attribute
from ...facts.objects.classes import ancestors
from ...facts.objects.containers import container_kind, held_by
from ...facts.values import (
    Attr,
    Computed,
    Const,
    Dict,
    Element,
    Instance,
    Param,
    Result,
    Seq,
    Unknown,
    Value,
    equals,
    is_absent,
    options,
)
from ..calls.call_targets import call_targets
from ..calls.handed_on import handed_on
from ..events import HfEnable
from ..flow.mentions import attributes_in
from ..frozen.freezing import is_frozen, is_frozen_parameter, is_frozen_whole, may_be_switched_on
from ..frozen.named_switches import EMBEDDING
from ..names import canonical
from ..types import bases, is_hf_model, same_object
from .batches import is_batch, is_lightning_batch, yielded_as
from .given_to_forward import calls_of_forward, is_given_by_trainer, is_trained_with
from .gradient_free import is_always_gradient_free
from .tensor_changes import changes_of
from .tensor_methods import COPIES, NUMBERS
from .tensor_parts import ENTRIES, VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...facts.values import Call, Function
    from ...facts.walk import Write
    from ..history import History

_FACTORIES = frozenset(
    f"torch.{name}"
    for name in (
        *("tensor", "zeros", "ones", "full", "empty", "eye", "arange", "linspace", "from_numpy", "as_tensor"),
        *("rand", "randn", "randint", "randperm", "zeros_like", "ones_like", "rand_like", "randn_like"),
        *("logspace", "full_like", "empty_like", "randint_like", "hann_window", "hamming_window"),
    )
)
#: Methods that put parts into a module under names of their own.
_REGISTERS = ("add_module", "register_module", "register_parameter")
#: Methods that compute from their object and their arguments alone.
_COMPUTE = COPIES | NUMBERS | {"clamp", "round", "gather", "index_select", "masked_fill", "matmul", "bmm"}
#: Functions without weights: what they give needs a gradient exactly when what they get first does.
_FUNCTIONS = frozenset(
    (
        *("einops.rearrange", "einops.repeat", "einops.reduce", "torch.chunk", "torch.split"),
        *(f"torch.{name}" for name in ("sin", "cos", "tan", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square")),
        *("torch.tril", "torch.triu", "torch.cumsum", "torch.cumprod", "torch.prod", "torch.flip", "torch.roll"),
        *("torch.mean", "torch.sum", "torch.gather", "torch.index_select", "torch.bernoulli", "torch.softmax"),
        *("torch.sigmoid", "torch.tanh", "torch.hstack", "torch.vstack", "torch.nn.utils.rnn.pad_sequence"),
        *("torch.cat", "torch.stack", "torch.concat", "torch.flatten", "torch.unsqueeze", "torch.permute"),
        *(
            f"torch.nn.functional.{name}"
            for name in ("interpolate", "pad", "normalize", "one_hot", "relu", "gelu", "dropout")
        ),
        *(f"torch.nn.functional.{name}" for name in ("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d")),
    )
)
#: Those that compute from all of what they get.
_OF_ALL = frozenset(
    f"torch.{name}"
    for name in ("outer", "matmul", "bmm", "mul", "add", "sub", "div", "pow", "einsum", "meshgrid", "where", "maximum")
)
#: Methods after which a value carries no gradient.
_PLAIN = frozenset(
    (
        *("detach", "item", "tolist", "numpy", "size", "numel", "dim", "argmax", "argmin", "argsort", "nonzero"),
        *("bool", "long", "int", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"),
        *("logical_and", "logical_or", "logical_not", "logical_xor"),
    )
)
#: Functions that count or compare.
_COUNTS = frozenset(
    (
        *("torch.bincount", "torch.histc", "torch.argmax", "torch.nn.functional.one_hot"),
        "torch.nn.Transformer.generate_square_subsequent_mask",
        *("torch.eq", "torch.ne", "torch.isnan", "torch.logical_and", "torch.logical_or", "torch.logical_not"),
        *("builtins.len", "builtins.int", "builtins.float", "builtins.bool"),
    )
)
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
#: Modules with weights: what they give when they are frozen needs a gradient exactly when what they get does.
_WITH_WEIGHTS = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        *("LayerNorm", "GroupNorm", "RMSNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
    )
)
#: Methods of models that compute features.
_ENCODES = re.compile(
    r"encode|extract|embed_|forward|predict|infer|quantize|tokenize|compute_"
    r"|get_\w*(features|intermediate_layers|last_hidden_states?|feature_maps?|image_embeds|text_embeds)"
)
#: Methods of a model after which its hidden states need a gradient.
_ASKS = ("enable_input_require_grads", "register_forward_hook", "register_forward_pre_hook")
#: Methods of a distribution that an encoder gives.
_DRAWS = frozenset(("sample", "mode"))
#: What gives all that an object holds, whatever it is called.
_ALL_FIELDS = frozenset(("vars", "__dict__", "fields"))
#: More steps from value to value than this are not followed.
_DEPTH = 10
#: Neither are more modules that call one another.
_HOPS = 4


def is_gradless(run: History, value: Value, assumed: tuple[Value, ...] = ()) -> bool:
    """Whether ``value`` is certainly a tensor that needs no gradient, or holds such tensors.

    Args:
        run: The history that it is of.
        value: The tensor.
        assumed: What the question is asked for: `x[0] = x[1]` writes nothing into `x` that `x` does not have.
    """
    return all(_is_gradless(run, option, assumed) for option in options(value))


def _is_gradless(run: History, value: Value, assumed: tuple[Value, ...]) -> bool:
    if value in assumed or len(assumed) >= _DEPTH:
        return value in assumed
    assumed = (*assumed, value)
    return _is_made_gradless(run, value, assumed) and _stays_gradless(run, value, assumed)


def _stays_gradless(run: History, value: Value, assumed: tuple[Value, ...]) -> bool:
    """Whether nothing switches a gradient on for the tensor, or writes something into it that may need one."""
    given = (change.given for change in changes_of(run, value))
    return all(values is not None and _hold_no_gradient(run, values, assumed) for values in given)


def _hold_no_gradient(run: History, values: Iterable[Value], assumed: tuple[Value, ...]) -> bool:
    """Whether all of ``values``, as arguments of a call, are constants or tensors that need no gradient."""
    return all(_holds_no_gradient(run, option, assumed) for value in values for option in options(value))


def _holds_no_gradient(run: History, value: Value, assumed: tuple[Value, ...]) -> bool:
    match value:
        case Const():
            return True
        case Seq(items=items):
            return not value.open and _hold_no_gradient(run, items, assumed)
        case Dict(items=entries):
            return not value.open and _hold_no_gradient(run, entries.values(), assumed)
    return is_gradless(run, value, assumed)


def _is_made_gradless(run: History, value: Value, assumed: tuple[Value, ...]) -> bool:
    """Whether ``value`` needs no gradient as it was made."""
    match value:
        case Element(of=held):
            given = yielded_as(run, value)
            if given:
                return all(is_gradless(run, part, assumed) for part in given)
            return is_batch(run, value) or _has_no_graph(value) or _all_made_gradless(run, held, assumed)
        case Attr(base=held, name=name):
            is_plain = _is_data(run, held) or _has_no_graph(value) or _is_buffer(run, held, name)
            is_given = isinstance(held, Param) and _is_part_of_given(run, held, name, assumed)
            return is_plain or is_given or _comes_of_frozen_model(run, held, assumed)
        case Computed(operands=operands):
            tensors = any(not isinstance(operand, Const) for operand in operands)
            return tensors and _hold_no_gradient(run, operands, assumed)
        case Unknown(node=ast.Compare()):
            return True
        case Seq() | Dict():
            return _holds_no_gradient(run, value, assumed)
        case Param():
            is_data = is_lightning_batch(run, value) or is_given_by_trainer(run, value)
            return is_data or _is_given_gradless(run, value, assumed)
        case Result(call):
            return _makes_gradless(run, call, assumed)
    return False


def _all_made_gradless(run: History, value: Value, assumed: tuple[Value, ...]) -> bool:
    """The same for each alternative; what is done to a part of the tensor is asked for the part."""
    return all(_is_made_gradless(run, option, assumed) for option in options(value))


def _is_data(run: History, value: Value) -> bool:
    """Whether ``value`` is a batch, so that its attributes are tensors of data."""
    match value:
        case Element():
            return is_batch(run, value)
        case Param():
            return is_lightning_batch(run, value)
        case Result(call) if call.method in VIEWS:
            return _is_data(run, call.receiver)
    return False


def _is_part_of_given(run: History, param: Param, name: str, assumed: tuple[Value, ...]) -> bool:
    """Whether every call of a module in the file gives its `forward` an object with such a tensor under ``name``."""
    given = calls_of_forward(run, param)
    if len(assumed) > _DEPTH // 2 or any(write.field == name and not _is_in_constructor(write) for write in run.writes):
        return False
    held = [option for _, value in given for option in options(value)]
    if any(isinstance(option, Instance) for option in held) and not _ALL_FIELDS.isdisjoint(
        attributes_in(run.program).read
    ):
        return False
    parts = [_part_named(option, name) for option in held]
    return is_trained_with(run, param.function, given) and all(is_gradless(run, part, assumed) for part in parts)


def _part_named(held: Value, name: str) -> Value:
    """What ``held`` has under ``name``: an object of the program, what its constructor was given."""
    return get_attribute(held, name, None) if isinstance(held, Instance) else Attr(held, name, None)


def _is_in_constructor(write: Write) -> bool:
    """Whether ``write`` is how an object comes to hold what it has from the beginning."""
    function = write.place.function
    return function is not None and function.name == "__init__" and isinstance(write.obj, Instance)


def _has_no_graph(value: Value) -> bool:
    """Whether ``value`` is a part of what a module computed without gradients: `encoder(ids).logits[:, 0]`."""
    while True:
        match value:
            case Attr(base=held) | Element(of=held):
                value = held
            case Result(call) if call.method in _DRAWS and is_always_gradient_free(call):
                value = call.receiver
            case Result(call):
                computes = isinstance(call.func, Result) or _computes(call.func) or bool(_ENCODES.match(call.method))
                return computes and is_always_gradient_free(call)
            case _:
                return False


def _computes(called: Value) -> bool:
    """Whether ``called`` is a module that neither gives a parameter of it as it is nor switches gradients on."""
    if not isinstance(called, Instance):
        return False
    for target in call_targets(called):
        for node in all_nodes(target.function.node):
            match node:
                case ast.Return(value=ast.Attribute(value=ast.Name("self"))):
                    return False
                case ast.Attribute(attr="enable_grad" | "set_grad_enabled"):
                    return False
    return True


def _is_buffer(run: History, owner: Value, name: str) -> bool:
    """Whether the object ``owner`` registers what it has under ``name`` as a buffer, made of nothing that trains."""
    if name in attributes_in(run.program).written or any(write.field == name for write in run.writes):
        return False
    if may_be_switched_on(run, Attr(owner, name, None)):
        return False
    calls = [call for call in run.method_calls("register_buffer") if equals(call.argument(0, "name"), name) is True]
    return bool(calls) and all(
        isinstance(owner, Instance)
        and isinstance(call.receiver, Instance)
        and call.receiver.cls is owner.cls
        and is_gradless(run, call.argument(1, "tensor"))
        for call in calls
    )


def _makes_gradless(run: History, call: Call, assumed: tuple[Value, ...]) -> bool:
    if call.method in VIEWS | ENTRIES:
        return _all_made_gradless(run, call.receiver, assumed)
    if call.method in _COMPUTE:
        return _hold_no_gradient(run, (call.receiver, *call.args, *call.kwargs.values()), assumed)
    if call.method in _PLAIN or call.name in _COUNTS or _has_no_graph(Result(call)):
        return True
    name = canonical(call.name)
    if is_frozen_parameter(Result(call)):
        return not may_be_switched_on(run, Result(call))
    if name in _FUNCTIONS:
        first = call.argument(0)
        parts = first.items if isinstance(first, Seq) and (not first.open or _is_made_for(call, first)) else [first]
        return bool(parts) and all(is_gradless(run, part, assumed) for part in parts)
    if name in _OF_ALL:
        open_ended = call.open_args or call.open_kwargs
        return not open_ended and _hold_no_gradient(run, (*call.args, *call.kwargs.values()), assumed)
    if name in _FACTORIES:
        wanted = call.keyword("requires_grad")
        return is_absent(wanted) is True or equals(wanted, False) is True
    return _module_gives_gradless(run, call, assumed)


def _is_made_for(call: Call, held: Seq) -> bool:
    """Whether ``held`` is a comprehension in the arguments of ``call``: nothing else can put something into it."""
    return isinstance(held.node, ast.ListComp | ast.GeneratorExp) and held.node in call.node.args


def _module_gives_gradless(run: History, call: Call, assumed: tuple[Value, ...]) -> bool:
    """Whether a call of a module of torch, without weights or frozen, gives what needs no gradient."""
    # An attribute may hold one of several modules.
    ways = (way for way in run.calls_at(call.node) if way.place.walk == call.place.walk)
    kinds = [_looked_up_or_passed_on(run, way) for way in ways if way.place.stack == call.place.stack]
    if None in kinds or call.open_args or call.open_kwargs:
        return False
    return all(kinds) or _hold_no_gradient(run, (*call.args, *call.kwargs.values()), assumed)


def _comes_of_frozen_model(run: History, value: Value, assumed: tuple[Value, ...]) -> bool:
    """Whether ``value`` is the output of a model of transformers that nothing trains: `encoder(ids).logits`."""
    while isinstance(value, Attr | Element):
        value = value.of if isinstance(value, Element) else value.base
    if not isinstance(value, Result) or not is_hf_model(same_object(value.call.func)):
        return False
    return _makes_gradless(run, value.call, assumed)


def _looked_up_or_passed_on(run: History, call: Call) -> bool | None:
    """Whether a call gives what frozen weights hold for its numbers; False for a module that none of it trains."""
    module = same_object(call.func)
    if isinstance(module, Instance):
        frozen = is_frozen_whole(run, module) or _is_made_of_frozen_parts(run, module)
        return False if frozen and _computes(module) else None
    if not isinstance(module, Result):
        return None
    kind = canonical(module.call.name)
    if is_hf_model(module) and is_frozen(run, module):
        # Checkpointing makes what the embeddings give need a gradient.
        ids = "input_ids" in call.kwargs and "inputs_embeds" not in call.kwargs
        return None if any(run.of(HfEnable)) or any(run.method_calls(*_ASKS)) else ids
    if kind in (EMBEDDING, f"{EMBEDDING}.from_pretrained"):
        return True if is_frozen(run, module) else None
    if _trains_nothing(run, module):
        return False
    if container_kind(module) != "Sequential":
        return None
    parts = held_by(module)
    in_parts = bool(parts) and all(_trains_nothing(run, part) for part in parts)
    return False if in_parts or is_frozen_whole(run, module) else None


def _is_made_of_frozen_parts(run: History, module: Instance) -> bool:
    """Whether all that an object of the program holds are numbers, and layers of torch that none of it trains."""
    owners = (module.cls, *ancestors(module.cls))
    held = [option for owner in owners for value in owner.fields.values() for option in options(value)]
    parts = [part for part in held if not isinstance(part, Const)]
    is_plain = set(bases(module.cls)) == {"torch.nn.Module"} and not any(run.method_calls(*_REGISTERS))
    return is_plain and bool(parts) and all(_trains_nothing(run, part) for part in parts)


def _trains_nothing(run: History, module: Value) -> bool:
    """Whether it is a layer of torch without weights, or a frozen one."""
    kind = canonical(module.call.name) if isinstance(module, Result) else ""
    return kind in _WITHOUT_WEIGHTS or (kind in _WITH_WEIGHTS and is_frozen(run, module))


def _is_given_gradless(run: History, param: Param, assumed: tuple[Value, ...]) -> bool:
    """Whether every call of a module in the file gives its `forward` such a tensor, and one of them is trained."""
    if sum(isinstance(value, Param) for value in assumed) > _HOPS:
        return False
    return _trains_without(run, param.function, calls_of_forward(run, param), assumed)


def hands_on_gradless(run: History, call: Call) -> bool:
    """Whether the `*args` that ``call`` passes on, those of the `forward` around it, certainly need no gradient."""
    given, forward = handed_on(run.forwards, call), call.place.function
    if not given or forward is None:
        return False
    return _trains_without(run, forward, given, ())


def _trains_without(
    run: History, forward: Function, given: list[tuple[Call, Value]], assumed: tuple[Value, ...]
) -> bool:
    """Whether one of the calls of ``forward`` is trained, and all give it what needs no gradient."""
    return is_trained_with(run, forward, given) and _hold_no_gradient(run, (value for _, value in given), assumed)


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
