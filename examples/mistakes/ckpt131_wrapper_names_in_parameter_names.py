"""Optimizer groups chosen by name after checkpoint wrapping: the names have changed and the group is empty."""

import torch
from _symptom import TINY, confirm
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def build_optimizer(model):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    first = [
        weight
        for name, weight in model.named_parameters()
        if name.startswith("model.layers.0.self_attn")  # mistake: CKPT131
    ]
    return torch.optim.AdamW([{"params": first, "lr": 1e-4}])


def main():
    model = LlamaForCausalLM(LlamaConfig(**TINY, use_cache=False))
    wanted = sum(".0.self_attn" in name for name, _ in model.named_parameters())
    found = len(build_optimizer(model).param_groups[0]["params"])
    confirm((found, wanted) == (0, 4), f"the group holds {found} of {wanted} tensors")


if __name__ == "__main__":
    main()
