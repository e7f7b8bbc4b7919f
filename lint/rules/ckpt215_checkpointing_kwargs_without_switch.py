"""Arguments for checkpointing while checkpointing is off.

## What it does
Flags `TrainingArguments` that get `gradient_checkpointing_kwargs` (or the new name) although `gradient_checkpointing`
is off, when nothing else in the file turns checkpointing on: writes, `set_*` methods and copies with other values may.
trl's configs are on by default. `prepare_model_for_kbit_training(model, use_gradient_checkpointing=False,
gradient_checkpointing_kwargs=...)` is the same where no Trainer turns it on.

## Why is this bad?
The Trainer looks at the arguments only when the switch is on. Every activation is kept and the run may be out of
memory, while the configuration reads as if checkpointing were set up.

## Bad
```python
from transformers import Trainer, TrainingArguments

def train(model):
    args = TrainingArguments("out", gradient_checkpointing_kwargs={"use_reentrant": False})  # error
    Trainer(model, args).train()
```
```python
from peft import prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

def train(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model = prepare_model_for_kbit_training(  # error
        model, use_gradient_checkpointing=False, gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    SFTTrainer(model, args=SFTConfig("out", gradient_checkpointing=False)).train()
```
```yaml
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
sequence_len: 2048
micro_batch_size: 2
gradient_checkpointing_kwargs:  # error
  use_reentrant: false
```

## Good
```python
from peft import prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

def by_the_trainer(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model = prepare_model_for_kbit_training(model, False, {"use_reentrant": False})
    SFTTrainer(model, args=SFTConfig("out")).train()

def by_itself(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    return prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
```
```python
from transformers import Trainer, TrainingArguments
from trl import SFTConfig

def train(model, switch, name):
    on = TrainingArguments(
        "out", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": False}
    )
    later = TrainingArguments("out", gradient_checkpointing_kwargs={"use_reentrant": False})
    later.activation_checkpointing = True
    open_ = TrainingArguments(
        "out", gradient_checkpointing=switch, gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    trl = SFTConfig("out", gradient_checkpointing_kwargs={"use_reentrant": False})
    none = TrainingArguments("out", gradient_checkpointing_kwargs=None)
    return [Trainer(model, args) for args in (on, later, open_, trl, none)]
```
```python
import dataclasses
from transformers import TrainingArguments

args = TrainingArguments("out", gradient_checkpointing_kwargs={"use_reentrant": False})
args = args.set_training(activation_checkpointing=True)
plain = TrainingArguments("out", gradient_checkpointing_kwargs={"use_reentrant": False})
copied = dataclasses.replace(plain, activation_checkpointing=True)
```
```yaml
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
micro_batch_size: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
```
```yaml
# The command line or the script may switch it on.
output_dir: out
per_device_train_batch_size: 4
learning_rate: 2.0e-5
gradient_checkpointing_kwargs:
  use_reentrant: false
```

## Fix safety
Unsafe: checkpointing is turned on, which is what the arguments are for but changes the run.

## Evidence
```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)
model = LlamaForCausalLM(config)
args = TrainingArguments(
    "out", gradient_checkpointing_kwargs={"use_reentrant": False}, use_cpu=True, report_to="none", max_steps=1,
    save_strategy="no", disable_tqdm=True,
)
rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}] * 8
Trainer(model, args, train_dataset=rows).train()
assert not model.is_gradient_checkpointing

from peft import prepare_model_for_kbit_training

prepare_model_for_kbit_training(model, False, {"use_reentrant": False})
assert not model.is_gradient_checkpointing
```

## References
transformers 5.23 `trainer.py` (`if args.activation_checkpointing:`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Dict, Instance, Result, equals, is_absent, options
from ..finding import Applicability, Severity
from ..model.events import HfEnable, KbitPrepare, KwargsWrite, SwiftArgs, TrainerArgs
from ..model.libraries.finished_models import trainer_may_enable
from ..model.libraries.trainer import KWARGS, SWITCHES, default_switch
from ..model.needs import together
from ..model.report import Report, Rewrite, SetKeyword
from ..model.variant import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT215", "checkpointing-kwargs-without-switch", Severity.WARNING
NEEDS = together("checkpointing_kwargs", (TrainerArgs, KbitPrepare))
VERSIONS = {"transformers": ">=4.35"}
MAY_BE_MEANT = True
_COPIES = ("dataclasses.replace", "copy.replace")


def check(run: Run) -> Iterator[Report]:
    """Report arguments that no switch makes effective."""
    prepared = list(run.of(KbitPrepare))
    if any(run.of(HfEnable)) or any(equals(it.enables, False, None) is not True for it in prepared):
        return
    if not trainer_may_enable(run):
        yield from _prepared(prepared)
    yield from _written_later(run)
    for args in run.of(TrainerArgs):
        given = from_json(args.kwargs)
        if isinstance(given, Dict) and given.items and _is_off(args) and not _may_be_turned_on(run, args):
            written = next((name for name in KWARGS if args.call.written(name)), None)
            switch = dict(zip(KWARGS, SWITCHES, strict=True)).get(written or "")
            yield Report(
                args.node,
                "checkpointing is off here, so these arguments have no effect; turn it on or remove them",
                fix=Rewrite(Applicability.UNSAFE, f"Add `{switch}=True`", (SetKeyword(args.node, switch, "True"),))
                if switch
                else None,
            )


def _written_later(run: Run) -> Iterator[Report]:
    """`args.gradient_checkpointing_kwargs = {...}` of arguments whose switch stays off."""
    for write in run.of(KwargsWrite):
        written = from_json(write.kwargs)
        made = [args for args in run.of(TrainerArgs) if _is_made_by(args, write.target)]
        are_off = bool(made) and all(_is_off(args) and not _may_be_turned_on(run, args) for args in made)
        if are_off and isinstance(written, Dict) and written.items:
            yield Report(
                write.node, "checkpointing is off here, so these arguments have no effect; turn it on or remove them"
            )


def _prepared(prepared: list[KbitPrepare]) -> Iterator[Report]:
    """Preparations for quantized training that leave checkpointing off, in programs where no Trainer turns it on."""
    for prepare in prepared:
        if isinstance(prepare.kwargs, Dict) and prepare.kwargs.items:
            yield Report(
                prepare.node, "checkpointing is off here, so these arguments have no effect; turn it on or remove them"
            )


def _is_off(args: TrainerArgs) -> bool:
    # A setting that is off today turns the arguments on tomorrow.
    if args.call.open_kwargs or args.is_computed or (isinstance(args, SwiftArgs) and args.checkpoints_more):
        return False
    return equals(args.enabled, False, None) is True or (is_absent(args.enabled) is True and not default_switch(args))


def _may_be_turned_on(run: Run, args: TrainerArgs) -> bool:
    """Whether some code writes the switch of these arguments, sets it by a method or makes another object of them."""
    return (
        any(write.field in SWITCHES and _is_made_by(args, write.obj) for write in run.writes)
        or any(call.method.startswith("set_") and _is_made_by(args, call.receiver) for call in run.program.calls)
        or any(_is_made_by(args, call.argument(0, "obj")) for call in run.calls_to(*_COPIES))
        # A copy that is understood is one more construction, which shares what its original was given.
        or any(other.node is not args.node and other.call.args is args.call.args for other in run.of(TrainerArgs))
    )


def _is_made_by(args: TrainerArgs, value: Value) -> bool:
    return any(
        isinstance(option, Result | Instance) and option.call is not None and option.call.node is args.node
        for option in options(value)
    )
