"""A LoRA adapter saved from a model with checkpoint wrappers in it: the file holds no tensor."""

import tempfile

from _symptom import TINY, confirm
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def train(output):
    model = LlamaForCausalLM(LlamaConfig(**TINY, use_cache=False))
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))  # mistake: CKPT110
    model.save_pretrained(output)
    return model


def main():
    with tempfile.TemporaryDirectory() as output:
        model = train(output)
        with safe_open(f"{output}/adapter_model.safetensors", "pt") as file:
            written = len(list(file.keys()))
    trained = sum("lora_" in name for name, _ in model.named_parameters())
    confirm((written, trained) == (0, 12), f"{written} of {trained} adapter tensors were written")


if __name__ == "__main__":
    main()
