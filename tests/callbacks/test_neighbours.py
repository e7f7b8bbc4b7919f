"""SelectiveCkpt beside what people use with it: TRL's generation cycles, torch.compile, evaluation in training."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from hf_ckpt import SelectiveCkpt, apply
from hf_ckpt.errors import PolicyError

from ..models import batch, build, same, step
from .test_selective_ckpt import arguments, dataset, identical, outcome, train

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


@pytest.mark.parametrize(("policy", "engine"), [("full", "traced"), ("attention+norm", "traced"), ("full", "torch")])
def test_trl_switches_off_for_generation_and_on_again(policy: str, engine: str) -> None:
    trl = pytest.importorskip("trl.models.utils", reason="TRL is not installed")
    model = build("llama")
    reference = step(model)
    handle = apply(model, policy, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with trl.disable_gradient_checkpointing(model, {"use_reentrant": False}), torch.no_grad():
            model.generate(batch(1, 4), max_new_tokens=3)
    with handle.measure():
        assert same(step(model), reference)
    assert all(layer.replays > 0 for layer in handle.report().layers)
    handle.restore()


@pytest.mark.parametrize(
    ("policy", "engine"),
    [("full", "traced"), ("attention", "torch"), pytest.param("full", "torch", marks=pytest.mark.slow)],
)
def test_under_torch_compile(policy: str, engine: str) -> None:
    """A traced graph recomputes by torch's own checkpoint; gradients agree with the compiled model without a policy."""
    model = two_layers()
    apply(model, policy, engine=engine)
    for expected, actual in zip(compiled_gradients(), compiled_step(model), strict=True):
        torch.testing.assert_close(actual, expected)


def two_layers() -> nn.Module:
    """Compiling takes seconds a layer."""
    model = build("qwen3")
    del model.model.layers[2:]
    return model


@cache
def compiled_gradients() -> list[torch.Tensor | None]:
    """Of the compiled model without a policy."""
    return compiled_step(two_layers())


def compiled_step(model: nn.Module) -> list[torch.Tensor | None]:
    torch._dynamo.reset()
    ids = batch()
    torch.compile(model, backend="aot_eager")(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize(
    "policy", ["budget=auto", "segments(2)", "norm+dots_saveable", "full@first(1)+budget=0.5@last(2)"]
)
def test_a_compiled_trainer_refuses_what_its_graph_cannot_follow(policy: str, tmp_path: Path) -> None:
    compiled = arguments(tmp_path, torch_compile=True, torch_compile_backend="aot_eager")
    with pytest.raises(PolicyError, match="cannot be followed inside the graph that torch_compile=True makes"):
        train(build("qwen3"), compiled, SelectiveCkpt(policy))


def test_evaluation_between_steps_changes_nothing(tmp_path: Path) -> None:
    more = {"eval_strategy": "steps", "eval_steps": 1}
    reference = outcome(train(build("gpt2"), arguments(tmp_path, **more), eval_dataset=dataset()[:4]))
    callback = SelectiveCkpt("balanced")
    result = outcome(train(build("gpt2"), arguments(tmp_path, **more), callback, eval_dataset=dataset()[:4]))
    assert identical(result, reference)
