"""LoRA under FSDP2 with accelerate's own checkpointing: the recomputed `lora_dropout` is another one."""

from types import SimpleNamespace

import torch
from _symptom import TINY, confirm, gradient_error, gradients, tokens
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def adapted():
    torch.manual_seed(0)
    lora = LoraConfig(r=4, lora_dropout=0.1, init_lora_weights=False, target_modules=["q_proj", "v_proj"])
    return get_peft_model(LlamaForCausalLM(LlamaConfig(**TINY, use_cache=False)), lora)


def fsdp_plugin():
    return FullyShardedDataParallelPlugin(  # mistake: CKPT109
        fsdp_version=2,
        activation_checkpointing=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )


def finetune(batches):
    """What a cluster runs."""
    accelerator = Accelerator(fsdp_plugin=fsdp_plugin())
    model = adapted()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in batches:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()


def first_step(checkpointing):
    """The first step of it on one CPU, which accelerate refuses to shard: only the wrapping is done."""
    model = adapted()
    if checkpointing:
        plugin = fsdp_plugin()
        plugin.set_auto_wrap_policy(model)
        model = fsdp2_apply_ac(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), model)
    torch.manual_seed(1)
    loss = model.train()(**tokens()).loss
    return loss.item(), gradients(model, loss)


def main():
    (loss, wanted), (same_loss, found) = first_step(False), first_step(True)
    error = gradient_error(found, wanted)
    confirm(loss == same_loss and error > 0.3, f"the loss is the same bit by bit, gradients are {error:.0%} off")


if __name__ == "__main__":
    main()
