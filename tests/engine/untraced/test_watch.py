"""Pieces that a replay alone would not make again as their forward did are never replayed alone."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt import apply
from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import buffer_keys

CONFIG = LlamaConfig(
    num_hidden_layers=1, hidden_size=16, intermediate_size=24, num_attention_heads=2, vocab_size=31, use_cache=False
)
IDS = torch.arange(2 * 8).reshape(2, 8) % 31


class Part(nn.Module):
    def __init__(self, inside: nn.Module | None = None) -> None:
        super().__init__()
        self.linear, self.inside = nn.Linear(16, 16), inside or nn.Tanh()
        self.scale: object = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(self.inside(self.linear(x) * self.scale)).sin()


class Mlp(nn.Module):
    """Looks at its values, which a trace cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Part()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x * 2 if x.argmax().item() >= 0 else x)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x)


class SetBeforeEachCall(Mlp):
    def body(self, x: torch.Tensor) -> torch.Tensor:
        self.part.scale = 0.5
        a = self.part(x)
        self.part.scale = 0.25
        return a + self.part(2 * x)


class HandsOnATensor(Mlp):
    def body(self, x: torch.Tensor) -> torch.Tensor:
        self.part.scale = x.mean(-1, keepdim=True).detach()
        a = self.part(x)
        self.part.scale = None
        return a


class SetsAnItem(Mlp):
    class Routed(Part):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(self.linear(x) * self.scale["now"]).sin()

    def __init__(self) -> None:
        super().__init__()
        self.part = SetsAnItem.Routed()
        self.part.scale = {"now": 1.0}

    def body(self, x: torch.Tensor) -> torch.Tensor:
        self.part.scale["now"] = 0.5
        a = self.part(x)
        self.part.scale["now"] = 0.25
        return a + self.part(2 * x)


class Counts(Mlp):
    class Counting(Part):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scale = 3.0 - self.scale
            return super().forward(x)

    def __init__(self) -> None:
        super().__init__()
        self.part = Counts.Counting()

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * self.part(2 * x)


class SetByTheLayer(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x * self.scale)


class TwoNames(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part(Part())
        self.alias = self.part.inside

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) + self.alias(2 * x)


class CalledOutside(TwoNames):
    def __init__(self) -> None:
        super().__init__()
        del self.alias

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) + self.part.inside(2 * x)


class Recursive(Mlp):
    class Tree(Part):
        def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
            return super().forward(self(x, depth - 1) if depth else x)

    def __init__(self) -> None:
        super().__init__()
        self.part = Recursive.Tree(Part())


class WritesLater(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(16, 16)
        self.part.linear.requires_grad_(False)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        a = self.part(x)
        x += 1
        return a + x.sin()


class WritesLaterToABase(WritesLater):
    def body(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x).flatten()
        a = self.part(x.view(2, -1, 16))
        x += 1
        return a + x.sin().view_as(a)


class WritesToItsInput(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.part = nn.Linear(16, 16), nn.SiLU(inplace=True)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.before(x))


class LayerSets(nn.Module):
    """A norm for the attention, and the layer's own hand on its MLP."""

    def __init__(self, mlp: SetByTheLayer, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.mlp = norm, [mlp]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mlp[0].scale = x.mean(-1, keepdim=True).detach()
        return self.norm(x)


def build(mlp: type[Mlp]) -> nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    for layer in model.model.layers:
        layer.mlp = mlp()
        if mlp is SetByTheLayer:
            layer.post_attention_layernorm = LayerSets(layer.mlp, layer.post_attention_layernorm)
    return model


def step(model: nn.Module, forwards: int = 1) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    losses = [model(input_ids=ids, labels=ids).loss for ids in (IDS, IDS.flip(1))[:forwards]]
    torch.stack(losses).prod().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("mlp", "unfit"),
    [
        (SetBeforeEachCall, {"mlp", "mlp.part", "mlp.part.linear"}),
        (HandsOnATensor, {"mlp", "mlp.part"}),
        (SetsAnItem, {"mlp", "mlp.part"}),
        (Counts, {"mlp.part"}),
        (SetByTheLayer, {"mlp"}),
        (TwoNames, {"mlp.alias"}),
        (CalledOutside, {"mlp.part.inside"}),
        (Recursive, {"mlp.part"}),
        (WritesLater, {"mlp.part"}),
        (WritesLaterToABase, {"mlp.part"}),
        (WritesToItsInput, {"mlp.part"}),
        (Mlp, set()),
    ],
)
def test_no_plan_replays_a_piece_that_would_not_find_what_its_forward_found(mlp: type[Mlp], unfit: set[str]) -> None:
    forwards = 2 if mlp is SetByTheLayer else 1
    expected = step(build(mlp), forwards)
    model = build(mlp)
    handle = apply(model, "full")
    replay = handle.installation.regions[0].replay
    replay.counts = True
    step(model, forwards)
    ledger = replay.ledger()
    assert ledger is not None
    replay.counts = False
    keys, names = buffer_keys(ledger), {op.module: op.outputs[0] for op in ledger.ops}
    assert unfit.isdisjoint(names)
    assert {"self_attn", "self_attn.q_proj", "input_layernorm"} <= {*names}
    assert mlp is not Mlp or "mlp.part.linear" in names

    def inside(name: str) -> set[int]:
        return {made for other, made in names.items() if other == name or other.startswith(f"{name}.")}

    # A forward that counts its calls goes on counting, so each plan starts where the first step did.
    start = {name: vars(module).copy() for name, module in build(mlp).named_modules() if "scale" in vars(module)}
    for again in filter(None, names):
        for name, attributes in start.items():
            scale = attributes["scale"]
            model.get_submodule(name).scale = scale.copy() if isinstance(scale, dict) else scale
        replay.plan = Assignment.where(keep=[key for b, key in keys.items() if b not in inside(again)])
        assert all(map(torch.equal, step(model, forwards), expected)), again
    handle.restore()


def test_a_plan_of_a_layer_that_nobody_watched_replays_it_whole() -> None:
    expected = step(build(Mlp))
    model = build(Mlp)
    handle = apply(model, "full")
    replay = handle.installation.regions[0].replay
    replay.plan = Assignment.where(keep=["/sublayer.forward/0/0"])
    assert all(map(torch.equal, step(model), expected))
    assert replay.mode.name == "WHOLE"
    handle.restore()
