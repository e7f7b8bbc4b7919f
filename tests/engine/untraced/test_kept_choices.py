"""A layer that is replayed as it is goes through the experts of its forward, whatever a replay computes."""

from __future__ import annotations

import copy
import functools
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _len_torch_dispatch_stack
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_ckpt import apply
from hf_ckpt.engine import Mode, kept_choices
from hf_ckpt.engine.written_arguments import checkpointed

from ...sweep.build import build
from ...sweep.classes import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hf_ckpt import Handle

EXPERTS = 4
#: MoE families with layers that cannot be traced.
FAMILIES = {
    "DbrxForCausalLM": "DbrxConfig",
    "Glm5NextForConditionalGeneration": "Glm5NextConfig",
    "JetMoeForCausalLM": "JetMoeConfig",
    "LongcatFlashForCausalLM": "LongcatFlashConfig",
    "Qwen4ExpForCausalLM": "Qwen4ExpTextConfig",
    "Step3p7ForConditionalGeneration": "Step3p7Config",
    "SwitchTransformersForConditionalGeneration": "SwitchTransformersConfig",
}
_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.linear.default}


class Noise(TorchDispatchMode):
    """One unit in the last place, on what these routers' products give while it is in force."""

    def __init__(self, routers: list[nn.Parameter]) -> None:
        super().__init__()
        self.routers = {router.data_ptr() for router in routers}
        self.experts = {len(router) for router in routers}
        self.applied = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func not in _PRODUCTS or output.shape[-1] not in self.experts:
            return output
        if not any(isinstance(a, torch.Tensor) and a.data_ptr() in self.routers for a in args):
            return output
        self.applied += 1
        generator = torch.Generator().manual_seed(self.applied)
        up = torch.randint(0, 2, output.shape, generator=generator).bool()
        return torch.nextafter(output, torch.where(up, torch.inf, -torch.inf).to(output.dtype))


def routers_of(model: nn.Module) -> list[nn.Parameter]:
    return [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.dim() == 2 and (name.endswith("gate.weight") or "router" in name) and len(parameter) >= EXPERTS
    ]


def undecided(model: nn.Module) -> list[nn.Parameter]:
    """The model's routers, which score all experts alike from now on, so that the last bit decides."""
    routers = routers_of(model)
    for router in routers:
        # A softmax would round away the last bit of a small score.
        router.data.copy_(100 * router.data[:1].expand_as(router))
    return routers


def step(model: nn.Module, inputs: dict[str, Any], noise: Noise | None = None) -> list[torch.Tensor]:
    """One step, with ``noise`` in all that backward runs."""
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(**inputs).logits.float().square().mean()
    with noise or nullcontext():
        loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


def close(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max())) for a, b in zip(ours, theirs, strict=True)
    )


def ended(handle: Handle) -> None:
    handle.restore()
    assert not _len_torch_dispatch_stack()


@pytest.mark.parametrize("engine", ["torch", pytest.param("traced", marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_noisy_replay_goes_through_the_experts_of_the_forward(
    family: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(Subject(family, FAMILIES[family], ""))
    model, inputs = built.model, built.batches[0]
    routers = undecided(model)
    expected = step(model, inputs)
    handle = apply(model, "full", engine=engine)
    for _ in range(2):
        assert equal(step(model, inputs), expected)
    assert (Mode.WHOLE in {layer.mode for layer in handle.report().layers}) == (engine == "traced")
    noise = Noise(routers)
    assert close(step(model, inputs, noise), expected)
    assert noise.applied
    monkeypatch.setattr(kept_choices, "_may_choose", lambda func: False)
    with_other_experts = Noise(routers)
    with suppress(torch.utils.checkpoint.CheckpointError):  # another expert is given another number of tokens
        assert not close(step(model, inputs, with_other_experts), expected)
    ended(handle)


@pytest.mark.parametrize("policy", ["mlp", "balanced", "budget=0.4", "segments(2)"])
@pytest.mark.parametrize("engine", ["traced", "torch"])
def test_under_other_policies_too(policy: str, engine: str) -> None:
    if policy.startswith("budget") and engine == "torch":
        pytest.skip("budgets need the traced engine")
    built = build(Subject("DbrxForCausalLM", "DbrxConfig", ""))
    model, inputs = built.model, built.batches[0]
    routers = undecided(model)
    expected = step(model, inputs)
    handle = apply(model, policy, engine=engine)
    for _ in range(3):
        assert equal(step(model, inputs), expected)
    noise = Noise(routers)
    assert close(step(model, inputs, noise), expected)
    assert noise.applied
    ended(handle)


def test_what_is_kept_is_counted() -> None:
    built = build(Subject("DbrxForCausalLM", "DbrxConfig", ""))
    held = {}
    for engine in ("traced", "torch"):
        handle = apply(copy.deepcopy(built.model), "full", engine=engine)
        for inputs in built.batches:
            with handle.measure():
                step(handle.model, inputs)
            held[engine, len(inputs["input_ids"])] = handle.report().layers
        ended(handle)
    for inputs in built.batches:
        rows = len(inputs["input_ids"])
        chosen = 8 * inputs["input_ids"].numel() * built.model.config.ffn_config.moe_top_k
        with_it = [layer.held_bytes for layer in held["traced", rows]]
        hidden = 4 * inputs["input_ids"].numel() * built.model.config.d_model
        assert with_it[1] == hidden + chosen
        assert [layer.held_bytes for layer in held["torch", rows]] == with_it


class Routed(nn.Module):
    """Scores, chooses with ``choose`` and weighs experts; the scores drift while it is told to."""

    drift = 0.0

    def __init__(self, choose: str) -> None:
        super().__init__()
        self.choose, self.router, self.experts = choose, nn.Linear(8, 6), nn.Parameter(torch.randn(6, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x)
        if Routed.drift:
            scores = scores + (Routed.drift * torch.arange(6)).detach()
        weights, indices = self.chosen(scores)
        return (weights.unsqueeze(-1) * self.experts[indices]).sum(-2) * x

    def chosen(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        match self.choose:
            case "topk":
                return scores.topk(2)
            case "topk of a dimension":
                values, indices = scores.transpose(-1, -2).topk(2, dim=-2)
                return values.transpose(-1, -2), indices.transpose(-1, -2)
            case "sort":
                values, indices = scores.sort(descending=True)
                return values[..., :2], indices[..., :2]
            case "argsort":
                indices = scores.argsort()[..., :2]
            case "argmax":
                indices = scores.argmax(-1, keepdim=True).clamp_(max=4)  # a layer may write to what it chose
            case "max":
                values, indices = scores.max(-1)
                return values.unsqueeze(-1), indices.unsqueeze(-1)
            case "multinomial":
                indices = scores.softmax(-1).flatten(0, -2).multinomial(2).unflatten(0, scores.shape[:-1])
        return scores.gather(-1, indices), indices


CHOICES = ["topk", "topk of a dimension", "sort", "argsort", "argmax", "max", "multinomial"]


@pytest.fixture(autouse=True)
def no_drift() -> Iterator[None]:
    yield
    Routed.drift = 0.0
    assert not _len_torch_dispatch_stack()


def gradients(module: nn.Module, *losses: torch.Tensor, retain: bool = False) -> list[torch.Tensor]:
    module.zero_grad()
    torch.stack(losses).sum().backward(retain_graph=retain)
    return [p.grad.clone() for p in module.parameters()]


@pytest.mark.parametrize("choose", CHOICES)
def test_each_way_to_choose(choose: str) -> None:
    torch.manual_seed(0)
    module, x, y = Routed(choose), torch.randn(2, 3, 8), torch.randn(2, 5, 8)

    def losses(run: Any) -> list[torch.Tensor]:
        torch.manual_seed(1)
        return [run(module, (given,)).sin().sum() for given in (x, y)]

    def replayed(function: Any, args: Any) -> torch.Tensor:
        return checkpointed(function, args, module)

    expected = gradients(module, *losses(lambda function, args: function(*args)))
    for _ in range(2):
        both = losses(replayed)
        assert equal(gradients(module, *both, retain=True), expected)
        assert equal(gradients(module, *both), expected)
    both = losses(replayed)
    Routed.drift = 1e-7
    assert close(gradients(module, *both), expected)
    Routed.drift = 0.0
    both = losses(replayed)
    Routed.drift = 100.0  # the indices stay, values come from what is rebuilt
    assert [int((g != 0).sum()) for g in gradients(module, *both)] == [int((g != 0).sum()) for g in expected]


def test_inside_another_checkpoint_and_under_hooks_of_others() -> None:
    torch.manual_seed(0)
    module, x = Routed("topk"), torch.randn(2, 3, 8, requires_grad=True)
    expected = gradients(module, module(x).sin().sum())

    def inner(given: torch.Tensor) -> torch.Tensor:
        return checkpointed(module, (given.cos().acos(),), module)

    def nested(given: torch.Tensor) -> torch.Tensor:
        return checkpoint(inner, given, use_reentrant=False)

    nearly = gradients(module, module(x.cos().acos()).sin().sum())
    for run, wanted in ((nested, nearly), (lambda given: checkpointed(module, (given,), module), expected)):
        for hooks in (nullcontext(), torch.autograd.graph.save_on_cpu()):
            with hooks:
                loss = run(x).sin().sum()
            assert equal(gradients(module, loss), wanted)


def test_who_raises_leaves_no_mode() -> None:
    class Raises(Routed):
        raises = True

        def chosen(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            result = super().chosen(scores)
            if self.raises:
                raise KeyError("here")
            return result

    module, x = Raises("topk"), torch.randn(2, 3, 8)
    with pytest.raises(KeyError):
        checkpointed(module, (x,), module)
    assert not _len_torch_dispatch_stack()
    Raises.raises = False
    loss = checkpointed(module, (x,), module).sum()
    Raises.raises = True  # an attribute of the instance would be found as it was
    with pytest.raises(KeyError):
        loss.backward()
    assert not _len_torch_dispatch_stack()


class Plain(GradientCheckpointingLayer):
    """Chooses among keys only where there are many."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.watched: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.watched.append(_len_torch_dispatch_stack())
        y = self.linear(x)
        return y.topk(4, dim=1)[0] if x.shape[1] > 8 else y


def test_a_layer_that_chooses_nothing_is_watched_once_for_a_size() -> None:
    layer = Plain()
    for length in (4, 4, 3, 6, 5, 12, 5):
        checkpointed(layer, (torch.randn(2, length, 8, requires_grad=True),), layer).sum()
    assert layer.watched == [1, 0, 0, 1, 0, 1, 1]


TABLE = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0))


@functools.lru_cache(maxsize=1)
def looked_up(scale: float) -> torch.Tensor:
    """Chosen once for a scale, of as much as the router compares."""
    return (TABLE * scale).topk(2)[1]


class LooksUp(Routed):
    def chosen(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fixed = looked_up(self.scale)
        weights, indices = super().chosen(scores)
        return weights + scores.gather(-1, fixed), indices


def test_a_choice_that_a_cached_function_makes_is_none_of_the_others() -> None:
    torch.manual_seed(0)
    module, x = LooksUp("topk"), torch.randn(2, 3, 8)

    def both(run: Any) -> list[torch.Tensor]:
        looked_up.cache_clear()
        losses = []
        for module.scale in (1.0, 1.0, -1.0):  # backward finds the cache without the first one's
            losses.append(run().sin().sum())
        return gradients(module, *losses)

    expected = both(lambda: module(x))
    for _ in range(2):
        assert equal(both(lambda: checkpointed(module, (x,), module)), expected)
    assert torch.equal(looked_up(1.0), looked_up.__wrapped__(1.0))
