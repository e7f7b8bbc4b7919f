"""How large a model call is: its text, what its decoder is to say, and its images or sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from ...compat.models import root_model
from .per_batch import BatchSize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TEXT = ("input_ids", "inputs_embeds")
_TARGETS = ("labels", "decoder_input_ids", "decoder_inputs_embeds")
_MEDIA = ("pixel_values", "pixel_values_videos", "input_features", "input_values")


@dataclass(frozen=True, slots=True)
class CallMeter:
    """Measures calls of a model with this ``main_input``; ``encodes``: it is an encoder and a decoder."""

    main_input: str = "input_ids"
    encodes: bool = False

    def size(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BatchSize | None:
        """The padded size of a call; None when no argument has rows."""
        named = {**{self._name_of(value): value for value in args[:1]}, **kwargs}
        texts = _rows(named, _TEXT)[:1]
        media = _rows(named, dict.fromkeys(name for name in (self.main_input, *_MEDIA) if name not in _TEXT))
        if not texts and not media:
            media = _rows(named, named)[:1]
        if not texts and not media:
            return None
        targets = _rows(named, _TARGETS) if self.encodes else []
        return BatchSize(
            tokens=_most(tensor.shape[:2].numel() for tensor in texts),
            length=_most(tensor.shape[1] for tensor in texts),
            target_tokens=_most(tensor.shape[:2].numel() for tensor in targets),
            target_length=_most(tensor.shape[1] for tensor in targets),
            media=sum(tensor.numel() for tensor in media),
            media_row=_most(tensor[:1].numel() for tensor in media),
        )

    def _name_of(self, first: Any) -> str:
        """What a first positional argument is: token ids or embeddings, or else pixels or sound."""
        if isinstance(first, torch.Tensor) and first.is_floating_point():
            return "input_ids" if self.main_input in _TEXT and first.dim() <= 3 else "pixel_values"
        return "input_ids"


def call_meter(model: torch.nn.Module) -> CallMeter:
    """The meter for calls of ``model``, which may be wrapped."""
    root = root_model(model)
    if root is None:
        return CallMeter()
    main = root.main_input_name  # several names in OneFormer, the image's first
    return CallMeter(
        main if isinstance(main, str) else main[0], bool(getattr(root.config, "is_encoder_decoder", False))
    )


def _rows(named: Mapping[str, Any], names: Sequence[str] | Mapping[str, Any]) -> list[torch.Tensor]:
    leaves = (leaf for name in names for leaf in tree_leaves(named.get(name)))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() >= 2]


def _most(values: Any) -> int:
    return max(values, default=0)
