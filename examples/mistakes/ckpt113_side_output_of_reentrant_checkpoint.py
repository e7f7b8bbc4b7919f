"""A mixture of experts with its load-balancing loss, checkpointed reentrant: the routers do not feel that loss."""

import torch
from _symptom import TINY, confirm, gradient_error, gradients, tokens
from transformers import MixtralConfig, MixtralForCausalLM


def build():
    torch.manual_seed(0)
    config = MixtralConfig(**TINY, num_local_experts=4, router_aux_loss_coef=1.0)
    config.output_router_logits = True
    return MixtralForCausalLM(config).train()


def routers(model):
    loss = model(**tokens()).loss
    found = gradients(model, loss)
    return loss.item(), {name: grad for name, grad in found.items() if name.endswith("gate.weight")}


def main():
    loss, wanted = routers(build())
    model = build()
    model.config.output_router_logits = True
    model.gradient_checkpointing_enable({"use_reentrant": True})  # mistake: CKPT113
    same_loss, found = routers(model)
    error = gradient_error(found, wanted)
    confirm(loss == same_loss and error > 0.5, f"the loss is the same bit by bit, router gradients are {error:.0%} off")


if __name__ == "__main__":
    main()
