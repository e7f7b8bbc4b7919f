"""Prefix tuning of a model that is checkpointed.

## What it does
Flags `get_peft_model(model, PrefixTuningConfig(...))` on a transformers model whose checkpointing is enabled before or
after it, and a Trainer with checkpointing on that gets such a model or a `PrefixTuningConfig` as `peft_config`.

## Why is this bad?
Prefix tuning hands its prefixes to the layers through the key-value cache, which a checkpointed layer is not given.
peft raises `ValueError: PREFIX_TUNING does not work with gradient checkpointing` when checkpointing is on already; when
it comes later, the first step ends in a RuntimeError about sizes. Prompt tuning and p-tuning work.

## Bad
```python
from peft import PrefixTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()
model = get_peft_model(model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20))  # error
```
```python
from peft import PrefixTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), config)  # error
Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=True)).train()
```
```python
from peft import PrefixTuningConfig
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(  # error
    "base",
    args=SFTConfig("out"),
    peft_config=PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20),
)
```
```python
from enum import Enum
from peft import PrefixTuningConfig, PromptTuningConfig, TaskType, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class Method(Enum):
    PREFIX = PrefixTuningConfig
    PROMPT = PromptTuningConfig

    def build(self, **options):
        return self.value(task_type=TaskType.CAUSAL_LM, **options)

model = AutoModelForCausalLM.from_pretrained("base")
model = get_peft_model(model, Method.PREFIX.build(num_virtual_tokens=20))  # error
args = TrainingArguments("out", activation_checkpointing=True)
Trainer(model, args).train()
```
```python
from peft import PrefixTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

SIZES = {"small": PrefixTuningConfig(num_virtual_tokens=8), "large": PrefixTuningConfig(num_virtual_tokens=64)}

def load(name, size):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    return get_peft_model(model, SIZES[size])  # error
```

## Good
```python
from peft import PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

METHODS = {"prefix": PrefixTuningConfig(num_virtual_tokens=8), "prompt": PromptTuningConfig(num_virtual_tokens=8)}

def load(name, method):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    return get_peft_model(model, METHODS[method])
```
```python
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

def without(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model = get_peft_model(model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20))
    Trainer(model=model, args=TrainingArguments("out")).train()

def prompts(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    return get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20))

def one_of_two(name, prefix):
    model = AutoModelForCausalLM.from_pretrained(name)
    if not prefix:
        model.gradient_checkpointing_enable()
        return get_peft_model(model, LoraConfig())
    return get_peft_model(model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20))

SFTTrainer(
    "base",
    args=SFTConfig("out", gradient_checkpointing=False),
    peft_config=PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20),
)
```
```python
from enum import Enum
from peft import PrefixTuningConfig, PromptTuningConfig, TaskType, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class Method(Enum):
    PREFIX = PrefixTuningConfig
    PROMPT = PromptTuningConfig

    def build(self, **options):
        return self.value(task_type=TaskType.CAUSAL_LM, **options)

model = AutoModelForCausalLM.from_pretrained("base")
model = get_peft_model(model, Method.PROMPT.build(num_virtual_tokens=20))
args = TrainingArguments("out", activation_checkpointing=True)
Trainer(model, args).train()
```

## Evidence
```python
import torch
from peft import PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

def raised(kind, order):
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = LlamaForCausalLM(config)
    try:
        if order == "before":
            model.gradient_checkpointing_enable()
        model = get_peft_model(model, kind(num_virtual_tokens=4, task_type="CAUSAL_LM")).train()
        if order == "after":
            model.gradient_checkpointing_enable()
        ids = torch.ones(2, 8, dtype=torch.long)
        model(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids)).loss.backward()
    except Exception as error:
        return type(error)
    return None

assert raised(PrefixTuningConfig, "before") is ValueError
assert raised(PrefixTuningConfig, "after") is RuntimeError
assert raised(PrefixTuningConfig, "never") is None
assert raised(PromptTuningConfig, "before") is raised(PromptTuningConfig, "after") is None
```

## References
peft 0.21 `peft_model.py` (`PREFIX_TUNING does not work with gradient checkpointing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Result, options
from ..finding import Severity
from ..model.events import AdapterAttach, HfDisable, HfEnable, TrainerBuild
from ..model.events.extract import args_of
from ..model.libraries.sharding import root
from ..model.libraries.trainer import is_enabled
from ..model.names import canonical
from ..model.needs import SWITCHED_ON, together
from ..model.report import Remark, Report

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT314", "prefix-cache-with-checkpointing", Severity.ERROR
NEEDS = (
    ("PrefixTuningConfig", HfEnable),
    *together("PrefixTuningConfig", TrainerBuild, SWITCHED_ON),
)


def check(run: Run) -> Iterator[Report]:
    """Report prefixes that checkpointed layers never see."""
    for attach in run.of(AdapterAttach):
        if _is_prefix(attach.config):
            cause = _enabled(run, attach) or _trained(run, attach)
            if cause is not None:
                yield _report(attach.node, cause, "checkpointing is enabled here")
    for trainer in run.of(TrainerBuild):
        if _is_prefix(trainer.peft_config) and (cause := _arguments(run, trainer)) is not None:
            yield _report(trainer.node, cause, "these arguments switch checkpointing on")


def _is_prefix(config: Value) -> bool:
    made = [option.call.name if isinstance(option, Result) else "" for option in options(config)]
    return all(canonical(name) == "peft.PrefixTuningConfig" for name in made)


def _enabled(run: Run, attach: AdapterAttach) -> ast.AST | None:
    """What enables checkpointing on the model itself, if nothing switches it off."""
    model = root(attach.model)
    if any(root(disable.model) is model for disable in run.of(HfDisable)):
        return None
    for enable in run.of(HfEnable):
        together = enable.place.walk == attach.place.walk and not enable.place.excludes(attach.place)
        if root(enable.model) is model and together:
            return enable.node
    return None


def _trained(run: Run, attach: AdapterAttach) -> ast.AST | None:
    for trainer in run.of(TrainerBuild):
        together = trainer.place.walk == attach.place.walk and not trainer.place.excludes(attach.place)
        if root(trainer.model) is root(attach.model) and together:
            return _arguments(run, trainer)
    return None


def _arguments(run: Run, trainer: TrainerBuild) -> ast.AST | None:
    """The arguments of ``trainer`` when all that are possible switch checkpointing on."""
    causes = []
    for value in options(trainer.args):
        args = args_of(value)
        if args is None or not is_enabled(run, args, value):
            return None
        causes.append(args.node)
    return causes[0] if causes else None


def _report(node: ast.AST, cause: ast.AST, what: str) -> Report:
    return Report(
        node,
        "checkpointed layers get no key-value cache, through which prefix tuning works: this raises a ValueError or "
        "the first step fails; switch checkpointing off, or use prompt tuning",
        notes=(Remark(cause, what),),
    )
