"""What every fork that trains would load again."""

from __future__ import annotations

import functools

import accelerate  # noqa: F401
import peft  # noqa: F401
import torch
import torch.distributed.fsdp
import torch.multiprocessing
import transformers

torch.set_num_threads(1)
# A rank that a script spawns would load everything again.
torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
for _name in ("LlamaForCausalLM", "GPT2LMHeadModel", "Trainer", "TrainingArguments"):
    getattr(transformers, _name)
