"""What every fork that trains would load again.

torch itself loads its compilers at the first compilation, its exporter at the first symbolic size
(``uninteresting_files`` in torch/fx/experimental/symbolic_shapes.py), and sympy its tensors at the first sum.
"""

from __future__ import annotations

import functools

import accelerate  # noqa: F401
import peft  # noqa: F401
import sympy.tensor.tensor  # noqa: F401
import torch
import torch._dynamo.backends.debugging
import torch.distributed.fsdp
import torch.export._trace
import torch.multiprocessing
import transformers

torch.set_num_threads(1)
# A rank that a script spawns would load everything again.
torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
for _name in ("LlamaForCausalLM", "GPT2LMHeadModel", "Trainer", "TrainingArguments"):
    getattr(transformers, _name)
