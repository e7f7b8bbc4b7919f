"""What FSDP2 puts on a rank beside its shards, counted from the units as they are wrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from hf_ckpt.planner.memory.gathering import Gathering, gathering
from hf_ckpt.planner.memory.room import Room

from ..planner_models import build, nothing_used

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF, SINGLE = 2, 4


@pytest.fixture
def eight_ranks() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield
    dist.destroy_process_group()


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_nothing_is_gathered_where_nothing_is_sharded() -> None:
    model = build()
    assert gathering(model, model.model.layers) == Gathering()


@pytest.mark.usefixtures("eight_ranks")
def test_weights_and_gradients_are_whole_in_the_dtypes_of_the_policy() -> None:
    model = build()
    layer, table, outside = count(model.model.layers[0]), count(model.lm_head), count(model.model.norm)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for each in model.model.layers:
        fully_shard(each, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    root = 2 * table + outside
    assert gathering(model, model.model.layers) == Gathering(
        all_along=HALF * (root + layer),
        in_layer=(HALF + HALF + SINGLE) * layer,
        head_gradients=HALF * (table + outside),
        late_gradients=HALF * table + (SINGLE - HALF) * root,
        cached=max(0, HALF * (root - layer)),
    )


@pytest.mark.usefixtures("eight_ranks")
def test_layers_that_stay_whole_are_gathered_all_along() -> None:
    model = build()
    layers = model.model.layers
    for each in layers:
        fully_shard(each, reshard_after_forward=False)
    fully_shard(model)
    found = gathering(model, layers)
    assert found.all_along == SINGLE * count(model)
    assert found.in_layer == 2 * SINGLE * count(layers[0])


@pytest.mark.usefixtures("eight_ranks")
@pytest.mark.parametrize("grow", [True, False])
def test_plans_leave_room_for_it(grow: bool) -> None:
    model = build()
    outside = count(model.lm_head) + count(model.model.norm)
    for each in model.model.layers:
        fully_shard(each)
    fully_shard(model)
    room = Room(model, list(model.model.layers), nothing_used(), optimizer=None, gradients_grow=grow)
    beside = room.in_backward(room.layer_gradients())
    assert beside["gathering"] == 3 * SINGLE * count(model.model.layers[0])
    assert beside["head_gradients"] == SINGLE * outside
