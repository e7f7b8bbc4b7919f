"""An `activation_checkpointing` section in the DeepSpeed configuration of a Trainer that checkpoints nothing.

## What it does
Flags `TrainingArguments(deepspeed={"activation_checkpointing": {...}})` when this file shows the dict, or names the
DeepSpeed file that it is checked with (`ckpt-lint train.py --config ds.json`), the arguments do not turn checkpointing
on, and nothing else in the file does. `deepspeed.initialize` with such a dict and a model of
transformers, sentence-transformers, diffusers, timm or torchvision is the same.

## Why is this bad?
The section configures `deepspeed.checkpointing.checkpoint`, which models of transformers never call. Every activation
is kept, as if the section were not there.

## Bad
```python
from transformers import TrainingArguments

args = TrainingArguments(  # error
    "out",
    deepspeed={"zero_optimization": {"stage": 2}, "activation_checkpointing": {"partition_activations": True}},
)
```
```python
from transformers import Seq2SeqTrainingArguments

config = {"zero_optimization": {"stage": 3}}
config["activation_checkpointing"] = {"cpu_checkpointing": True}
args = Seq2SeqTrainingArguments("out", deepspeed=config, gradient_checkpointing=False)  # error
```

```python
import deepspeed
from transformers import AutoModelForCausalLM

config = {"train_batch_size": 8, "activation_checkpointing": {"partition_activations": True}}
model = AutoModelForCausalLM.from_pretrained("base")
engine, *_ = deepspeed.initialize(model=model, config=config)  # error
```
```python
import deepspeed
from sentence_transformers import SentenceTransformer, models

words = models.Transformer("microsoft/MiniLM-L12-H384-uncased")
model = SentenceTransformer(modules=[words, models.Pooling(384)])
settings = {"train_batch_size": 8, "activation_checkpointing": {"cpu_checkpointing": True}}
engine, *_ = deepspeed.initialize(model=model, config=settings)  # error
```

```python
from transformers import TrainingArguments

def zero(stage):
    return {"zero_optimization": {"stage": stage}, "activation_checkpointing": {"partition_activations": True}}

def big(out):
    return TrainingArguments(out, deepspeed=zero(3))  # error

def small(out):
    args = TrainingArguments(out)
    args.activation_checkpointing = True
    return args
```

## Good
```python
from transformers import TrainingArguments
from trl import SFTConfig

section = {"partition_activations": True}
args = TrainingArguments("out", deepspeed={"activation_checkpointing": section}, gradient_checkpointing=True)
args = SFTConfig("out", deepspeed={"activation_checkpointing": section})  # trl turns it on
args = TrainingArguments("out", deepspeed={"zero_optimization": {"stage": 2}})
args = TrainingArguments("out", deepspeed="ds_config.json")
```
```python
import deepspeed
from transformers import TrainingArguments

args = TrainingArguments("out", deepspeed={"activation_checkpointing": {"partition_activations": True}})

def forward(block, x):
    return deepspeed.checkpointing.checkpoint(block, x)
```

```python
import deepspeed
from sentence_transformers import SentenceTransformer
from own_package import OwnModel

settings = {"train_batch_size": 8, "activation_checkpointing": {"cpu_checkpointing": True}}
own, *_ = deepspeed.initialize(model=OwnModel(), config=settings)
plain, *_ = deepspeed.initialize(model=SentenceTransformer("base"), config={"train_batch_size": 8})
```

```python
from transformers import TrainingArguments

def zero(stage):
    return {"zero_optimization": {"stage": stage}, "activation_checkpointing": {"partition_activations": True}}

def switched(args):
    args.activation_checkpointing = True
    return args

def either(out, is_big):
    args = TrainingArguments(out, deepspeed=zero(3)) if is_big else TrainingArguments(out)
    args.activation_checkpointing = True
    return args

def big(out):
    return switched(TrainingArguments(out, deepspeed=zero(3)))
```

## Fix safety
Unsafe: checkpointing begins to work, which is what was meant but changes the speed of the run.

## Evidence
```python
import inspect
import accelerate.utils.dataclasses
import accelerate.utils.deepspeed
import transformers.integrations.deepspeed
import transformers.modeling_layers
import transformers.modeling_utils

# Nobody on the way from the Trainer to the layers reads the section or calls DeepSpeed's own checkpoint.
for module in (
    accelerate.utils.deepspeed,
    accelerate.utils.dataclasses.DeepSpeedPlugin,
    transformers.integrations.deepspeed,
):
    assert "activation_checkpointing" not in inspect.getsource(module)
for module in (transformers.modeling_layers, transformers.modeling_utils):
    assert "deepspeed.checkpointing" not in inspect.getsource(module)
```

## References
huggingface/transformers#22099; DeepSpeed `runtime/activation_checkpointing/checkpointing.py` (`configure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Dict, equals, is_absent, is_given, options
from ..finding import Applicability, Severity
from ..model.events import Checkpointing, SwiftArgs, TrainerArgs
from ..model.events.extract import args_of
from ..model.libraries.makers import library_of
from ..model.libraries.trainer import SWITCHES, default_switch, where
from ..model.needs import together
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.types import class_names, is_hf_model, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..facts.walk import Write
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT207", "deepspeed-checkpointing-section", Severity.WARNING
NEEDS = together("deepspeed", "activation_checkpointing", (TrainerArgs, "deepspeed.initialize"))
_SECTION = "activation_checkpointing"
#: Libraries whose models never call DeepSpeed's own checkpoint, and how a program turns checkpointing on in them.
_SWITCHES_ON = {
    "transformers": "call `model.gradient_checkpointing_enable()`",
    "sentence_transformers": "call `model.gradient_checkpointing_enable()`",
    "diffusers": "call `model.enable_gradient_checkpointing()`",
    "timm": "call `model.set_grad_checkpointing()`",
    "torchvision": "call `torch.utils.checkpoint.checkpoint` for its blocks",
}


def check(run: Run) -> Iterator[Report]:
    """Report DeepSpeed sections that are all the checkpointing there is."""
    if _enables_elsewhere(run):
        return
    if not any(_is_switch(write) for write in run.writes):
        yield from _initialized(run)
    for args in run.of(TrainerArgs):
        config = args.setting("deepspeed")
        if not isinstance(config, Dict) or is_absent(config.get(_SECTION)) is not False or not _is_off(args):
            continue
        if any(_may_switch(write, args) for write in run.writes):
            continue
        switch = SWITCHES[1] if run.versions.may_be("transformers", "<5.23") else SWITCHES[0]
        is_old = args.call.written(SWITCHES[1]) or args.call.name.startswith(("axolotl.", "swift."))
        add = SetKeyword(args.node, SWITCHES[1] if is_old else switch, "True")
        yield Report(
            where(config, args.node),
            f"models of transformers never use this section of the DeepSpeed configuration, so nothing is "
            f"checkpointed; write `{add.name}=True`",
            notes=(Remark(where(config.get(_SECTION), config.node), "the configuration with the section"),)
            if config.node is not None
            else (),
            fix=Rewrite(Applicability.UNSAFE, f"Write `{add.name}=True`", (add,)),
        )


def _initialized(run: Run) -> Iterator[Report]:
    """Engines of DeepSpeed around a model of a library: nothing in them reads the section either."""
    for call in run.calls_to("deepspeed.initialize"):
        config = call.keyword("config") if is_given(call, "config") else call.keyword("config_params")
        has_section = isinstance(config, Dict) and is_absent(config.get(_SECTION)) is False
        library = _library(call.argument(1, "model")) if has_section else ""
        if library:
            yield Report(
                call.node,
                f"models of {library} never use this section of the DeepSpeed configuration, so nothing is "
                f"checkpointed; {_SWITCHES_ON[library]} first",
            )


def _library(model: Value) -> str:
    """The library of ``model``, where no model of that library calls DeepSpeed's own checkpoint; empty for others."""
    if "sentence_transformers.SentenceTransformer" in class_names(unwrapped(model)):
        return "sentence_transformers"
    return "transformers" if is_hf_model(model) else library_of(model)


def _is_off(args: TrainerArgs) -> bool:
    if isinstance(args, SwiftArgs) and args.checkpoints_more:
        return False
    if isinstance(args.enabled, Absent):
        return not default_switch(args)
    return equals(args.enabled, False) is True


def _enables_elsewhere(run: Run) -> bool:
    """Whether something else may turn checkpointing on, DeepSpeed's own function included."""
    calls = (call.name or call.method for call in run.program.calls)
    names = ("checkpointing_enable", "enable_gradient_checkpointing", "prepare_model_for_kbit_training")
    by_call = any(name.endswith(names) or name.startswith("deepspeed.checkpointing") for name in calls)
    # What nothing in sight calls may be called by what a library builds.
    in_modules = any("deepspeed.checkpointing" in text for text in run.program.texts.values())
    return by_call or in_modules or any(run.of(Checkpointing))


def _is_switch(write: Write) -> bool:
    return write.field in SWITCHES and not write.is_item


def _may_switch(write: Write, args: TrainerArgs) -> bool:
    """Whether ``write`` may turn checkpointing on in ``args``: not in other arguments that the file shows."""
    written = [args_of(option) for option in options(write.obj)] if _is_switch(write) else []
    return any(other is None or other.node is args.node for other in written)
