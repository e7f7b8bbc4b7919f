"""Vision LoRA with `use_reentrant=True`, a setting that works for text: the adapters never train, only the head does."""

import torch
from _symptom import confirm, gradients, missing
from peft import LoraConfig, get_peft_model
from transformers import ViTConfig, ViTForImageClassification


def build():
    config = ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
        num_labels=4,
    )
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["classifier"])
    return get_peft_model(ViTForImageClassification(config), lora)


def main():
    model = build()
    model.gradient_checkpointing_enable({"use_reentrant": True})  # mistake: CKPT104
    model.train()
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        loss = model(pixel_values=images, labels=labels).loss
        lost = missing(gradients(model, loss))
        optimizer.step()
        losses.append(loss.item())
    confirm(
        losses[-1] < losses[0] and len(lost) == 12 and all("lora" in name for name in lost),
        f"the loss falls from {losses[0]:.2f} to {losses[-1]:.2f}, and {len(lost)} of 12 adapter tensors never "
        "got a gradient",
    )


if __name__ == "__main__":
    main()
