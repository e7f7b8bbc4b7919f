"""A reentrant checkpoint whose inputs need no gradient.

## What it does
Flags a checkpoint that runs reentrant (also by leaving `use_reentrant` out) when this file shows that every input is
data, a constant, the output of a frozen embedding or what a `no_grad` block computed, and the region has parameters to
train. Tensors in a list, a tuple or a dict, and those that the function reads from outside, are no inputs: torch looks
at the arguments themselves only. The same holds for modules that torch's wrappers make reentrant. It also flags
reentrant checkpointing of a transformers model for pictures, video or sound (ViT, VideoMAE, Whisper) that is switched
on after its adapter was attached, of an image classifier whose embeddings are frozen, and, in projects that pin
transformers below 5.0, of any model whose adapter or frozen embeddings come first: there nothing makes the output of
frozen embeddings need a gradient, and the backward pass raises a RuntimeError when nothing else trains.

## Why is this bad?
The reentrant variant connects a region to the graph through its inputs. When none of them needs a gradient, no
parameter inside gets one, nor does any in the regions after it that start from its output. A warning is shown once;
the head still trains and the loss still falls.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        for parameter in self.embedding.parameters():
            parameter.requires_grad = False
        self.block = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, ids):
        x = checkpoint(self.block, self.embedding(ids), use_reentrant=True)  # error
        return self.head(x)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import DataLoader

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

def train(dataset, optimizer):
    for batch, target in DataLoader(dataset, batch_size=8):
        output = checkpoint_sequential(net, 2, batch, use_reentrant=True)  # error
        nn.functional.mse_loss(output, target).backward()
        optimizer.step()
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageClassification

model = AutoModelForImageClassification.from_pretrained("base").to("cuda")
model = get_peft_model(model, LoraConfig(target_modules=["query", "value"], modules_to_save=["classifier"])).train()
model.gradient_checkpointing_enable({"use_reentrant": True})  # error
```
```python
from peft import LoraConfig, get_peft_model
from transformers import ViTConfig, ViTForImageClassification

def build(path):
    if path:
        model = ViTForImageClassification.from_pretrained(path)
    else:
        model = ViTForImageClassification(ViTConfig())
    return get_peft_model(model, LoraConfig(target_modules=["q_proj"], modules_to_save=["classifier"]))

def main(path):
    model = build(path)
    model.base_model.model.gradient_checkpointing_enable({"use_reentrant": True})  # error
    return model.train()
```
```python
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments, ViTForImageClassification

def by_hand(path):
    model = ViTForImageClassification.from_pretrained(path)
    for parameter in model.vit.embeddings.parameters():
        parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": True})  # error
    return model.train()

def by_trainer(path, data):
    model = AutoModelForImageClassification.from_pretrained(path)
    model.base_model.embeddings.requires_grad_(False)
    args = TrainingArguments(  # error
        "out", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": True}
    )
    Trainer(model, args, train_dataset=data).train()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.words = nn.Embedding(10, 8).requires_grad_(False)
        self.loaded = nn.Embedding.from_pretrained(weights)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def run(self, pair):
        return self.block(pair[0]) + pair[1]

    def of(self, batch):
        return self.block(batch["hidden"])

    def forward(self, x, ids):
        h = self.embed(x)
        y = checkpoint(self.run, (h, h), use_reentrant=True)  # error
        y = y + checkpoint(self.of, {"hidden": h}, use_reentrant=True)  # error
        y = y + checkpoint(lambda: self.block(h), use_reentrant=True)  # error
        y = y + checkpoint(self.block, self.words(ids), use_reentrant=True)  # error
        return y + checkpoint(self.block, self.loaded(ids), use_reentrant=True) + h  # error
```
```python
from functools import partial
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return self.up(x).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

net = Net()
wrap = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
apply_activation_checkpointing(net, wrap, lambda module: isinstance(module, Block))  # error
net(torch.randn(2, 8)).mean().backward()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 8, 3))

    def forward(self, images):
        return checkpoint(self.stem, images, use_reentrant=True).mean((2, 3))  # error

def train(loader):
    model = nn.DataParallel(nn.Sequential(Encoder(), nn.Linear(8, 10)).cuda())
    for images, target in loader:
        nn.functional.cross_entropy(model(images), target).backward()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        for parameter in base.parameters():
            parameter.requires_grad_(False)
        self.a, self.b = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8).requires_grad_(False)
        self.blocks = nn.ModuleList(nn.Sequential(Lora(nn.Linear(8, 8)), nn.GELU()) for _ in range(4))

    def forward(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            h = h + checkpoint(block, h, use_reentrant=True)  # error
        return h

def train(loader):
    model = Words()
    for ids, target in loader:
        nn.functional.mse_loss(model(ids).mean((1, 2)), target).backward()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def run_layer(layer, x):
    return checkpoint(layer, x, use_reentrant=True)  # error

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv1d(1, 8, 5)
        self.layers = nn.ModuleList(nn.Conv1d(8, 8, 3) for _ in range(3))
        self.out = nn.Linear(8, 4)

    def forward(self, audio):
        with torch.no_grad():
            x = self.features(audio)
        for layer in self.layers:
            x = run_layer(layer, x)
        return self.out(x.mean(-1))
```

## Good
```python
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification, ViTForImageClassification

def later_layers(path):
    model = ViTForImageClassification.from_pretrained(path)
    model.vit.embeddings.patch_embeddings.requires_grad_(False)  # the position embeddings train
    model.gradient_checkpointing_enable({"use_reentrant": True})
    return model.train()

def without_recomputation_of_inputs(path):
    model = ViTForImageClassification.from_pretrained(path)
    model.vit.embeddings.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()

def text(path):
    model = AutoModelForSequenceClassification.from_pretrained(path)
    model.bert.embeddings.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": True})  # transformers adds its hook
    return model.train()

def when_asked(path, freeze):
    model = AutoModelForImageClassification.from_pretrained(path)
    if freeze:
        model.base_model.embeddings.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    return model.train()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.loaded = nn.Embedding.from_pretrained(weights, freeze=False)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def run(self, first, pair):
        return self.block(first) + self.block(pair[0]) + pair[1]

    def forward(self, x, ids):
        h = self.embed(x)
        y = checkpoint(self.run, h, (h, h), use_reentrant=True)
        y = y + checkpoint(self.run, *[h, (h, h)], use_reentrant=True)
        y = y + checkpoint(lambda: self.block(h), use_reentrant=False)
        return y + checkpoint(self.block, self.loaded(ids), use_reentrant=True)
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, backbone, freeze):
        super().__init__()
        self.maybe = nn.Embedding(100, 16)
        if freeze:
            self.maybe.requires_grad_(False)
        self.embedding, self.frozen = nn.Embedding(100, 16), nn.Embedding(100, 16)
        self.frozen.requires_grad_(False)
        self.stem, self.backbone = nn.Linear(16, 16), backbone
        self.block = nn.Sequential(nn.Linear(16, 16), nn.ReLU())

    def forward(self, ids, x):
        x = checkpoint(self.block, x, use_reentrant=True)
        x = checkpoint(self.block, self.embedding(ids), use_reentrant=True)
        x = checkpoint(self.block, self.maybe(ids), use_reentrant=True)
        x = checkpoint(self.block, self.frozen(ids), use_reentrant=False)
        x = checkpoint(self.block, self.stem(self.frozen(ids)), use_reentrant=True)
        h = self.frozen(ids)
        h.requires_grad_()
        x = x + checkpoint(self.block, h, use_reentrant=True)
        with torch.no_grad():
            features = checkpoint(self.block, self.frozen(ids), use_reentrant=True)
        return checkpoint(self.backbone, x, features, use_reentrant=True)
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForImageClassification

def vision(name):
    model = AutoModelForImageClassification.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": True})  # peft sees it and adds its own hook
    return get_peft_model(model, LoraConfig(target_modules=["query"])).train()

def text(name):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    model.gradient_checkpointing_enable({"use_reentrant": True})  # transformers adds its hook
    return model.train()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 8, 3))

    def forward(self, images):
        return checkpoint(self.stem, images, use_reentrant=True).mean((2, 3))

def train(loader):
    model = nn.Sequential(nn.Conv2d(3, 3, 1), Encoder(), nn.Linear(8, 10))
    for images, target in loader:
        nn.functional.cross_entropy(model(images), target).backward()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.a = base, nn.Linear(8, 8)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.a(x)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8).requires_grad_(False)
        self.blocks = nn.ModuleList(nn.Sequential(Lora(nn.Linear(8, 8)), nn.GELU()) for _ in range(4))

    def forward(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            h = h + checkpoint(block, h, use_reentrant=True)
        return h

def train(loader):
    model = Words()
    for ids, target in loader:
        nn.functional.mse_loss(model(ids).mean((1, 2)), target).backward()
```

## Fix safety
Unsafe: the non-reentrant variant runs instead, which gives these parameters their gradients.

## Evidence
```python
import warnings
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint
from peft import LoraConfig, get_peft_model
from transformers import ViTConfig, ViTForImageClassification, WhisperConfig, WhisperForConditionalGeneration

warnings.simplefilter("ignore")

def lost(reentrant, frozen):
    embedding, block, head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    embedding.requires_grad_(not frozen)
    x = checkpoint(block, embedding(torch.arange(4)), use_reentrant=reentrant)
    head(x).sum().backward()
    assert head.weight.grad is not None
    return block.weight.grad is None

def lost_by_wrapper(implementation):
    block, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    head(checkpoint_wrapper(block, checkpoint_impl=implementation)(torch.ones(2, 4))).sum().backward()
    return block.weight.grad is None

assert lost_by_wrapper(CheckpointImpl.REENTRANT) and not lost_by_wrapper(CheckpointImpl.NO_REENTRANT)
assert lost(True, frozen=True)
assert not lost(False, frozen=True) and not lost(True, frozen=False)

def lost_by_vit(reentrant, adapter_first):
    config = ViTConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8,
    )
    model = ViTForImageClassification(config)
    lora = LoraConfig(r=2, target_modules=r".*\\.(q_proj|query)", modules_to_save=["classifier"])
    if adapter_first:
        model = get_peft_model(model, lora)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if not adapter_first:
        model = get_peft_model(model, lora)
    model.train()(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.tensor([0, 1])).loss.backward()
    return sum(weight.requires_grad and weight.grad is None for weight in model.parameters())

assert lost_by_vit(True, adapter_first=True) == 4

def lost_behind_frozen_embeddings(reentrant):
    config = ViTConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8,
    )
    model = ViTForImageClassification(config)
    model.vit.embeddings.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.train()(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.tensor([0, 1])).loss.backward()
    return sum(weight.requires_grad and weight.grad is None for weight in model.parameters())

def whisper_has_a_graph(reentrant):
    parts = ("layers", "attention_heads", "ffn_dim")
    sides = {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in parts}
    tokens = dict(vocab_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    lengths = dict(max_source_positions=4, max_target_positions=4)
    model = WhisperForConditionalGeneration(WhisperConfig(d_model=8, num_mel_bins=4, **sides, **tokens, **lengths))
    model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    labels = torch.tensor([[3, 4]])
    return model.train()(input_features=torch.randn(1, 4, 8), labels=labels).loss.requires_grad

assert not whisper_has_a_graph(True) and whisper_has_a_graph(False)
assert lost_behind_frozen_embeddings(True) > 20 and lost_behind_frozen_embeddings(False) == 0
assert lost_by_vit(True, adapter_first=False) == lost_by_vit(False, adapter_first=True) == 0
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`check_backward_validity`); transformers 5.23 `modeling_utils.py`
(`_activation_checkpointing_enable`); huggingface/transformers#42489, huggingface/trl#2671.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..facts.nodes import source_text
from ..facts.values import ABSENT, Absent, Attr, Const, Dict, Result, Seq, options, same
from ..finding import Applicability, Severity
from ..model.conditions.guards import own_guards
from ..model.events import (
    AdapterAttach,
    Backward,
    Checkpoint,
    Checkpointing,
    CheckpointSequential,
    DeepSpeedCheckpoint,
    GradientSwitch,
    HfDisable,
    HfEnable,
    KbitPrepare,
    TorchCheckpoint,
    TrainerArgs,
    WrapperCheckpointing,
)
from ..model.frozen.freezing import may_be_frozen, own_parameters
from ..model.frozen.frozen_inputs import frozen_inputs, owner_of_embeddings
from ..model.libraries.enabled import reentrant_settings
from ..model.libraries.makers import library_of_whole
from ..model.libraries.quantized import is_quantized
from ..model.libraries.sharding import attributes, root
from ..model.libraries.trainer import (
    default_versions,
    enable_reentrant,
    is_enabled,
    overriding_trainer,
    trainer_reentrant,
    trainers_of,
)
from ..model.names import canonical
from ..model.needs import SWITCHED_ON, together
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.state.trained import is_trained
from ..model.types import is_hf_model, same_object, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT104", "reentrant-without-grad-input", Severity.ERROR
NEEDS = (
    Checkpointing,
    ("ForImageClassification", "peft"),
    (GradientSwitch, HfEnable),
    *together(GradientSwitch, SWITCHED_ON),
    (AdapterAttach, HfEnable),
    *together(AdapterAttach, SWITCHED_ON),
)
#: Releases that leave the gradients of the embeddings' output to the user (4.44.2 and 4.57.1 were run, and 5.23).
_WITHOUT_INPUT_GRADS = "<5.0"

#: Methods that register what runs around modules.
_HOOKS = ("enable_input_require_grads", "register_forward_hook", "register_forward_pre_hook")
#: Models that were run with transformers 5.23, and those that are alike.
_OF_DATA = re.compile(
    r"transformers\.(\w+For(Image|Video)Classification|\w+ForMaskedImageModeling|(Whisper|AST)For\w+"
    r"|(ViT|ViTMAE|ViTMSN|DeiT|Beit|Dinov2|Dinov2WithRegisters|DINOv3ViT|IJepa|Swin|Swinv2|Hiera|Segformer|DPT|Yolos"
    r"|VideoMAE|Vivit|Timesformer|AST|CLIPVision|SiglipVision|Data2VecVision)(Model|Backbone)"
    r"|CLIPVisionModelWithProjection)(\.|\Z)"
)
#: Weights on the Hub of which an Auto class makes one of them, and their models of sound.
_OF_PICTURES = re.compile(
    r"facebook/(dinov[23]-|deit-|vit-m(ae|sn)-|data2vec-vision-|hiera-)|google/vit-|microsoft/(beit|swin(v2)?)-"
    r"|nvidia/(mit-b|segformer-)|MCG-NJU/videomae-|google/vivit-|facebook/timesformer-|MIT/ast-"
)
#: Names of heads, and of what is below the layers.
_HEAD = re.compile(r"head|classifier|score|pooler|qa_outputs")
_BELOW = re.compile(r"emb|patch|projection|conv|stem")
_AUTO = re.compile(r"transformers\.Auto(Model|Backbone)\.")
_PARAMETRIC = tuple(
    f"torch.nn.{kind}"
    for kind in (
        *("Linear", "Bilinear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "LayerNorm", "GroupNorm", "RMSNorm"),
        *("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "LSTM", "GRU"),
    )
)


def check(run: Run) -> Iterator[Report]:
    """Report regions whose parameters get no gradient because their inputs need none."""
    if any(run.method_calls(*_HOOKS)) or run.is_compiled:
        return  # A hook may switch the gradients of inputs on, as peft's does; the compiler ignores `use_reentrant`.
    for event in run.used(Checkpointing):
        if run.loses_gradients(event) and _has_weights(run, event) and not _is_packed(event):
            yield _report(event)
    if any(run.of(KbitPrepare)):
        return  # It switches the gradients of inputs on when the model is quantized.
    yield from _adapters_on_data(run)
    yield from _frozen_picture_embeddings(run)
    if run.versions.require("transformers", _WITHOUT_INPUT_GRADS):
        yield from _adapters_on_tokens(run)
        yield from _frozen_token_embeddings(run)


def _is_packed(event: Checkpointing) -> bool:
    """Whether a tuple or list goes through `checkpoint_sequential`: CKPT129 says that."""
    return isinstance(event, CheckpointSequential) and _holds_tensors(event.input)


def _report(event: Checkpointing) -> Report:
    if isinstance(event, DeepSpeedCheckpoint):
        return Report(
            event.node,
            "DeepSpeed's checkpoint is reentrant, and no input of this one needs a gradient, so no parameter inside "
            "gets one; checkpoint behind the first layer that trains, or call `x.requires_grad_()` before",
        )
    if not isinstance(event, TorchCheckpoint):
        return Report(
            event.node,
            "no input of the modules that this wraps reentrant needs a gradient, so no parameter inside gets one; "
            "write `checkpoint_impl=CheckpointImpl.NO_REENTRANT`",
        )
    rewrite = (SetKeyword(event.node, "use_reentrant", "False"),)
    return Report(
        event.node,
        f"{_why(event)}, so no parameter inside gets one; write `use_reentrant=False`",
        fix=Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", rewrite),
    )


def _why(event: TorchCheckpoint) -> str:
    if isinstance(event, Checkpoint) and not event.inputs and not event.call.open_args:
        return "this reentrant checkpoint gets no inputs, and what its function reads from outside gets no gradient"
    if isinstance(event, Checkpoint) and any(_holds_tensors(value) for value in event.inputs):
        return "a reentrant checkpoint sees no tensors in lists, tuples and dicts, and no other input needs a gradient"
    return "no input of this reentrant checkpoint needs a gradient"


def _holds_tensors(value: Value) -> bool:
    return any(isinstance(option, Dict | Seq) for option in options(value))


def _has_weights(run: Run, event: Checkpointing) -> bool:
    region = run.region(event)
    weights = [*region.modules_of(*_PARAMETRIC), *filter(library_of_whole, region.modules)]
    weights += [part for part in (_entered(event),) if library_of_whole(part)]
    if not weights or not _trains(run, event):
        return False
    own = [part for module in region.modules for part in own_parameters(module)]
    return not may_be_frozen(run, _entered(event), *region.modules, *own) or _has_own_adapter(run, weights)


def _has_own_adapter(run: Run, weights: list[Value]) -> bool:
    """Whether whole modules are frozen by themselves, and some of ``weights`` are none of them: an adapter trains."""
    by_itself = all(not switch.is_partial and not switch.place.loops for switch in run.uses.freezes)
    return by_itself and any(isinstance(part, Result) and not may_be_frozen(run, part) for part in weights)


def _trains(run: Run, event: Checkpointing) -> bool:
    """Whether the program trains what goes through the checkpoint: a function alone, as a test is, must show it."""
    if isinstance(event, Checkpoint) and any(map(_holds_tensors, event.inputs)):
        return True  # what is in the list may need a gradient, and the checkpoint would lose it
    around = [event.place.function, *(call.place.function for call in run.callers_of(event.place) or ())]
    methods = [function for function in around if function is not None and function.owner is not None]
    if methods:
        return any(it.name in ("forward", "training_step") for it in methods) or any(run.of(Backward))
    shows = isinstance(event, TorchCheckpoint | DeepSpeedCheckpoint)
    return is_trained(run, event) if shows else any(run.of(Backward))


def _entered(event: Checkpointing) -> Value:
    """What the region consists of, or what holds it."""
    match event:
        case CheckpointSequential(functions=entered) | Checkpoint(function=entered):
            return entered
        case DeepSpeedCheckpoint(function=entered):
            return entered
        case WrapperCheckpointing(module=entered):
            return entered
    return ABSENT


def _adapters_on_data(run: Run) -> Iterator[Report]:
    if not all(_is_above_layers(run, switch) for switch in run.uses.thaws):
        return
    for adapter in run.of(AdapterAttach):
        if not _begins_with_data(unwrapped(adapter.model)) or _is_on_embeddings(adapter):
            continue
        for setting in _reentrant_later(run, adapter):
            yield Report(
                setting.node,
                f"behind frozen {_bottom(adapter.model)}, no input of a reentrant checkpoint needs a gradient, so the "
                'adapter gets none; write `"use_reentrant": False`',
                notes=(Remark(adapter.node, "the adapter freezes the embeddings here"),),
                versions=default_versions(setting),
            )


def _is_above_layers(run: Run, switch: GradientSwitch) -> bool:
    """Whether ``switch`` is on a loss, or on the head of a model, by its attribute or by its name."""
    asked = " ".join(source_text(guard.test) for guard in own_guards(switch.place))
    by_name = _HEAD.search(asked) is not None and not _BELOW.search(asked)
    is_loss = any(same(backward.call.receiver, switch.module) for backward in run.of(Backward))
    return is_loss or any(map(_HEAD.search, attributes(switch.module))) or by_name


def _is_on_embeddings(adapter: AdapterAttach) -> bool:
    """Whether the adapter names something below the layers, which it trains then."""
    return any(
        isinstance(config, Result) and _BELOW.search(source_text(config.call.node))
        for config in options(adapter.config)
    )


def _bottom(model: Value) -> str:
    """What stands below the layers of ``model``."""
    names = {it.call.name for it in options(unwrapped(model)) if isinstance(it, Result)}
    return "convolutions" if any("Whisper" in name or "Speech" in name for name in names) else "patch embeddings"


def _frozen_picture_embeddings(run: Run) -> Iterator[Report]:
    """Image classifiers whose embeddings alone are frozen: the first reentrant layer begins without a gradient."""
    if any(run.of(AdapterAttach)) or run.uses.thaws:
        return
    frozen: dict[Value, list[GradientSwitch]] = {}
    for switch in run.uses.freezes:
        frozen.setdefault(root(switch.module), []).append(switch)
    for model, switches in frozen.items():
        are_certain = not any(switch.place.guards or switch.is_partial for switch in switches)
        paths = {tuple(attributes(switch.module))[::-1] for switch in switches}
        is_below = all(len(path) == 2 and path[1] == "embeddings" for path in paths)
        if not (are_certain and is_below and _begins_with_data(unwrapped(model))):
            continue
        for setting in reentrant_settings(run, model):
            if not setting.place.excludes(switches[0].place):
                yield Report(
                    setting.node,
                    "behind frozen patch embeddings, no input of a reentrant checkpoint needs a gradient, so no layer "
                    'gets one; write `"use_reentrant": False`',
                    notes=(Remark(switches[0].node, "the embeddings are frozen here"),),
                    versions=default_versions(setting),
                )


def _begins_with_data(model: Value) -> bool:
    """Whether ``model`` takes pictures or sound, of which it makes no tensor that needs a gradient by itself.

    However the program loads it; wav2vec 2.0 and its kin make one.
    """
    return all(isinstance(it, Result) and _is_of_data(it.call) for it in options(model))


def _is_of_data(load: Call) -> bool:
    name = canonical(load.name)
    weights = load.argument(0, "pretrained_model_name_or_path")
    if name.startswith("transformers.AutoModelForSpeechSeq2Seq"):
        return isinstance(weights, Const) and str(weights.value).startswith("openai/whisper-")
    if _AUTO.match(name):
        return isinstance(weights, Const) and _OF_PICTURES.match(str(weights.value)) is not None
    return _OF_DATA.match(name) is not None


def _frozen_token_embeddings(run: Run) -> Iterator[Report]:
    """Text models before transformers 5 of which what is below the layers is frozen, and layers train."""
    if any(run.of(AdapterAttach)) or run.uses.thaws:
        return
    frozen: dict[Value, list[GradientSwitch]] = {}
    for switch in run.uses.freezes:
        frozen.setdefault(root(owner_of_embeddings(switch.module) or switch.module), []).append(switch)
    for model, switches in frozen.items():
        model = unwrapped(model)
        bottom = frozen_inputs(run, model, switches) if is_hf_model(model) else None
        for setting in reentrant_settings(run, model) if bottom is not None else ():
            if bottom is not None and not setting.place.excludes(bottom.place):
                yield Report(
                    setting.node,
                    "before transformers 5.0, no input of a reentrant checkpoint needs a gradient behind frozen "
                    "embeddings, so no layer gets one; call `model.enable_input_require_grads()`, or write "
                    '`"use_reentrant": False`',
                    notes=(Remark(bottom.node, "the embeddings are frozen here"),),
                    versions=f"transformers{_WITHOUT_INPUT_GRADS}",
                )


def _adapters_on_tokens(run: Run) -> Iterator[Report]:
    """Adapters of text models before transformers 5, which makes what the embeddings give require gradients itself."""
    for adapter in run.of(AdapterAttach):
        model = unwrapped(adapter.model)
        if not is_hf_model(model) or _trains_embeddings(adapter) or _begins_with_data(model):
            continue
        quantized = _is_surely_quantized(run, adapter)
        for setting in (*_reentrant_later(run, adapter), *(_reentrant_before(run, adapter) if quantized else ())):
            yield Report(
                setting.node,
                "before transformers 5.0, no input of a reentrant checkpoint needs a gradient behind frozen "
                "embeddings, so the backward pass fails or the adapter gets none; call "
                '`model.enable_input_require_grads()`, or write `"use_reentrant": False`',
                notes=(Remark(adapter.node, "the adapter freezes the embeddings here"),),
                versions=f"transformers{_WITHOUT_INPUT_GRADS}",
            )


def _trains_embeddings(adapter: AdapterAttach) -> bool:
    """Whether the adapter may leave something trained in front of the layers, or is not known."""
    for config in options(adapter.config):
        if not isinstance(config, Result) or not config.call.name.endswith("LoraConfig") or config.call.open_kwargs:
            return True
        if not isinstance(config.call.keyword("modules_to_save"), Absent):
            return True
        if "emb" in source_text(config.call.node) or not isinstance(
            config.call.keyword("trainable_token_indices"), Absent
        ):
            return True
    return False


def _reentrant_later(run: Run, adapter: AdapterAttach) -> Iterator[HfEnable | TrainerArgs]:
    """What switches the reentrant variant on for a model that has the adapter already."""
    attached = Result(adapter.call)
    enables = [enable for enable in run.of(HfEnable) if same(unwrapped(_whole(enable.model)), unwrapped(adapter.model))]
    for enable in enables:
        after = enable.order > adapter.order and enable.place.walk == adapter.place.walk
        if enable_reentrant(run, enable) and after and same(_whole(enable.model), attached):
            yield enable
    for _, args, value in trainers_of(run, attached):
        if not enables and is_enabled(run, args, value) and trainer_reentrant(run, args):
            yield args


def _reentrant_before(run: Run, adapter: AdapterAttach) -> Iterator[HfEnable]:
    """What switches the reentrant variant on before the adapter comes; for a quantized model peft adds no hook then."""
    model = unwrapped(adapter.model)
    enables = [enable for enable in run.of(HfEnable) if same(unwrapped(_whole(enable.model)), model)]
    if any(run.of(HfDisable)) or not all(enable_reentrant(run, enable) for enable in enables):
        return
    for enable in enables:
        before = enable.order < adapter.order and enable.place.walk == adapter.place.walk
        apart = enable.place.excludes(adapter.place)
        if before and not apart and same(unwrapped(enable.model), model) and overriding_trainer(run, enable) is None:
            yield enable


def _is_surely_quantized(run: Run, adapter: AdapterAttach) -> bool:
    """Whether the call that loads the model of ``adapter`` quantizes it, whatever the program is given."""
    model = unwrapped(adapter.model)
    if not isinstance(model, Result) or not model.call.name.endswith(".from_pretrained"):
        return False
    configs = options(model.call.keyword("quantization_config"))
    shown = all(isinstance(config, Absent | Dict | Result) for config in configs)
    return shown and is_quantized(run, model, adapter.place) is True


def _whole(model: Value) -> Value:
    """The model with its adapter, for a part of it that is the model without: `model.base_model.model`."""
    model = same_object(model)
    while True:
        match model:
            case Attr(base=held, name="base_model" | "model"):
                model = same_object(held)
            case Result(call) if call.method == "get_base_model":
                model = same_object(call.receiver)
            case _:
                return model
