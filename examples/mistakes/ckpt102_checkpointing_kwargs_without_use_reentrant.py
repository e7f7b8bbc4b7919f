"""A dict with one harmless option for checkpointing switches transformers to the reentrant variant."""

from _symptom import TINY, confirm, reentrant_nodes, tokens
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable({"preserve_rng_state": True})  # mistake: CKPT102
    return model.train()


def build_right():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable({"preserve_rng_state": True, "use_reentrant": False})
    return model.train()


def main():
    found, wanted = (reentrant_nodes(model(**tokens()).loss) for model in (build(), build_right()))
    confirm((found, wanted) == (3, 0), f"{found} of 3 layers run the reentrant variant, {wanted} with the key given")


if __name__ == "__main__":
    main()
