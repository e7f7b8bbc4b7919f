"""Checkpointing that recomputes layers that are frozen from the bottom up.

## What it does
Flags checkpointing on a transformers model, switched on by a call or by its Trainer, whose whole backbone the file
freezes (`model.model`, `model.bert`, all but the `classifier`, ...) and only the head trains, or whose embeddings and
first layers it freezes, under the non-reentrant variant, unless `disable_input_require_grads()` is called. A model that
is frozen as a whole counts too where a training loop is shown, or a step that Lightning trains with, that trains a
module behind it. Models with a PEFT adapter are not meant, nor files that name `inputs_embeds`: what makes them may
train.

## Why is this bad?
transformers makes the embedding output require a gradient when checkpointing is turned on, so the backward pass goes
through every frozen layer down to the embedding, recomputing each of them: measured 1.96 times the FLOPs of the step
for gradients that nobody uses. Without the hook, or without checkpointing, autograd stops at the first trainable layer.

## Bad
```python
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("base")
for parameter in model.bert.parameters():
    parameter.requires_grad = False
model.gradient_checkpointing_enable()  # error
model.train()
```
```python
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("base")
model.bert.embeddings.requires_grad_(False)
for layer in model.bert.encoder.layer[:8]:
    layer.requires_grad_(False)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # error
```
```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

def by_name(name, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if "classifier" not in key:
            parameter.requires_grad = False
    args = TrainingArguments("out", gradient_checkpointing=True)  # error
    Trainer(model, args, train_dataset=rows).train()

def all_but_the_head(name, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.requires_grad_(False)
    model.classifier.requires_grad_(True)
    options = {"output_dir": "out", "gradient_checkpointing": True}
    args = TrainingArguments(**options)  # error
    Trainer(model, args, train_dataset=rows).train()
```

```python
import argparse
from transformers import AutoModelForSequenceClassification

def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False

def probe(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    freeze(model.bert)
    model.gradient_checkpointing_enable()  # error
    return model.train()

def whole(name):
    return AutoModelForSequenceClassification.from_pretrained(name).train()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", action="store_true")
    make = probe if parser.parse_args().probe else whole
    return make("base")

main()
```
```python
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def last_layers(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.requires_grad_(False)
    for layer in model.model.layers[-4:]:
        layer.requires_grad_(True)
    model.model.norm.requires_grad_(True)
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def last_layer(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for parameter in model.bert.parameters():
        parameter.requires_grad = False
    for parameter in model.bert.encoder.layer[-1].parameters():
        parameter.requires_grad = True
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def by_number(name, count=8):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.model.embed_tokens.requires_grad_(False)
    for number, layer in enumerate(model.model.layers):
        if number < count:
            for parameter in layer.parameters():
                parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

last_layers("base"), last_layer("base"), by_number("base")
```
```python
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False

def parts_of_a_list(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for part in [model.bert.embeddings, *model.bert.encoder.layer[:8]]:
        for parameter in part.parameters():
            parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def parts_that_a_helper_freezes(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    frozen = (model.model.embed_tokens, *model.model.layers[:12])
    for part in frozen:
        freeze(part)
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def layers_taken_before(name, count=8):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.embeddings.requires_grad_(False)
    first = model.bert.encoder.layer[:count]
    for layer in first:
        layer.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

parts_of_a_list("base"), parts_that_a_helper_freezes("base"), layers_taken_before("base")
```
```python
import re
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def by_number_in_the_name(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if key.startswith("bert.embeddings"):
            parameter.requires_grad = False
        elif key.startswith("bert.encoder.layer."):
            number = int(key.split(".")[3])
            if number < 8:
                parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def by_pattern(name, keep=12):
    model = AutoModelForCausalLM.from_pretrained(name)
    for key, parameter in model.named_parameters():
        found = re.match("model[.]layers[.]([0-9]+)[.]", key)
        if "embed_tokens" in key or (found and int(found.group(1)) < keep):
            parameter.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def by_list(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    frozen = ["embeddings"] + [f"layer.{number}." for number in range(8)]
    for key, parameter in model.named_parameters():
        if any(part in key for part in frozen):
            parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

def all_but_the_last(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for parameter in model.parameters():
        parameter.requires_grad = False
    for key, parameter in model.named_parameters():
        if "classifier" in key or "layer.11." in key:
            parameter.requires_grad = True
    model.gradient_checkpointing_enable({"use_reentrant": False})  # error
    return model.train()

by_number_in_the_name("base"), by_pattern("base"), by_list("base"), all_but_the_last("base")
```
```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

def last_layer_by_name(name, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if "classifier" not in key and "layer.11" not in key:
            parameter.requires_grad = False
    args = TrainingArguments("out", gradient_checkpointing=True)  # error
    Trainer(model, args, train_dataset=rows).train()
```

```python
import torch
from transformers import AutoModel, BertModel

class Tagger(torch.nn.Module):
    def __init__(self, name, freeze_bert=False):
        super().__init__()
        self.bert = BertModel.from_pretrained(name)
        self.bert.gradient_checkpointing_enable()  # error
        if freeze_bert:
            for parameter in self.bert.parameters():
                parameter.requires_grad = False
        self.lstm = torch.nn.LSTM(768, 256, batch_first=True)
        self.head = torch.nn.Linear(256, 4)

    def encode(self, ids, mask):
        return self.bert(ids, attention_mask=mask)[0]

    def forward(self, ids, mask):
        found, _ = self.lstm(self.encode(ids, mask))
        return self.head(found)

def train_head(loader):
    model = Tagger("mine", freeze_bert=True)
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    for ids, mask, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(ids, mask).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()

def probe(name, loader):
    encoder = AutoModel.from_pretrained(name)
    encoder.requires_grad_(False)
    encoder.gradient_checkpointing_enable()  # error
    encoder.train()
    head = torch.nn.Linear(768, 4)
    for ids, labels in loader:
        states = encoder(input_ids=ids).last_hidden_state
        torch.nn.functional.cross_entropy(head(states[:, 0]), labels).backward()
```
```python
import torch
from accelerate import Accelerator
from diffusers import UNet2DConditionModel
from transformers import CLIPTextModel

def train(name, loader):
    accelerator = Accelerator()
    text_encoder = CLIPTextModel.from_pretrained(name, subfolder="text_encoder")
    unet = UNet2DConditionModel.from_pretrained(name, subfolder="unet")
    text_encoder.requires_grad_(False)
    unet.enable_gradient_checkpointing()
    text_encoder.gradient_checkpointing_enable()  # error
    optimizer = torch.optim.AdamW(unet.parameters())
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    unet.train()
    for noisy, steps, ids, noise in loader:
        predicted = unet(noisy, steps, text_encoder(ids)[0]).sample
        loss = torch.nn.functional.mse_loss(predicted, noise)
        accelerator.backward(loss)
        optimizer.step()
```

## Good
```python
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def tied(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.requires_grad_(False)
    for layer in model.model.layers[-4:]:
        layer.requires_grad_(True)
    model.lm_head.requires_grad_(True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def first_layers_train(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.requires_grad_(False)
    for layer in model.model.layers[:4]:
        layer.requires_grad_(True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def with_embeddings(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.requires_grad_(False)
    model.model.layers[-1].requires_grad_(True)
    model.model.embed_tokens.requires_grad_(True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def by_number_from_above(name, count=8):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.model.embed_tokens.requires_grad_(False)
    for number, layer in enumerate(model.model.layers):
        if number >= count:
            layer.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def parts_of_a_list(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for part in [model.bert.pooler, *model.bert.encoder.layer[:8]]:
        part.requires_grad_(False)  # The embeddings train.
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def last_layers_of_a_list(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for part in [model.bert.embeddings, *model.bert.encoder.layer[-4:]]:
        part.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def frozen_for_a_while(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    parts = [model.bert.embeddings, *model.bert.encoder.layer[:8]]
    for part in parts:
        part.requires_grad_(False)
    for part in [model.bert.embeddings, model.bert.pooler]:
        part.requires_grad_(True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def last_layers_by_number_in_the_name(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if key.startswith("bert.embeddings"):
            parameter.requires_grad = False
        elif key.startswith("bert.encoder.layer.") and int(key.split(".")[3]) >= 8:
            parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def embeddings_alone(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if any(part in key for part in ["embeddings"]):
            parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def but_the_biases(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        first = ".layer." in key and int(key.split(".")[3]) < 8
        if "embeddings" in key or (first and not key.endswith("bias")):
            parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def but_the_first(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if "embeddings" in key or (".layer." in key and int(key.split(".")[3]) < 8):
            parameter.requires_grad = False
    for key, parameter in model.named_parameters():
        if "layer.0." in key:
            parameter.requires_grad = True
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def as_many_as_asked(name, count):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.requires_grad_(False)
    for layer in model.model.layers[-count:]:
        layer.requires_grad_(True)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def head_only(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.requires_grad_(False)
    model.gradient_checkpointing_enable()
    model.disable_input_require_grads()
    return model.train()

def last_layers(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.requires_grad_(False)
    model.bert.encoder.requires_grad_(True)
    model.gradient_checkpointing_enable()
    return model.train()

def first_layers(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    # The embeddings train: the backward pass has to come there.
    for layer in model.bert.encoder.layer[:8]:
        layer.requires_grad_(False)
    model.gradient_checkpointing_enable()
    return model.train()

def adapter(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.model.requires_grad_(False)
    model.gradient_checkpointing_enable()
    return get_peft_model(model, LoraConfig()).train()
```

```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
from my_project import insert_adapters

def adapters(name, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.requires_grad_(False)
    model.classifier.requires_grad_(True)
    insert_adapters(model)
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()

def biases(name, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.named_parameters():
        if not key.endswith("bias") and not key.startswith("classifier"):
            parameter.requires_grad = False
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()

def not_on(name, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.requires_grad_(False)
    Trainer(model, TrainingArguments("out", gradient_checkpointing=False), train_dataset=rows).train()
```

```python
import argparse
from transformers import AutoModelForSequenceClassification

def freeze(parameter):
    parameter.requires_grad = False

def part(name, depth):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    for key, parameter in model.bert.named_parameters():
        if int(key.split(".")[2]) < depth:
            freeze(parameter)
    model.gradient_checkpointing_enable()
    return model.train()

def perhaps(name, frozen):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    if frozen:
        for parameter in model.bert.parameters():
            parameter.requires_grad = False
    model.gradient_checkpointing_enable()
    return model.train()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    args = parser.parse_args()
    return part("base", 4) if args.part else perhaps("base", args.frozen)

main()
```

```python
import torch
from transformers import AutoModel, BertModel

class Tagger(torch.nn.Module):
    def __init__(self, name, freeze=False):
        super().__init__()
        self.bert = BertModel.from_pretrained(name)
        self.bert.gradient_checkpointing_enable()
        if freeze:
            for parameter in self.bert.parameters():
                parameter.requires_grad = False
        self.head = torch.nn.Linear(768, 4)

    def forward(self, ids):
        return self.head(self.bert(ids)[0])

class Frozen(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.bert = BertModel.from_pretrained(name)
        self.bert.gradient_checkpointing_enable()
        self.bert.requires_grad_(False)
        self.head = torch.nn.Linear(768, 4)

class WithoutGraph(Frozen):
    def forward(self, ids):
        with torch.no_grad():
            states = self.bert(ids)[0]
        return self.head(states)

class Detached(Frozen):
    def forward(self, ids):
        return self.head(self.bert(ids)[0].detach())

class Pictures(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(name)
        self.encoder.gradient_checkpointing_enable()
        self.encoder.requires_grad_(False)
        self.head = torch.nn.Linear(768, 4)

    def forward(self, pictures):
        return self.head(self.encoder(pixel_values=pictures)[0])

def fit(model, loader):
    model.train()
    for ids, labels in loader:
        torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()

def train(name, freeze, loader):
    fit(Tagger(name, freeze), loader)
    fit(WithoutGraph(name), loader)
    fit(Detached(name), loader)
    fit(Pictures(name), loader)
```
```python
import torch
from transformers import BertModel

class Tagger(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.bert = BertModel.from_pretrained(name)
        self.bert.gradient_checkpointing_enable()
        self.bert.requires_grad_(False)
        self.head = torch.nn.Linear(768, 4)

    def unfreeze(self, count):
        for layer in self.bert.encoder.layer[-count:]:
            layer.requires_grad_(True)

    def forward(self, ids):
        return self.head(self.bert(ids)[0])

def train(name, loader):
    model = Tagger(name)
    model.train()
    for step, (ids, labels) in enumerate(loader):
        if step == 1000:
            model.unfreeze(2)
        torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()
```

## Evidence
```python
import torch
from transformers import CLIPTextConfig, CLIPTextModel, LlamaConfig, LlamaForCausalLM

def layer_runs(prepare, frozen=None, **given):
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1,
        )
    )
    if frozen is None:
        model.model.requires_grad_(False)
    else:
        model.model.embed_tokens.requires_grad_(False)
        for layer in model.model.layers[:frozen]:
            layer.requires_grad_(False)
    prepare(model, **given)
    model.train()
    count = 0

    def seen(module, args, kwargs):
        nonlocal count
        count += 1

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(seen, with_kwargs=True)
    ids = torch.ones(1, 4, dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()
    return count

def hooked(model):
    model.activation_checkpointing_enable()

def unhooked(model, **given):
    model.activation_checkpointing_enable(given or None)
    model.disable_input_require_grads()

assert layer_runs(hooked, frozen=2) == 6
assert layer_runs(unhooked, frozen=2) == 4
# The reentrant variant needs the hook: without it no layer trains.
assert layer_runs(unhooked, frozen=2, use_reentrant=True) == 3
assert layer_runs(lambda model: None) == 3
assert layer_runs(hooked) == 6
assert layer_runs(unhooked) == 3

def encoder_runs(prepare):
    encoder = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1,
        )
    ).model
    encoder.requires_grad_(False)
    prepare(encoder)
    head, runs = torch.nn.Linear(16, 2), []
    for layer in encoder.layers:
        layer.self_attn.register_forward_pre_hook(lambda *given: runs.append(1), with_kwargs=True)
    head(encoder.train()(input_ids=torch.ones(1, 4, dtype=torch.long))[0]).sum().backward()
    return len(runs)

assert encoder_runs(hooked) == 6
assert encoder_runs(unhooked) == 3

def gives_gradients(prepare):
    encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=8,
        )
    )
    encoder.requires_grad_(False)
    prepare(encoder)
    return encoder.eval()(torch.ones(1, 4, dtype=torch.long))[0].requires_grad

# In eval mode nothing is recomputed, and the backward pass comes all the same.
assert gives_gradients(hooked) and not gives_gradients(unhooked)
```

## References
transformers 5.23 `modeling_utils.py` (`enable_input_require_grads` in `_activation_checkpointing_enable`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from ..facts.objects.attributes import made_at
from ..facts.values import Attr, Element, Instance, Ref, Result, Value, is_absent, same
from ..finding import Severity
from ..model.conditions.constructed import comes_out_as
from ..model.events import AdapterAttach, GradientSwitch, GradientSwitchWrite, HfEnable, TrainerBuild
from ..model.flow.mentions import mentions
from ..model.frozen.frozen_encoders import is_trained_behind
from ..model.frozen.frozen_inputs import EMBEDDINGS, owner_of_embeddings, path_in
from ..model.frozen.frozen_layers import (
    freezes_backbone_by_name,
    freezes_every_layer,
    freezes_first_layers,
    is_of_last_layers,
    spares_backbone_by_name,
    trains_head_by_name,
)
from ..model.frozen.layers_by_name import first_layers_by_name
from ..model.known_models.backbones import BOTTOMS, HEADS, HOLDERS, INPUT_EMBEDDINGS
from ..model.known_models.main_inputs import may_take_token_ids
from ..model.libraries.enabled import enablings
from ..model.libraries.sharding import root
from ..model.libraries.trainer import switched_at
from ..model.needs import SWITCHED_ON, together
from ..model.report import Remark, Report
from ..model.tensors.tensor_changes import LIBRARIES
from ..model.types import is_hf_model, unwrapped, whole_model

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Place
    from ..model.libraries.enabled import Enabling
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT405", "recompute-of-frozen-layers", Severity.WARNING
NEEDS = ((HfEnable, GradientSwitch), *together(SWITCHED_ON, GradientSwitch))
VERSIONS = {"transformers": ">=5.0"}
#: Methods that libraries call, by how their names begin.
_CALLED_BY_LIBRARIES = ("__", "configure_", "on_", "prepare", "setup", "train")
#: Methods that give every module of another one.
_WALKS = ("modules", "named_modules", "children", "named_children")


def check(run: Run) -> Iterator[Report]:
    """Report switches that make the backward pass go through frozen layers."""
    if _has_adapter(run) or any(run.method_calls("disable_input_require_grads", "add_adapter")):
        return
    if mentions(run.program, "inputs_embeds"):
        return  # What makes them may train: a projector of pictures, a soft prompt.
    changes = list(_changes(run))
    thaws = [change for change in changes if not change.freezes]
    freezes: dict[Value, list[_Change]] = {}
    for change in changes:
        if change.freezes and _is_run(run, change.place):
            freezes.setdefault(root(change.target), []).append(change)
    switches: dict[Value, list[GradientSwitch]] = {}
    for switch in run.uses.freezes:
        switches.setdefault(root(owner_of_embeddings(switch.module) or switch.module), []).append(switch)
    for enabling in enablings(run):
        model = enabling.model
        if not may_take_token_ids(whole_model(model)):
            continue  # Of pictures and sound transformers leaves the embeddings alone.
        own = freezes.get(root(model), [])
        frozen = [change.node for change in own if _is_backbone(change.target, model)]
        frozen += _whole_frozen(run, model, own, thaws)
        thawed = any(_reaches_backbone(change.target, model) for change in thaws)
        encoder = [] if frozen or thawed else _frozen_encoder(run, model, own)
        if encoder:
            yield Report(
                switched_at(enabling.event),
                "this model is frozen, but checkpointing makes its embeddings require gradients: the backward pass "
                "goes through all of its layers for nothing; drop it, or call `disable_input_require_grads()`",
                notes=(Remark(encoder[0], "the model is frozen here"),),
            )
        elif frozen and not thawed:
            yield Report(
                switched_at(enabling.event),
                "the backbone is frozen, but checkpointing makes the embeddings require gradients: every frozen layer "
                "is recomputed and differentiated for nothing; call `model.disable_input_require_grads()`",
                notes=(Remark(frozen[0], "the backbone is frozen here"),),
            )
        elif (bottom := _frozen_bottom(run, enabling, switches)) is not None:
            yield Report(
                switched_at(enabling.event),
                "the embeddings and the first layers are frozen, but checkpointing makes the embeddings require "
                "gradients: these layers are recomputed and differentiated for nothing; call "
                "`model.disable_input_require_grads()`",
                notes=(Remark(bottom, "the first layers are frozen here"),),
            )


def _is_run(run: Run, place: Place) -> bool:
    """Whether something comes to ``place``: no caller of a method `freeze` may be shown, and none may be there."""
    function = place.function
    if function is None or function.owner is None or function.name.startswith(_CALLED_BY_LIBRARIES):
        return True
    enabled = (it.event.place.function for it in enablings(run))
    return any(run.calls_of(function)) or any(it is function for it in enabled)


def _has_adapter(run: Run) -> bool:
    """Whether the program attaches an adapter, or one of trl's trainers may."""
    return any(run.of(AdapterAttach)) or any(
        is_absent(trainer.peft_config) is not True for trainer in run.of(TrainerBuild)
    )


def _frozen_bottom(run: Run, enabling: Enabling, switches: dict[Value, list[GradientSwitch]]) -> ast.AST | None:
    """Where the first layers are frozen, with all that trains below them; None under the reentrant variant.

    That one gives no gradient to a layer whose input needs none. ``switches`` are those that freeze parts, by model.
    """
    model = unwrapped(enabling.model)
    if enabling.reentrant is not False or not is_hf_model(model):
        return None
    place = enabling.event.place
    own = [switch for switch in switches.get(model, ()) if not switch.place.excludes(place)]
    whole = (switch for switch in own if not switch.place.guards and not switch.is_partial)
    frozen = {path_in(switch.module, model): switch for switch in whole}
    later = [it for it in run.uses.thaws if not it.place.excludes(place)]
    for switch in own:
        below = _below(path_in(switch.module, model))
        if below is None or not (freezes_every_layer(switch) or freezes_first_layers(run, switch)):
            continue
        if all(path in frozen or ((EMBEDDINGS,) in frozen and path[-1] in INPUT_EMBEDDINGS) for path in below):
            break
    else:
        return _frozen_but_last(run, model, frozen, later) or _frozen_by_name(run, model, own, later)
    # What the other side of its condition switches on is other layers.
    thaws = [it for it in later if not it.place.excludes(switch.place)]
    return None if any(_may_thaw(it.module, model) for it in thaws) or _is_changed(run, model) else switch.node


def _below(path: tuple[str, ...]) -> tuple[tuple[str, ...], ...] | None:
    """What is below the layers that ``path`` leads to, or that the part of a backbone there holds: `bert.encoder`."""
    found = (below for layers, below in BOTTOMS.items() if len(path) > 1 and path == layers[: len(path)])
    return next(found, None)


def _frozen_by_name(
    run: Run, model: Value, freezes: list[GradientSwitch], thaws: list[GradientSwitch]
) -> ast.AST | None:
    """Where loops over names freeze the first layers of ``model`` and all below them."""
    if not isinstance(model, Result) or _is_changed(run, model):
        return None
    off = [(switch, path_in(switch.module, model)) for switch in freezes]
    on = [(switch, path_in(switch.module, model)) for switch in thaws if _may_thaw(switch.module, model)]
    switch = first_layers_by_name(run, off, on)
    return None if switch is None else switch.node


def _frozen_but_last(
    run: Run, model: Value, frozen: dict[tuple[str, ...], GradientSwitch], thaws: list[GradientSwitch]
) -> ast.AST | None:
    """Where all of ``model``, or of its backbone, is frozen, if then its last layers and what is above train again."""
    whole = next((frozen[path] for path in frozen if not path or (len(path) == 1 and path[0] in HOLDERS)), None)
    spared = [it for it in thaws if root(it.module) is model and path_in(it.module, model) in BOTTOMS]
    if whole is None or not spared or not all(is_of_last_layers(run, it) for it in spared) or _is_changed(run, model):
        return None
    others = [it.module for it in thaws if it not in spared]
    # An `lm_head` is no such head: it may share its weight with the embeddings.
    may_thaw = (_may_thaw(it, model) if root(it) is not model else not _is_above(path_in(it, model)) for it in others)
    return None if any(may_thaw) else whole.node


def _is_above(path: tuple[str, ...]) -> bool:
    """Whether ``path`` leads to a head, or to a part of a backbone that is no layer nor below them: its last norm."""
    if path and path[0] in HEADS:
        return True
    known = [(layers, below) for layers, below in BOTTOMS.items() if path[:1] == layers[:1]]
    return (
        len(path) > 1
        and bool(known)
        and not any(path[: len(layers)] == layers[: len(path)] or path[:2] in below for layers, below in known)
    )


def _is_changed(run: Run, model: Value) -> bool:
    """Whether other modules may be put into ``model``, or a function that is not shown gets it and may thaw a part."""
    if any(isinstance(write.value, Instance) and root(write.obj) is model for write in run.writes):
        return True
    if any(run.calls_to("builtins.setattr")):
        return True
    foreign = (call for call in run.program.calls if isinstance(call.func, Ref) and not _is_library(call.func))
    return any(root(given) is model for call in foreign for given in (*call.args, *call.kwargs.values()))


def _is_library(called: Ref) -> bool:
    """Whether a function knows no layers, or is one of a library that leaves models as they are."""
    package = called.name.partition(".")[0]
    return package in LIBRARIES or package in sys.stdlib_module_names


def _may_thaw(module: Value, model: Value) -> bool:
    """Whether gradients of more than a head of ``model`` may be switched on."""
    if not same(root(module), model):
        return not isinstance(root(module), Result)
    path = path_in(module, model)
    return not path or path[0] in HOLDERS


class _Change(NamedTuple):
    """A change of `requires_grad`: of what, whether it certainly freezes all of it, and where."""

    target: Value
    freezes: bool
    node: ast.AST
    place: Place
    #: Whether it chooses parameters by their names, and leaves out the head alone.
    spares_head: bool


def _changes(run: Run) -> Iterator[_Change]:
    chosen = {
        switch.node
        for switch in run.of(GradientSwitch)
        if _chooses(run, switch) and freezes_backbone_by_name(run, switch)
    }
    for switch in run.of(GradientSwitch):
        chooses = _chooses(run, switch)
        # `parameter.requires_grad = name.startswith("classifier")` switches on what it does not freeze.
        is_rest = switch.node in chosen and not switch.freezes
        if not is_rest and not (chooses and spares_backbone_by_name(run, switch)):
            by_name = switch.node in chosen
            freezes = switch.freezes and (by_name or not chooses)
            if freezes or not switch.freezes:  # What freezes only some switches none on.
                yield _Change(_without_elements(switch.module), freezes, switch.node, switch.place, by_name)


def _chooses(run: Run, switch: GradientSwitch) -> bool:
    """Whether a condition in a loop over parameters chooses some of them."""
    # The conditions that the model is made under choose nothing: `if args.probe: train(frozen(name))`.
    around = made_at(root(switch.module)).guards
    guards = (guard for guard in switch.place.guards if guard not in around)
    open_ones = (guard for guard in guards if comes_out_as(run, guard.test) is not guard.taken)
    return any(open_ones) and (isinstance(switch, GradientSwitchWrite) or any(switch.place.loops))


def _whole_frozen(run: Run, model: Value, freezes: list[_Change], thaws: list[_Change]) -> list[ast.AST]:
    """Where all of ``model`` is frozen but a head, which is left out, switched on again or built anew."""
    model = unwrapped(model)
    whole = [change for change in freezes if unwrapped(change.target) is model]
    if not whole or not is_hf_model(model) or _is_changed(run, model):
        return []
    heads = [change.target for change in thaws]
    heads += [Attr(write.obj, write.field, None) for write in run.writes if isinstance(write.value, Result)]
    trains = any(trains_head_by_name(run, switch) for switch in run.uses.thaws if root(switch.module) is model)
    trains |= any(isinstance(head, Attr) and unwrapped(head.base) is model and head.name in HEADS for head in heads)
    return [change.node for change in whole if change.spares_head or trains]


def _frozen_encoder(run: Run, model: Value, freezes: list[_Change]) -> list[ast.AST]:
    """Where all of ``model`` is frozen, on whose output the program trains something else."""
    model = unwrapped(model)
    whole = [change.node for change in freezes if unwrapped(change.target) is model and not change.spares_head]
    if not whole or not isinstance(model, Result) or not is_hf_model(model) or _is_changed(run, model):
        return []
    return whole if is_trained_behind(run, model) else []


def _without_elements(value: Value) -> Value:
    """What a loop goes through: of `model.bert.modules()` the whole `model.bert`."""
    while isinstance(value, Element):
        value = value.of
    is_walk = isinstance(value, Result) and value.call.method in _WALKS
    return value.call.receiver if is_walk and isinstance(value, Result) else value


def _is_backbone(target: Value, model: Value) -> bool:
    match target:
        case Attr(base=base, name=name) if name in HOLDERS:
            return unwrapped(base) is unwrapped(model) and is_hf_model(base)
    return False


def _reaches_backbone(target: Value, model: Value) -> bool:
    """Whether a change may touch the backbone: anything of this model but a named head, or something unknown."""
    if isinstance(target, Attr) and unwrapped(target.base) is unwrapped(model):
        return target.name in HOLDERS or target.name == "lm_head"
    return same(root(target), root(model)) or not isinstance(target, Attr)
