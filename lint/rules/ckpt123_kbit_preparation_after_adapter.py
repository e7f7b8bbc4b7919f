"""`prepare_model_for_kbit_training` after the adapter was attached.

## What it does
Flags `prepare_model_for_kbit_training(model)` on a model that `get_peft_model` returned or changed, unless something
later makes parameters trainable again (`set_adapter`, `requires_grad`, another adapter).

## Why is this bad?
The preparation freezes every parameter, those of the adapter too. Nothing is trained, and nothing fails: the embeddings
are made to require gradients for checkpointing, so `backward()` succeeds, and an optimizer accepts frozen parameters.

## Bad
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base", load_in_4bit=True)
model = get_peft_model(model, LoraConfig())
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})  # error
```
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

def build(base):
    adapted = get_peft_model(base, LoraConfig())
    prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)  # error
    return adapted
```
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

def build(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = get_peft_model(model, LoraConfig())
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)  # error

def build_ranker(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return get_peft_model(model, LoraConfig())
```
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

class Factory:
    def adapted(self, model):
        return get_peft_model(model, LoraConfig(r=8))

    def prepared(self, model):
        return prepare_model_for_kbit_training(model)  # error

    def make(self, bnb_config):
        model = AutoModelForCausalLM.from_pretrained("base", quantization_config=bnb_config)
        for stage in (self.adapted, self.prepared):
            model = stage(model)
        return model
```

## Good
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

def adapted(model):
    return get_peft_model(model, LoraConfig(r=8))

def prepared(model):
    return prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})

def make(bnb_config):
    model = AutoModelForCausalLM.from_pretrained("base", quantization_config=bnb_config)
    for stage in (prepared, adapted):
        model = stage(model)
    return model
```
```python
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

def build(name):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    return get_peft_model(model, LoraConfig())

def again(base):
    model = get_peft_model(base, LoraConfig())
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            parameter.requires_grad = True
    return model

def merged(base, name):
    adapted = PeftModel.from_pretrained(base, name)
    model = prepare_model_for_kbit_training(adapted.merge_and_unload(), use_gradient_checkpointing=False)
    return get_peft_model(model, LoraConfig())

def quantized(name):
    return AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)

def student(name):
    model = prepare_model_for_kbit_training(quantized(name), use_gradient_checkpointing=False)
    return get_peft_model(model, LoraConfig())

def teacher(name):
    return prepare_model_for_kbit_training(quantized(name), use_gradient_checkpointing=False).eval()

def distil(larger, smaller, run):
    run(student(smaller), teacher(larger))

def either(base, adapter):
    if adapter is not None:
        model = get_peft_model(base, adapter)
    else:
        model = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    return model
```

## Evidence
```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)

def trainable(model):
    return sum(parameter.requires_grad for parameter in model.parameters())

right = get_peft_model(prepare_model_for_kbit_training(LlamaForCausalLM(config)), LoraConfig(target_modules=["q_proj"]))
assert trainable(right) == 2

wrong = get_peft_model(LlamaForCausalLM(config), LoraConfig(target_modules=["q_proj"]))
wrong = prepare_model_for_kbit_training(wrong)
assert trainable(wrong) == 0
wrong.set_adapter("default")
assert trainable(wrong) == 2

base = LlamaForCausalLM(config)
adapted = get_peft_model(base, LoraConfig(target_modules=["q_proj"]))
prepare_model_for_kbit_training(base)
assert trainable(adapted) == 0

# On a quantized model (the flag is all that is asked for) the backward pass succeeds all the same since transformers 5,
# where enabling makes the embeddings require gradients.
base = LlamaForCausalLM(config)
base.is_loaded_in_4bit = True
wrong = get_peft_model(base, LoraConfig(target_modules=["q_proj"]))
wrong = prepare_model_for_kbit_training(wrong, gradient_checkpointing_kwargs={"use_reentrant": False})
assert trainable(wrong) == 0
ids = torch.ones(1, 4, dtype=torch.long)
loss = wrong(input_ids=ids, labels=ids).loss
assert loss.requires_grad is (int(transformers.__version__.split(".")[0]) >= 5)
if loss.requires_grad:
    loss.backward()
torch.optim.AdamW(wrong.parameters()).step()
```

## References
peft 0.21 `utils/other.py` (`prepare_model_for_kbit_training` freezes all layers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Result, Unknown, one, options
from ..finding import Severity
from ..model.events import AdapterAttach, GradientSwitch, KbitPrepare, TrainerBuild
from ..model.names import canonical
from ..model.report import Remark, Report
from ..model.types import may_be_same_model, origins, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT123", "kbit-preparation-after-adapter", Severity.ERROR
NEEDS = ((KbitPrepare, AdapterAttach),)


def check(run: Run) -> Iterator[Report]:
    """Report preparations that freeze an adapter."""
    for prepare in run.of(KbitPrepare):
        adapter = _attached_before(run, prepare)
        if adapter is not None and not _thaws(run, prepare):
            yield Report(
                prepare.node,
                "this freezes every parameter, those of the adapter too, and nothing is trained; prepare the model "
                "before `get_peft_model`",
                notes=(Remark(adapter.node, "the adapter is attached here"),),
            )


def _attached_before(run: Run, prepare: KbitPrepare) -> AdapterAttach | None:
    for attach in run.of(AdapterAttach):
        before = attach.place.walk == prepare.place.walk and attach.order < prepare.order
        if not before or canonical(attach.call.name) != "peft.get_peft_model" or attach.place.excludes(prepare.place):
            continue
        given = [unwrapped(option) for option in options(prepare.model)]
        if all(one(model, unwrapped(attach.model)) and not isinstance(model, Unknown) for model in given):
            return attach
    return None


def _thaws(run: Run, prepare: KbitPrepare) -> bool:
    """Whether something behind the preparation makes parameters trainable."""
    later = [call.order for call in run.method_calls("set_adapter", "add_adapter", "enable_adapters")]
    later += [event.order for event in run.of(GradientSwitch)]
    later += [event.order for event in _attached_in(run, prepare) if not _is_another(event.model, prepare.model)]
    later += [event.order for event in run.of(TrainerBuild) if event.call.written("peft_config")]
    return any(order > prepare.order for order in later)


def _attached_in(run: Run, prepare: KbitPrepare) -> Iterator[AdapterAttach]:
    """The adapters of the run; what a step attaches was seen when it ran, however a function of it is read alone."""
    ran = {event.node for event in run.of(AdapterAttach) if event.place.walk == prepare.place.walk}
    for event in run.of(AdapterAttach):
        if event.place.walk == prepare.place.walk or event.node not in ran:
            yield event


def _is_another(model: Value, prepared: Value) -> bool:
    """Whether ``model`` was certainly built by itself; a parameter may be the one that was prepared."""
    return all(isinstance(made, Result) for made in origins(model)) and not may_be_same_model(model, prepared)
