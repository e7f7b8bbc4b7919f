"""Shared by the benchmarks: a Llama shape, alternating timed steps, live bytes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.measuring.peak import PeakMeter

from .device import deterministic, here, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from .rivals import Engine, Rival


class Bench:
    """One model, and the engines that take turns on its layers."""

    def __init__(
        self,
        rivals: Mapping[str, Rival],
        tokens: tuple[int, int],
        *,
        bf16: bool = False,
        weights: torch.dtype = torch.float32,
        **shape: int,
    ) -> None:
        """``bf16`` is autocast, as with ``TrainingArguments(bf16=True)``; ``weights`` what the model is loaded in."""
        self.bf16 = bf16
        torch.set_num_threads(1)
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=500, use_cache=False, **shape)
        self.device = here()
        self.model: nn.Module = (
            AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=weights).to(self.device).train()
        )
        self.layers = list(self.model.model.layers)
        self.ids = torch.randint(0, 500, tokens).to(self.device)
        self.engines: dict[str, list[Engine]] = {
            name: [rival(i, layer) for i, layer in enumerate(self.layers)] for name, rival in rivals.items()
        }

    def use(self, name: str) -> None:
        for layer, engine in zip(self.layers, self.engines[name], strict=True):
            layer.gradient_checkpointing = engine is not None
            layer._gradient_checkpointing_func = engine

    def step(self) -> None:
        self.model.zero_grad()
        self.loss().backward()

    def loss(self) -> torch.Tensor:
        """The model's own loss."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss: torch.Tensor = self.model(input_ids=self.ids, labels=self.ids).loss
        return loss

    def gradients(self, name: str) -> list[torch.Tensor]:
        """Of the second step: the first one learns the layers. In host memory, for there are many engines.

        Two more are taken as all later ones are, where kernels need not be deterministic: layers are learned anew there.
        """
        self.use(name)
        with deterministic():
            self.step()
            self.step()
        found = [p.grad.to("cpu", copy=True) for p in self.model.parameters()]
        self.step()
        self.step()
        return found

    def seconds(self, rounds: int) -> dict[str, list[float]]:
        """Seconds of every step, the engines taking turns. Each engine has made a step or two before."""
        times: dict[str, list[float]] = {name: [] for name in self.engines}
        for _ in range(rounds):
            for name, found in times.items():
                self.use(name)
                found.append(seconds(self.step, self.device))
        return times

    def live_bytes(self, name: str) -> tuple[int, int]:
        """Bytes alive after the forward, and at the peak of the step, above what was alive before it."""
        self.use(name)
        self.model.zero_grad()
        with PeakMeter(self.device) as meter:
            loss = self.loss()
            held = meter.alive_bytes()
            loss.backward()
        return held, meter.peak_bytes


def ratio(times: dict[str, list[float]], name: str, base: str = "none") -> float:
    """Median over rounds of a step's time against that of ``base`` in the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def added(times: dict[str, list[float]], name: str) -> float:
    """Median over rounds of the seconds that ``name`` adds to a step."""
    return statistics.median(a - b for a, b in zip(times[name], times["none"], strict=True))
