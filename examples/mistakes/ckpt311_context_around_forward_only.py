"""`sdpa_kernel` around the forward pass only: the recomputation runs with another kernel."""

from _symptom import TINY, confirm, failure, tokens
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM


def train():
    model = LlamaForCausalLM(LlamaConfig(**TINY)).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with sdpa_kernel(SDPBackend.MATH):
        loss = model(**tokens()).loss  # mistake: CKPT311
    loss.backward()


def train_right():
    model = LlamaForCausalLM(LlamaConfig(**TINY)).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with sdpa_kernel(SDPBackend.MATH):
        loss = model(**tokens()).loss
        loss.backward()


def main():
    found, wanted = failure(train), failure(train_right)
    confirm("CheckpointError" in found and not wanted, found)


if __name__ == "__main__":
    main()
