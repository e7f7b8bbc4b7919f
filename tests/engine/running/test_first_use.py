"""What the first use of a recipe compares."""

from __future__ import annotations

import pytest
import torch

from hf_ckpt.engine.running.first_use import same_bits


@pytest.mark.parametrize(
    ("shape", "stride"),
    [((), ()), ((1,), (0,)), ((1, 1), (0, 7)), ((2, 3), (0, 1)), ((2, 3), (1, 2)), ((3, 2), (0, 0))],
)
def test_two_tensors_of_any_strides_are_equal_or_differ_by_a_bit(
    shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    here, there = torch.arange(1.0, 9.0), torch.arange(1.0, 9.0)
    one, other = (base.as_strided(shape, stride, 1) for base in (here, there))
    assert same_bits(one, other)
    there.view(torch.int32)[1] ^= 1
    assert not same_bits(one, other)
