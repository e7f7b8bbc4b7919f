"""What cannot work is refused in one sentence of our own, and the model stays as it was."""

from __future__ import annotations

import pytest
import torch

from hf_ckpt import apply
from hf_ckpt.errors import ModelStructureError, PolicyError

from ..models import batch, build, fingerprint, step


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (None, "not on NoneType"),
        ("gpt2", "'gpt2' is a name, not a model: load it first"),
        (torch.nn.Linear(2, 2), "Linear has no decoder layers"),
    ],
)
def test_what_is_no_model(model: object, says: str) -> None:
    with pytest.raises(ModelStructureError, match=says):
        apply(model, "full")  # type: ignore[arg-type]


def test_a_model_on_the_meta_device_has_no_memory_to_plan_for() -> None:
    model = build("llama").to("meta")
    before = fingerprint(model)
    with pytest.raises(PolicyError, match="on the meta device: load them first"):
        apply(model, "budget=0.5")
    assert fingerprint(model) == before


@pytest.mark.parametrize("policy", ["full@vision", "first(2)@last(1)", "mlp@audio", "full+norm@vision", "offload"])
def test_a_policy_without_effect_is_refused(policy: str) -> None:
    model = build("llama")
    before = fingerprint(model)
    with pytest.raises(PolicyError):
        apply(model, policy)
    assert fingerprint(model) == before


def test_a_short_dict_is_a_policy() -> None:
    handle = apply(build("llama"), {"budget": 0.5})
    assert str(handle.resolved.policy) == "budget=0.5"
    handle.restore()


def test_equal_layers_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    model = build("llama")
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(lambda module, args, output: output * 2)
    handle = apply(model, "full")
    step(model, batch())
    with handle.measure():
        step(model, batch())
    assert sum("whole-layer replay, because" in record.getMessage() for record in caplog.records) == 1
    assert all(layer.reason for layer in handle.report().layers)
