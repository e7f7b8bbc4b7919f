"""Module names as the user knows them: without the prefixes that wrappers put in."""

from __future__ import annotations

import re

# DDP and DataParallel add `module.` at the root only; a model may well have a submodule of that name further down.
_ROOT = re.compile(r"^(?:module\.|_orig_mod\.)+")
_INSIDE = re.compile(r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_PEFT = re.compile(r"^base_model\.model\.")


def clean_name(name: str) -> str:
    """``name`` without DDP, FSDP1, torch.compile, checkpoint-wrapper and PEFT prefixes."""
    return _PEFT.sub("", _INSIDE.sub("", _ROOT.sub("", name + "."))).removesuffix(".")
