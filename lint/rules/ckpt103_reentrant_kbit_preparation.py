"""Preparing a quantized model for training with the variant of checkpointing left open.

## What it does
Flags `peft.prepare_model_for_kbit_training(model)` that turns checkpointing on (the default) without
`gradient_checkpointing_kwargs`, unless something decides anew: a Trainer that enables checkpointing itself, a later
`gradient_checkpointing_enable` or `_disable`, a trainer of another library, or whoever gets the model from a file
that does not train it. It is silent where the model only generates, or what it gives is dropped. A model that is not
quantized is fine: peft turns nothing on for it.

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
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

def load(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = prepare_model_for_kbit_training(model)  # error
    return get_peft_model(model, LoraConfig())

def train(name, batches, optimizer):
    model = load(name)
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
```

```python
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("base", load_in_4bit=True)
model.gradient_checkpointing_enable()
model = prepare_model_for_kbit_training(model)  # error
model = accelerator.prepare_model(get_peft_model(model, LoraConfig()))
Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=False)).train()
```

```python
from mine import fit
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

def tune(name, prompt):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())  # error
    before = model.generate(prompt)
    fit(model)
    return before, model.generate(prompt)
```

```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

def train(args, batches):
    given = {"trust_remote_code": True}
    if args.load_in_8bit:
        given.update({"load_in_8bit": True, "device_map": "auto"})
    model = AutoModelForCausalLM.from_pretrained("base", **given)
    if args.load_in_8bit:
        model = prepare_model_for_kbit_training(model)  # error
    model = get_peft_model(model, LoraConfig())
    for batch in batches:
        model(**batch).loss.backward()
```

```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class Tuner:
    def __init__(self, name=None):
        if not name:
            raise ValueError("which model?")
        self.model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
        self.model = prepare_model_for_kbit_training(self.model)  # error
        self.model = get_peft_model(self.model, LoraConfig())

    def fit(self, data):
        Trainer(model=self.model, args=TrainingArguments("out"), train_dataset=data).train()

Tuner(input()).fit([])
```

## Good
```python
from other_library import OtherTrainer
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def by_hand(base):
    prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    return prepare_model_for_kbit_training(base, gradient_checkpointing_kwargs={"use_reentrant": False})

def with_trainer(name):
    model = prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained(name))
    # The Trainer enables checkpointing again, non-reentrant.
    Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=True)).train()

def enabled_again(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = prepare_model_for_kbit_training(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

def with_trainer_of_another_library(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    OtherTrainer(prepare_model_for_kbit_training(model)).train()

def load(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    # Whoever calls this may still choose.
    return get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())

def not_quantized(batches):
    model = AutoModelForCausalLM.from_pretrained("base")
    # peft freezes the weights and turns nothing on.
    model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())
    for batch in batches:
        model(**batch).loss.backward()

def held_by_what_is_given(holder, batches):
    # Whether whoever loaded it quantized it is not shown.
    model = get_peft_model(prepare_model_for_kbit_training(holder.llm), LoraConfig())
    for batch in batches:
        model(**batch).loss.backward()

def loaded_with(batches, **given):
    # So is what the caller asks for.
    model = get_peft_model(
        prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained("base", **given)), LoraConfig()
    )
    for batch in batches:
        model(**batch).loss.backward()

def answer(name, prompt):
    model = prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True))
    # Nothing here trains, so nothing is recomputed.
    model = get_peft_model(model, LoraConfig())
    return model.generate(prompt)

def tried(name, ids):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())
    # What it gives is dropped: no backward pass.
    _ = model(ids)

def loaded_quantized_by_another_flag(args, batches):
    given = {}
    if args.quantize:
        given["load_in_4bit"] = True
    model = AutoModelForCausalLM.from_pretrained("base", **given)
    if args.lora:
        model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())
    for batch in batches:
        model(**batch).loss.backward()

def part(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    # Only the loaded model carries the flag by which peft knows it: nothing is turned on here.
    model.language_model = prepare_model_for_kbit_training(model.language_model)
```

```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

class Tuner:
    def __init__(self, model, name=None):
        self.model = model
        if name:
            self.model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
        self.model = get_peft_model(prepare_model_for_kbit_training(self.model), LoraConfig())

    def fit(self, data):
        Trainer(model=self.model, args=TrainingArguments("out"), train_dataset=data).train()

Tuner(AutoModelForCausalLM.from_pretrained("base"), input()).fit([])
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

from ..facts.values import Absent, Attr, Class, Dict, Instance, Ref, Result, Seq, options, same
from ..finding import Applicability, Severity
from ..model.events import Backward, KbitPrepare, TrainerBuild
from ..model.flow.unused import is_unused
from ..model.libraries.quantized import is_quantized, sets_in_layers
from ..model.libraries.sharding import root
from ..model.libraries.trainer import is_enabled, trainers_of
from ..model.report import Report, Rewrite, SetKeyword
from ..model.types import is_hf_model, may_be_same_model
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT103", "reentrant-kbit-preparation", Severity.WARNING
NEEDS = (KbitPrepare,)
_KEYWORD = "gradient_checkpointing_kwargs"
_SWITCHES = tuple(f"{kind}_checkpointing_{way}" for kind in ("gradient", "activation") for way in ("enable", "disable"))


def check(run: Run) -> Iterator[Report]:
    """Report preparations that certainly end in the reentrant variant."""
    for prepare in run.of(KbitPrepare):
        if not prepare.is_on or not hf_kwargs_reentrant(prepare.kwargs, default=True) or _is_part(prepare.model):
            continue
        if _trainer_decides(run, prepare) or _is_decided_later(run, prepare) or _is_given_away(run, prepare):
            continue
        if _is_used_without_training(run, prepare):
            continue
        quantized = is_quantized(run, prepare.model, prepare.place)
        if isinstance(prepare.kwargs, Absent) and quantized is not False:
            yield Report(
                prepare.node,
                "peft passes an empty dict on, so torch runs the reentrant variant; "
                'write `gradient_checkpointing_kwargs={"use_reentrant": False}`',
                fix=Rewrite(
                    Applicability.UNSAFE,
                    "Choose the non-reentrant variant",
                    (SetKeyword(prepare.node, _KEYWORD, '{"use_reentrant": False}'),),
                ),
                assumes=None if quantized else "the model is quantized",
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


def _is_decided_later(run: Run, prepare: KbitPrepare) -> bool:
    """Whether the model is enabled again or disabled afterwards, or a trainer that is not known gets it."""
    model = root(prepare.model)
    switches = run.method_calls(*_SWITCHES)
    if any(call.order > prepare.order and same(root(call.receiver), model) for call in switches):
        return True
    if sets_in_layers(run, prepare.order):
        return True
    known = {event.call for event in run.of(TrainerBuild)}
    return any(_may_decide(call) and call not in known and _gets(call, prepare) for call in run.program.calls)


def _may_decide(call: Call) -> bool:
    """Whether what is called is a trainer, or sets checkpointing up, by its name."""
    func = call.func
    name = func.name.rpartition(".")[2] if isinstance(func, Ref | Attr | Class) else ""
    return name.endswith("Trainer") or "checkpointing" in name


def _gets(call: Call, prepare: KbitPrepare) -> bool:
    given = [option for value in (*call.args, *call.kwargs.values()) for option in options(value)]
    return call.order > prepare.order and any(_is_model(value, prepare) for value in given)


def _is_given_away(run: Run, prepare: KbitPrepare) -> bool:
    """Whether the model goes elsewhere, and is not trained here."""
    return _goes_on(run, prepare) and not any(trainers_of(run, prepare.model)) and not _is_trained(run, prepare)


def _goes_on(run: Run, prepare: KbitPrepare) -> bool:
    """Whether the model is returned to callers that are not shown, or kept by an object."""
    returned = (found for group in run.program.returns.values() for found in group)
    leaves = any(
        found.place.walk == prepare.place.walk and not found.place.stack and _holds(found.value, prepare)
        for found in returned
    )
    kept = any(isinstance(write.obj, Instance) and _holds(write.value, prepare) for write in run.writes)
    return leaves or kept


def _is_used_without_training(run: Run, prepare: KbitPrepare) -> bool:
    """Whether the model only generates here, or what it gives is dropped, and no code that is not shown gets it.

    What a function does not run and does not hand on ends with it.
    """
    walk = prepare.place.walk
    later = [call for call in run.program.calls if call.place.walk == walk and call.order > prepare.order]
    if any(_gets(call, prepare) and not _is_model(Result(call), prepare) for call in later):
        return False
    runs = [call for call in later if _is_model(call.func, prepare)]
    if not all(is_unused(run, call) for call in runs):
        return False
    ends_here = (bool(runs) or prepare.place.function is not None) and not _goes_on(run, prepare)
    return ends_here or (not runs and any(_generates(call, prepare) for call in later))


def _generates(call: Call, prepare: KbitPrepare) -> bool:
    return call.method == "generate" and _is_model(call.receiver, prepare)


def _is_trained(run: Run, prepare: KbitPrepare) -> bool:
    """Whether a loop of this file, or the `training_step` of a class for Lightning, runs the model."""
    trains = any(run.of(Backward)) or any(
        function.name == "training_step" for function in run.program.functions.values()
    )
    return trains and any(_is_model(call.func, prepare) for call in run.program.calls)


def _holds(value: Value, prepare: KbitPrepare) -> bool:
    """Whether ``value`` is the model, or a tuple or dict with it."""
    match value:
        case Seq(_, items):
            return any(_holds(item, prepare) for item in items)
        case Dict(items):
            return any(_holds(item, prepare) for item in items.values())
    return any(_is_model(option, prepare) for option in options(value))


def _is_model(value: Value, prepare: KbitPrepare) -> bool:
    return may_be_same_model(value, prepare.model)
