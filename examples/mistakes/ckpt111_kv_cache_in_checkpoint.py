"""Layers wrapped by hand, reentrant, in a language model that still fills its key/value cache."""

from functools import partial

import torch
from _symptom import confirm, gradients, tokens
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def step(checkpointing):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config)
    model.train()
    if checkpointing:
        apply_activation_checkpointing(  # mistake: CKPT111
            model,
            checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT),
            check_fn=lambda module: isinstance(module, LlamaDecoderLayer),
        )
    loss = model(**tokens()).loss
    loss.backward()
    return loss.item(), gradients(model)


def main():
    (loss, wanted), (same_loss, found) = step(False), step(True)
    silent = [name for name in wanted if wanted[name].norm() > 0 and found[name].norm() == 0]
    confirm(
        loss == same_loss and len(silent) == 6 and all("k_proj" in name or "v_proj" in name for name in silent),
        f"the loss is the same bit by bit, and the gradients of {len(silent)} weights (k_proj, v_proj) are exactly 0",
    )


if __name__ == "__main__":
    main()
