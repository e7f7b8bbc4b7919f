"""Small configs of real architectures, built with random weights, and the steps the tests run on them."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen3Config,
    T5Config,
    T5ForConditionalGeneration,
)

VOCABULARY = 256
_SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": VOCABULARY,
    "head_dim": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_LORA_TARGETS = {"gpt2": ["c_attn", "c_fc"]}


def config(name: str) -> PretrainedConfig:
    """The five architectures of the acceptance list; dropout is on wherever the architecture has it."""
    match name:
        case "llama":
            return LlamaConfig(**_SMALL, attention_dropout=0.1)
        case "qwen3":
            return Qwen3Config(**_SMALL)
        case "gemma3":
            return Gemma3TextConfig(**_SMALL)
        case "gpt2":
            return GPT2Config(
                n_embd=32, n_layer=4, n_head=4, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=1,
                resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1,
            )  # fmt: skip
        case "mixtral":
            return MixtralConfig(**_SMALL, num_local_experts=4, output_router_logits=True)
    raise ValueError(name)


ARCHITECTURES = ("llama", "qwen3", "gemma3", "gpt2", "mixtral")


def build(name: str, *, lora: bool = False, kernel: str = "sdpa") -> nn.Module:
    """The architecture with weights that depend on nothing but its name; LoRA with dropout 0.1 on request."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(name), attn_implementation=kernel)
    # Trainer 5 and later does so too; a cache copies keys, and copies run through other kernels, to the last bit.
    model.config.use_cache = False
    if lora:
        targets = _LORA_TARGETS.get(name, ["q_proj", "v_proj", "o_proj"])
        model = get_peft_model(model, LoraConfig(r=4, lora_dropout=0.1, target_modules=targets))
    return model.train()


def build_vlm() -> nn.Module:
    """Gemma3 with a SigLIP vision tower of three layers in front of four language layers."""
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    torch.manual_seed(0)
    return Gemma3ForConditionalGeneration(Gemma3Config(text_config=dict(_SMALL), vision_config=vision)).train()


def build_encoder() -> nn.Module:
    """BERT with three layers and its dropout of 0.1."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    return BertForMaskedLM(BertConfig(**sizes, vocab_size=VOCABULARY)).train()


def build_encoder_decoder() -> nn.Module:
    """T5 with two layers a side and its dropout of 0.1; the decoder, whose config is its own, keeps no cache."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": VOCABULARY}
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))
    model.config.use_cache = model.decoder.config.use_cache = False
    return model.train()


def batch(size: int = 2, length: int = 12) -> torch.Tensor:
    """Token ids (size, length), int64."""
    return torch.randint(0, VOCABULARY, (size, length), generator=torch.Generator().manual_seed(3))


def step(model: nn.Module, ids: torch.Tensor | None = None, *, bf16: bool = False) -> tuple[torch.Tensor, list]:
    """One forward and backward under a fixed seed: the loss and every gradient (None where there is none)."""
    ids = batch() if ids is None else ids
    model.zero_grad()
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.detach(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def same(a: tuple[torch.Tensor, list], b: tuple[torch.Tensor, list]) -> bool:
    """Bitwise equality of two steps."""
    return torch.equal(a[0], b[0]) and all(
        (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y))
        for x, y in zip(a[1], b[1], strict=True)
    )


def fingerprint(model: nn.Module) -> dict[str, object]:
    """What `restore` must bring back: instance attributes, hooks and configs of every module."""
    return {
        name: (
            {k: id(v) for k, v in vars(m).items() if k != "training"},
            len(m._forward_hooks),
            len(m._forward_pre_hooks),
            getattr(getattr(m, "config", None), "use_cache", None),
        )
        for name, m in model.named_modules()
    }
