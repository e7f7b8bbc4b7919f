"""Which weights a trace can fetch."""

import pytest
from torch import nn

from hf_ckpt.engine.layer.slots import slots_of
from hf_ckpt.engine.untraceable import UntraceableError


def test_a_shard_of_deepspeed_zero_3_is_none() -> None:
    layer = nn.Sequential(nn.Linear(2, 2))
    assert [slot.path for slot in slots_of(layer)] == ["0.weight", "0.bias"]
    layer[0].weight.ds_id = 0  # DeepSpeed's mark (deepspeed/runtime/zero/partition_parameters.py)
    with pytest.raises(UntraceableError, match=r"^0\.weight is a shard of DeepSpeed ZeRO-3$"):
        slots_of(layer)
