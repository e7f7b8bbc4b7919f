"""Enabling checkpointing in a way that raises.

## What it does
Flags calls that fail as soon as they run: `gradient_checkpointing_enable(True)` and
`gradient_checkpointing_enable(use_reentrant=...)` on a transformers model, the name of another library on one
(diffusers' `enable_gradient_checkpointing`, timm's `set_grad_checkpointing`, the old `set_gradient_checkpointing`), or
on a model of diffusers, timm or torchvision, `_set_gradient_checkpointing` with the arguments that it took before
transformers 4.35, any of them on a `DistributedDataParallel` or `DataParallel` object, and a Trainer that is to
checkpoint a module of this file that is no transformers model. Models of transformers whose class supports no
checkpointing (`MPNetModel`, `ConvNextV2ForImageClassification`, an `AutoModel` of `albert-base-v2`) are reported where
they or their Trainer are to checkpoint. Also calls of torch's functions that do not fit their parameters
(`checkpoint_wrapper(block, use_reentrant=...)`) or those of the function that is checkpointed (`checkpoint(block, x,
use_reentrant=False, dropout=0.1)`, `checkpoint(self._forward, (x, mask), self.parameters(), True)`), calls without an
input whose result takes the place of what they checkpoint, which run that instead of wrapping it (`self.conv =
checkpoint(self.conv)`, `layer.forward = checkpoint(layer.forward)`), or calls of the module
(`torch.utils.checkpoint(block)`), and `from_pretrained(gradient_checkpointing=True)` for a model. Keywords about
checkpointing that the arguments of transformers and trl do not have: `TrainingArguments("out", use_reentrant=False)`. A
method that the program asks for first, by `hasattr` or `getattr` with a default, is fine. For Megatron-SWIFT:
`recompute_granularity` of `full` without `recompute_method` and `recompute_num_layers`, or one of these two beside
`selective`, its default.

## Why is this bad?
The method takes one dict of arguments for torch's checkpoint, `TypeError` otherwise; the other names belong to other
libraries, `AttributeError`. `DistributedDataParallel` hands on no methods of the model it wraps, and the Trainer calls
the method of the model it gets.

## Bad
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable(True)  # error
model.gradient_checkpointing_enable(use_reentrant=False)  # error
model.enable_gradient_checkpointing()  # error
model.set_grad_checkpointing()  # error
```
```python
import timm
from diffusers import UNet2DConditionModel

unet = UNet2DConditionModel.from_pretrained("base", subfolder="unet")
unet.gradient_checkpointing_enable()  # error
timm.create_model("vit_base_patch16_224").gradient_checkpointing_enable()  # error
```
```python
from torch.nn.parallel import DataParallel, DistributedDataParallel
from transformers import AutoModelForCausalLM

def build(name, rank):
    parallel = DataParallel(AutoModelForCausalLM.from_pretrained(name))
    parallel.activation_checkpointing_enable()  # error
    model = DistributedDataParallel(AutoModelForCausalLM.from_pretrained(name), device_ids=[rank])
    model.gradient_checkpointing_enable()  # error
    return model
```
```python
import torch.nn as nn
from transformers import Trainer, TrainingArguments

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, labels):
        return {"loss": self.linear(x).sum()}

args = TrainingArguments("out", gradient_checkpointing=True)
Trainer(model=Classifier(), args=args).train()  # error
```
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def build(name, block, check):
    model = AutoModelForCausalLM.from_pretrained(name, gradient_checkpointing=True)  # error
    options = {"num_labels": 5, "gradient_checkpointing": True}
    model = AutoModelForSequenceClassification.from_pretrained(name, **options)  # error
    wrapper = partial(checkpoint_wrapper, use_reentrant=False)  # error
    apply_activation_checkpointing(model, check_fn=check, wrapper=wrapper)  # error
    wrapped = checkpoint_wrapper(block, use_reentrant=False)  # error
    return model, wrapped, offload_wrapper()  # error
```
```python
import torch

def wrap(model):
    for name, block in model.named_children():
        setattr(model, name, torch.utils.checkpoint.checkpoint_wrapper(block))  # error
```

```python
import torch
import torch.nn as nn

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

    def use_checkpointing(self):
        self.inc = torch.utils.checkpoint(self.inc)  # error
```
```python
import torch.nn as nn
import torch.utils.checkpoint as cp
from parts import DoubleConv

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = DoubleConv(3, 8), DoubleConv(8, 8)

    def forward(self, x):
        return self.down(self.inc(x))

    def use_checkpointing(self):
        self.inc = cp.checkpoint(self.inc)  # error: CKPT101, CKPT308
        self.down = cp.checkpoint(self.down, use_reentrant=False)  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 2)

    def forward(self, x, mask):
        x = checkpoint(self.body(x), use_reentrant=False)  # error
        x = checkpoint(self.body, x, mask, use_reentrant=False)  # error
        return self.head(checkpoint(self.body, x, use_reentrant=False))
```
```python
from torch.utils.checkpoint import checkpoint

def enable(model, head):
    for layer in model.layers:
        layer.forward = checkpoint(layer.forward, use_reentrant=False)  # error
    for name, module in model.named_children():
        try:
            setattr(model, name, checkpoint(module, use_reentrant=False))  # error
        except Exception as error:
            print(f"{name} is not checkpointed: {error}")
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x, mask, *, scale=1.0):
        return x * mask * scale

block = Block()

def forward(x, mask):
    x = checkpoint(block, x, mask, use_reentrant=False, dropout=0.1)  # error
    x = checkpoint(block, x, use_reentrant=False)  # error
    x = checkpoint(block, x, mask, 0.5, use_reentrant=False)  # error
    return checkpoint(block, x, mask, scale=0.5, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x, context=None):
        # These are the arguments of guided-diffusion's function of this name.
        return checkpoint(self._forward, (x, context), self.parameters(), self.flag)  # error: CKPT101, CKPT308

    def _forward(self, x, context=None):
        return x if context is None else x + context

class Reentrant(nn.Module):
    def forward(self, x, mask):
        return checkpoint(self.inner, x, use_reentrant=True)  # error

    def inner(self, x, mask):
        return x * mask
```
```python
from functools import partial
from transformers import AutoModel

def enable(name):
    model = AutoModel.from_pretrained(name)
    model._set_gradient_checkpointing(model.encoder, True)  # error
    model._set_gradient_checkpointing(model.encoder, value=True)  # error
    model.apply(partial(model._set_gradient_checkpointing, value=True))  # error
```

```yaml
# megatron sft this.yaml
model: Qwen/Qwen3-8B
dataset: AI-ModelScope/alpaca-gpt4-data-en
recompute_granularity: full  # error
recompute_num_layers: 1
```

```python
from transformers import AutoModel, ConvNextV2ForImageClassification, Trainer, TrainingArguments

encoder = AutoModel.from_pretrained("microsoft/mpnet-base")
encoder.gradient_checkpointing_enable()  # error
TrainingArguments("out", gradient_checkpointing=True, use_reentrant=False)  # error
TrainingArguments("out", use_gradient_checkpointing=True)  # error

def train(name):
    model = ConvNextV2ForImageClassification.from_pretrained(name)
    args = TrainingArguments("out", gradient_checkpointing=True)  # error
    Trainer(model=model, args=args).train()
```

## Good
```python
from functools import partial
from torch.utils.checkpoint import checkpoint

def enable(model):
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    model.scale = checkpoint(lambda: model.log_scale.exp(), use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Table(nn.Module):
    def __init__(self, make, project):
        super().__init__()
        self.make, self.project, self.rows = make, project, None

    def forward(self, x):
        self.rows = checkpoint(self.make, use_reentrant=False)
        self.project = checkpoint(self.project, x, use_reentrant=False)
        return self.project(x) + self.make() + self.rows

class Base(nn.Module):
    def forward(self, x, mask):
        return checkpoint(self.inner, x, mask, use_reentrant=False)

    def inner(self, x):
        return x

class Derived(Base):
    def inner(self, x, mask):
        return x * mask

class Abstract(nn.Module):
    def forward(self, x, mask):
        return checkpoint(self.inner, x, mask, use_reentrant=False)

    def inner(self, x):
        pass

class Asks(nn.Module):
    def forward(self, x, mask):
        if len(self.parts(x)) > 1:
            return checkpoint(self.inner, x, mask, use_reentrant=False)
        return checkpoint(self.inner, x, use_reentrant=False)

    def inner(self, x):
        return x.relu()

class Replaced(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.given = inner

    def forward(self, x, mask):
        return checkpoint(self.given, x, mask, use_reentrant=False)

    def given(self, x):
        return x.relu()
```
```python
from transformers import AutoModel, ConvNextV2Model, Trainer, TrainingArguments

AutoModel.from_pretrained("bert-base-uncased").gradient_checkpointing_enable()
AutoModel.from_pretrained("microsoft/mpnet-base", trust_remote_code=True).gradient_checkpointing_enable()
AutoModel.from_pretrained("bert-base-uncased")._set_gradient_checkpointing(True)
settings = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
TrainingArguments("out", **settings)

class Arguments(TrainingArguments):
    use_gradient_checkpointing: bool = False

Arguments("out", use_gradient_checkpointing=True)

def train(name, flag):
    AutoModel.from_pretrained(name).gradient_checkpointing_enable()
    model = ConvNextV2Model.from_pretrained(name)
    Trainer(model, TrainingArguments("out", gradient_checkpointing=flag)).train()
    try:
        model.gradient_checkpointing_enable()
    except ValueError:
        print("no checkpointing")
```
```yaml
model: Qwen/Qwen3-8B
dataset: AI-ModelScope/alpaca-gpt4-data-en
recompute_granularity: full
recompute_method: uniform
recompute_num_layers: 1
```
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import AutoConfig, AutoModelForCausalLM

def build(name, block, check, settings):
    config = AutoConfig.from_pretrained(name, gradient_checkpointing=True)
    options = {"num_labels": 5, "gradient_checkpointing": True}
    options.pop("gradient_checkpointing")
    model = AutoModelForCausalLM.from_pretrained(name, config=config, **options, **settings)
    model = AutoModelForCausalLM.from_pretrained(name, config=config, **settings)
    wrapper = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False)
    apply_activation_checkpointing(model, wrapper, check)
    other = partial(checkpoint_wrapper, checkpoint_fn=check.run, use_reentrant=False)
    apply_activation_checkpointing(model, other, check)
    block = checkpoint_wrapper(block, checkpoint_fn=check.run, use_reentrant=False)
    apply_activation_checkpointing(model, **settings)
    return model, checkpoint_wrapper(block, **settings), checkpoint_wrapper(*block)
```
```python
import torch.nn as nn
from diffusers import UNet2DConditionModel
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments

def enable(name, rank, options):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    model.gradient_checkpointing_enable(options)
    model.gradient_checkpointing_enable(None)
    wrapped = DistributedDataParallel(model, device_ids=[rank])
    wrapped.module.gradient_checkpointing_enable()
    return wrapped

def asks_first(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    if hasattr(model, "enable_gradient_checkpointing"):
        model.enable_gradient_checkpointing()
    switch = getattr(model, "set_gradient_checkpointing", None)
    if switch is not None:
        switch()
    wrapped = DistributedDataParallel(model)
    if hasattr(wrapped, "gradient_checkpointing_enable"):
        wrapped.gradient_checkpointing_enable()

def tells_apart(name):
    wrapped = DistributedDataParallel(AutoModelForCausalLM.from_pretrained(name))
    if isinstance(wrapped, DistributedDataParallel):
        wrapped.module.gradient_checkpointing_enable()
    else:
        wrapped.gradient_checkpointing_enable()

def of_other_libraries(name, encoder):
    UNet2DConditionModel.from_pretrained(name).enable_gradient_checkpointing()
    encoder.set_gradient_checkpointing(True)
    encoder.gradient_checkpointing_enable(use_reentrant=False)

class Delegates(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(name)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
        self.encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs)

class Plain(nn.Module):
    pass

class Own(PreTrainedModel):
    pass

def train(name, config):
    args = TrainingArguments("out", gradient_checkpointing=True)
    Trainer(Delegates(name), args).train()
    Trainer(Own(config), args).train()
    Trainer(Plain(), TrainingArguments("out")).train()
```

## Fix safety
Unsafe: the call does what it says instead of raising.

## Evidence
```python
import os
import tempfile
from functools import partial

os.environ["ACCELERATE_USE_CPU"] = "true"
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import (
    LlamaConfig, LlamaForCausalLM, MPNetConfig, MPNetForMaskedLM, Trainer, TrainingArguments,
)

def raises(action):
    try:
        action()
    except Exception as error:
        return type(error)
    return None

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)
model = LlamaForCausalLM(config)
for flag in (True, False):
    assert raises(lambda: model.gradient_checkpointing_enable(flag)) is TypeError
assert raises(lambda: model.gradient_checkpointing_enable(use_reentrant=False)) is TypeError
assert raises(lambda: model.enable_gradient_checkpointing()) is AttributeError
assert raises(lambda: model.set_gradient_checkpointing()) is AttributeError
assert raises(lambda: model.gradient_checkpointing_enable(None)) is None
assert raises(lambda: model.gradient_checkpointing_enable({"use_reentrant": False})) is None

assert raises(lambda: torch.utils.checkpoint.checkpoint_wrapper(model)) is AttributeError

def block(x, mask, *, scale=1.0):
    return x * mask * scale

x, checkpoint = torch.ones(2, requires_grad=True), torch.utils.checkpoint.checkpoint
assert raises(lambda: checkpoint(block, x, x, use_reentrant=False, dropout=0.1)) is TypeError
assert raises(lambda: checkpoint(block, x, use_reentrant=False)) is TypeError
assert raises(lambda: checkpoint(block, x, x, 0.5, use_reentrant=False)) is TypeError
assert raises(lambda: checkpoint(block, x, x, scale=0.5, use_reentrant=False)) is None
assert raises(lambda: checkpoint(block, x, x, 0.5, use_reentrant=True)) is TypeError
for variant in (True, False):
    assert raises(lambda: checkpoint(torch.nn.Conv2d(3, 8, 3), use_reentrant=variant)) is TypeError

class UNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.free = torch.nn.Linear(2, 2), torch.nn.Identity()
        self.free.forward = lambda x=torch.ones(2): x

    def use_checkpointing(self):
        self.inc = checkpoint(self.inc, use_reentrant=False)

    def without_input(self):
        self.free = checkpoint(self.free, use_reentrant=False)

assert raises(UNet().use_checkpointing) is TypeError
assert raises(UNet().without_input) is TypeError

for old in (
    lambda: model._set_gradient_checkpointing(model.model, value=True),
    lambda: model.apply(partial(model._set_gradient_checkpointing, value=True)),
):
    assert raises(old) is TypeError
ids = torch.ones(1, 3, dtype=torch.long)
model._set_gradient_checkpointing(True, True)
assert raises(lambda: model.train()(ids)) is TypeError
model._set_gradient_checkpointing(True)
assert raises(lambda: model.train()(ids)) is None
model._set_gradient_checkpointing(False)

small = MPNetConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
)
assert raises(lambda: MPNetForMaskedLM(small).gradient_checkpointing_enable()) is ValueError

folder = tempfile.mkdtemp()
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
wrapped = DistributedDataParallel(model)
assert raises(lambda: wrapped.gradient_checkpointing_enable()) is AttributeError
assert raises(lambda: wrapped.module.gradient_checkpointing_enable()) is None
dist.destroy_process_group()

args = TrainingArguments(folder, gradient_checkpointing=True, use_cpu=True, report_to="none", max_steps=1)
data = [{"input": torch.ones(1)}] * 8
assert raises(lambda: Trainer(torch.nn.Linear(1, 1), args, train_dataset=data).train()) is AttributeError
assert raises(lambda: Trainer(MPNetForMaskedLM(small), args, train_dataset=data).train()) is ValueError
assert raises(lambda: TrainingArguments(folder, use_reentrant=False)) is TypeError
assert raises(lambda: TrainingArguments(folder, use_gradient_checkpointing=True)) is TypeError
```

## References
transformers 5.23 `modeling_utils.py` (`activation_checkpointing_enable`), `trainer.py`; megatron-core 0.15 and 0.16
`transformer_config.py` (`__post_init__`); ms-swift 3.5 to 4.6 `megatron_args.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.nodes import source_text
from ..facts.objects.classes import ancestors
from ..facts.values import Const, Instance, Ref, Result, equals, is_absent, is_given, options, same
from ..finding import Applicability, Severity
from ..model.calls.block_arguments import misfit_of_block
from ..model.calls.run_first import misfit_of_one_input, result_given_as_function
from ..model.calls.without_input import has_fallback, lacks_input, swallowed_by, written_block
from ..model.conditions.guards import is_tested
from ..model.events import (
    ApplyCheckpointing,
    Checkpoint,
    CheckpointWrap,
    HfEnable,
    TrainerArgs,
    TrainerBuild,
    names_wrapper,
)
from ..model.events.extract import MEGATRON_SWIFT, args_of
from ..model.flow.mentions import mentions
from ..model.known_models.checkpointing_support import names_not_checkpointed, not_checkpointed
from ..model.libraries.makers import library_of
from ..model.libraries.old_switch import old_switches
from ..model.libraries.signatures import SIGNATURES, misfit
from ..model.libraries.trainer import (
    KWARGS,
    NO_ARGUMENTS,
    SWITCHES,
    is_enabled,
    switched_at,
    takes_no_others,
    where,
)
from ..model.names import canonical
from ..model.needs import SWITCHED_ON, OneOf, given, together
from ..model.report import DropKeyword, Remark, RenameAttribute, Replace, Report, Rewrite
from ..model.types import is_hf_model
from ..model.wrapping.keywords import refused_keyword

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Class, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT308", "invalid-checkpointing-call", Severity.ERROR
_MAKERS = (".from_pretrained", ".from_config")
#: What a dict with the switch among its keys is written with; most files that name the switch read it as an attribute.
_KEYS = (
    *(f"{quote}gradient_checkpointing{quote}{end}" for quote in "\"'" for end in ":]"),
    "gradient_checkpointing=",
    "gradient_checkpointing: bool",
)
NEEDS = (
    HfEnable,
    "utils.checkpoint",
    "prepare_model_for_kbit_training",
    ".enable_gradient_checkpointing",
    ".set_gradient_checkpointing",
    ".set_grad_checkpointing",
    *together(TrainerBuild, ("Module", ("transformers", OneOf(names_not_checkpointed))), SWITCHED_ON),
    *(CheckpointWrap, "create_selective_checkpoint_contexts", ApplyCheckpointing),
    *together("transformers", "_set_gradient_checkpointing"),
    *together("transformers", tuple(given(maker, "checkpointing") for maker in _MAKERS)),
    *together("transformers", _MAKERS, "**", _KEYS),
    *(given(made, word) for made in ("TrainingArguments", "Config") for word in NO_ARGUMENTS),
    *together(TrainerArgs, "**", tuple(f"{word}=" for word in NO_ARGUMENTS)),
    *together("swift", "Arguments", ("recompute_granularity", "recompute_method", "recompute_num_layers")),
)
RAISES = True
_ENABLERS = ("gradient_checkpointing_enable", "activation_checkpointing_enable")
_OTHER_NAMES = ("enable_gradient_checkpointing", "set_gradient_checkpointing", "set_grad_checkpointing")
#: How models of other libraries are made to checkpoint; None for those that cannot.
_OF_LIBRARIES = {"timm": "set_grad_checkpointing", "diffusers": "enable_gradient_checkpointing", "torchvision": None}
_SEQUENTIAL = ".checkpoint_sequential"
_WRAPPERS = ("checkpoint_wrapper", "offload_wrapper", "apply_activation_checkpointing", "CheckpointWrapper")
_SWITCHES = (
    *("gradient_checkpointing", "activation_checkpointing", "use_gradient_checkpointing"),
    *("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
)
_MODULE = "torch.utils.checkpoint"
_SUPPORT = "supports_gradient_checkpointing"
#: The classes of the table are without it in every release since (checked with 4.36, 4.46, 4.57, 5.5 and 5.23).
_WITHOUT_SUPPORT = ("transformers", ">=4.36")
_GRANULARITY, _EXTENT = "recompute_granularity", ("recompute_method", "recompute_num_layers")
_PARALLEL = frozenset(
    f"torch.nn.{name}" for name in ("DataParallel", "parallel.DataParallel", "parallel.DistributedDataParallel")
)


def check(run: Run) -> Iterator[Report]:
    """Report calls that always raise."""
    for call in run.method_calls(*_ENABLERS, *_OTHER_NAMES):
        if call.place.tries or _is_asked_for(run, call):
            continue  # What happens then is decided there.
        if (parallel := _parallel(call.receiver)) is not None:
            yield Report(
                call.node,
                f"`{parallel}` has no `{call.method}`, which raises an AttributeError; "
                "enable checkpointing before wrapping, or on `.module`",
            )
        elif call.method in _OTHER_NAMES and is_hf_model(call.receiver):
            yield _misnamed(call)
        elif (library := library_of(call.receiver)) in _OF_LIBRARIES and _OF_LIBRARIES[library] != call.method:
            if mentions(run.program, "register_model"):
                continue  # A model of its own may have the method.
            yield _of_another_library(call, library)
    for enable in run.of(HfEnable):
        if not enable.place.tries and _parallel(enable.model) is None:
            yield from _wrong_arguments(enable)
    yield from _unsupported(run)
    yield from _untrainable(run)
    yield from _unbound(run)
    yield from _as_model_argument(run)
    yield from _from_elsewhere(run)
    yield from _unknown_keywords(run)
    yield from _of_megatron(run)
    yield from _of_old_kind(run)
    for call in run.calls_to(_MODULE):
        if not call.place.tries:
            yield Report(
                call.node,
                f"`{_MODULE}` is a module, and calling it raises a TypeError; call `{_MODULE}.checkpoint(block, x, "
                "use_reentrant=False)` where the forward pass runs the block",
            )


def _is_asked_for(run: Run, call: Call) -> bool:
    """Whether the program asks for the method, or a condition around ``call`` is about what its object is."""
    for question in run.calls_to("builtins.hasattr", "builtins.getattr", "builtins.isinstance"):
        if len(question.args) < 2 or not _overlap(question.args[0], call.receiver):
            continue
        # Without a default `getattr` raises like the call.
        asks = question.name != "builtins.getattr" or len(question.args) == 3
        if asks and (equals(question.args[1], call.method) is True or is_tested(question.node, call.place)):
            return True
    return False


def _overlap(left: Value, right: Value) -> bool:
    return any(same(mine, its) for mine in options(left) for its in options(right))


def _parallel(value: Value) -> str | None:
    """The name of the wrapper for several devices that ``value`` certainly is: it hands on no methods of its model."""
    names = {canonical(option.call.name) if isinstance(option, Result) else "" for option in options(value)}
    return names.pop().rpartition(".")[2] if len(names) == 1 and names <= _PARALLEL else None


def _of_another_library(call: Call, library: str) -> Report:
    wanted = _OF_LIBRARIES[library]
    plain = wanted is not None and not call.node.args and not call.node.keywords
    change = RenameAttribute(call.attribute, wanted) if call.attribute is not None and wanted is not None else None
    return Report(
        call.node,
        f"models of {library} have no `{call.method}`, which raises an AttributeError; "
        + (f"write `{wanted}()`" if wanted else "checkpoint their parts in `forward`"),
        fix=Rewrite(Applicability.UNSAFE, f"Write `{wanted}`", (change,)) if plain and change else None,
    )


def _misnamed(call: Call) -> Report:
    wanted = _ENABLERS[0]
    plain = not call.node.args and not call.node.keywords
    change = RenameAttribute(call.attribute, wanted) if call.attribute is not None else None
    return Report(
        call.node,
        f"models of transformers have no `{call.method}`, which raises an AttributeError; write `{wanted}()`",
        fix=Rewrite(Applicability.UNSAFE, f"Write `{wanted}`", (change,)) if plain and change else None,
    )


def _wrong_arguments(enable: HfEnable) -> Iterator[Report]:
    given = enable.kwargs
    misplaced = [name for name in Checkpoint.OWN if is_given(enable.call, name)]
    if isinstance(given, Const) and isinstance(given.value, bool):
        argument = enable.node.args[0] if len(enable.node.args) == 1 else None
        yield Report(
            enable.node,
            f"`{enable.call.method}({given.value})` raises a TypeError: the argument is a dict for torch's checkpoint; "
            'write `{"use_reentrant": False}` or nothing',
            fix=_argument_fix(argument) if argument is not None and given.value else None,
        )
    elif misplaced:
        yield Report(
            enable.node,
            f"`{enable.call.method}` has no parameter `{misplaced[0]}`, which raises a TypeError; "
            f'pass it in a dict: `{{"{misplaced[0]}": ...}}`',
        )


def _argument_fix(argument: ast.expr) -> Rewrite:
    text = '{"use_reentrant": False}'
    return Rewrite(Applicability.UNSAFE, f"Write `{text}`", (Replace(argument, text),))


def _unsupported(run: Run) -> Iterator[Report]:
    """Checkpointing for models of transformers whose class supports none, by their method or by a Trainer."""
    if not run.versions.may_be(*_WITHOUT_SUPPORT):
        return
    reports = [*_unsupported_by_method(run), *_unsupported_by_trainer(run)]
    if reports and not mentions(run.program, _SUPPORT):  # The program asks for it or changes it.
        yield from reports


def _unsupported_by_method(run: Run) -> Iterator[Report]:
    enabled: dict[ast.Call, list[Call]] = {}
    for call in run.method_calls(*_ENABLERS):
        enabled.setdefault(call.node, []).append(call)
    for node, calls in enabled.items():
        # There is one call for each model that it may be made on: a condition decides between them.
        names = [
            "" if call.place.tries or _parallel(call.receiver) else not_checkpointed(call.receiver) for call in calls
        ]
        if all(names):
            name = names[0]
            yield Report(
                node,
                f"`{name}` supports no checkpointing in transformers, and this call raises a ValueError; remove it",
                versions="".join(_WITHOUT_SUPPORT),
            )


def _unsupported_by_trainer(run: Run) -> Iterator[Report]:
    for trainer in run.of(TrainerBuild):
        name = not_checkpointed(trainer.model)
        args = args_of(trainer.args)
        if name and args is not None and not trainer.place.tries and is_enabled(run, args, trainer.args):
            yield Report(
                switched_at(args),
                f"`{name}` supports no checkpointing in transformers, and the Trainer raises a ValueError when it "
                "starts to train; switch it off",
                notes=(Remark(trainer.node, "this Trainer gets the model"),),
                versions="".join(_WITHOUT_SUPPORT),
            )


def _untrainable(run: Run) -> Iterator[Report]:
    """Trainers that switch checkpointing on for a plain module of this file, which cannot."""
    for trainer in run.of(TrainerBuild):
        model = trainer.model
        if not isinstance(model, Instance) or not _is_plain(model.cls):
            continue
        args = args_of(trainer.args)
        if args is not None and is_enabled(run, args, trainer.args):
            yield Report(
                trainer.node,
                f"`{model.cls.name}` has no `{_ENABLERS[0]}`, which the Trainer calls: an AttributeError; "
                "write the method, or switch checkpointing off in the arguments",
            )


def _is_plain(cls: Class) -> bool:
    """Whether ``cls`` derives from ``nn.Module`` alone and has no method that enables checkpointing."""
    classes = (cls, *ancestors(cls))
    methods = {name for owner in classes for name in (*owner.body, *owner.fields)}
    imported = [base for owner in classes for base in owner.bases if base not in classes]
    only_module = all(isinstance(base, Ref) and canonical(base.name) == "torch.nn.Module" for base in imported)
    return only_module and bool(imported) and methods.isdisjoint((*_ENABLERS, "__getattr__"))


def _of_megatron(run: Run) -> Iterator[Report]:
    """Arguments of Megatron-SWIFT for recomputation that do not go together; `selective` is its default."""
    for call in run.calls_to(*MEGATRON_SWIFT):
        granularity, extent = call.keyword(_GRANULARITY), {name: call.keyword(name) for name in _EXTENT}
        is_selective = is_absent(granularity) is True or equals(granularity, "selective") is True
        missing = [name for name, value in extent.items() if is_absent(value) is True]
        given = [name for name, value in extent.items() if isinstance(value, Const) and value.value is not None]
        if equals(granularity, "full") is True and missing:
            yield Report(
                where(granularity, call.node),
                f"`{_GRANULARITY}` of `full` needs `{missing[0]}`: this raises a ValueError before the first step",
            )
        elif is_selective and given:
            yield Report(
                where(extent[given[0]], call.node),
                f"`{given[0]}` is for `{_GRANULARITY}` of `full` and raises a ValueError beside `selective`, which is "
                "Megatron-SWIFT's default; ask for `full` or remove it",
            )


def _of_old_kind(run: Run) -> Iterator[Report]:
    """Arguments of `_set_gradient_checkpointing` of which transformers knows nothing any more."""
    for switch in old_switches(run):
        effect = (
            "takes no `value`, which raises a TypeError"
            if switch.raises
            else "takes its second argument for the function that checkpoints, so training raises: `'bool' object is "
            "not callable`, or a RecursionError"
        )
        yield Report(
            switch.node,
            f"since transformers 4.35 `_set_gradient_checkpointing` {effect}; call `model.{_ENABLERS[0]}()`",
            versions="transformers>=4.35",
        )


def _unbound(run: Run) -> Iterator[Report]:
    """Calls of torch's functions, also through `functools.partial`, that do not fit their parameters."""
    for call in run.calls_to(*(name for name in SIGNATURES if not name.endswith(_SEQUENTIAL))):
        problem = misfit(call, SIGNATURES[canonical(call.name)])
        if problem is not None and not call.place.tries:
            yield _misfit(call, call.name.rpartition(".")[2], problem)
    for wrap in run.written(CheckpointWrap):
        if (refused := refused_keyword(run, wrap)) is not None:
            name, error = refused
            yield Report(
                wrap.node,
                f"neither `checkpoint_wrapper` nor `checkpoint` has a parameter `{name}`, and the checkpointed call "
                f"gets it: {error} when the module first runs; drop it",
            )
    for event in run.written(Checkpoint):
        if (done := result_given_as_function(run, event)) is not None:
            yield _run_first(event, done)
            continue
        problem = misfit_of_block(run, event) or misfit_of_one_input(run, event)
        if problem is not None:
            yield Report(event.node, f"this call raises a TypeError: {_block(event)} {problem}")
        elif lacks_input(run, event) and (report := _run_at_once(event)) is not None:
            yield report
    for partial in run.calls_to("functools.partial"):
        given = is_absent(partial.keyword("use_reentrant")) is False
        torchs = is_absent(partial.keyword("checkpoint_fn")) is True
        if given and torchs and partial.args and names_wrapper(partial.args[0]):
            yield _misfit(partial, "checkpoint_wrapper", "sets `use_reentrant` itself")


def _run_at_once(event: Checkpoint) -> Report | None:
    """For a block that was to be wrapped; None where a handler may checkpoint it in another way."""
    block, handler = written_block(event), swallowed_by(event.place)
    if block is None or (handler is not None and has_fallback(handler)):
        return None
    raises = "a TypeError" if handler is None else "a TypeError that a handler catches, so nothing is checkpointed"
    module = source_text(block).removesuffix(".forward")
    return Report(
        event.node,
        f"this runs `{source_text(block)}` at once, without its input, which raises {raises}; where the forward pass "
        f"runs it, write `checkpoint({module}, x, use_reentrant=False)`",
        notes=() if handler is None else (Remark(handler, "this catches the TypeError"),),
    )


def _run_first(event: Checkpoint, done: ast.Call) -> Report:
    """For a block that is called where it should be handed over."""
    block, given = source_text(done.func), [source_text(part) for part in (*done.args, *done.keywords)]
    meant = ", ".join((block, *([] if event.inputs else given)))
    change = Rewrite(Applicability.UNSAFE, f"Hand `{block}` over", (Replace(done, meant),))
    return Report(
        event.node,
        f"`{source_text(done)}` runs here, and the checkpoint calls its result, a tensor: a TypeError; hand over the "
        f"block and its input: `checkpoint({meant}, ...)`",
        fix=None if done.keywords else change,
    )


def _block(event: Checkpoint) -> str:
    """What is checkpointed, as it is written."""
    return f"`{source_text(event.node.args[0])}`" if event.node.args else "the function"


def _from_elsewhere(run: Run) -> Iterator[Report]:
    """Names of the wrappers that are looked for in `torch.utils.checkpoint`, which does not have them."""
    for call in run.calls_to(*(f"torch.utils.checkpoint.{name}" for name in _WRAPPERS)):
        # Another way to come by the name is decided where it is imported.
        if call.attribute is not None and not call.place.tries and not _is_looked_for(run, call.called):
            yield Report(
                call.node,
                f"`torch.utils.checkpoint` has no `{call.name.rpartition('.')[2]}`, which raises an AttributeError; "
                "import it from `torch.distributed.algorithms._checkpoint.checkpoint_wrapper`",
            )


def _is_looked_for(run: Run, name: str) -> bool:
    """Whether the program asks whether something has ``name``."""
    return any(equals(question.argument(1), name) is True for question in run.calls_to("builtins.hasattr"))


def _unknown_keywords(run: Run) -> Iterator[Report]:
    """Keywords about checkpointing that no arguments of transformers and trl have, in any release."""
    for args in run.of(TrainerArgs):
        unknown = next((name for name in NO_ARGUMENTS if name in args.call.kwargs), None)
        # Unsloth adds fields to trl's classes.
        is_known = unknown is None or args.place.tries or mentions(run.program, "unsloth")
        if not is_known and takes_no_others(args):
            yield Report(
                args.node,
                f"this call raises a TypeError: `{args.call.called}` has no parameter `{unknown}`; write "
                f"`{SWITCHES[1]}` and `{KWARGS[1]}`",
            )


def _misfit(call: Call, name: str, problem: str) -> Report:
    word = "use_reentrant"
    fix = None
    if "itself" in problem and call.written(word):
        change = DropKeyword(call.node, word)
        problem += ", by `checkpoint_impl`; drop it"
        fix = Rewrite(Applicability.UNSAFE, f"Drop `{word}`", (change,))
    return Report(call.node, f"this call raises a TypeError: `{name}` {problem}", fix=fix)


def _as_model_argument(run: Run) -> Iterator[Report]:
    """Switches given to `from_pretrained`, which hands them to the model."""
    for call in run.program.calls:
        if not call.name.endswith(_MAKERS) or not is_hf_model(Result(call)):
            continue
        word = next((name for name in _SWITCHES if is_absent(call.keyword(name)) is False), None)
        if word is not None and not call.place.tries and canonical(call.name).startswith("transformers."):
            remote = is_absent(call.keyword("trust_remote_code")) is not True
            if not remote:
                yield Report(
                    call.node,
                    f"`{call.name.rpartition('.')[2]}` hands `{word}` to the model, which raises a TypeError; drop it "
                    f"and call `model.{_ENABLERS[0]}()`",
                    versions="transformers>=5.0",
                )
