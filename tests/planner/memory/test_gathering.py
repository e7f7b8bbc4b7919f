"""What FSDP2 puts on a rank beside its shards, counted from the units as they are wrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from hf_ckpt.planner.memory.gathering import Gathering, gathering
from hf_ckpt.planner.memory.room import Room

from ..planner_models import build, nothing_used

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.fsdp import FSDPModule

IDS = torch.zeros(2, 8, dtype=torch.long)
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
    assert found.freed == tuple(SINGLE * count(layer) for layer in layers)
    whole: list[list[bool]] = []

    def look(*_: object) -> None:
        whole.append([not isinstance(next(layer.parameters()), DTensor) for layer in layers])

    for each in layers:
        each.register_full_backward_pre_hook(look)
    model(input_ids=IDS, labels=IDS).loss.backward()
    count_of = range(len(layers))
    assert whole == [[earlier <= now for earlier in count_of] for now in reversed(count_of)]


@pytest.mark.usefixtures("eight_ranks")
def test_weights_are_counted_the_same_while_the_outermost_unit_is_whole() -> None:
    model = build()
    for each in model.model.layers:
        fully_shard(each)
    fully_shard(model)
    before = gathering(model, model.model.layers)
    model(input_ids=IDS)
    assert not isinstance(model.lm_head.weight, DTensor)
    assert gathering(model, model.model.layers) == before


@pytest.mark.usefixtures("eight_ranks")
def test_what_hsdp_keeps_of_summed_gradients_is_counted_where_they_are_no_gradients_yet() -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("same", "sharded"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    model, plain = build(), build()
    layers = model.model.layers
    for each in (*layers, model):
        fully_shard(each, mesh=mesh, mp_policy=policy)
    for each in (*plain.model.layers, plain):
        fully_shard(each, mesh=mesh)
    found = gathering(model, layers)
    assert found.all_along == HALF * (count(model) - count(layers[0]) * (len(layers) - 1))
    assert gathering(plain, plain.model.layers).summed == ()
    assert gathering(plain, plain.model.layers, accumulates=True).summed == tuple(2 * n for n in found.summed)

    kept: list[int] = []

    def look(module: torch.nn.Module, args: object, output: torch.Tensor) -> None:
        output.register_hook(lambda _: kept.extend(map(sums, layers)))

    model.model.embed_tokens.register_forward_hook(look)
    model(input_ids=IDS, labels=IDS).loss.backward()
    assert tuple(kept) == found.summed
    room = Room(model, list(layers), nothing_used(), optimizer=None, gradients_grow=False)
    assert room.in_backward(gathering(model, layers, accumulates=True)).gradients.layers == found.summed


def sums(layer: FSDPModule) -> int:
    """Bytes of what the ranks with the same shards of this layer summed."""
    state = layer._get_fsdp_state()
    group = state._fsdp_param_groups[0] if hasattr(state, "_fsdp_param_groups") else state._fsdp_param_group
    return group._all_reduce_state.all_reduce_input.nbytes


@pytest.mark.usefixtures("eight_ranks")
def test_under_tensor_parallelism_a_ranks_part_is_gathered() -> None:
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("sharded", "split"))
    blocks = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Linear(8, 32, bias=False), torch.nn.Linear(32, 8, bias=False)) for _ in range(2)
    )
    whole = SINGLE * count(blocks[0])
    for each in blocks:
        parallelize_module(each, mesh["split"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
        fully_shard(each, mesh=mesh["sharded"])
    found = gathering(blocks, list(blocks))
    assert (found.all_along, found.in_layer) == (whole // 2 * 2, 2 * whole // 2)
    seen: list[int] = []
    blocks[1][0].register_forward_pre_hook(lambda *_: seen.extend(p.to_local().nbytes for p in blocks[1].parameters()))
    with torch.no_grad():
        blocks[1](torch.ones(4, 8)).wait()
    assert sum(seen) == whole // 2


@pytest.mark.usefixtures("eight_ranks")
@pytest.mark.parametrize("grow", [True, False])
def test_plans_leave_room_for_it(grow: bool) -> None:
    model = build()
    outside = count(model.lm_head) + count(model.model.norm)
    for each in model.model.layers:
        fully_shard(each)
    fully_shard(model)
    room = Room(model, list(model.model.layers), nothing_used(), optimizer=None, gradients_grow=grow)
    beside = room.in_backward(gathering(model, model.model.layers))
    assert beside.gathering == 3 * SINGLE * count(model.model.layers[0])
    assert beside.gradients.head == SINGLE * outside
    assert beside.waiting is None


@pytest.mark.usefixtures("eight_ranks")
def test_no_gradient_of_fsdp1_waits_as_a_tensor_of_its_shard() -> None:
    model = build()
    layers = list(model.model.layers)
    unsharded = Room(model, layers, nothing_used(), optimizer=None, gradients_grow=False)
    assert unsharded.in_backward(Gathering()).waiting is not None
    room = Room(
        FullyShardedDataParallel(model, device_id=torch.device("cpu")),
        layers,
        nothing_used(),
        optimizer=None,
        gradients_grow=False,
    )
    assert room.in_backward(Gathering()).waiting is None
