"""Right runs of TRL's trainers, each with its own loss, its own batches and text of its own kind."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

from ..models import config
from .runs import small_llama

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_ckpt import SelectiveCkpt

_STEPS = 20
_WORDS = Path(json.__file__).read_text().split()
_SETTINGS: dict[str, Any] = {
    "max_steps": _STEPS, "per_device_train_batch_size": 2, "use_cpu": True, "bf16": False, "report_to": "none",
    "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1000,
}  # fmt: skip


def sft(callback: SelectiveCkpt) -> None:
    _train(SFTTrainer, SFTConfig, callback, [{"text": _words(i, 16)} for i in range(2 * _STEPS)])


def sft_packed(callback: SelectiveCkpt) -> None:
    rows = [{"text": _words(i, 8 + i % 9)} for i in range(8 * _STEPS)]
    _train(SFTTrainer, SFTConfig, callback, rows, packing=True, max_length=32)


def dpo(callback: SelectiveCkpt) -> None:
    adapter = LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
    _train(DPOTrainer, DPOConfig, callback, _pairs(), peft_config=adapter)


def reward(callback: SelectiveCkpt) -> None:
    small = config("llama")
    small.num_labels = 1
    _train(RewardTrainer, RewardConfig, callback, _pairs(), model=LlamaForSequenceClassification(small))


def grpo(callback: SelectiveCkpt) -> None:
    rows = [{"prompt": _words(i, 5)} for i in range(2 * _STEPS)]
    _train(
        GRPOTrainer, GRPOConfig, callback, rows,
        reward_funcs=_lengths, num_generations=2, max_completion_length=6,
    )  # fmt: skip


def _train(
    kind: type[Trainer], settings: Any, callback: SelectiveCkpt, rows: list[dict[str, str]], **more: Any
) -> None:
    known = settings.__dataclass_fields__
    asked = {name: value for name, value in more.items() if name in known}
    rest = {"model": small_llama()} | {name: value for name, value in more.items() if name not in known}
    kind(
        args=settings(tempfile.mkdtemp(), **_SETTINGS, **asked), train_dataset=Dataset.from_list(rows),
        processing_class=_tokenizer(), callbacks=[callback], **rest,
    ).train()  # fmt: skip


def _words(start: int, count: int) -> str:
    return " ".join(_WORDS[5 * start : 5 * start + count])


def _pairs() -> list[dict[str, str]]:
    return [
        {"prompt": _words(i, 4), "chosen": _words(i + 1, 5), "rejected": _words(i + 9, 5)} for i in range(2 * _STEPS)
    ]


def _lengths(completions: list[str], **_: Any) -> list[float]:
    return [float(len(completion) % 7) for completion in completions]


def _tokenizer() -> PreTrainedTokenizerFast:
    """One number for each of the text's commonest words."""
    known = ["<unk>", "<eos>", "<pad>", *sorted(set(_WORDS))[:253]]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>", pad_token="<pad>")
