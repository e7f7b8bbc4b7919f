"""A replay meets the switches inside its layer as the forward met them: T5's attention asks its own."""

from torch import nn

import hf_ckpt

from ..models import batch, build_encoder_decoder


def test_code_that_asks_a_switch_inside_the_layer() -> None:
    model = build_encoder_decoder()
    _without_dropout(model)
    plain = _gradients(model)
    for policy, engine in (("full", "torch"), ("attention", "torch"), ("segments(2)", "torch"), ("full", "traced")):
        handle = hf_ckpt.apply(model, policy, engine=engine)
        for _ in range(2):
            assert all((a == b).all() for a, b in zip(_gradients(model), plain, strict=True)), (policy, engine)
        assert model.decoder.block[0].layer[0].SelfAttention.gradient_checkpointing
        handle.restore()


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        for rate in ("p", "dropout"):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.0)


def _gradients(model: nn.Module) -> list:
    model.zero_grad()
    model(input_ids=batch(), labels=batch()).loss.backward()
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
