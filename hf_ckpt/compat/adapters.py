"""PEFT's adapters: which are active where, and which of their tensors a saved adapter would lack.

Importing peft takes longer than a forecast: it waits until somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .wrappers import is_checkpoint_wrapper, is_sharded

if TYPE_CHECKING:
    from torch import nn


def active_adapters(model: nn.Module) -> dict[str, object]:
    """For every layer with adapters, by name: those that are active, whether all are off, those merged."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {
        name: (tuple(module.active_adapters), module.disable_adapters, tuple(module.merged_adapters))
        for name, module in model.named_modules()
        if isinstance(module, BaseTunerLayer)
    }


def counts_tokens(module: nn.Module) -> bool:
    """Whether it has an aLoRA adapter, which acts on the last tokens of what it is given."""
    variants: object = getattr(module, "lora_variant", None)
    if not isinstance(variants, dict) or not variants:
        return False
    from peft.tuners.lora.variants import ALoraLinearVariant

    return any(isinstance(each, ALoraLinearVariant) for each in variants.values())


def tensors_left_out(model: nn.Module) -> tuple[str, ...]:
    """Trained adapter tensors that ``save_pretrained`` would not write; nothing is read of a sharded model.

    peft looks them up by module names among state-dict keys, and a checkpoint wrapper is in the names only
    (peft/utils/save_and_load.py, torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py).
    """
    from peft import PeftModel, get_peft_model_state_dict

    adapted = next((module for module in model.modules() if isinstance(module, PeftModel)), None)
    if adapted is None or not any(map(is_checkpoint_wrapper, adapted.modules())):
        return ()
    if any(map(is_sharded, adapted.parameters())):
        return ()
    written = {t.data_ptr() for t in get_peft_model_state_dict(adapted, save_embedding_layers=False).values()}
    trained = ((name, p) for name, p in adapted.named_parameters() if p.requires_grad)
    return tuple(name for name, parameter in trained if parameter.data_ptr() not in written)
