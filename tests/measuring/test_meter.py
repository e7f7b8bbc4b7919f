"""What a step holds is counted by storage, whatever the allocator does with the addresses meanwhile."""

from __future__ import annotations

import copy
import gc

import torch
from torch import nn

from hf_ckpt import apply
from hf_ckpt.measuring.meter import Held

from ..models import batch, build, step


def test_a_freed_storage_is_forgotten_and_its_address_counts_again() -> None:
    held = Held()
    for _ in range(3):
        held.add("layer", torch.zeros(256).untyped_storage())  # the allocator gives the same block again
    kept = [torch.zeros(256) for _ in range(2)]
    for tensor in kept:
        held.add("layer", tensor.untyped_storage())
        held.add("other", tensor.untyped_storage())
    held.settle()
    assert held.by_layer == {"layer": 2048}
    assert held.total == 2048


def test_every_measured_step_of_a_router_holds_the_same() -> None:
    """The loss that balances experts makes graphs that nobody calls backward on."""
    model = build("mixtral", lora=True)
    step(model)
    seen = set()
    for _ in range(8):
        handle = apply(model, "full")
        with handle.measure():
            step(model)
        seen.add(handle.report().held_bytes)
        handle.restore()
    assert len(seen) == 1


def test_a_model_copied_while_it_is_measured_leaves_the_count_alone() -> None:
    model = build("llama")
    handle = apply(model, "full")
    with handle.measure():
        step(model)
    alone = handle.report().held_bytes
    with handle.measure():
        loss = model(batch(), labels=batch()).loss
        twin: nn.Module | None = copy.deepcopy(model)
        del twin
        gc.collect()
        loss.backward()
    assert handle.report().held_bytes == alone
    handle.restore()
