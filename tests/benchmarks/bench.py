"""Shared by the benchmarks: a Llama shape, alternating timed steps, live bytes."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.measuring.peak import LiveStorages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from .rivals import Engine, Rival


class Bench:
    """One model, and the engines that take turns on its layers.

    Times are seconds of CPU the process used: on one thread that is the time of the step, undisturbed by whatever else
    the machine does.
    """

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
        self.model: nn.Module = AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=weights
        ).train()
        self.layers = list(self.model.model.layers)
        self.ids = torch.randint(0, 500, tokens)
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
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss: torch.Tensor = self.model(input_ids=self.ids, labels=self.ids).loss
        return loss

    def gradients(self, name: str) -> list[torch.Tensor]:
        """Of the second step: the first one learns the layers."""
        self.use(name)
        self.step()
        self.step()
        return [p.grad.clone() for p in self.model.parameters()]

    def seconds(self, rounds: int) -> dict[str, list[float]]:
        """CPU seconds of every step, the engines taking turns. Each engine has made a step or two before."""
        times: dict[str, list[float]] = {name: [] for name in self.engines}
        for _ in range(rounds):
            for name, seconds in times.items():
                self.use(name)
                start = time.process_time()
                self.step()
                seconds.append(time.process_time() - start)
        return times

    def live_bytes(self, name: str) -> tuple[int, int]:
        """Bytes alive after the forward, and at the peak of the step, of storages made during it."""
        self.use(name)
        self.model.zero_grad()
        with LiveStorages(self.ids.device) as live:
            loss = self.loss()
            held = live.live_bytes
            loss.backward()
        return held, live.peak_bytes


def ratio(times: dict[str, list[float]], name: str, base: str = "none") -> float:
    """Median over rounds of a step's time against that of ``base`` in the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def added(times: dict[str, list[float]], name: str) -> float:
    """Median over rounds of the seconds that ``name`` adds to a step."""
    return statistics.median(a - b for a, b in zip(times[name], times["none"], strict=True))
