"""Giving the hidden states to a checkpointed transformers layer by keyword.

## What it does
Flags `layer(hidden_states=x, ...)`, with nothing by position, when the layer is one of a model of transformers that the
program enables the reentrant variant for and trains, one of transformers' layers in an own model (`ViTLayer(config)`),
or of a class of this file that derives from transformers' `GradientCheckpointingLayer`, the keyword is its first
parameter and the program selects the reentrant variant. Where it selects none, a warning for projects that say they
admit transformers < 5.0, whose default that variant is; later releases run the other one.

## Why is this bad?
The layer checkpoints itself with what it gets by position as inputs; keywords are bound into the function. A reentrant
checkpoint without a positional tensor is cut off from the graph: no parameter of the layer, nor of anything below it,
gets a gradient (37 of 41 in Llama 4's vision model before it was fixed). The non-reentrant variant does not mind.

## Bad
```python
import torch.nn as nn
from transformers import TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

class Block(GradientCheckpointingLayer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, hidden_states, attention_mask=None):
        return hidden_states + self.linear(hidden_states)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, hidden_states, attention_mask=None):
        for layer in self.layers:
            hidden_states = layer(hidden_states=hidden_states, attention_mask=attention_mask)  # error
        return hidden_states

args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
```
```python
import torch.nn as nn
from transformers import LlamaModel

class Looped(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = LlamaModel.from_pretrained("base")
        self.core.gradient_checkpointing_enable({"use_reentrant": True})

    def forward(self, h, positions):
        for layer in self.core.layers:
            h = layer(hidden_states=h, position_embeddings=positions)  # error
        return self.core.norm(h)

def train(batches, positions):
    model = Looped().train()
    for batch in batches:
        model(batch, positions).square().mean().backward()
```

```python
import torch.nn as nn
from transformers import PreTrainedModel, Trainer, TrainingArguments, ViTConfig
from transformers.models.vit.modeling_vit import ViTLayer

class Spectrogram(PreTrainedModel):
    config_class = ViTConfig
    supports_gradient_checkpointing = True

    def __init__(self, config):
        super().__init__(config)
        self.project = nn.Linear(80, config.hidden_size)
        self.layer = nn.ModuleList([ViTLayer(config) for _ in range(4)])
        self.post_init()

    def forward(self, spectrogram):
        hidden_states = self.project(spectrogram)
        for block in self.layer:
            hidden_states = block(hidden_states=hidden_states)  # error
        return {"loss": hidden_states.square().mean()}

args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": True})
Trainer(Spectrogram(ViTConfig()), args, train_dataset=[]).train()
```

## Good
```python
import torch.nn as nn
from transformers import TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

class Block(GradientCheckpointingLayer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, hidden_states, attention_mask=None):
        return hidden_states + self.linear(hidden_states)

class Plain(nn.Module):
    def forward(self, hidden_states):
        return hidden_states

class Encoder(nn.Module):
    def __init__(self, other):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.plain, self.other = Plain(), other

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=attention_mask, **kwargs)
        return self.other(hidden_states=self.plain(hidden_states=hidden_states))

args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
```
```python
import torch.nn as nn
from transformers import TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

class Block(GradientCheckpointingLayer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, hidden_states):
        return hidden_states + self.linear(hidden_states)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, hidden_states):
        for layer in self.layers:
            hidden_states = layer(hidden_states=hidden_states)  # the non-reentrant variant does not mind
        return hidden_states

args = TrainingArguments("out", gradient_checkpointing=True)
```
```python
import torch
import torch.nn as nn
from transformers import LlamaModel

class Looped(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.core, self.other = LlamaModel.from_pretrained("base"), LlamaModel.from_pretrained("base")
        self.core.gradient_checkpointing_enable({"use_reentrant": True})

    def forward(self, h, positions):
        for layer in self.core.layers:
            h = layer(h, position_embeddings=positions)
        for layer in self.other.layers:
            h = layer(hidden_states=h, position_embeddings=positions)
        with torch.no_grad():
            target = self.core.layers[0](hidden_states=h, position_embeddings=positions)
        return self.core.norm(h) - target

def train(batches, positions):
    model = Looped(True).train()
    for batch in batches:
        model(batch, positions).square().mean().backward()
```

```python
import torch.nn as nn
from transformers import PreTrainedModel, Trainer, TrainingArguments, ViTConfig
from transformers.models.vit.modeling_vit import ViTLayer

class Spectrogram(PreTrainedModel):
    config_class = ViTConfig
    supports_gradient_checkpointing = True

    def __init__(self, config):
        super().__init__(config)
        self.project = nn.Linear(80, config.hidden_size)
        self.layer = nn.ModuleList([ViTLayer(config) for _ in range(4)])
        self.post_init()

    def forward(self, spectrogram):
        hidden_states = self.project(spectrogram)
        for block in self.layer:
            hidden_states = block(hidden_states)
        return {"loss": hidden_states.square().mean()}

args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": True})
Trainer(Spectrogram(ViTConfig()), args, train_dataset=[]).train()
```

```python
import torch.nn as nn
from transformers import PreTrainedModel, Trainer, TrainingArguments, ViTConfig
from transformers.models.vit.modeling_vit import ViTLayer

class Spectrogram(PreTrainedModel):
    config_class = ViTConfig
    supports_gradient_checkpointing = True

    def __init__(self, config):
        super().__init__(config)
        self.project = nn.Linear(80, config.hidden_size)
        self.layer = nn.ModuleList([ViTLayer(config) for _ in range(4)])
        self.post_init()

    def forward(self, spectrogram):
        hidden_states = self.project(spectrogram)
        for block in self.layer:
            hidden_states = block(hidden_states=hidden_states)
        return {"loss": hidden_states.square().mean()}

args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": False})
Trainer(Spectrogram(ViTConfig()), args, train_dataset=[]).train()
```

## Fix safety
Safe: the same argument by position. Offered where it stands first in the call.

## Evidence
```python
import warnings
import torch
from transformers import LlamaConfig, LlamaModel, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

warnings.simplefilter("ignore")

class Block(GradientCheckpointingLayer):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, hidden_states):
        return hidden_states + self.linear(hidden_states)

class Model(PreTrainedModel):
    config_class, supports_gradient_checkpointing = LlamaConfig, True

    def __init__(self, config, by_keyword):
        super().__init__(config)
        self.by_keyword = by_keyword
        self.embed = torch.nn.Linear(4, 4)
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(4, 1)
        self.post_init()

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(hidden_states=x) if self.by_keyword else layer(x)
        return self.head(x)

def lost(by_keyword, reentrant):
    model = Model(LlamaConfig(), by_keyword).train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model(torch.ones(2, 4)).sum().backward()
    return sum(weight.grad is None for weight in model.parameters())

assert lost(True, True) == 6
assert lost(True, False) == lost(False, True) == lost(False, False) == 0

def lost_in_llama(by_keyword):
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = LlamaModel(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    positions = torch.arange(4)[None]
    h = model.embed_tokens(positions)
    options = {"position_embeddings": model.rotary_emb(h, positions), "position_ids": positions}
    for layer in model.layers:
        h = layer(hidden_states=h, **options) if by_keyword else layer(h, **options)
    model.norm(h).sum().backward()
    return sum(weight.grad is None for weight in model.layers.parameters())

assert lost_in_llama(False) == 0
assert lost_in_llama(True) == 18
```

## References
transformers 5.23 `modeling_layers.py` (docstring of `GradientCheckpointingLayer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors
from ..facts.values import Instance, Ref, Result, is_given, one, options
from ..finding import Applicability, Severity
from ..model.calls.call_targets import call_targets
from ..model.calls.constructors import given_to_constructors
from ..model.events import Backward, HfDisable, HfEnable, ModeSwitch, TrainerArgs, TrainSwitch
from ..model.frozen.freezing import is_frozen
from ..model.known_models.transformers_layers import holder_of_layer, is_checkpointed_layer, keeps_checkpointed_layers
from ..model.libraries.trainer import enable_reentrant, trainer_reentrant
from ..model.names import canonical
from ..model.needs import together
from ..model.report import MakePositional, Remark, Report, Rewrite
from ..model.state.modes import trained_in_eval
from ..model.tensors.gradient_free import is_gradient_free
from ..model.types import bases, is_loaded, whole_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call, Class, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT118", "keyword-hidden-states", Severity.ERROR
NEEDS = (
    "GradientCheckpointingLayer",
    *together("hidden_states", HfEnable, Backward),
    *together("hidden_states", "PreTrainedModel", TrainerArgs),
)

_REENTRANT_BY_DEFAULT = "<5.0"
#: Since then the layers of transformers checkpoint themselves.
_SINCE = "transformers>=4.53"
_HIDDEN = "hidden_states"
#: By its full name, or relative to a package of transformers itself.
_LAYER = ("modeling_layers.GradientCheckpointingLayer", "transformers.GradientCheckpointingLayer")


def check(run: Run) -> Iterator[Report]:
    """Report layers that get no input a reentrant checkpoint could be connected by."""
    yield from _given_to_layers(run)
    reentrant = _runs_reentrant(run)
    if not reentrant and not run.versions.may_be("transformers", _REENTRANT_BY_DEFAULT):
        return
    for call in run.program.calls:
        name = _keyword_of_input(call)
        if isinstance(call.func, Result):  # a layer of transformers, which may not have checkpointed itself before
            if name is not None and reentrant:
                yield _report(call, name)._replace(versions=_SINCE)
        elif name is not None:
            yield _report(call, name)._replace(
                severity=None if reentrant else Severity.WARNING,
                versions=None if reentrant else f"transformers{_REENTRANT_BY_DEFAULT}",
            )


def _given_to_layers(run: Run) -> Iterator[Report]:
    """The layers of a model of transformers that get their hidden states by keyword, where the model is trained."""
    enables = [event for event in run.of(HfEnable) if enable_reentrant(run, event) and not trained_in_eval(run, event)]
    if not enables or not any(run.of(Backward)) or any(run.of(HfDisable)):
        return
    reported = set()
    for call in run.program.calls:
        if call.node in reported or call.args or call.open_args or _HIDDEN not in call.kwargs:
            continue
        for model in _models_of_layer(run, call.func):
            causes = [enable for enable in enables if _is_of(run, enable, model)]
            if causes and call.node not in reported and _is_trained(run, model, call):
                reported.add(call.node)
                cause = Remark(causes[0].node, "the layers are reentrant by this")
                yield _report(call, _HIDDEN)._replace(notes=(cause,), versions=_SINCE)


def _models_of_layer(run: Run, layer: Value) -> list[Value]:
    """The models of transformers that ``layer`` may be one of: those that the constructor of its holder was given."""
    holder = holder_of_layer(layer)
    models = [] if holder is None else given_to_constructors(run, holder)
    return models if all(map(keeps_checkpointed_layers, models)) else []


def _is_of(run: Run, enable: HfEnable, model: Value) -> bool:
    return any(one(given, model) for given in given_to_constructors(run, whole_model(enable.model)))


def _is_trained(run: Run, model: Value, call: Call) -> bool:
    """Whether ``call`` of a layer of ``model`` may be one of training: of parameters, and in train mode."""
    function = call.place.function
    switches = [switch for switch in run.of(ModeSwitch) if switch.place.function is function]
    before = [switch for switch in switches if switch.order < call.order]
    if is_gradient_free(call) or (before and before[-1].on is False):
        return False
    return not is_frozen(run, model) and _may_train(run, model)


def _may_train(run: Run, model: Value) -> bool:
    """Whether ``model`` may be in train mode: what is loaded is not, until something says so."""
    return not is_loaded(model) or any(switch.on is not False for switch in run.of(TrainSwitch))


def _report(call: Call, name: str) -> Report:
    written = call.node.keywords
    is_first = not call.node.args and bool(written) and written[0].arg == name
    fix = Rewrite(Applicability.SAFE, f"Pass `{name}` by position", (MakePositional(call.node, name),))
    return Report(
        call.node,
        f"`{name}` by keyword leaves a reentrant checkpoint of this layer without an input, so nothing in or "
        "below it gets a gradient; pass it by position",
        fix=fix if is_first else None,
    )


def _keyword_of_input(call: Call) -> str | None:
    """The first parameter of a self-checkpointing layer when ``call`` gives it, and nothing else, by keyword."""
    match call.func:
        case Instance(cls) if _is_layer(cls) and not call.args and not call.open_args:
            names = [part.parameters() for part in call_targets(call.func)]
            first = names[0][0] if names and names[0] else None
            return first if first is not None and is_given(call, first) else None
        case Result(built) if isinstance(built.func, Ref) and _is_held_by_model(call):
            given = not call.args and not call.open_args and is_given(call, _HIDDEN)
            return _HIDDEN if given and is_checkpointed_layer(canonical(built.func.name)) else None
    return None


def _is_held_by_model(call: Call) -> bool:
    """Whether the forward pass of an own model of transformers makes ``call``: it turns its layers' switches on."""
    function = call.place.function
    owner = function.owner if function is not None else None
    return owner is not None and any(base.endswith("PreTrainedModel") for base in bases(owner))


def _is_layer(cls: Class) -> bool:
    return any(
        isinstance(option, Ref) and option.name.endswith(_LAYER)
        for owner in (cls, *ancestors(cls))
        for base in owner.bases
        for option in options(base)
    )


def _runs_reentrant(run: Run) -> bool:
    enabled = any(enable_reentrant(run, event) for event in run.of(HfEnable))
    return enabled or any(trainer_reentrant(run, args) for args in run.of(TrainerArgs))
