"""Code of the program in the layers of a model of transformers: what it puts in place of their parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Call, Class, Function, Instance, Ref, Result, Seq, options, same
from ..conditions.guards import own_guards
from ..events import ForwardPatch
from ..libraries.sharding import attributes, root
from ..names import canonical
from ..types import unwrapped
from .model_families import family_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value
    from ...facts.walk import Write
    from ..run import Run

#: What a class in a file of transformers is called that every layer has a part of.
_PARTS = re.compile(r"(RMSNorm|LayerNorm|MLP|Mlp|Attention|SdpaAttention|FlashAttention2|FeedForward|DenseActDense)")
#: Functions of such a file that its attention calls.
_FUNCTIONS = ("apply_rotary_pos_emb", "rotate_half", "repeat_kv", "eager_attention_forward")
#: Where models keep their layers.
_LISTS = frozenset(("layers", "layer", "h", "block", "blocks"))


def replaced_in_layers(run: Run, model: Value) -> Iterator[Value]:
    """The functions and modules of the program that run in the layers of ``model`` in place of their own parts."""
    model = unwrapped(model)
    family = family_of(model)
    for patch in run.of(ForwardPatch):
        of_part = _is_part(patch.target, family) or _is_in_layers(patch.target, model)
        if of_part or _is_asked_for_part(patch, model, family):
            yield from map(_function, options(patch.function))
    for write in run.writes:
        if _replaces_function(write, family):
            yield from (option for option in options(write.value) if isinstance(option, Function))
        elif _replaces_class(write, family, model) and isinstance(write.value, Class):
            yield write.value.instance
        elif isinstance(write.value, Instance) and _is_in_layers(write.obj, model):
            yield write.value


def _is_part(target: Value, family: str) -> bool:
    """Whether ``target`` is a class of transformers of which every layer of the ``family`` has an object."""
    if not isinstance(target, Ref) or not family:
        return False
    library, _, kind = canonical(target.name).rpartition(".")
    return library == "transformers" and kind.startswith(family) and bool(_PARTS.fullmatch(kind.removeprefix(family)))


def _is_asked_for_part(patch: ForwardPatch, model: Value, family: str) -> bool:
    """Whether a condition asks a module of ``model`` for such a class: `if isinstance(module, LlamaRMSNorm)`."""
    if root(patch.target) is not model:
        return False
    for guard in own_guards(patch.place):
        match guard.value:
            case Result(Call(name="builtins.isinstance", args=[asked, kinds])) if guard.taken:
                found = kinds.items if isinstance(kinds, Seq) and not kinds.open else [kinds]
                if same(asked, patch.target) and all(_is_part(kind, family) for kind in found):
                    return True
    return False


def _replaces_class(write: Write, family: str, model: Value) -> bool:
    """Whether ``write`` puts a class in place of one that the layers of ``model``, built later, are made of."""
    if not isinstance(write.obj, Ref) or not isinstance(model, Result):
        return False
    return _is_part(Ref(f"{write.obj.name}.{write.field}"), family) and write.order < model.call.order


def _replaces_function(write: Write, family: str) -> bool:
    """Whether ``write`` puts something in place of a function that the family's attention calls in its own file."""
    if not isinstance(write.obj, Ref) or write.field not in _FUNCTIONS or not family:
        return False
    return write.obj.name.endswith(f".modeling_{family.lower()}")


def _is_in_layers(value: Value, model: Value) -> bool:
    """Whether ``value`` is a layer of ``model``, or a part of one."""
    return root(value) is model and not _LISTS.isdisjoint(attributes(value))


def _function(value: Value) -> Value:
    """The function that ``value`` binds to an object: `types.MethodType(forward, layer)`, `forward.__get__(layer)`."""
    match value:
        case Result(call) if call.name == "types.MethodType" and call.args:
            return call.args[0]
        case Result(call) if call.method == "__get__":
            return call.receiver
    return value
