"""Builds the model that a command speaks about, and a batch for it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)

from ..compat.models import builds
from ..errors import CkptError
from .layers import set_layers
from .subject import DTYPES

if TYPE_CHECKING:
    from torch import nn

    from .subject import Subject


def build_model(subject: Subject, device: torch.device | str) -> nn.Module:
    """The model with random weights on ``device`` (``"meta"``: no memory at all), in training mode.

    Raises CkptError when there is no such model, its config is not valid, it does not train on token ids, or
    transformers cannot build it.
    """
    config = _config(subject.model)
    if subject.layers is not None:
        set_layers(config, subject.layers)
    kind = _kind(subject.model, config)
    with torch.device(device):
        try:
            model: nn.Module = kind.from_config(
                config, attn_implementation=subject.attention, dtype=getattr(torch, DTYPES[subject.dtype])
            )
        except Exception as error:
            # Whatever a config makes a constructor do.
            raise CkptError(f"transformers cannot build `{subject.model}`: {_first_line(error)}") from error
        if subject.lora:
            model = _with_lora(model, subject)
    return model.train()


def token_ids(subject: Subject, model: nn.Module, device: torch.device | str) -> torch.Tensor:
    """Token ids (batch, length), int64."""
    vocabulary = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    if torch.device(device).type == "meta":
        return torch.zeros(subject.batch, subject.length, dtype=torch.long, device="meta")
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (subject.batch, subject.length), generator=generator).to(device)


def check_runs(model: nn.Module, ids: torch.Tensor, subject: Subject) -> None:
    """Raise CkptError where the model's forward fails on these token ids; running out of memory is raised as it is."""
    try:
        with torch.no_grad():
            model(input_ids=ids, labels=ids, use_cache=False)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        # Whatever a config makes a forward do.
        size = f"{subject.batch} x {subject.length} token ids"
        raise CkptError(f"`{subject.model}` does not run on {size}: {_first_line(error)}") from error


def _config(model: str) -> Any:
    try:
        return AutoConfig.from_pretrained(model, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise CkptError(
                f"`{model}` brings code of its own, which hf-ckpt does not run: load the model yourself, with "
                "trust_remote_code=True where you trust it, and use `hf_ckpt.apply` and `handle.measure()`"
            ) from error
        raise CkptError(
            f"`{model}` is neither a model on the hub nor a folder with a config.json: {_first_line(error)}"
        ) from error
    except Exception as error:
        # huggingface_hub's validation errors have no base class beside Exception, and their cause says what is wrong.
        raise CkptError(f"the config of `{model}` is not valid: {_first_line(error.__cause__ or error)}") from error


def _kind(model: str, config: Any) -> Any:
    """The auto class that gives this config a loss on token ids."""
    for kind in _kinds(config):
        if builds(kind, config):
            return kind
    raise CkptError(
        f"`{model}` is a {type(config).__name__}, which transformers trains on something else than token ids: "
        "use `hf_ckpt.apply` and `handle.measure()` on your own batch"
    )


def _kinds(config: Any) -> tuple[Any, ...]:
    if config.is_encoder_decoder:
        return (AutoModelForSeq2SeqLM,)
    # BERT and its like have a causal class too, which they are used with only where the config says so.
    named = " ".join(getattr(config, "architectures", None) or ())
    causal = getattr(config, "is_decoder", False) or "CausalLM" in named or "LMHead" in named
    first = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    return (first, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMaskedLM)


def _with_lora(model: nn.Module, subject: Subject) -> nn.Module:
    from peft import LoraConfig, get_peft_model  # start-up: only --lora needs it

    every = "all-linear"  # peft reads it as a word alone, not in a list
    targets = every if every in subject.lora_targets else list(subject.lora_targets) or every
    config = LoraConfig(r=subject.lora, target_modules=targets, lora_dropout=subject.lora_dropout)
    try:
        with warnings.catch_warnings():
            # peft asks transformers for an attribute under its old name.
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*is_gradient_checkpointing")
            adapted: nn.Module = get_peft_model(model, config)
    except ValueError as error:
        raise CkptError(f"peft puts no adapter on `{subject.model}`: {_first_line(error)}") from error
    return adapted


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
