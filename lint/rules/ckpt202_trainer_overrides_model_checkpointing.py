"""Checkpointing arguments on the model that the Trainer replaces.

## What it does
Flags `model.gradient_checkpointing_enable({...})`, and peft's `prepare_model_for_kbit_training` with such arguments for
a quantized model, when they differ from those of the `Trainer` that gets the model, whole or with this part in it, and
has checkpointing on: the variant, `every_n_layers`, `offload`, and the rest of the dict.

## Why is this bad?
When training starts the Trainer enables checkpointing again, with its own arguments. What the model was told before is
gone: the other variant runs, all layers are checkpointed in place of every second one, or `context_fn` and
`preserve_rng_state` are lost. Nothing is printed.

## Bad
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # error
args = TrainingArguments("out", gradient_checkpointing=True)
Trainer(model=model, args=args).train()
```
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

EVERY = 2

class Finetuner:
    def __init__(self, name, rows):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.activation_checkpointing_enable(every_n_layers=EVERY)  # error
        config = dict(output_dir="out", activation_checkpointing=True)
        self.trainer = Trainer(self.model, TrainingArguments(**config), train_dataset=rows)

def offloaded(name, rows):
    model = AutoModelForCausalLM.from_pretrained(name)
    options = {"every_n_layers": 3, "offload": True}
    model.activation_checkpointing_enable({"use_reentrant": False}, **options)  # error
    SFTTrainer(model, args=SFTConfig("out"), train_dataset=rows).train()

def fewer(name, rows):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": False}, every_n_layers=4)  # error
    kwargs = {"use_reentrant": False, "every_n_layers": 2}
    args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs=kwargs)
    Trainer(model, args, train_dataset=rows).train()
```

```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

def quantized(name, rows):
    bits = BitsAndBytesConfig(load_in_4bit=True)
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=bits)
    options = {"use_reentrant": True}
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs=options)  # error
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM"))
    SFTTrainer(model, args=SFTConfig("out"), train_dataset=rows).train()

def base_of_the_adapter(name, rows):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig(task_type="CAUSAL_LM"))
    model.base_model.model.gradient_checkpointing_enable({"use_reentrant": True})  # error
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()

def switched_on_at_the_trainer(name, rows):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": True})  # error
    trainer = Trainer(model, TrainingArguments("out"), train_dataset=rows)
    trainer.args.activation_checkpointing = True
    trainer.train()
```
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def make_model():
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # error
    return model

Trainer(args=TrainingArguments("out", gradient_checkpointing=True), model_init=make_model).train()
```
```python
from transformers import T5ForConditionalGeneration, Trainer, TrainingArguments

model = T5ForConditionalGeneration.from_pretrained("base")
model.encoder.gradient_checkpointing_enable({"use_reentrant": True})  # error
Trainer(model, TrainingArguments("out", gradient_checkpointing=True)).train()
```

## Good
```python
from transformers import LlavaForConditionalGeneration, T5ForConditionalGeneration, Trainer, TrainingArguments

args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})

def alike(name):
    model = T5ForConditionalGeneration.from_pretrained(name)
    model.encoder.gradient_checkpointing_enable({"use_reentrant": False})
    Trainer(model, args).train()

def beside_the_trained_part(name):
    model = LlavaForConditionalGeneration.from_pretrained(name)
    model.vision_tower.gradient_checkpointing_enable({"use_reentrant": True})
    Trainer(model.language_model, args).train()
```
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

def prepared_alike(name, rows):
    bits = BitsAndBytesConfig(load_in_4bit=True)
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=bits)
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    SFTTrainer(model, args=SFTConfig("out"), train_dataset=rows, peft_config=LoraConfig()).train()

def prepared_without(name, rows):
    bits = BitsAndBytesConfig(load_in_4bit=True)
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=bits)
    options = {"use_reentrant": True}
    model = prepare_model_for_kbit_training(model, False, options)  # ckpt-lint: ignore[CKPT215] another matter
    SFTTrainer(model, args=SFTConfig("out"), train_dataset=rows, peft_config=LoraConfig()).train()

def prepared_for_itself(name, rows):
    bits = BitsAndBytesConfig(load_in_4bit=True)
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=bits)
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": True})
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM"))
    Trainer(model, TrainingArguments("out"), train_dataset=rows).train()
```
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def agree(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True)).train()

def model_decides(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    Trainer(model, TrainingArguments("out")).train()

def either(name, by_trainer):
    model = AutoModelForCausalLM.from_pretrained(name)
    args = TrainingArguments("out", gradient_checkpointing=True) if by_trainer else TrainingArguments("out")
    if not by_trainer:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    Trainer(model, args).train()

def some_layers(name, every):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)
    kwargs = {"use_reentrant": False, "every_n_layers": 2}
    args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs=kwargs)
    Trainer(model, args).train()
    model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=1, offload=False)
    model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=every)
    Trainer(model, TrainingArguments("out", activation_checkpointing=True)).train()

def by_the_model(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)
    Trainer(model, TrainingArguments("out", activation_checkpointing=False)).train()

def not_the_dict(name, more):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)
    kwargs = {"use_reentrant": False, **more}
    Trainer(model, TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs=kwargs))
```

## Fix safety
Unsafe: the arguments take effect, which is what was meant but changes the run.

## Evidence
```python
import warnings
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration, Trainer, TrainingArguments

warnings.simplefilter("ignore")
default = int(transformers.__version__.split(".")[0]) < 5
config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1,
)

def layers(asked, **given):
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable({"use_reentrant": not default}, **asked)
    args = TrainingArguments(
        "out", use_cpu=True, report_to="none", max_steps=1, save_strategy="no", disable_tqdm=True, **given
    )
    rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}] * 8
    Trainer(model, args, train_dataset=rows).train()
    return model.model.layers

def keywords(**given):
    return layers({}, **given)[0]._gradient_checkpointing_func.keywords

def checkpointed(**given):
    return sum(layer.gradient_checkpointing for layer in layers({"every_n_layers": 2}, **given))

small = T5Config(vocab_size=32, d_model=16, d_ff=32, d_kv=8, num_layers=2, num_heads=2)
whole = T5ForConditionalGeneration(small)
for part, reentrant in ((whole.encoder, True), (whole, False)):
    part.gradient_checkpointing_enable({"use_reentrant": reentrant})
    held = [module for module in whole.encoder.modules() if hasattr(module, "_gradient_checkpointing_func")]
    assert {module._gradient_checkpointing_func.keywords["use_reentrant"] for module in held} == {reentrant}

assert keywords(gradient_checkpointing=True) == {"use_reentrant": default}
assert keywords() == {"use_reentrant": not default}
if "activation_checkpointing" in TrainingArguments.__dataclass_fields__:
    assert checkpointed() == 1 and checkpointed(gradient_checkpointing=True) == 2
```

## References
transformers 5.23 `trainer.py` (`if args.activation_checkpointing`); huggingface/transformers#26221.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.nodes import entries, source_text
from ..facts.values import Const, Dict
from ..finding import Applicability, Severity
from ..model.events import HfEnable, KbitPrepare
from ..model.libraries.quantized import is_quantized
from ..model.libraries.trainer import SWITCHES, default_versions, overriding_trainer, settings_lost, trainer_reentrant
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.events import TrainerArgs
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT202", "trainer-overrides-model-checkpointing", Severity.WARNING
NEEDS = (HfEnable, (KbitPrepare, "checkpointing_kwargs"))
VERSIONS = {"transformers": ">=4.35"}


def check(run: Run) -> Iterator[Report]:
    """Report arguments given to the model that the Trainer's replace."""
    for enable in _enablings(run):
        found = overriding_trainer(run, enable)
        if found is not None and _differ(run, enable, found[1]):
            trainer, args = found
            yield Report(
                enable.node,
                "the Trainer enables checkpointing again with its own arguments, so these have no effect; "
                "pass them to its `TrainingArguments`",
                notes=(Remark(args.node, "these arguments hold"), Remark(trainer.node, "this Trainer gets the model")),
                fix=_move(enable, args),
                versions=default_versions(args) if _rests_on_reentrant(run, enable, args) else None,
            )


def _enablings(run: Run) -> Iterator[HfEnable | KbitPrepare]:
    """The calls that switch checkpointing on, the preparations of quantized models included."""
    yield from run.of(HfEnable)
    for prepare in run.of(KbitPrepare):
        if prepare.is_on and is_quantized(run, prepare.model, prepare.place):
            yield prepare


def _differ(run: Run, enable: HfEnable | KbitPrepare, args: TrainerArgs) -> bool:
    asked, holds = enable.kwargs, trainer_reentrant(run, args)
    variant = hf_kwargs_reentrant(asked, default=None) if isinstance(asked, Dict) else None
    if variant is not None and holds is not None and variant != holds:
        return True
    return holds is not None and bool(settings_lost(enable, args))


def _rests_on_reentrant(run: Run, enable: HfEnable | KbitPrepare, args: TrainerArgs) -> bool:
    """Whether the only difference is that the Trainer runs the reentrant variant."""
    return trainer_reentrant(run, args) is True and not settings_lost(enable, args)


def _move(enable: HfEnable | KbitPrepare, args: TrainerArgs) -> Rewrite | None:
    switch = next((name for name in SWITCHES if args.call.written(name)), None)
    text = _asked_text(enable)
    if switch is None or text is None or args.call.written(f"{switch}_kwargs"):
        return None
    return Rewrite(
        Applicability.UNSAFE,
        f"Pass them as `{switch}_kwargs`",
        (SetKeyword(args.node, f"{switch}_kwargs", text),),
    )


def _asked_text(enable: HfEnable | KbitPrepare) -> str | None:
    """All that ``enable`` asks for as one dict, which is how the Trainer takes it; None where it is not written out."""
    selection = enable.selection
    if isinstance(enable.kwargs, Dict):
        display = enable.kwargs.display
        written = entries(display) if display is not None else None
    else:
        written = {}
    if written is None or not all(isinstance(value, Const) for value in selection.values()):
        return None
    texts = [f'"{name}": {source_text(value)}' for name, value in written.items()]
    texts += [f'"{name}": {value.value!r}' for name, value in selection.items() if isinstance(value, Const)]
    return f"{{{', '.join(texts)}}}".replace("'", '"')
