"""The names of parameters and modules before and after torch's checkpoint wrappers went around some of the modules."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import ancestors
from ...facts.objects.containers import GAP, container_kind, held_by
from ...facts.values import Class, Instance, Ref, Result, options
from ..frozen.named_switches import PARAMETER
from ..known_models.backbone_parameters import HEAD_PARAMETERS
from ..known_models.backbones import BACKBONES, HOLDER_OF
from ..known_models.model_families import family_of
from ..known_models.transformers_layers import is_checkpointed_layer
from ..names import canonical
from ..regions.bodies import classes_checked
from ..types import is_hf_model, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ...facts.values import Value
    from ..events import BlockWrapping
    from ..history import History

_WRAPPER = "_checkpoint_wrapped_module"
#: What each wrapper goes around in a model that is not shown: the layers, which have a number.
_LAYERS = re.compile(r"^((?:[A-Za-z_]\w*\.)+\d+)(?=\.)")
_NUMBERS = (0, 1, 11)
_DEPTH = 6
#: Where models that are no transformers models keep their layers, and what is in each.
_LISTS = ("blocks", "layers", "encoder.layers", "decoder.layers", "transformer.layers", "transformer.blocks")
_PARTS = (
    *("attn.qkv", "attn.proj", "attn.q_proj", "attention.query", "self_attn.q_proj", "self_attn.out_proj"),
    *("mlp.fc1", "mlp.fc2", "ffn.fc1", "feed_forward.w1", "linear1", "linear2", "norm", "norm1", "norm2", "ln1", "ln2"),
    *("fc", "fc1", "fc2", "attn", "mlp", "conv1", "conv2"),
)
_OUTSIDE = ("embed.weight", "patch_embed.proj.weight", "norm.weight", "head.weight", "fc.weight", *HEAD_PARAMETERS)


class Renamed(NamedTuple):
    """A name before the wrapping and behind it; twice the same for what no wrapper goes around."""

    plain: str
    wrapped: str

    @classmethod
    def by_pattern(cls, plain: str, wrapped: re.Pattern[str]) -> Renamed:
        """The name of something in a module that is wrapped where ``wrapped`` finds the path to it."""
        return cls(plain, wrapped.sub(rf"\1.{_WRAPPER}", plain))


def names_wrapped_in(run: History, wrap: BlockWrapping, model: Value) -> Iterator[Renamed]:
    """The names in ``model``, in which ``wrap`` puts a wrapper around what its check accepts, the layers if unknown."""
    kinds = classes_checked(wrap.check, run.bodies)
    if isinstance(model, Instance) and kinds:
        yield from _names_of_own(model, partial(_is_one_of, kinds))
    elif all(map(_is_layer, kinds)):
        yield from (Renamed.by_pattern(name, _LAYERS) for name in _plain_names(model))


def names_below(model: Value, path: str) -> Iterator[Renamed]:
    """The names in ``model``, in which a wrapper goes around what stands at ``path``, a regular expression."""
    below = re.compile(rf"^({path})(?=\.)")
    return (Renamed.by_pattern(name, below) for name in _plain_names(model))


def _plain_names(model: Value) -> Iterator[str]:
    if isinstance(model, Instance):
        yield from (it.plain for it in _names_of_own(model, lambda _: False))
    else:
        yield from _usual_names(model)


def _is_one_of(kinds: Collection[Value], module: Value) -> bool:
    if isinstance(module, Instance):
        return not {module.cls, *ancestors(module.cls)}.isdisjoint(kinds)
    names = {canonical(kind.name) for kind in kinds if isinstance(kind, Ref)}
    return isinstance(module, Result) and canonical(module.call.name) in names


def _is_layer(kind: Value) -> bool:
    """Whether modules of this class stand in the list of a model, and each has a number."""
    match kind:
        case Class(name=name):
            return name.endswith(("Block", "Layer"))
        case Ref(name=name):
            return is_checkpointed_layer(canonical(name))
    return False


def _names_of_own(model: Instance, wraps: Callable[[Value], bool]) -> Iterator[Renamed]:
    """The names in a model of the file, in which a wrapper goes around each module that ``wraps`` tells."""
    for plain, wrapped in _inside(model, "", "", wraps, _DEPTH):
        yield Renamed(plain.removeprefix("."), wrapped.removeprefix("."))


def _inside(
    module: Value, plain: str, wrapped: str, wraps: Callable[[Value], bool], depth: int
) -> Iterator[tuple[str, str]]:
    module = unwrapped(module)
    if isinstance(module, Result) and canonical(module.call.name) in PARAMETER:
        yield plain, wrapped
    elif isinstance(module, Instance) or container_kind(module):
        if plain:
            yield plain, wrapped.removesuffix(f".{_WRAPPER}")
        for name, child in _children(module) if depth else ():
            inner = f"{wrapped}.{name}" + (f".{_WRAPPER}" if wraps(child) else "")
            yield from _inside(child, f"{plain}.{name}", inner, wraps, depth - 1)
    elif isinstance(module, Result) and canonical(module.call.name).startswith("torch.nn."):
        yield from ((f"{plain}.{name}", f"{wrapped}.{name}") for name in ("weight", "bias"))


def _children(module: Value) -> Iterator[tuple[str, Value]]:
    if container_kind(module) in ("ModuleList", "Sequential"):
        held = held_by(module)
        # One that stands for all has a few numbers.
        for number, child in enumerate(held * 2 if len(held) == 1 else held):
            yield from ((str(number), option) for option in options(child))
    elif isinstance(module, Instance):
        for owner in (module.cls, *ancestors(module.cls)):
            for name, child in owner.fields.items():
                if GAP not in name:
                    yield from ((name, option) for option in options(child))


def _usual_names(model: Value) -> Iterator[str]:
    """Names that parameters of a model may have which the file does not show: as in transformers, timm and torch."""
    prefixes = ("base_model.model.", "") if not is_hf_model(model) else (_adapter(model),)
    for prefix in prefixes:
        yield from (prefix + name for name in _of_transformers(model))
    if not is_hf_model(model):
        yield from _OUTSIDE
        yield from (f"{where}.{number}.{part}.weight" for where in _LISTS for number in _NUMBERS for part in _PARTS)


def _adapter(model: Value) -> str:
    adapted = any(isinstance(it, Result) and canonical(it.call.name).startswith("peft.") for it in options(model))
    return "base_model.model." if adapted else ""


def _of_transformers(model: Value) -> Iterator[str]:
    of_family = HOLDER_OF.get(family_of(unwrapped(model)))
    for row in BACKBONES if of_family is None else (it for it in BACKBONES if it.holder == of_family):
        for holder in _holders(model, row.holder):
            yield from (holder + name for name in row.below)
            yield from (f"{holder}{row.layers}.{number}.{name}" for number in _NUMBERS for name in row.layer)
    yield from (*HEAD_PARAMETERS, "lm_head.weight")


def _holders(model: Value, holder: str) -> tuple[str, ...]:
    """What stands before the names of a backbone: nothing in a model without a head."""
    if not is_hf_model(model):
        return f"{holder}.", ""
    kinds = [canonical(it.call.name) for it in options(unwrapped(model)) if isinstance(it, Result)]
    return (f"{holder}.",) if all("For" in kind or "LMHead" in kind for kind in kinds) else (f"{holder}.", "")
