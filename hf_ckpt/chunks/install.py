"""Lets parts of decoder layers run in chunks, and says where none can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from .._undo import AttributeChange, Change
from ..anatomy.roles import matrix_shape, role_of
from ..compat.wrappers import clean_name
from ..policy.decision import Role
from .chunked_forward import ChunkedForward
from .matrices import matrix_widths
from .measured import ChunkedParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..anatomy import Anatomy, DecoderLayer
    from ..policy.base import Chunks

#: Modules that look at several tokens, or whose statistics do.
_ACROSS_TOKENS = (_NormBase, _ConvNd, nn.GroupNorm, nn.RNNBase, nn.MultiheadAttention)
_NEEDS = {
    Role.ATTENTION: "attention(chunks) needs projections that are modules of their own, and {classes} has none",
    Role.MLP: (
        "mlp(chunks) needs an MLP that is a module of its own and computes each token apart from the others, and "
        "{classes} has none (experts route tokens, a convolution mixes them, BERT's and OPT's are several modules)"
    ),
    Role.NORM: "norm(chunks) needs norms that compute each token apart from the others, and {classes} has none",
}


def install(model: nn.Module, anatomy: Anatomy, chunks: Chunks, *, into: list[Change]) -> tuple[ChunkedParts, ...]:
    """Let every part of these roles that is a module of its own run in so many chunks.

    Args:
        model: The model, which is changed in place.
        anatomy: Its layers.
        chunks: In how many parts of the tokens, by role.
        into: Gets the changes that undo it, at every moment.

    Returns:
        The parts in chunks, by role.
    """
    found = []
    for role, count in chunks:
        forwards = [ChunkedForward(name, module, count, role) for name, module in _modules(anatomy, role)]
        around = _norms_around(model, anatomy) if role is Role.NORM else ()
        forwards += [ChunkedForward(name, norm, count, role, outside=True) for name, norm in around]
        for forward in forwards:
            into.append(AttributeChange(forward.module, "forward", forward))
        found.append(ChunkedParts(role, count, tuple(forwards)))
    return tuple(found)


def obstacles(anatomy: Anatomy) -> Mapping[str, str]:
    """Why no part of a role can run in chunks, as a sentence, by the name of the policy; nothing where one can."""
    classes = ", ".join(dict.fromkeys(layer.info.class_name for layer in anatomy.layers))
    missing = [role for role in _NAMES if not any(True for _ in _modules(anatomy, role))]
    return {role: f"{_NEEDS[role].format(classes=classes)}: leave the chunks out" for role in missing}


def _modules(anatomy: Anatomy, role: Role) -> Iterator[tuple[str, nn.Module]]:
    """Each part of this role once, also where layers share it, with its name in the model."""
    seen: set[nn.Module] = set()
    for layer in anatomy.layers:
        for name in _NAMES[role](layer):
            module = layer.module.get_submodule(name)
            if module not in seen:
                seen.add(module)
                yield f"{layer.info.name}.{name}", module


def _own_mlp(layer: DecoderLayer) -> Iterator[str]:
    """The name of the one module that is the layer's MLP; none where there are several, or one that mixes tokens.

    One matrix alone is half an MLP: BERT's `intermediate` widens, and its `output` narrows again.
    """
    names = layer.info.sublayers.get(Role.MLP, ())
    if len(names) != 1:
        return
    module = layer.module.get_submodule(names[0])
    if not _mixes_tokens(module) and len(matrix_widths(module)) > 1:
        yield names[0]


def _norms(layer: DecoderLayer) -> Iterator[str]:
    """The names of the norms outside of an MLP or experts, which may be in chunks themselves."""
    around = [*layer.info.sublayers.get(Role.MLP, ()), *layer.info.sublayers.get(Role.EXPERTS, ())]
    for name in layer.info.sublayers.get(Role.NORM, ()):
        inside = any(name.startswith(f"{other}.") for other in around)
        if not inside and not _mixes_tokens(layer.module.get_submodule(name)):
            yield name


def _norms_around(model: nn.Module, anatomy: Anatomy) -> Iterator[tuple[str, nn.Module]]:
    """The norms that stand beside stacks of layers, such as the last one before the head."""
    layers = {layer.module for layer in anatomy.layers}
    for around, module in model.named_modules():
        if module in layers or not any(part in layers for part in module.modules()):
            continue
        for name, child in module.named_children():
            if role_of(name, child) is Role.NORM and not _mixes_tokens(child):
                yield clean_name(f"{around}.{name}"), child


def _projections(layer: DecoderLayer) -> Iterator[str]:
    """The names of the outermost matrices in attention: below an adapter that is the adapter."""
    for attention in layer.info.sublayers.get(Role.ATTENTION, ()):
        taken: list[str] = []
        for name, module in layer.module.get_submodule(attention).named_modules(prefix=attention):
            if matrix_shape(module) is not None and not any(name.startswith(f"{other}.") for other in taken):
                taken.append(name)
                yield name


def _mixes_tokens(module: nn.Module) -> bool:
    return any(isinstance(part, _ACROSS_TOKENS) for part in module.modules())


_NAMES: dict[Role, Callable[[DecoderLayer], Iterator[str]]] = {
    Role.ATTENTION: _projections,
    Role.MLP: _own_mlp,
    Role.NORM: _norms,
}
