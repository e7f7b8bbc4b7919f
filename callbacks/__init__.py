"""Trainer callbacks: what a user of the HuggingFace Trainer puts into ``callbacks=[...]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hf_ckpt._lazy import lazy_names

if TYPE_CHECKING:
    from .selective import SelectiveCkpt

__all__ = ["SelectiveCkpt"]

__getattr__ = lazy_names(__name__, {"SelectiveCkpt": ".selective"})
