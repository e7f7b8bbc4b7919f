"""`use_reentrant="False"` is a string, and a string is true."""

from _symptom import TINY, confirm, reentrant_nodes, tokens
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable({"use_reentrant": "False"})  # mistake: CKPT133
    return model.train()


def main():
    found = reentrant_nodes(build()(**tokens()).loss)
    confirm(found == 3, f"{found} of 3 layers run the reentrant variant")


if __name__ == "__main__":
    main()
