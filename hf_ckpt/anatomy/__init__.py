"""Reading a model: where its decoder layers are, what their sublayers do, which attention kernel they call."""

from __future__ import annotations

from .model import Anatomy, DecoderLayer, read_anatomy

__all__ = ["Anatomy", "DecoderLayer", "read_anatomy"]
