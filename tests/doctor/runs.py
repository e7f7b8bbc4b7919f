"""Trainings under a memory limit on the CPU, each real: a Trainer, a small Llama, text."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

from hf_ckpt import SelectiveCkpt
from hf_ckpt.measuring.memory_limit import MemoryLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCABULARY = 512
_TEXT = Path(json.__file__).read_bytes()


def small_llama(**more: Any) -> torch.nn.Module:
    """Four layers, width 32."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 4, "vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
    }  # fmt: skip
    model = AutoModelForCausalLM.from_config(LlamaConfig(**(sizes | more)))
    model.config.use_cache = False
    return model


def texts(lengths: Sequence[int]) -> list[dict[str, torch.Tensor]]:
    """Blocks of real text of these lengths, one byte a token."""
    blocks = [torch.tensor(list(_TEXT[7 * i : 7 * i + length])) for i, length in enumerate(lengths)]
    return [{"input_ids": block, "labels": block} for block in blocks]


def arguments(**more: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 2, "max_steps": 30, "logging_steps": 1000, "use_cpu": True, "report_to": "none",
        "disable_tqdm": True, "save_strategy": "no", "seed": 1, "train_sampling_strategy": "sequential",
    }  # fmt: skip
    known = {name: value for name, value in (defaults | more).items() if name in TrainingArguments.__dataclass_fields__}
    return TrainingArguments(tempfile.mkdtemp(), **known)


def run(
    nbytes: int,
    model: torch.nn.Module,
    data: Any,
    kind: type[Trainer] = Trainer,
    policy: str = "full",
    arguments_of: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[SelectiveCkpt, BaseException | None, MemoryLimit]:
    """Train under the limit; the callback, and what training raised."""
    callback = SelectiveCkpt(policy)
    callbacks = [callback, *more.pop("callbacks", ())]
    trainer = kind(
        model, arguments(**(arguments_of or {})), train_dataset=data, callbacks=callbacks, data_collator=pad, **more
    )
    error: BaseException | None = None
    with MemoryLimit(nbytes, model) as limit:
        try:
            trainer.train()
        except Exception as raised:
            error = raised
    return callback, error, limit


def pad(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Right-padded to the longest."""
    longest = max(len(example["input_ids"]) for example in examples)
    ids = torch.full((len(examples), longest), 2)
    for row, example in zip(ids, examples, strict=True):
        row[: len(example["input_ids"])] = example["input_ids"]
    return {"input_ids": ids, "labels": ids.clone()}
