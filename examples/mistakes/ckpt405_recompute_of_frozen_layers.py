"""A frozen backbone under checkpointing: every frozen layer is recomputed and differentiated for nothing."""

from _symptom import TINY, Executions, confirm, tokens
from transformers import LlamaConfig, LlamaForCausalLM


def executions(stop_at_the_head):
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    for parameter in model.model.parameters():
        parameter.requires_grad = False
    model.train()
    if stop_at_the_head:
        return measure(model)
    model.activation_checkpointing_enable()  # mistake: CKPT405
    return measure(model)


def measure(model):
    with Executions(*(layer.self_attn for layer in model.model.layers)) as runs:
        model(**tokens()).loss.backward()
    return runs.count


def main():
    through, stopped = executions(stop_at_the_head=False), executions(stop_at_the_head=True)
    confirm(
        through == 2 * stopped == 6, f"{through} executions of 3 frozen layers in a step, {stopped} without the line"
    )


if __name__ == "__main__":
    main()
