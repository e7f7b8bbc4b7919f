"""Hooks and attributes that transformers and accelerate put on modules, and that change no value."""

from __future__ import annotations

#: Modules whose hooks only look: transformers records hidden states and router logits with them.
OBSERVING_MODULES = ("transformers.utils.output_capturing", "transformers.utils.generic")
#: Attributes whose objects are not part of a layer's state: transformers' layer switch, accelerate's hook.
FOREIGN_ATTRIBUTES = frozenset({"_gradient_checkpointing_func", "_hf_hook"})
