"""The adapter is attached first and frozen by the preparation; training runs and learns nothing."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_cache=False,
)


def main() -> None:
    base = LlamaForCausalLM(CONFIG)
    base.is_loaded_in_4bit = True  # stands for a quantized checkpoint: it is all the preparation looks at
    model = get_peft_model(base, LoraConfig(target_modules=["q_proj", "v_proj"]))
    model = prepare_model_for_kbit_training(  # mistake: CKPT123
        model, gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    model.train()
    trainable = sum(parameter.requires_grad for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    ids = torch.randint(64, (2, 16))
    losses = []
    for _ in range(3):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert trainable == 0
    assert len(set(losses)) == 1
    print(f"confirmed: {trainable} trainable parameters, and the loss stays at {losses[0]:.4f} for {len(losses)} steps")


if __name__ == "__main__":
    main()
