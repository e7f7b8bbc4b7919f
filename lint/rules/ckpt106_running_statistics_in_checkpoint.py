"""BatchNorm and other running statistics inside a checkpointed region.

## What it does
Flags a checkpointed function or module in which this file shows a `BatchNorm*`, `SyncBatchNorm` or tracking
`InstanceNorm*` layer that updates running statistics; a call of `torch.nn.functional.batch_norm` that updates two
buffers of its module; a model of torchvision or timm, or a part of one, that has such a layer; a norm or a
`ConvModule` that mmcv builds from a configuration (`norm_cfg=dict(type="BN")`); a model of timm whose
`set_grad_checkpointing` checkpoints such layers; blocks that the `FSDPStrategy` of Lightning or Fabric checkpoints; a
densenet of torchvision that is `memory_efficient`, which is a checkpoint of its own; and a model of transformers
whose checkpointed layers have one, as Wav2Vec2's and SeamlessM4T's conformers do. Layers with
`track_running_stats=False`, with `momentum=None` (a plain average, which counts every batch twice and stays right) or
`momentum=0.0`, that the region builds anew each time, or that may be frozen (`.eval()` on them, on a module around
them or in a loop over `modules()`, another layer in their place) are fine, and so is a momentum that is computed and
a checkpoint that runs outside training only.

## Why is this bad?
The layer runs twice a step, in the forward pass and in the recomputation, and updates its statistics both times: the
effective momentum is 0.19 instead of 0.1. Gradients are exact, but the evaluated model differs from one trained
without checkpointing.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([Stage() for _ in range(4)])

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))

def forward(x):
    return checkpoint_sequential(net, 2, x, use_reentrant=False)  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        resnet = models.resnet50(weights="DEFAULT")
        self.stem = nn.Sequential(resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool)
        self.stages = nn.ModuleList([resnet.layer1, resnet.layer2])
        self.densenet = models.densenet121(memory_efficient=True)  # error

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

class Recognizer(nn.Module):
    def __init__(self, depth):
        super().__init__()
        if depth == 18:
            self.cnn = models.resnet18()
        elif depth == 50:
            self.cnn = models.resnet50()
        else:
            raise ValueError(depth)

    def forward(self, x):
        x = checkpoint(nn.Sequential(*self.cnn.layer3[1:]), x, use_reentrant=False)  # error
        return checkpoint(self.cnn.layer4, x, use_reentrant=False)  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = models.resnet18()

    def forward(self, x):
        for block in self.cnn.layer2:
            x = checkpoint(block, x, use_reentrant=False)  # error
        x = checkpoint(self.cnn.layer3[0], x, use_reentrant=False)  # error
        return checkpoint(nn.Sequential(*self.cnn.layer3[1:]), x, use_reentrant=False)  # error
```
```python
from transformers import Trainer, TrainingArguments, Wav2Vec2ConformerForCTC

model = Wav2Vec2ConformerForCTC.from_pretrained("facebook/wav2vec2-conformer-rel-pos-large")
args = TrainingArguments("out", gradient_checkpointing=True)  # error
trainer = Trainer(model=model, args=args)
```

```python
import timm
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        resnet = models.resnet50(weights="DEFAULT")
        self.features = nn.Sequential(*list(resnet.children())[:-2])
        self.backbone = timm.create_model("tf_efficientnet_b0.ns_jft_in1k", num_classes=0)

    def forward(self, x, y):
        x = checkpoint(self.features, x, use_reentrant=False)  # error
        return x, checkpoint(self.backbone, y, use_reentrant=False)  # error

model = timm.create_model("resnet50", pretrained=True)
model.set_grad_checkpointing()  # error
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class ConvNorm(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU())

class Inverted(nn.Module):
    def __init__(self, width, stride, with_cp=False):
        super().__init__()
        self.with_cp, self.use_res = with_cp, stride == 1
        self.conv = nn.Sequential(ConvNorm(width), nn.Conv2d(width, width, 3, stride, 1))

    def forward(self, x):
        def inner(x):
            return x + self.conv(x) if self.use_res else self.conv(x)

        return checkpoint(inner, x, use_reentrant=False) if self.with_cp else inner(x)  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Residual(nn.Module):
    def __init__(self, width, frozen):
        super().__init__()
        self.frozen, self.norm = frozen, nn.BatchNorm2d(width)
        self.conv = nn.Sequential(nn.Conv2d(width, width, 1), nn.ReLU())

    def forward(self, x):
        def inner(x):
            return self.conv(x) if self.frozen else self.conv(self.norm(x))

        return checkpoint(inner, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

class Recognizer(nn.Module):
    def __init__(self, pretrained):
        super().__init__()
        self.cnn = models.resnet50() if pretrained else nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return checkpoint(self.cnn, x, use_reentrant=False)
```
```python
import timm
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

class Trunk(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.frozen, self.other = models.resnet18(), models.resnet18(norm_layer=nn.InstanceNorm2d)
        self.frozen.layer1.eval()
        for block in self.frozen.layer2:
            block.eval()
        self.small = timm.create_model("resnet10t")
        self.chosen = models.resnet50() if kind == "resnet" else models.vit_b_16()
        self.changed = models.resnet18()
        self.changed.layer3[0] = nn.Conv2d(128, 256, 3)
        self.changed.layer4.add_module("pool", nn.MaxPool2d(2))

    def forward(self, x):
        x = checkpoint(nn.Sequential(*self.frozen.layer1[1:]), x, use_reentrant=False)
        x = checkpoint(self.frozen.layer2[0], x, use_reentrant=False)
        x = checkpoint(self.other.layer1[0], x, use_reentrant=False)
        x = checkpoint(self.small.layer1[1:], x, use_reentrant=False)
        x = checkpoint(nn.Sequential(*self.chosen.layer1[1:]), x, use_reentrant=False)
        x = checkpoint(self.changed.layer3[0], x, use_reentrant=False)
        return checkpoint(self.changed.layer4[2:], x, use_reentrant=False)
```
```python
import timm

timm.create_model("vit_base_patch16_224").set_grad_checkpointing()
timm.create_model("resnet50_gn").set_grad_checkpointing()
timm.create_model("resnet50").set_grad_checkpointing(False)
frozen = timm.create_model("resnet50")
frozen.set_grad_checkpointing()
frozen.eval()
undone = timm.create_model("resnet50")
undone.set_grad_checkpointing()
undone.set_grad_checkpointing(False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, dim, norm="ln"):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(dim, dim), nn.BatchNorm1d(dim, momentum=0.0))
        if norm == "bn":  # with `--notes`, a note: "if `norm` is "bn""
            self.norm = nn.BatchNorm1d(dim)
        else:
            self.norm = lambda x: nn.BatchNorm1d(dim)(x)

    def forward(self, x):
        return self.fc(self.norm(x))

class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.block = Block(8, norm)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.norm = nn.GroupNorm(2, 8)
        self.plain = nn.BatchNorm2d(8, track_running_stats=False)
        self.twice = nn.BatchNorm2d(8, momentum=1 - (1 - 0.1) ** 0.5)

    def forward(self, x):
        return self.twice(self.plain(self.norm(self.conv(x)))).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(checkpoint(self.stage, x, use_reentrant=False))
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.eval()
        return self

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        self.stage.eval()

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def set_eval(module):
    if "BatchNorm" in type(module).__name__:
        module.eval()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)

net = Net().train()
net.apply(set_eval)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision.ops import FrozenBatchNorm2d

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.stage.norm = FrozenBatchNorm2d(8)

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def forward(self, x):
        if not self.training:
            return checkpoint(self.stage, x, use_reentrant=False)
        return self.stage(x)
```
```python
import torch.nn as nn
import torch.utils.checkpoint as cp

class Prior(nn.Module):
    def __init__(self, channels, dim, with_cp=True):
        super().__init__()
        self.with_cp = with_cp
        self.stem = nn.Sequential(nn.Conv2d(channels, dim, 3), nn.BatchNorm2d(dim), nn.ReLU())

    def forward(self, x):
        if self.with_cp and x.requires_grad:
            return cp.checkpoint(self.stem, x, use_reentrant=False)
        return self.stem(x)

class Colours(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dim, 3), nn.BatchNorm2d(dim), nn.ReLU())
        self.out = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        def run(x):
            return self.out(self.stem(x))

        return cp.checkpoint(run, x, use_reentrant=False) if x.requires_grad else run(x)

class Adapter(nn.Module):
    def __init__(self, channels, dim):
        super().__init__()
        self.prior = Prior(channels, dim)

    def forward(self, x):
        return self.prior(x.squeeze(2))  # the pictures, which need no gradient
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision import models
from torchvision.ops import Conv2dNormActivation
from transformers import Wav2Vec2ConformerForCTC, Wav2Vec2ForCTC

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        resnet, vgg = models.resnet50(norm_layer=nn.InstanceNorm2d), models.vgg16()
        frozen = models.resnet18().eval()
        self.stages = nn.ModuleList([resnet.layer1, resnet.relu, vgg.features])
        self.frozen = frozen.layer1
        self.conv = Conv2dNormActivation(8, 8, norm_layer=None)
        self.densenet = models.densenet121()
        self.resnet = models.resnet18()

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False)
        x = checkpoint(self.frozen, checkpoint(self.conv, x, use_reentrant=False), use_reentrant=False)
        return checkpoint(self.resnet.avgpool, x, use_reentrant=False)

Wav2Vec2ForCTC.from_pretrained("facebook/wav2vec2-base").gradient_checkpointing_enable({"use_reentrant": False})
conformer = Wav2Vec2ConformerForCTC.from_pretrained("facebook/wav2vec2-conformer-rel-pos-large")
conformer.gradient_checkpointing_disable()
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def statistics(reentrant, momentum):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8, momentum=momentum), torch.nn.ReLU())
    x = (3 * torch.randn(16, 8) + 1).requires_grad_()
    y = block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)
    y.sum().backward()
    return block[1].running_mean, int(block[1].num_batches_tracked)

once, one = statistics(None, 0.1)
for reentrant in (True, False):
    twice, two = statistics(reentrant, 0.1)
    assert (one, two) == (1, 2)
    assert torch.allclose(twice, once * 1.9, rtol=1e-5)
    adapted, _ = statistics(reentrant, 1 - (1 - 0.1) ** 0.5)
    assert torch.allclose(adapted, once, rtol=1e-5)
    average, _ = statistics(reentrant, None)
    assert torch.allclose(average, statistics(None, None)[0])
```
```python
import torch
from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerModel

def updates(checkpointing):
    config = Wav2Vec2ConformerConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, conv_dim=(8,),
        conv_stride=(2,), conv_kernel=(3,), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, layerdrop=0.0,
        apply_spec_augment=False, conv_depthwise_kernel_size=3,
    )
    model = Wav2Vec2ConformerModel(config).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model(torch.randn(2, 64)).last_hidden_state.sum().backward()
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm1d)]
    return [int(norm.num_batches_tracked) for norm in norms]

assert updates(False) == [1, 1]
assert updates(True) == [2, 2]
```

## References
pytorch/pytorch#96136, #62471; fairscale `patch_batchnorm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import (
    Absent,
    Attr,
    Const,
    Dict,
    Element,
    Result,
    Seq,
    Value,
    equals,
    options,
    same,
    truth,
)
from ..finding import Severity
from ..model.conditions.every_choice import holds_in_every_choice
from ..model.conditions.guards import excludes_mode
from ..model.events import (
    Checkpoint,
    Checkpointing,
    Compile,
    HfEnable,
    TimmEnable,
    TorchCheckpoint,
    TrainerBuild,
)
from ..model.events.extract import args_of
from ..model.frozen.freezing import may_be_frozen
from ..model.known_models.batch_norms import FAMILIES
from ..model.known_models.held_norms import (
    built_with_batch_norm,
    configured_with_batch_norm,
    layer_with_batch_norm,
    may_skip_norm,
)
from ..model.known_models.timm_models import timm_name
from ..model.libraries.trainer import is_enabled, overriding_trainer, switched_at
from ..model.needs import together
from ..model.regions.derived_norms import derived_norms
from ..model.regions.functional_norms import functional_norms
from ..model.report import Remark, Report
from ..model.state.modes import trained_in_eval
from ..model.tensors.gradient_free import is_gradient_free
from ..model.types import may_be_same_model, unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.regions.region import Region
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT106", "running-statistics-in-checkpoint", Severity.WARNING
NEEDS = (
    *together(("BatchNorm", "batch_norm", "InstanceNorm", "torchvision", "timm", "mmcv"), Checkpointing),
    *together(FAMILIES, (HfEnable, ("TrainingArguments", "checkpointing"))),
    ("densenet", "memory_efficient"),
    TimmEnable,
)

_BATCH_NORMS = (
    *(f"torch.nn.{lazy}BatchNorm{size}d" for lazy in ("", "Lazy") for size in (1, 2, 3)),
    "torch.nn.SyncBatchNorm",
)
_INSTANCE_NORMS = tuple(f"torch.nn.{lazy}InstanceNorm{size}d" for lazy in ("", "Lazy") for size in (1, 2, 3))


def check(run: Run) -> Iterator[Report]:
    """Report regions that hold a layer which updates its statistics on every run."""
    if any(run.of(Compile)):
        return  # A compiled region updates them once.
    yield from _in_regions(run)
    yield from _in_layers_of_transformers(run)
    yield from _in_models_of_timm(run)
    yield from _in_densenets(run)


def _in_regions(run: Run) -> Iterator[Report]:
    for event, region in run.regions():
        if isinstance(event, TorchCheckpoint) and not isinstance(event.call.keyword("context_fn"), Absent):
            continue
        if _is_outside_training(run, event) or _may_see_no_tensor(event):
            continue
        found = list(_found(run, event, region))
        if holds_in_every_choice(event, [remark.conditions for _, remark in found]):
            norm, remark = found[0]
            yield _report(event.node, norm, remark._replace(conditions=(), decides=False))
            continue
        for norm, remark in found:
            yield _report(event.node, norm, remark)


def _found(run: Run, event: Checkpointing, region: Region) -> Iterator[tuple[str, Remark]]:
    """What in the region updates its statistics, and where it is made and under which conditions."""
    for norm in region.modules_of(*_BATCH_NORMS, *_INSTANCE_NORMS):
        if _updates(run, norm) and not region.makes(norm):
            kind = _last(norm)
            under = region.conditions_of(norm)
            remark = Remark(norm.call.node, f"the `{kind}` that runs twice", under, called=norm.call.name)
            yield f"`{kind}` in this region", remark
    for own in derived_norms(region, *_BATCH_NORMS):
        if own.call is not None and not run.may_keep_statistics(own):
            remark = Remark(own.call.node, f"the `{own.cls.name}` that runs twice", region.conditions_of(own))
            yield f"`{own.cls.name}`, a BatchNorm, in this region", remark
    for call, owner in functional_norms(run, region):
        if not run.may_keep_statistics(owner):
            remark = Remark(call.node, f"`{owner.cls.name}` computes it", region.conditions_of(call))
            yield "`batch_norm` in this region", remark
    for part in region.modules:
        built = built_with_batch_norm(part)
        if built is not None and not _may_keep(run, part, built) and not region.makes(built):
            yield (
                "a BatchNorm in this region",
                Remark(built.call.node, f"`{_last(built)}` has it", region.conditions_of(part)),
            )
        for block, under in configured_with_batch_norm(part):
            if _may_keep(run, part, block) or region.makes(block):
                continue
            if not may_skip_norm(event, region.calls):
                remark = Remark(block.call.node, f"`{_last(block)}` has it", (*region.conditions_of(part), *under))
                yield "a BatchNorm in this region", remark


def _in_layers_of_transformers(run: Run) -> Iterator[Report]:
    for node, model in _checkpointed_models(run):
        layer, loaded = layer_with_batch_norm(model), unwrapped(model)
        if layer is not None and not run.may_keep_statistics(loaded):
            remark = Remark(loaded.node or node, f"`{layer}` has it")
            yield _report(node, f"the BatchNorm in every `{layer}`", remark)


def _in_models_of_timm(run: Run) -> Iterator[Report]:
    for enable in run.of(TimmEnable):
        built = built_with_batch_norm(enable.model)
        if built is None or not timm_name(built) or not _stays_on(run, enable, built):
            continue
        if not run.may_keep_statistics(built) and not may_be_frozen(run, built) and _is_trained(run, built):
            remark = Remark(built.call.node, f"`{timm_name(built)}` has it")
            yield _report(enable.node, "the BatchNorm in the blocks of this model", remark)


def _stays_on(run: Run, enable: TimmEnable, model: Value) -> bool:
    """Whether ``enable`` is what the program says last about the checkpointing of ``model``."""
    later = (other for other in run.of(TimmEnable) if other.order > enable.order and not other.is_on)
    return enable.is_on and not any(may_be_same_model(other.model, model) for other in later)


def _is_trained(run: Run, model: Value) -> bool:
    """Whether the program runs ``model`` with gradients; what it does not run here is trained somewhere else."""
    forwards = [call for call in run.program.calls if may_be_same_model(call.func, model)]
    return not forwards or not all(map(is_gradient_free, forwards))


def _checkpointed_models(run: Run) -> Iterator[tuple[ast.AST, Value]]:
    """The models that transformers certainly checkpoints in training, with what makes it do so."""
    for enable in run.of(HfEnable):
        if overriding_trainer(run, enable) is None and trained_in_eval(run, enable) is None:
            yield enable.node, enable.model
    for trainer in run.of(TrainerBuild):
        for value in options(trainer.args):
            args = args_of(value)
            if args is not None and is_enabled(run, args, value):
                yield switched_at(args), trainer.model


def _in_densenets(run: Run) -> Iterator[Report]:
    """Those of torchvision checkpoint a part of each layer themselves when they are to be memory efficient."""
    for call in run.program.calls:
        built = Result(call)
        is_densenet = _last(built).startswith("densenet") and built_with_batch_norm(built) is not None
        if is_densenet and truth(call.keyword("memory_efficient")) and not run.may_keep_statistics(built):
            yield Report(
                call.node,
                "`memory_efficient` checkpoints the first BatchNorm of every layer, which then updates its running "
                "statistics twice a step; leave it off, or give these layers `momentum=1 - (1 - momentum) ** 0.5`",
            )


def _last(module: Result) -> str:
    return module.call.name.rpartition(".")[2]


def _may_keep(run: Run, part: Value, whole: Result) -> bool:
    """Whether ``part``, or something that it is a part of up to the ``whole``, may keep its statistics."""
    owners, entered = list(_owners(part)), unwrapped(part)
    changed = _changes_blocks(run, owners) if isinstance(entered, Element) else _gets_other_blocks(run, entered)
    return changed or any(run.may_keep_statistics(module) for module in (*owners, whole))


def _owners(part: Value) -> Iterator[Value]:
    """``part`` and what it is a part of: a block, the layer of it, the model."""
    yield part
    match unwrapped(part):
        case Element(of=outer) | Attr(base=outer) as inner:
            if inner is not part:
                yield inner
            yield from _owners(outer)


def _gets_other_blocks(run: Run, layer: Value) -> bool:
    """Whether blocks of ``layer`` are replaced: `layer[i] = Block(layer[i])`."""
    return any(same(option, layer) for store in run.program.stores for option in options(store.obj))


def _changes_blocks(run: Run, owners: list[Value]) -> bool:
    """Whether a block, or a norm of one, may be replaced in one of ``owners``: `model.layer3[0] = Block()`."""
    norms = (write.obj for write in run.writes if any(word in write.field for word in ("bn", "norm", "downsample")))
    changed = [*(store.obj for store in run.program.stores), *(outer for obj in norms for outer in _owners(obj))]
    return any(same(outer, owner) for outer in changed for owner in owners)


def _report(node: ast.AST, norm: str, remark: Remark) -> Report:
    return Report(
        node,
        f"{norm} updates its running statistics twice a step, in the forward pass and in the recomputation; keep it "
        "outside, or use `momentum=1 - (1 - momentum) ** 0.5`",
        notes=(remark,),
    )


def _is_outside_training(run: Run, event: Checkpointing) -> bool:
    """Whether the checkpoint runs in eval mode or without gradients only."""
    never = any(excludes_mode(guard, training=True) for guard in event.place.guards)
    return never or run.stays_in_eval(event) or (isinstance(event, TorchCheckpoint) and is_gradient_free(event.call))


def _may_see_no_tensor(event: Checkpointing) -> bool:
    """Whether a reentrant checkpoint may get its tensors in lists, which it does not see: then nothing runs again."""
    if not isinstance(event, Checkpoint) or not event.reentrant or not event.inputs:
        return False
    return all(any(isinstance(option, Seq | Dict) for option in options(value)) for value in event.inputs)


def _updates(run: Run, norm: Result) -> bool:
    call = norm.call
    tracks, momentum = call.argument(4, "track_running_stats"), call.argument(2, "momentum")
    is_batch_norm = "BatchNorm" in call.name
    tracking = (isinstance(tracks, Absent) and is_batch_norm) or equals(tracks, True)
    fixed = isinstance(momentum, Absent) or (isinstance(momentum, Const) and bool(momentum.value))
    return bool(tracking) and fixed and not run.may_keep_statistics(norm)
