"""transformers' models: the one inside the wrappers, its output embeddings, its loss, its attention implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel
from transformers.loss.loss_utils import ForCausalLMLoss

from .._undo import AttributeChange

if TYPE_CHECKING:
    from collections.abc import Iterator


def transformers_models(model: torch.nn.Module) -> Iterator[PreTrainedModel]:
    """The transformers models inside ``model`` (itself, or what wrappers hold), the outermost first."""
    return (module for module in model.modules() if isinstance(module, PreTrainedModel))


def root_model(model: torch.nn.Module) -> PreTrainedModel | None:
    """The outermost transformers model; None when there is none."""
    return next(transformers_models(model), None)


def owner_of(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """The nearest transformers model above the submodule ``name``, or the root."""
    parts = name.split(".")
    for end in range(len(parts) - 1, -1, -1):
        module = model.get_submodule(".".join(parts[:end]))
        if isinstance(module, PreTrainedModel):
            owner: torch.nn.Module = module
            return owner
    return model


def output_head(model: torch.nn.Module) -> tuple[PreTrainedModel, torch.nn.Module] | None:
    """The outermost transformers model that owns output embeddings (an ``lm_head``), and those; None without any."""
    for module in transformers_models(model):
        head = module.get_output_embeddings()
        if isinstance(head, torch.nn.Module):
            return module, head
    return None


def uses_causal_lm_loss(model: PreTrainedModel) -> bool:
    """Whether its loss is transformers' token-wise cross-entropy of causal language models."""
    return model.loss_function is ForCausalLMLoss


def set_loss_function(model: PreTrainedModel, loss: Any) -> AttributeChange:
    """Replace the loss of one model: ``loss_function`` is a property over this attribute (modeling_utils.py)."""
    return AttributeChange(model, "_loss_function", loss)


def attention_implementation(config: Any) -> str | None:
    """``"eager"``, ``"sdpa"``, ``"flash_attention_2"``, ... as a config says it; None when it does not."""
    kernel = getattr(config, "_attn_implementation", None)
    return kernel if isinstance(kernel, str) else None


def supports_flash_attention(model: torch.nn.Module) -> bool:
    """Whether the classes of the transformers models inside say that they run with the package flash_attn."""
    root = root_model(model)
    return root is not None and bool(getattr(root, "_supports_flash_attn", False))


def unsplit_modules(model: torch.nn.Module) -> list[str]:
    """The classes of modules that ``device_map`` keeps on one card each (transformers/modeling_utils.py)."""
    return list(getattr(model, "_no_split_modules", None) or ())


def builds(auto_class: Any, config: Any) -> bool:
    """Whether an ``AutoModelFor...`` class has a model for this config."""
    return type(config) in auto_class._model_mapping
