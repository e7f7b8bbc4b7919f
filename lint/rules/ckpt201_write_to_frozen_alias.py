"""Writing a deprecated checkpointing name after the arguments are built.

## What it does
Flags `args.gradient_checkpointing = ...` and `args.gradient_checkpointing_kwargs = ...` on a `TrainingArguments` (or a
trl config) that already exists, where the value differs from what holds anyway. A script that reads the old name
itself later, or that trains in a loop of its own, is left alone. A warning, no error, where the project also allows a
transformers older than 5.23, in which the write takes effect.

## Why is this bad?
Since transformers 5.23 the old names are copied to `activation_checkpointing*` once, when the object is built. The
Trainer reads only the new names, so the write has no effect: checkpointing stays on, or stays off until the run is out
of memory, or runs the other variant; nothing is printed.

## Bad
```python
from transformers import Trainer, TrainingArguments

args = TrainingArguments("out", gradient_checkpointing=True)
args.gradient_checkpointing_kwargs = {"use_reentrant": True}  # error
args.gradient_checkpointing = False  # error
Trainer(None, args)
```
```python
from trl import SFTConfig, ModelConfig, TrlParser

parser = TrlParser((SFTConfig, ModelConfig))
training_args, model_args = parser.parse_args_and_config()
training_args.gradient_checkpointing_kwargs = {"use_reentrant": model_args.use_reentrant}  # error
```
```python
from dataclasses import dataclass
from transformers import TrainingArguments

@dataclass
class Arguments(TrainingArguments):
    def __post_init__(self):
        super().__post_init__()
        self.gradient_checkpointing = True  # error

args = TrainingArguments("out")
vars(args).update(gradient_checkpointing=True)  # error
vars(args)["gradient_checkpointing_kwargs"] = {"use_reentrant": True}  # error
```
```python
from transformers import Seq2SeqTrainer, Trainer, TrainingArguments

def train(model, rows):
    trainer = Trainer(model, TrainingArguments("out"), train_dataset=rows)
    trainer.args.gradient_checkpointing = True  # error
    trainer.train()

class SavingTrainer(Seq2SeqTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.args.gradient_checkpointing = True  # error
```

## Good
```python
from dataclasses import dataclass
from transformers import TrainingArguments

@dataclass
class Arguments(TrainingArguments):
    def __post_init__(self):
        self.gradient_checkpointing = True
        super().__post_init__()

args = Arguments("out")
vars(args).update(activation_checkpointing=True)
```
```python
import torch.nn as nn
from transformers import TrainingArguments

args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
args.gradient_checkpointing_kwargs["use_reentrant"] = False  # both names share the dict
args.activation_checkpointing = False
plain = TrainingArguments("out")
plain.gradient_checkpointing = False  # it is off anyway

class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gradient_checkpointing = False

def configure(cfg, model):
    cfg.gradient_checkpointing = True
    model.gradient_checkpointing = True
```
```python
from transformers import Trainer, TrainingArguments
from my_project import Runner

def train(model, rows):
    trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows)
    trainer.args.activation_checkpointing = False
    trainer.args.gradient_checkpointing = True  # it is on already
    trainer.train()

class MyRunner(Runner):
    def __init__(self, args):
        super().__init__(args)
        self.args.gradient_checkpointing = True  # arguments of its own

def run(args):
    runner = Runner(args)
    runner.args.gradient_checkpointing = True
    runner.start()
```
```python
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
if args.bf16:
    args.gradient_checkpointing = False
model = AutoModelForCausalLM.from_pretrained("base")
if args.gradient_checkpointing:  # no Trainer: the script itself reads what it wrote
    model.gradient_checkpointing_enable()
```

## Fix safety
Unsafe: the renamed write takes effect, which is what was meant but changes the run. Shown only when the project also
allows a transformers older than 5.23, which does not know the new name, and not offered when the old name is read
somewhere.

## Evidence
```python
import warnings
from transformers import TrainingArguments

warnings.simplefilter("ignore")
args = TrainingArguments("out", gradient_checkpointing=True, use_cpu=True, report_to="none")
args.gradient_checkpointing = False
args.gradient_checkpointing_kwargs = {"use_reentrant": True}
assert args.activation_checkpointing is True
assert args.activation_checkpointing_kwargs is None

shared = {"use_reentrant": True}
args = TrainingArguments("out", gradient_checkpointing_kwargs=shared, use_cpu=True, report_to="none")
args.gradient_checkpointing_kwargs["use_reentrant"] = False
assert args.activation_checkpointing_kwargs == {"use_reentrant": False}
```

## References
transformers 5.23 `training_args.py` (`__post_init__`), `trainer.py` (`if args.activation_checkpointing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Instance, Super, equals, options, same, truth
from ..finding import Applicability, Severity
from ..model.events import Backward, TrainerArgs, TrainerBuild
from ..model.events.extract import args_of, is_args
from ..model.flow.attribute_reads import is_read, is_read_after
from ..model.libraries.trainer import default_switch, trainer_kwargs
from ..model.names import canonical
from ..model.needs import together
from ..model.report import Remark, RenameAttribute, Report, Rewrite
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.walk import Write
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT201", "write-to-frozen-alias", Severity.ERROR
NEEDS = together(
    (".gradient_checkpointing", ("setattr", "gradient_checkpointing"), ("vars(", "gradient_checkpointing")), TrainerArgs
)
VERSIONS = {"transformers": ">=5.23,<6"}
_NEW = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}


def check(run: Run) -> Iterator[Report]:
    """Report writes to the old names that the Trainer never sees."""
    if _trains_by_hand(run):
        return
    for write in run.writes:
        if write.field not in _NEW or write.is_item or not _is_built(run, write) or _changes_nothing(run, write):
            continue
        if _is_rebuilt(run, write):
            continue
        renamed = any(other.field == _NEW[write.field] and same(other.obj, write.obj) for other in run.writes)
        if not renamed and not is_read_after(run.program, write):
            yield _report(run, write)


def _trains_by_hand(run: Run) -> bool:
    return not any(run.of(TrainerBuild)) and any(run.of(Backward))


def _is_rebuilt(run: Run, write: Write) -> bool:
    """Whether trl's SFTTrainer makes its own arguments of plain ones, `SFTConfig(**args.to_dict())`, and reads both."""
    args = args_of(write.obj)
    plain = args is not None and args.call.name.startswith("transformers.")
    trainers = (trainer for trainer in run.of(TrainerBuild) if canonical(trainer.call.name) == "trl.SFTTrainer")
    return plain and any(same(option, write.obj) for trainer in trainers for option in options(trainer.args))


def _is_built(run: Run, write: Write) -> bool:
    inside_class = write.place.function is not None and write.place.function.owner is not None
    return is_args(write.obj) and (
        not isinstance(write.obj, Instance) or not inside_class or _is_after_base(run, write)
    )


def _is_after_base(run: Run, write: Write) -> bool:
    """Whether the library's own `__post_init__` has settled the two names before the write, in the same method."""
    return any(
        call.place.function is write.place.function and isinstance(call.receiver, Super) and call.order < write.order
        for call in run.method_calls("__post_init__")
    )


def _changes_nothing(run: Run, write: Write) -> bool:
    """Whether the value is what holds without the write."""
    args = args_of(write.obj)
    if args is None or args.call.open_kwargs:
        return False
    if write.field == "gradient_checkpointing":
        holds = default_switch(args) if isinstance(args.enabled, Absent) else truth(args.enabled)
        return holds is not None and equals(write.value, holds) is True
    wanted = hf_kwargs_reentrant(trainer_kwargs(write.value), run.versions.hf_default_reentrant)
    return wanted is not None and wanted == hf_kwargs_reentrant(
        trainer_kwargs(args.kwargs), run.versions.hf_default_reentrant
    )


def _report(run: Run, write: Write) -> Report:
    new = _NEW[write.field]
    args = args_of(write.obj)
    fix, target = None, write.target
    older = run.versions.may_be("transformers", "<5.23")
    if target is not None and not is_read(run.program, write.field):
        level = Applicability.DISPLAY if older else Applicability.UNSAFE
        fix = Rewrite(level, f"Write `{new}`", (RenameAttribute(target, new),))
    return Report(
        write.node,
        f"since transformers 5.23 this write has no effect: the Trainer reads `{new}`, set when the arguments were "
        f"built; write `{new}`, or pass it to the constructor",
        notes=(Remark(args.node, "the arguments were built here"),) if args is not None else (),
        fix=fix,
        severity=Severity.WARNING if older else None,
    )
