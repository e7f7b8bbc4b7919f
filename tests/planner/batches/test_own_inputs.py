"""Layers through which two streams go, as in diffusion transformers: each holds its own of both."""

from functools import partial

import pytest
import torch
from torch import nn

from hf_ckpt import apply
from hf_ckpt.engine import TracedReplay
from hf_ckpt.planner.batches.own_inputs import own_inputs
from hf_ckpt.policy.decision import RecomputeExcept, SaveableOps

WIDTH = 16
#: All layers share the mask, which a replay may hold where the plain model does not.
MASK_BYTES = 40 * 4


class Block(nn.Module):
    """Image and text attend to each other under one mask, and go on apart."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, image: torch.Tensor, text: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.cat([self.norm1(image), self.norm2(text)], dim=1)
        q, k, v = self.attn(both).chunk(3, dim=-1)
        both = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        image, text = image + both[:, : image.shape[1]], text + both[:, image.shape[1] :]
        return image + self.mlp(image), text


class TwoStreams(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(image.shape[1] + text.shape[1], 1)
        for block in self.blocks:
            image, text = block(image, text, mask)
        return image.pow(2).mean() + text.pow(2).mean()


def step(model: nn.Module) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    image, text = (torch.randn(2, length, WIDTH, generator=generator) for length in (24, 16))
    model.zero_grad()
    model(image.requires_grad_(), text.requires_grad_()).backward()
    return [p.grad.clone() for p in model.parameters()]


def held(model: nn.Module, policy: str) -> tuple[int, list[torch.Tensor]]:
    handle = apply(model, policy)
    for _ in range(2):
        step(model)
    with handle.measure():
        gradients = step(model)
    layers = handle.report().layers
    handle.restore()
    return sum(layer.held_bytes or 0 for layer in layers), gradients


@pytest.mark.parametrize("share", [0.9, 0.6, 0.45])
def test_a_share_holds_where_every_layer_has_two_streams_of_its_own(share: float) -> None:
    model = TwoStreams().train()
    everything, expected = held(model, "none")
    bytes_held, gradients = held(model, f"budget={share}")
    assert all(map(torch.equal, gradients, expected))
    assert (share - 0.1) * everything <= bytes_held <= share * everything + MASK_BYTES


def test_what_several_layers_are_given_is_none_of_theirs() -> None:
    mask, table = 7, 8
    first, second = (1, mask, 2, table), (3, mask, 4, table, 4)
    assert own_inputs([first, second]) == (frozenset({2}), frozenset({2}))
    assert own_inputs([(1, mask), ()]) == (frozenset({1}), frozenset())


def test_tensors_that_are_gone_are_not_taken_for_those_of_another_layer() -> None:
    class Masked(nn.Linear):
        def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return super().forward((hidden + mask).exp()).tanh()

    plan = RecomputeExcept(SaveableOps("names", frozenset({"exp"})))
    layers = [(Masked(64, 64), TracedReplay(str(place), plan)) for place in range(6)]
    for _ in range(2):
        hidden = torch.randn(4, 64, requires_grad=True)
        for layer, engine in layers:
            engine.counts = True
            hidden = engine(partial(layer.forward), hidden, torch.randn(4, 64))  # its plan needs neither of them
        hidden.sum().backward()
    given = [engine.given for _, engine in layers]
    assert own_inputs(given) == (frozenset({1}),) * 6
    assert len({keys[0] for keys in given}) == 6
