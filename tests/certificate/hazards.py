"""Models whose checkpointing goes wrong, each by one mistake; ``# here`` marks the line that a certificate must name.

Every checkpoint is the real thing: torch's, transformers' own switch, or accelerate's for FSDP2.
"""

from __future__ import annotations

import inspect
import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..models import build, config

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = torch.arange(64).reshape(2, 32) * 5 % 256


@dataclass(frozen=True)
class Hazard:
    """``build`` returns the model and what computes its loss; ``layer`` and ``op`` are parts of their names."""

    name: str
    code: str | None
    layer: str
    op: str
    line: int | None
    build: Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]


HAZARDS: list[Hazard] = []


def hazard(code: str | None, layer: str, op: str = "") -> Callable[[Any], Any]:
    def note(make: Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]) -> Any:
        lines, first = inspect.getsourcelines(make)
        marked = [first + i for i, line in enumerate(lines) if "# here" in line]
        HAZARDS.append(Hazard(make.__name__, code, layer, op, marked[0] if marked else None, make))
        return make

    return note


def _loss_of(model: nn.Module) -> Callable[[], torch.Tensor]:
    return lambda: model(input_ids=IDS, labels=IDS).loss


def _llama() -> nn.Module:
    return build("llama").train()


class Around(nn.Module):
    """Stands as the MLP of a layer."""

    def __init__(self, mlp: nn.Module, call: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.mlp = mlp
        self.call = call
        self.scale = 1.0
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x)


def _with(call: Callable[[Any, torch.Tensor], torch.Tensor], layer: int = 1) -> tuple[nn.Module, Any]:
    model = _llama()
    model.model.layers[layer].mlp = Around(model.model.layers[layer].mlp, call)
    return model, _loss_of(model)


@hazard("CKPT108", "h.0.attn", "bernoulli")
def accelerates_fsdp2_checkpointing_with_dropout() -> Any:
    """Real ``fsdp2_apply_ac`` with a real plugin; the model is not sharded."""
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_apply_ac

    model = build("gpt2").train()
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, activation_checkpointing=True, auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["GPT2Block"], reshard_after_forward=True,
    )  # fmt: skip
    plugin.set_auto_wrap_policy(model)
    fsdp2_apply_ac(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), model)
    return model, _loss_of(model)


@hazard("CKPT106", "layers.1.mlp")
def batch_norm() -> Any:
    model, loss = _with(lambda own, x: checkpoint(own.mlp, x, use_reentrant=False))
    mlp = model.model.layers[1].mlp

    class Normed(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.norm = inner, nn.BatchNorm1d(32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.norm(x.transpose(1, 2)).transpose(1, 2))

    mlp.mlp = Normed(mlp.mlp)
    return model, loss


@hazard("CKPT105", "layers.1.mlp")
def a_closure_over_the_variable_of_a_loop() -> Any:
    def call(own: Any, x: torch.Tensor) -> torch.Tensor:
        for part in own.parts:
            x = x + checkpoint(lambda h: part(h), x, use_reentrant=False)  # here # noqa: B023, CKPT105
        return x

    model, loss = _with(call)
    model.model.layers[1].mlp.parts = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
    return model, loss


@hazard("CKPT105", "layers.1.mlp")
def a_closure_over_a_number_that_moves_on() -> Any:
    def call(own: Any, x: torch.Tensor) -> torch.Tensor:
        scale = 1.0
        out = checkpoint(lambda h: own.mlp(h * scale), x, use_reentrant=False)  # here # noqa: CKPT105
        scale = 2.0
        return out

    return _with(call)


@hazard("CKPT114", "layers.1.mlp", "mul")
def an_attribute_that_changes_before_backward() -> Any:
    def scaled(own: Any, x: torch.Tensor) -> torch.Tensor:
        return own.mlp(x * own.scale)  # here

    model, _ = _with(lambda own, x: checkpoint(scaled, own, x, use_reentrant=False))

    def loss() -> torch.Tensor:
        model.model.layers[1].mlp.scale = 1.0
        value = model(input_ids=IDS, labels=IDS).loss
        model.model.layers[1].mlp.scale = 0.5
        return value

    return model, loss


@hazard("CKPT107", "layers.1.mlp", "mul")
def a_counter_that_scales() -> Any:
    def counted(own: Any, x: torch.Tensor) -> torch.Tensor:
        own.calls += 1
        return own.mlp(x * (1 / own.calls))  # here

    return _with(lambda own, x: checkpoint(counted, own, x, use_reentrant=False))


@hazard("CKPT107", "layers.1.mlp")
def a_branch_on_what_the_forward_counts() -> Any:
    def counted(own: Any, x: torch.Tensor) -> torch.Tensor:
        own.calls += 1
        return own.mlp(x) if own.calls % 2 else own.mlp(torch.tanh(x))

    return _with(lambda own, x: checkpoint(counted, own, x, use_reentrant=False))


@hazard("CKPT115", "layers.1.mlp")
def a_branch_on_pythons_random_numbers() -> Any:
    """Seeded as a training is: the third number tells the recompute another way than the first one."""
    draws = [random.Random(0).random() for _ in range(4)]

    def drawn(own: Any, x: torch.Tensor) -> torch.Tensor:
        return own.mlp(x) if random.random() == draws[0] else own.mlp(torch.tanh(x))

    model, _ = _with(lambda own, x: checkpoint(drawn, own, x, use_reentrant=False))  # noqa: CKPT115

    def loss() -> torch.Tensor:
        random.seed(0)
        return model(input_ids=IDS, labels=IDS).loss

    return model, loss


@hazard("CKPT108", "layers.0.mlp", "uniform")
def routing_decided_anew() -> Any:
    """Mixtral's own jitter under transformers' own switch."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    settings = config("mixtral")
    settings.router_jitter_noise = 0.3
    model = AutoModelForCausalLM.from_config(settings).train()
    model.config.use_cache = False
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    return model, _loss_of(model)


class Clones(torch.autograd.Function):
    """It is right, and stands near what is not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


@hazard("CKPT104", "layers.0")
def a_reentrant_checkpoint_that_no_gradient_reaches() -> Any:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = checkpoint(lambda h, layer=layer: Clones.apply(layer(h)), x, use_reentrant=True)  # here
            return x

    model, x = nn.Sequential(Cut(), nn.Linear(8, 1)), torch.randn(4, 8)
    return model, lambda: model(x).sum()


@hazard(None, "layers.2", "Remembers")
def a_function_with_hidden_state() -> Any:
    """Its backward uses what the latest forward left: without checkpointing another layer's."""

    class Remembers(torch.autograd.Function):  # here
        latest: Any = None

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            Remembers.latest = x.detach()
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * (1 + Remembers.latest.mean())

    model = _llama()
    for layer in model.model.layers:
        layer.mlp = Around(layer.mlp, lambda own, x: own.mlp(Remembers.apply(x)))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model, _loss_of(model)
