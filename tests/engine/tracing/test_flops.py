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


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
def test_a_causal_kernel_does_half_of_what_a_masked_one_does(kernel: str) -> None:
    query = torch.empty(2, 8, 16, 4, device="meta")
    op = getattr(_aten, f"_scaled_dot_product_{kernel}_attention").default
    names = [argument.name for argument in op._schema.arguments]
    given: list[object] = [query, query, query, *[None] * (len(names) - 3)]
    given[names.index("is_causal")] = True
    causal = flops_of(op, tuple(given[: names.index("is_causal") + 1]), {}, None)
    assert 2 * causal == flops_of(op, (query, query, query), {}, None)
