"""Lets the MLPs of decoder layers run in chunks, and says where they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from .._undo import AttributeChange
from ..policy.decision import Role
from .chunked_forward import ChunkedForward
from .measured import ChunkedMlps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..anatomy import Anatomy, DecoderLayer

#: Modules that look at several tokens, or whose statistics do.
_ACROSS_TOKENS = (_NormBase, _ConvNd, nn.GroupNorm, nn.RNNBase, nn.MultiheadAttention)


def install(anatomy: Anatomy, chunks: int) -> tuple[ChunkedMlps, list[AttributeChange]]:
    """Let every MLP that is a module of its own run in so many chunks.

    Args:
        anatomy: The layers of the model, which is changed in place.
        chunks: In how many parts of the tokens.

    Returns:
        The MLPs in chunks, and the changes that undo it.
    """
    forwards = [ChunkedForward(name, module, chunks) for name, module in _mlps(anatomy)]
    return ChunkedMlps(chunks, tuple(forwards)), [AttributeChange(f.module, "forward", f) for f in forwards]


def obstacle(anatomy: Anatomy) -> str:
    """Why no MLP of these layers can run in chunks, as a sentence; empty when one can."""
    if any(True for _ in _mlps(anatomy)):
        return ""
    classes = ", ".join(dict.fromkeys(layer.info.class_name for layer in anatomy.layers))
    return (
        f"mlp(chunks) needs an MLP that is a module of its own and computes each token apart from the others, and "
        f"{classes} has none (experts route tokens, a convolution mixes them): leave the chunks out"
    )


def _mlps(anatomy: Anatomy) -> Iterator[tuple[str, nn.Module]]:
    for layer in anatomy.layers:
        name = _own_module(layer)
        if name is not None:
            yield f"{layer.info.name}.{name}", layer.module.get_submodule(name)


def _own_module(layer: DecoderLayer) -> str | None:
    """The name of the one module that is the layer's MLP; None where there are several, or one that mixes tokens."""
    names = layer.info.sublayers.get(Role.MLP, ())
    if len(names) != 1:
        return None
    parts = layer.module.get_submodule(names[0]).modules()
    return None if any(isinstance(part, _ACROSS_TOKENS) for part in parts) else names[0]
