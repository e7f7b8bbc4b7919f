"""Ledgers of every decoder layer without running the model: metadata only, no weights, no GPU."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from ..compat.checkpointing import set_checkpointing, supports_checkpointing
from ..compat.masks import no_packed_sequences
from ..engine import UntraceableError, ledger_of
from ..engine.tracing.fake_mode import static_mode
from ..errors import ModelStructureError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import nn

    from ..anatomy import Anatomy, DecoderLayer
    from ..devices.cuda_ops import CudaOps
    from ..ledger import LayerLedger


class _Caught:
    """Stands as a layer's ``_gradient_checkpointing_func`` and notes the call.

    ``results`` are shared by the layers of a model: what a layer returned is what the next one alike returns.
    """

    def __init__(self, layer: DecoderLayer, results: dict[Hashable, Any]) -> None:
        self.layer = layer
        self.trains = any(p.requires_grad for p in layer.module.parameters())
        self.results = results
        self.call: partial[Any] | None = None
        self.args: tuple[Any, ...] = ()

    def __call__(self, call: partial[Any], *args: Any) -> Any:
        self.call, self.args = call, args
        if not all(map(_is_plain, (*args, *call.keywords.values()))):
            return self._run(call, args)
        key = _alike(self.layer, self)
        if key not in self.results:
            self.results[key] = self._run(call, args)
        return tree_map_only(torch.Tensor, _again, self.results[key])

    def _run(self, call: partial[Any], args: tuple[Any, ...]) -> Any:
        try:
            return call(*args)
        except (NotImplementedError, RuntimeError):
            # Data-dependent layers (a router) cannot run on metadata; the next layer needs the shape, and to know
            # whether gradients flow into it.
            return torch.empty_like(args[0]).requires_grad_(self.trains or args[0].requires_grad)


def _is_plain(value: Any) -> bool:
    """Whether a layer can leave nothing for others in ``value``, as it can in a dict or a cache."""
    return all(
        leaf is None or isinstance(leaf, torch.Tensor | int | float | str)
        for leaf in (value if isinstance(value, tuple) else (value,))
    )


def _again(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor with the same metadata."""
    return torch.empty_like(tensor).requires_grad_(tensor.requires_grad)


def dry_ledgers(
    model: nn.Module,
    anatomy: Anatomy,
    ids: torch.Tensor,
    device: torch.device,
    *,
    autocast: torch.dtype | None = None,
    card: CudaOps | None = None,
) -> list[LayerLedger | None]:
    """Trace every layer of a model for one size of batch, without running it.

    Args:
        model: The model, which stays untouched; it may be on the meta device.
        anatomy: What was found in it.
        ids: Token ids (batch, length); an encoder-decoder gets them on both sides.
        device: The device to plan for: kernels differ.
        autocast: The type to compute in under autocast; None: no autocast.
        card: Makes a trace on the CPU run the ops of a card.

    Returns:
        The ledger of each layer, in order; None for a layer that cannot be traced.

    Raises:
        ModelStructureError: No layer has transformers' checkpointing switch, or the forward never reaches them or fails
            on values that are not there.
    """
    caught = _catch(model, anatomy, ids)
    ledgers: dict[Hashable, LayerLedger | None] = {}
    found = []
    casting: Any = nullcontext() if autocast is None else torch.autocast(device.type, autocast)
    for layer, note in zip(anatomy.layers, caught, strict=True):
        key = _alike(layer, note)
        if key not in ledgers:
            with casting, card or nullcontext():
                ledgers[key] = _ledger(note, device)
        found.append(ledgers[key])
    return found


def _catch(model: nn.Module, anatomy: Anatomy, ids: torch.Tensor) -> list[_Caught]:
    if not all(supports_checkpointing(layer.module) for layer in anatomy.layers):
        raise ModelStructureError(
            f"the layers of {type(model).__name__} have no checkpointing switch of transformers, so they cannot be "
            "forecast; every policy still works on it"
        )
    results: dict[Hashable, Any] = {}
    caught = [_Caught(layer, results) for layer in anatomy.layers]
    changes = [
        change
        for layer, note in zip(anatomy.layers, caught, strict=True)
        for change in set_checkpointing(layer.module, True, note)
    ]
    training = model.training
    try:
        # transformers asks fake tensors no questions about their values, and meta tensors it does.
        with static_mode(allow_non_fake_inputs=True) as mode, no_packed_sequences():
            model.train()(**_inputs(model, mode.from_tensor(ids)), use_cache=False)
    except Exception as error:
        if all(note.call is not None for note in caught):
            return caught  # What comes behind the layers asks for values: the balance of experts in transformers 5.17.
        # Whatever a model asks of values that are not there.
        first = (str(error).strip() or "no message").splitlines()[0]
        raise ModelStructureError(
            f"{type(model).__name__} does not run on token ids without values ({type(error).__name__}: {first[:200]}): "
            "measure it with `hf-ckpt bench`, or `hf_ckpt.apply` and `handle.measure()`"
        ) from error
    finally:
        model.train(training)
        for change in reversed(changes):
            change.undo()
    if any(note.call is None for note in caught):
        raise ModelStructureError(
            f"a forward of {type(model).__name__} on token ids does not run all of its layers: measure it with "
            "`hf_ckpt.apply` and `handle.measure()` on your own batch"
        )
    return caught


def _inputs(model: nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    encodes: bool = getattr(model.config, "is_encoder_decoder", False)
    return {"input_ids": ids} | ({"decoder_input_ids": ids} if encodes else {})


def _ledger(note: _Caught, device: torch.device) -> LayerLedger | None:
    assert note.call is not None
    args, keywords = tree_map_only(torch.Tensor, _as_meta, (note.args, note.call.keywords))
    call = partial(note.call.func, *note.call.args, **keywords)
    try:
        return ledger_of(call, *args, device=device)
    except UntraceableError:
        return None


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    """The same metadata outside the fake mode, which ends with the dry forward."""
    plain = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return plain.requires_grad_(tensor.requires_grad)


def _alike(layer: DecoderLayer, note: _Caught) -> Hashable:
    """Layers with the same class, parameters, settings and inputs have the same ledger."""
    assert note.call is not None
    parameters = tuple((n, p.shape, p.dtype, p.requires_grad) for n, p in layer.module.named_parameters())
    kinds = tuple(getattr(m, name, None) for m in layer.module.modules() for name in ("layer_type", "sliding_window"))
    inputs = [note.args, sorted(note.call.keywords.items())]
    tensors = tuple(
        (x.shape, x.requires_grad) if isinstance(x, torch.Tensor) else str(type(x)) for x in tree_leaves(inputs)
    )
    return type(layer.module), parameters, kinds, tensors
