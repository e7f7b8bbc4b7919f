"""Padded batches: attention pads a mask whose rows are not aligned, and a trace says so for every length.

torch does it for CUDA's efficient kernel, in C++ that no CPU runs: this attention does it on every device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from hf_ckpt.devices.attention import MASK_ALIGNMENT, is_aligned
from hf_ckpt.engine import Mode, clear_traces
from hf_ckpt.engine.tracing import composites

from ..stacks import PlainLayer, Stack, hidden_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hf_ckpt.engine import TracedReplay

_LIBRARY = torch.library.Library("hf_ckpt_tests_masked", "DEF")
_LIBRARY.define("attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None) -> Tensor")


def _padded(mask: torch.Tensor) -> torch.Tensor:
    length = mask.shape[-1]
    return F.pad(mask, (0, MASK_ALIGNMENT - length % MASK_ALIGNMENT))[..., :length]


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Saves its mask. Sizes that are symbols are taken for unaligned ones, as in attention.cpp."""
    scores = query @ key.transpose(-1, -2)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ value
    is_open = any(isinstance(stride, torch.SymInt) for stride in attn_mask.stride())
    mask = _padded(attn_mask) if is_open or not is_aligned(attn_mask.stride()) else attn_mask
    return torch.softmax(scores * mask, -1) @ value


_LIBRARY.impl("attention", _attention, "CompositeImplicitAutograd")


class Masked(PlainLayer):
    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key = (x.unsqueeze(1) for x in (hidden, self.up(hidden)[..., :16]))
        mixed = torch.ops.hf_ckpt_tests_masked.attention(query, key, query, mask)
        return super().forward(hidden + mixed.squeeze(1))


class MaskedByItself(Masked):
    """What a layer pads of its own accord is padded."""

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        length = hidden.shape[1]
        padded = F.pad(mask, (0, 8 - length % 8))
        hidden = hidden + self.up(hidden * padded[:, 0, :1].mean(-1, keepdim=True)).tanh()[..., :16]
        return super().forward(hidden, mask)


class MaskedStack(Stack):
    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden


@pytest.fixture(autouse=True)
def _own_attention(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(composites, "_ATTENTION", (torch.ops.hf_ckpt_tests_masked.attention.default,))
    clear_traces()
    yield
    clear_traces()


def _gradients(stack: MaskedStack, length: int) -> list[torch.Tensor]:
    stack.zero_grad()
    x, mask = hidden_states(length), torch.tril(torch.ones(2, 1, length, length))
    mask[1, ..., length - 2 :] = 0
    stack(x, mask).pow(2).sum().backward()
    assert x.grad is not None
    return [x.grad, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)]


def _checked(kind: type[Masked], lengths: range) -> list[TracedReplay]:
    stack, reference = MaskedStack(kind), MaskedStack(kind)
    engines = stack.checkpoint()
    for length in lengths:
        for one, other in zip(_gradients(stack, length), _gradients(reference, length), strict=True):
            assert torch.equal(one, other), length
        assert engines[0].report().mode is Mode.SYMBOLIC, (length, engines[0].report().reason)
    return engines


@pytest.mark.parametrize("kind", [Masked, MaskedByItself])
def test_all_lengths_share_two_traces(kind: type[Masked]) -> None:
    assert {engine.report().traces for engine in _checked(kind, range(5, 65))} == {2}


@pytest.mark.parametrize("multiple", [8, 16])
def test_batches_padded_to_a_multiple_share_one(multiple: int) -> None:
    assert {engine.report().traces for engine in _checked(Masked, range(multiple, 40 * multiple, multiple))} == {1}
