"""A training loop that leaves a checkpointed transformers model in eval mode.

## What it does
Flags checkpointing enabled on a model of transformers that a hand-written loop then trains in eval mode: because
`from_pretrained` returns it so and nothing calls `train()`, because `eval()` was the last word before the forward pass,
or because the loop evaluates, by a context manager of its own too, and does not switch back. The same for a model that
a `LightningModule` holds: since Lightning 2.2 `fit` no longer calls `train()`, and trains each module in the mode it is
in.

## Why is this bad?
transformers checkpoints a layer only while `layer.training` is true. In eval mode every activation is kept although
`is_gradient_checkpointing` says True: the memory is that of a run without checkpointing. Dropout is off too.

## Bad
```python
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

def main(name, loader):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()  # error
    optimizer = AdamW(model.parameters())
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
```
```python
from accelerate import Accelerator
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("base")
model.activation_checkpointing_enable()  # error
optimizer = AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
```
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()  # error
model.train()
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
    model.eval()
    evaluate(model.generate(prompt))
```
```python
import torch
from transformers import AutoModelForCausalLM

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return sum(model(**batch).loss.item() for batch in loader)

def main(name, train, valid):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()  # error
    model.train()
    step = 0
    for batch in train:
        model(**batch).loss.backward()
        step += 1
        if step % 500 == 0:
            print(evaluate(model, valid))
```
```python
import lightning as L
import torch
from transformers import AutoModelForCausalLM

class Finetuner(L.LightningModule):
    def __init__(self, name, checkpointing=True):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        if checkpointing:
            self.model.gradient_checkpointing_enable()  # error

    def forward(self, **batch):
        return self.model(**batch)

    def training_step(self, batch, index):
        return self(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

def main(name, loader):
    trainer = L.Trainer(max_epochs=1, callbacks=[L.pytorch.callbacks.LearningRateMonitor()])
    trainer.fit(Finetuner(name), loader)
```

```python
import lightning as L
from transformers import AutoModelForCausalLM

class Given(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.model.gradient_checkpointing_enable()  # error

    def training_step(self, batch, index):
        return self.model(**batch).loss

L.Trainer().fit(Given(AutoModelForCausalLM.from_pretrained("base")), loader)
```

```python
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from torch.optim import AdamW
from transformers import AutoModelForCausalLM

Config = TypeVar("Config")

class Loop(ABC, Generic[Config]):
    def __init__(self, config: Config):
        self.config = config
        self.model = self.build()
        self.optimizer = AdamW(self.model.parameters())

    @abstractmethod
    def build(self): ...

    def fit(self, loader):
        for batch in loader:
            self.model(**batch).loss.backward()
            self.optimizer.step()

class LanguageModel(Loop[dict]):
    def build(self):
        model = AutoModelForCausalLM.from_pretrained(self.config["name"])
        model.activation_checkpointing_enable()  # error
        return model

LanguageModel({"name": "base"}).fit([])
```
```python
import torch
from transformers import AutoModel

class Ranker(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name)
        self.backbone.activation_checkpointing_enable()  # error
        self.score = torch.nn.Linear(8, 1)

    def forward(self, **batch):
        return self.score(self.backbone(**batch).last_hidden_state[:, 0])

def train(name, loader):
    ranker = Ranker(name)
    optimizer = torch.optim.AdamW(ranker.parameters())
    for batch in loader:
        ranker(**batch).mean().backward()
        optimizer.step()
```
```python
import lightning as L
import torch
from transformers import AutoModelForSequenceClassification

def train(fabric, model, optimizer, batches):
    for batch in batches:
        fabric.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()

def main(name, batches):
    fabric = L.Fabric(accelerator="cuda", devices=2)
    fabric.launch()
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.gradient_checkpointing_enable()  # error
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    train(fabric, model, optimizer, batches)
```
```python
import copy
from transformers import AutoModelForCausalLM

def distil(name, batches, optimizer):
    models = {"student": AutoModelForCausalLM.from_pretrained(name)}
    models["teacher"] = copy.deepcopy(models["student"])
    models["teacher"].requires_grad_(False)
    models["student"].gradient_checkpointing_enable()  # error
    for batch in batches:
        models["student"](**batch).loss.backward()
        optimizer.step()
```

```python
import torch
from transformers import AutoModelForCausalLM

def attribute(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()  # error
    model.eval()
    model.requires_grad_(False)
    for ids in batches:
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_(True)
        logits = model(inputs_embeds=embedded).logits
        logits[:, -1].max(-1).values.sum().backward()
        print((embedded.grad * embedded).sum(-1))
```

## Good
```python
import copy
from transformers import AutoModelForCausalLM
from project import prepare

def distil(name, batches, optimizer):
    models = {"student": AutoModelForCausalLM.from_pretrained(name)}
    models["teacher"] = copy.deepcopy(models["student"])
    prepare(models)
    models["student"].gradient_checkpointing_enable()
    for batch in batches:
        models["student"](**batch).loss.backward()
        optimizer.step()

def average(name, batches, optimizer):
    models = {"online": AutoModelForCausalLM.from_pretrained(name)}
    models["average"] = copy.deepcopy(models["online"])
    models["online"].gradient_checkpointing_enable()
    for model in models.values():
        model.train()
    for batch in batches:
        models["online"](**batch).loss.backward()
        optimizer.step()
```
```python
import torch
from transformers import AutoModel

class Ranker(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name)
        self.backbone.activation_checkpointing_enable()
        self.score = torch.nn.Linear(8, 1)

    def forward(self, **batch):
        return self.score(self.backbone(**batch).last_hidden_state[:, 0])

def train(name, loader):
    ranker = Ranker(name)
    optimizer = torch.optim.AdamW(ranker.parameters())
    for batch in loader:
        ranker.train()
        ranker(**batch).mean().backward()
        optimizer.step()
```
```python
import torch
from library import put_in_mode
from transformers import AutoModel

class Ranker(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name)
        self.backbone.activation_checkpointing_enable()
        self.score = torch.nn.Linear(8, 1)

    def forward(self, **batch):
        return self.score(self.backbone(**batch).last_hidden_state[:, 0])

def train(name, loader):
    ranker = Ranker(name)
    put_in_mode(ranker)
    optimizer = torch.optim.AdamW(ranker.parameters())
    for batch in loader:
        ranker(**batch).mean().backward()
        optimizer.step()
```
```python
from library import Loop
from torch.optim import AdamW
from transformers import AutoModelForCausalLM

class LanguageModel(Loop):
    def fit(self, loader):  # the base may switch the mode of what its objects hold
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.activation_checkpointing_enable()
        optimizer = AdamW(self.model.parameters())
        for batch in loader:
            self.model(**batch).loss.backward()
            optimizer.step()

LanguageModel().fit([])
```
```python
import torch
from transformers import AutoModelForCausalLM, AutoConfig, Trainer, TrainingArguments

def train(model, loader):
    model.train()
    for batch in loader:
        model(**batch).loss.backward()

def main(name, loader):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    for epoch in range(3):
        train(model, loader)
        model.eval()
        with torch.no_grad():
            model(**next(loader))

def from_config(name, loader):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name))  # in train mode
    model.gradient_checkpointing_enable()
    for batch in loader:
        model(**batch).loss.backward()

def by_trainer(name, rows):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    Trainer(model, TrainingArguments("out"), train_dataset=rows).train()

def evaluation(name, loader):
    model = AutoModelForCausalLM.from_pretrained(name).eval()
    with torch.no_grad():
        return [model(**batch).loss for batch in loader]
```
```python
import torch
from transformers import AutoModelForCausalLM

class Finetuner:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()

    def step(self, batch):
        self.model(**batch).loss.backward()

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    return [model(**batch).loss for batch in loader]

def at_the_end_of_an_epoch(name, train, valid):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    for epoch in range(3):
        model.train()
        for i, batch in enumerate(train):
            model(**batch).loss.backward()
            if i == len(train) - 1:
                evaluate(model, valid)
```
```python
from transformers import AutoModelForCausalLM
from my_project import fit, loader

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()
fit(model)  # may call train()
model(**next(loader)).loss.backward()
```

```python
import pytorch_lightning as pl
from transformers import AutoModelForCausalLM
from my_project import ToTrainMode, prepare

class Finetuner(pl.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()

    def training_step(self, batch, index):
        return self.model(**batch).loss

class Loaded(pl.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()

    def training_step(self, batch, index):
        return self.model(**batch).loss

def main(name, loader):
    pl.Trainer(callbacks=[ToTrainMode()]).fit(Finetuner(name), loader)
    module = Loaded(name)
    prepare(module)
    pl.Trainer().fit(module, loader)
```
```python
import lightning as L
from transformers import AutoModelForCausalLM

class Finetuner(L.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()

    def on_fit_start(self):
        self.model.train()

    def training_step(self, batch, index):
        return self.model(**batch).loss

L.Trainer().fit(Finetuner("base"), loader)
```

```python
import lightning as L
from transformers import AutoModelForCausalLM

class Given(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.model.gradient_checkpointing_enable()

    def training_step(self, batch, index):
        return self.model(**batch).loss

model = AutoModelForCausalLM.from_pretrained("base")
model.train()
L.Trainer().fit(Given(model), loader)
```
```python
import lightning as L
import torch
from transformers import AutoModelForSequenceClassification

def train(fabric, model, optimizer, batches):
    model.train()
    for batch in batches:
        fabric.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()

def main(name, batches):
    fabric = L.Fabric(accelerator="cuda", devices=2)
    fabric.launch()
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    train(fabric, model, optimizer, batches)
```

```python
import torch
from transformers import AutoModel

def on_features(name, loader):
    encoder = AutoModel.from_pretrained(name)
    encoder.requires_grad_(False)
    encoder.gradient_checkpointing_enable()
    head = torch.nn.Linear(768, 4)
    for pictures, labels in loader:
        # The encoder is frozen: it is the head that trains.
        states = encoder(pixel_values=pictures).last_hidden_state
        torch.nn.functional.cross_entropy(head(states[:, 0]), labels).backward()
```

## Evidence
```python
import tempfile
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)
folder = tempfile.mkdtemp()
LlamaForCausalLM(config).save_pretrained(folder)
ids = torch.ones(1, 4, dtype=torch.long)

def runs(model, layer):
    count = []
    hook = layer.mlp.register_forward_pre_hook(lambda *_: count.append(1))
    model(input_ids=ids, labels=ids).loss.backward()
    hook.remove()
    return len(count)

model = AutoModelForCausalLM.from_pretrained(folder)
model.gradient_checkpointing_enable({"use_reentrant": False})
assert model.is_gradient_checkpointing and not model.training
assert runs(model, model.model.layers[0]) == 1
assert runs(model.train(), model.model.layers[0]) == 2

with_adapter = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), LoraConfig(target_modules=["q_proj"]))
with_adapter.gradient_checkpointing_enable({"use_reentrant": False})
assert runs(with_adapter, with_adapter.get_base_model().model.layers[0]) == 1
assert runs(with_adapter.train(), with_adapter.get_base_model().model.layers[0]) == 2

fresh = LlamaForCausalLM(config)
fresh.gradient_checkpointing_enable({"use_reentrant": False})
assert runs(fresh, fresh.model.layers[0]) == 2
```

## References
transformers 5.23 `modeling_layers.py` (`if self.gradient_checkpointing and self.training`), `modeling_utils.py`
(`from_pretrained` calls `model.eval()`). Lightning 2.2.0, release notes; run with 2.6.6: 4 forward passes of a layer in
4 steps, and 8 after `module.train()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.events import Backward, HfEnable, LightningFit
from ..model.frozen.freezing import is_frozen
from ..model.report import Remark, Report
from ..model.state.modes import trained_in_eval
from ..model.types import unwrapped, whole_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT203", "checkpointing-in-eval-mode", Severity.WARNING
NEEDS = ((HfEnable, Backward), (HfEnable, LightningFit))


def check(run: Run) -> Iterator[Report]:
    """Report models whose checkpointing a training loop never sees, because they are in eval mode."""
    for enable in run.of(HfEnable):
        found = trained_in_eval(run, enable)
        if found is not None and not _keeps_no_graph(run, unwrapped(whole_model(enable.model))):
            yield Report(
                enable.node,
                "this model is in eval mode when it is trained, and transformers checkpoints only in train mode: "
                "nothing is recomputed and no memory is saved; call `.train()` before the loop",
                notes=(
                    Remark(found.cause, "this leaves it in eval mode"),
                    Remark(found.forward.node, "trained here"),
                ),
            )


def _keeps_no_graph(run: Run, model: Value) -> bool:
    """Whether ``model`` is frozen, and nothing that it gets in place of its embeddings may need a gradient."""
    return is_frozen(run, model) and not any("inputs_embeds" in call.kwargs for call in run.uses.calls.of(model))
