"""FLOPs of attention do not depend on what this torch's own counter can do."""

from __future__ import annotations

import pytest
import torch

from hf_ckpt.engine.tracing.flops import flops_of

_aten = torch.ops.aten


@pytest.mark.parametrize(
    "kernel", [_aten._scaled_dot_product_flash_attention_for_cpu, _aten._scaled_dot_product_flash_attention]
)
@pytest.mark.parametrize("heads", [8, 2], ids=["one head each", "grouped queries"])
def test_attention_is_two_products_of_every_query_head(kernel: torch._ops.OpOverloadPacket, heads: int) -> None:
    query, key = torch.empty(2, 8, 16, 4, device="meta"), torch.empty(2, heads, 24, 4, device="meta")
    assert flops_of(kernel.default, (query, key, key), {}, None) == 2 * (2 * 2 * 8 * 16 * 24 * 4)
