"""Modules of libraries with a BatchNorm inside: models of torchvision, timm and transformers, and blocks."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ...facts.objects.containers import GAP
from ...facts.objects.registered import norm_of
from ...facts.objects.settled import settled
from ...facts.values import Attr, Const, Dict, Element, Ref, Result, Value, equals, is_absent, options
from ..events import Checkpoint
from ..names import canonical
from ..types import unwrapped
from .batch_norms import TORCHVISION, TRANSFORMERS
from .timm_models import has_batch_norm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, Guard
    from ..events import Checkpointing

#: Blocks that build a BatchNorm unless they are given another norm: the position and name of that argument.
_BLOCKS: dict[tuple[str, str], tuple[int, str]] = {
    ("torchvision", "ConvNormActivation"): (6, "norm_layer"),
    ("torchvision", "Conv2dNormActivation"): (6, "norm_layer"),
    ("torchvision", "Conv3dNormActivation"): (6, "norm_layer"),
    ("torchvision", "BasicBlock"): (7, "norm_layer"),
    ("torchvision", "Bottleneck"): (7, "norm_layer"),
}
#: The parts of a resnet whose blocks each have a BatchNorm.
_RESNET_LAYERS = ("layer1", "layer2", "layer3", "layer4")
#: Blocks of mmcv that build the norm of a configuration: the position of `norm_cfg`.
_CONFIGURED = {"ConvModule": 9, "DepthwiseSeparableConvModule": 6}
_LOADS = ("from_pretrained", "from_config", "_from_config")


def built_with_batch_norm(part: Value) -> Result | None:
    """What a library built that ``part`` is, or is a part of, where a BatchNorm is certainly in ``part``."""
    path: list[str] = []
    value = unwrapped(part)
    if isinstance(value, Element):
        value = unwrapped(value.of) if _has_blocks(value) else part
    while isinstance(value, Attr):
        path.insert(0, value.name)
        value = unwrapped(value.base)
    if not isinstance(value, Result):
        return None
    if value.call.method == "children" and not path:
        return built_with_batch_norm(value.call.receiver)
    if has_batch_norm(value.call, ".".join(path)):
        return value
    if not path:
        return value if _is_block(value.call) or _parts_with_norm(value.call) else None
    return value if _is_among(".".join(path), _parts_with_norm(value.call)) else None


def _is_among(part: str, parts: tuple[str, ...]) -> bool:
    """Whether ``part`` is one of ``parts``, or several in turn: `layer{}` for a name that a counter completes."""
    if GAP not in part:
        return part in parts
    pattern = re.compile(r"\d+".join(map(re.escape, part.split(GAP))))
    return sum(pattern.fullmatch(known) is not None for known in parts) > 1


def _has_blocks(part: Element) -> bool:
    """Whether ``part`` is, or certainly holds, a block of one of the four layers of a resnet, which has two or more.

    What a program adds to such a layer comes behind them.
    """
    layer, node = part.of, part.node
    if not isinstance(layer, Attr) or layer.name not in _RESNET_LAYERS:
        return False
    match node:
        case ast.Subscript(slice=ast.Slice(lower=None | ast.Constant(value=0), upper=None, step=None)):
            return True
        case ast.Subscript(slice=ast.Slice(lower=ast.Constant(value=1), upper=None, step=None)):
            return _is_of_torchvision(layer)
        case ast.Subscript(
            slice=ast.Slice(lower=None | ast.Constant(value=0), upper=ast.Constant(int(end)), step=None)
        ):
            return end > 0
        case ast.Subscript():
            return part.index == 0 or (part.index == 1 and _is_of_torchvision(layer))
    return True  # One of those that a loop goes through.


def _is_of_torchvision(layer: Attr) -> bool:
    """Whether no resnet of timm with one block a layer is meant."""
    value: Value = layer
    while isinstance(value, Attr):
        value = unwrapped(value.base)
    return isinstance(value, Result) and value.call.name.startswith("torchvision.")


def configured_with_batch_norm(part: Value) -> Iterator[tuple[Result, tuple[Guard, ...]]]:
    """The block of mmcv that ``part`` is, once for each way in which it has a BatchNorm, with the conditions of it."""
    built = unwrapped(part)
    if not isinstance(built, Result) or not built.call.name.startswith("mmcv.cnn."):
        return
    position = _CONFIGURED.get(built.call.name.rpartition(".")[2])
    if position is None or any(name.endswith("_norm_cfg") for name in built.call.kwargs):
        return
    for configuration, under in settled(built.call.argument(position, "norm_cfg")):
        is_batch_norm = "BatchNorm" in norm_of(configuration)
        if isinstance(configuration, Dict) and is_batch_norm and _is_tracking(configuration):
            yield built, under


def may_skip_norm(event: Checkpointing, calls: Iterable[Call]) -> bool:
    """Whether ``event`` or one of ``calls`` may tell a block of mmcv to leave its norm out: `conv(x, norm=False)`."""
    if isinstance(event, Checkpoint) and ("norm" in event.function_kwargs or len(event.inputs) > 2):
        return True
    return any(
        "norm" in call.kwargs or call.open_kwargs or call.open_args or len(call.args) > 2
        for call in calls
        if not call.name and not call.method
    )


def _is_tracking(configuration: Dict) -> bool:
    """Whether the norm of ``configuration`` keeps statistics, which depend on how often they are updated."""
    tracks = configuration.get("track_running_stats")
    return _moves(configuration.get("momentum")) and (is_absent(tracks) is True or equals(tracks, True) is True)


def _moves(momentum: Value) -> bool:
    """Whether statistics with this momentum depend on how often they are updated."""
    return is_absent(momentum) is True or (isinstance(momentum, Const) and bool(momentum.value))


def layer_with_batch_norm(model: Value) -> str | None:
    """The layer with a BatchNorm that transformers checkpoints in ``model``, whichever of its alternatives it is."""
    layers = [TRANSFORMERS.get(_model_class(unwrapped(option))) for option in options(unwrapped(model))]
    return layers[0] if all(layers) else None


def _is_block(call: Call) -> bool:
    library, last = call.name.partition(".")[0], call.name.rpartition(".")[2]
    given = _BLOCKS.get((library, last))
    return given is not None and is_absent(call.argument(*given)) is True


def _parts_with_norm(call: Call) -> tuple[str, ...]:
    """The parts with a BatchNorm of the model of torchvision that ``call`` builds; empty for anything else."""
    if not call.name.startswith("torchvision.models.") or is_absent(call.keyword("norm_layer")) is not True:
        return ()
    last = call.name.rpartition(".")[2]
    if last == "get_model":
        named = call.argument(0, "name")
        last = named.value if isinstance(named, Const) and isinstance(named.value, str) else ""
    return TORCHVISION.get(last, ())


def _model_class(model: Value) -> str:
    """The name of the class of transformers that ``model`` is an object of; empty for anything else."""
    if not isinstance(model, Result) or not isinstance(model.call.func, Ref):
        return ""
    library, _, made = canonical(model.call.func.name).partition(".")
    kind, _, way = made.partition(".")
    return kind if library == "transformers" and way in ("", *_LOADS) else ""
