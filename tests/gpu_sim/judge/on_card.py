"""Runs the cells of a subject in a setup on the card of this process (:func:`run`)."""

from __future__ import annotations

import logging
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

import hf_ckpt

from .. import stand_ins
from ..models import in_four_bits, sharded, token_ids, with_lora
from .cell import free, measure
from .subjects import LEAST_ROOM, SUBJECTS, Setup, Subject, rows_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Training:
    """A subject in a setup on the card."""

    def __init__(self, subject: Subject, setup: Setup) -> None:
        self.subject, self.setup = subject, setup
        self.half = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
        self.total = torch.cuda.mem_get_info()[1]
        with torch.device("meta"):
            bare = self._bare()
        weights = sum(p.numel() * p.element_size() for p in bare.parameters())
        self.room = self.total - weights * setup.on_one_card * (1 + setup.trained)
        self.gathered = self._gathered(bare) if setup is Setup.FSDP2 else 0

    def _gathered(self, bare: Any) -> int:
        """About the bytes that FSDP2 puts beside its shards in a backward.

        What is outside the layers is whole, with its gradients and the copy that is reduced. So is a layer, twice.
        """
        layer = sum(p.numel() for p in bare.model.layers[0].parameters())
        outside = sum(p.numel() for p in bare.parameters()) - len(bare.model.layers) * layer
        return (3 * outside + 4 * layer) * self.half.itemsize

    def _bare(self) -> Any:
        config = CONFIG_MAPPING[self.subject.kind](max_position_embeddings=32768, use_cache=False, **self.subject.shape)
        dtype = torch.float32 if self.setup in (Setup.MIXED, Setup.FSDP2) else self.half
        return AutoModelForCausalLM.from_config(config, dtype=dtype).train()

    def build(self) -> Any:
        """The model, on the card; what starts on the meta device never stands there whole."""
        with torch.device("meta" if self.setup in (Setup.QLORA, Setup.FSDP2) else "cuda"):
            model = self._bare()
        match self.setup:
            case Setup.LORA:
                return with_lora(model)
            case Setup.QLORA:
                return with_lora(in_four_bits(model))
            case Setup.FSDP2:
                return sharded(model, self.half)
        return model

    def loss(self, model: Any, rows: int) -> Callable[[], Any]:
        """A function that runs the forward of a batch."""
        ids = token_ids(rows, self.subject.length)

        def run() -> Any:
            with torch.autocast("cuda", self.half, enabled=self.setup is Setup.MIXED):
                return model(input_ids=ids, labels=ids).loss

        return run


def put_on(model: Any, label: str, optimizer: torch.optim.Optimizer, total: int) -> hf_ckpt.Handle | None:
    """Put what the label says on the model; transformers' own checkpointing has no handle."""
    if label == "HF's own":
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return None
    if label == "torch's SAC":
        return hf_ckpt.apply(model, "dots_saveable", engine="torch")
    budgets = {"0.9 of the card": f"budget={int(0.9 * total)}B"}
    policy = label if label == "full" else budgets.get(label, f"budget={label}")
    return hf_ckpt.apply(model, policy, optimizer=optimizer, accumulates_gradients=False)


def cell(training: Training, label: str) -> dict[str, Any]:
    """Run one; every cell has a fresh model."""
    model = training.build()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    rows = rows_for(training.subject, label, training.room)
    found: dict[str, Any] = {"label": label, "rows": rows, "total": training.total}
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    try:
        handle = put_on(model, label, optimizer, training.total)
        found |= asdict(measure(model, base.model.layers[-1], handle, optimizer, training.loss(model, rows)))
    except Exception as error:
        found["failed"] = f"{type(error).__name__}: {error}"
    return found


def run(subject: str, setup: str, labels: list[str]) -> Iterator[dict[str, Any]]:
    """The cells, one by one; none where the card has little room beside the model."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    stand_ins.install()
    training = Training(SUBJECTS[subject], Setup(setup))
    if training.room - training.gathered < LEAST_ROOM * training.total:
        return
    for label in labels:
        free()
        yield {"subject": subject, "setup": setup, **cell(training, label)}
