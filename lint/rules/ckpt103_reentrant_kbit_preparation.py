"""Allow preparing a quantized model for training with the variant of checkpointing left open.

## What it does
Flags `peft.prepare_model_for_kbit_training(model)` that turns checkpointing on (the default) without
`gradient_checkpointing_kwargs`, unless a Trainer that enables checkpointing itself gets the model.

## Why is this bad?
peft passes an empty dict on, not `None`, so torch falls back to the reentrant variant although transformers defaults to
the other one. In a hand-written loop the model trains with it: `find_unused_parameters` under DDP crashes, router
logits are detached, keyword arguments fail.

## Bad
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base", load_in_4bit=True)
model = prepare_model_for_kbit_training(model)  # error
model = get_peft_model(model, LoraConfig())
```

## Good
```python
from peft import prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def by_hand(base):
    prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    return prepare_model_for_kbit_training(base, gradient_checkpointing_kwargs={"use_reentrant": False})

def with_trainer(name):
    model = prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained(name))
    # The Trainer enables checkpointing again, non-reentrant.
    Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=True)).train()

def part(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    # Only the loaded model carries the flag by which peft knows it: nothing is turned on here.
    model.language_model = prepare_model_for_kbit_training(model.language_model)
```

## Fix safety
Unsafe: the non-reentrant variant runs instead.

## Evidence
```python
import torch
from peft import prepare_model_for_kbit_training
from transformers import LlamaConfig, LlamaForCausalLM

def model():
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = LlamaForCausalLM(config)
    model.is_loaded_in_4bit = True  # the flag bitsandbytes sets; the weights stay float here
    return model

def keywords(**given):
    prepared = prepare_model_for_kbit_training(model(), **given)
    return prepared.model.layers[0]._gradient_checkpointing_func.keywords

assert keywords() == {}
assert keywords(gradient_checkpointing_kwargs={"use_reentrant": False}) == {"use_reentrant": False}

whole = model()
prepare_model_for_kbit_training(whole.model)  # a part of what was loaded: nothing is turned on
assert not whole.is_gradient_checkpointing and not whole.model.is_gradient_checkpointing
prepare_model_for_kbit_training(whole)
assert whole.is_gradient_checkpointing
```

## References
peft 0.21 `peft/utils/other.py` (`gradient_checkpointing_kwargs = {}`); huggingface/peft#1036.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Attr, equals, options
from ..finding import Applicability, Severity
from ..model.events import KbitPrepare, TrainerBuild
from ..model.hf import is_enabled, trainers_of
from ..model.report import Report, Rewrite, SetKeyword
from ..model.types import is_hf_model
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT103", "reentrant-kbit-preparation", Severity.WARNING
TRIGGERS = ("prepare_model_for_kbit_training",)
_KEYWORD = "gradient_checkpointing_kwargs"


def check(run: Run) -> Iterator[Report]:
    """Report preparations that certainly end in the reentrant variant."""
    for prepare in run.of(KbitPrepare):
        turned_on = isinstance(prepare.enables, Absent) or equals(prepare.enables, True)
        if not turned_on or not hf_kwargs_reentrant(prepare.kwargs, default=True) or _trainer_decides(run, prepare):
            continue
        if _is_part(prepare.model):
            continue
        if isinstance(prepare.kwargs, Absent):
            yield Report(
                prepare.node,
                "peft passes an empty dict on, so torch runs the reentrant variant; "
                'write `gradient_checkpointing_kwargs={"use_reentrant": False}`',
                fix=Rewrite(
                    Applicability.UNSAFE,
                    "Choose the non-reentrant variant",
                    (SetKeyword(prepare.node, _KEYWORD, '{"use_reentrant": False}'),),
                ),
            )


def _is_part(model: Value) -> bool:
    """Whether this is a submodule of the model that was loaded, which peft does not take for a quantized one."""
    return any(isinstance(option, Attr) and is_hf_model(option.base) for option in options(model))


def _trainer_decides(run: Run, prepare: KbitPrepare) -> bool:
    """Whether a Trainer may enable checkpointing again: one of this model, or one whose model is not known."""
    known = list(trainers_of(run, prepare.model))
    if known:
        return any(is_enabled(run, args, value) is not False for _, args, value in known)
    return any(run.of(TrainerBuild))
