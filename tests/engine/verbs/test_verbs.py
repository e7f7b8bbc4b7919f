"""What the engine asks of a verb, shown on one that no file has: storing a copy of the tensor."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from hf_ckpt.assignment import KEEP, REBUILD, Assignment
from hf_ckpt.engine import plan_of
from hf_ckpt.engine.running import frame
from hf_ckpt.engine.verb import Pack, PackingVerb, Place, packing_verbs, verbs
from hf_ckpt.planner import verb as costs
from hf_ckpt.policy.decision import RecomputeLayer

from ..zoo import batch, build, equal, install, step, uninstall

if TYPE_CHECKING:
    import pytest


@dataclasses.dataclass
class Copied:
    tensor: torch.Tensor


class Copy(PackingVerb):
    name = "copy"
    handle = Copied

    def packer(self, place: Place) -> Pack:
        def pack(frame: Any, tensor: torch.Tensor) -> Copied:
            storage = tensor.untyped_storage().clone()
            window = tensor.storage_offset(), tensor.shape, tensor.stride()
            handle = Copied(torch.empty(0, dtype=tensor.dtype).set_(storage, *window))
            if place.is_source:
                frame.sources.append(handle)
            return handle

        return pack

    @staticmethod
    def unpack(frame: Any, handle: Any) -> torch.Tensor:
        return handle.tensor

    @staticmethod
    def held(handle: Any) -> torch.Tensor:
        return handle.tensor


class Blur(Copy):
    """As if the copies were not the same to the bit."""

    name = "blur"
    lossless = False


def use(monkeypatch: pytest.MonkeyPatch, verb: PackingVerb) -> None:
    monkeypatch.setitem(verbs(), verb.name, verb)
    monkeypatch.setitem(frame._UNPACK, verb.handle, verb.unpack)
    monkeypatch.setitem(frame._HELD, verb.handle, verb.held)


def alternating(model: Any, verb: str) -> tuple[list[Any], Assignment[str]]:
    """Engines, and the plan that stores every second saved tensor with ``verb`` and rebuilds the others."""
    engines = install(model, RecomputeLayer())
    step(model, batch())
    ledger = engines[0].ledger()
    saved = [b.index for b in ledger.saved_activations()]
    return engines, plan_of(ledger, Assignment.where(**{verb: saved[::2]}))


def test_a_verb_in_the_registry_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Copy())
    model = build("llama")
    uninstall(model)
    expected = step(model, batch())
    engines, plan = alternating(model, "copy")
    for engine in engines:
        engine.plan = plan
    for _ in range(3):
        assert equal(step(model, batch()), expected)
    report = engines[0].report()
    assert report.stored_bytes["copy"]
    assert report.rebuilt_bytes
    assert report.replays
    assert any(action.is_source for action in engines[0]._last.recipe.actions if action.verb == "copy")


def test_a_rebuild_reads_nothing_that_a_verb_may_blur(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Blur())
    model = build("llama")
    uninstall(model)
    expected = step(model, batch())
    engines, plan = alternating(model, "blur")
    engines[0].plan = plan
    assert equal(step(model, batch()), expected)
    actions = engines[0]._last.recipe.actions
    assert any(action.verb == "blur" for action in actions)
    assert not any(action.is_source for action in actions if action.verb == "blur")


def test_the_engine_and_the_planner_know_the_same_verbs() -> None:
    assert sorted(verbs()) == [verb.name for verb in costs.verbs()]
    assert {KEEP, REBUILD} <= {verb.name for verb in packing_verbs()}
    assert all(verb.lossless for verb in packing_verbs())
