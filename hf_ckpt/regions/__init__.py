"""Regions: what a decision becomes on a real module, one kind a file.

:class:`TracedRegion` is a layer under the traced-replay engine, :class:`TracedForwardRegion` one that transformers
cannot switch. The others are built on ``torch.utils.checkpoint``:
they are the reference engine, and serve segments. All of them are
non-reentrant, keep dropout exact, survive ``deepcopy`` and pickling with their module, and change instances only, never
classes: patching ``forward`` on a class silently switches activation checkpointing off in transformers 5.23.
"""

from __future__ import annotations

from .forward import ForwardRegion
from .layer import LayerRegion
from .ops import SaveableContexts
from .region import Observer, Region
from .segment import SegmentRegion
from .traced import TracedForwardRegion, TracedRegion

__all__ = [
    "ForwardRegion",
    "LayerRegion",
    "Observer",
    "Region",
    "SaveableContexts",
    "SegmentRegion",
    "TracedForwardRegion",
    "TracedRegion",
]
