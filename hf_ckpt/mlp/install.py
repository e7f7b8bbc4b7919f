"""Lets the MLPs of decoder layers run in chunks, and says where they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from .._undo import AttributeChange, Change
from ..policy.decision import Role
from .chunked_forward import ChunkedForward
from .matrices import matrix_widths
from .measured import ChunkedMlps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..anatomy import Anatomy, DecoderLayer

#: Modules that look at several tokens, or whose statistics do.
_ACROSS_TOKENS = (_NormBase, _ConvNd, nn.GroupNorm, nn.RNNBase, nn.MultiheadAttention)


def install(anatomy: Anatomy, chunks: int, *, into: list[Change]) -> ChunkedMlps:
    """Let every MLP that is a module of its own run in so many chunks.

    Args:
        anatomy: The layers of the model, which is changed in place.
        chunks: In how many parts of the tokens.
        into: Gets the changes that undo it, at every moment.

    Returns:
        The MLPs in chunks.
    """
    forwards = [ChunkedForward(name, module, chunks) for name, module in _mlps(anatomy)]
    for forward in forwards:
        into.append(AttributeChange(forward.module, "forward", forward))
    return ChunkedMlps(chunks, tuple(forwards))


def obstacle(anatomy: Anatomy) -> str:
    """Why no MLP of these layers can run in chunks, as a sentence; empty when one can."""
    if any(True for _ in _mlps(anatomy)):
        return ""
    classes = ", ".join(dict.fromkeys(layer.info.class_name for layer in anatomy.layers))
    return (
        f"mlp(chunks) needs an MLP that is a module of its own and computes each token apart from the others, and "
        f"{classes} has none (experts route tokens, a convolution mixes them, BERT's and OPT's are "
        "several modules): leave the chunks out"
    )


def _mlps(anatomy: Anatomy) -> Iterator[tuple[str, nn.Module]]:
    """Each MLP once, also where layers share it."""
    seen: set[nn.Module] = set()
    for layer in anatomy.layers:
        name = _own_module(layer)
        module = None if name is None else layer.module.get_submodule(name)
        if module is not None and module not in seen:
            seen.add(module)
            yield f"{layer.info.name}.{name}", module


def _own_module(layer: DecoderLayer) -> str | None:
    """The name of the one module that is the layer's MLP; None where there are several, or one that mixes tokens.

    One matrix alone is half an MLP: BERT's `intermediate` widens, and its `output` narrows again.
    """
    names = layer.info.sublayers.get(Role.MLP, ())
    if len(names) != 1:
        return None
    module = layer.module.get_submodule(names[0])
    mixes = any(isinstance(part, _ACROSS_TOKENS) for part in module.modules())
    return None if mixes or len(matrix_widths(module)) < 2 else names[0]
