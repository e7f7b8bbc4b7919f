"""`preserve_rng_state=False` around something that draws random numbers.

## What it does
Flags a checkpoint with `preserve_rng_state=False` in whose region this file shows a dropout layer with a probability
above zero or a call that samples from torch's generator. For the settings of transformers, which take the keyword in a
dict, and for wrappers around the layers of its models, a `lora_dropout` above zero on the same model counts, and the
dropout that its configuration or its weights have. Regions that draw nothing, and programs that compile (the
compiler ignores the setting), are fine.

## Why is this bad?
The recomputation draws another dropout mask than the forward pass did. The loss stays bit-identical and there is no
warning, but gradients belong to a network that was never run: 60 to 110 % off for usual dropout probabilities.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)  # error
```
```python
from functools import partial
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

class Block(nn.Module):
    def forward(self, x):
        return F.dropout(x, p=0.1, training=self.training)

def wrap(model):
    faster = partial(checkpoint_wrapper, preserve_rng_state=False)
    apply_activation_checkpointing(  # error
        model, checkpoint_wrapper_fn=faster, check_fn=lambda module: isinstance(module, Block)
    )
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model = get_peft_model(model, LoraConfig(r=8, lora_dropout=0.05))
model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})  # error
```

```python
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

KWARGS = {"use_reentrant": False, "preserve_rng_state": False}

model = AutoModelForSequenceClassification.from_pretrained("google-bert/bert-base-uncased", num_labels=2)
args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs=KWARGS)  # error
Trainer(model, args).train()
```

```python
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.mean, self.scale = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def sample(self, x):
        return torch.distributions.Normal(self.mean(x), self.scale(x).exp()).rsample()

    def center(self, x):
        return torch.distributions.Normal(self.mean(x), self.scale(x).exp()).mean

    def forward(self, x):
        x = checkpoint(self.center, self.linear(x), use_reentrant=False, preserve_rng_state=False)
        return checkpoint(self.sample, x, use_reentrant=False, preserve_rng_state=False)  # error
```
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import GPT2LMHeadModel, OPTConfig, OPTForCausalLM
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.opt.modeling_opt import OPTDecoderLayer

wrapper = partial(checkpoint_wrapper, preserve_rng_state=False)

def whole():
    model = GPT2LMHeadModel.from_pretrained("gpt2-xl", use_cache=False)
    apply_activation_checkpointing(  # error
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, GPT2Block)
    )
    model.train()
    return model

def by_configuration():
    model = OPTForCausalLM(OPTConfig(use_cache=False))
    apply_activation_checkpointing(  # error
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, OPTDecoderLayer)
    )
    return model
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Plain(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.off = nn.Dropout(0.0)
        self.frozen = nn.Dropout(0.1).eval()
        self.configured = nn.Dropout(p)

    def forward(self, x):
        return x + self.configured(self.frozen(self.off(self.linear(x))))

class Net(nn.Module):
    def __init__(self, p, block):
        super().__init__()
        self.plain, self.block = Plain(p), block
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = checkpoint(self.plain, x, use_reentrant=False, preserve_rng_state=False)
        x = checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)
        return self.dropout(x)
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def tuned(name):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig(r=8))
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    model.train()
    model(input_ids=None).loss.backward()

tuned("base")
tuned("meta-llama/Llama-3.2-1B")

quiet = AutoModelForCausalLM.from_pretrained("openai-community/gpt2", resid_pdrop=0.0, attn_pdrop=0.0)
quiet.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
quiet.train()
quiet(input_ids=None).loss.backward()
```

## Fix safety
Safe: without the keyword the random state is kept, and what the forward pass computes does not change.
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM, GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

wrapper = partial(checkpoint_wrapper, preserve_rng_state=False)

def without_dropout():
    model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", use_cache=False)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, LlamaDecoderLayer)
    )
    model.train()
    return model

def in_eval_mode():
    model = GPT2LMHeadModel.from_pretrained("gpt2-xl", use_cache=False)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, GPT2Block)
    )
    return model.eval()
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def gradient(p, **options):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Dropout(p), torch.nn.Linear(32, 32))
    x = torch.randn(8, 32, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False, **options) if options else block(x)
    y.square().sum().backward()
    return y.detach(), block[0].weight.grad

for p in (0.0, 0.1, 0.5):
    (y, wanted), (kept_y, kept), (lost_y, lost) = (
        gradient(p), gradient(p, preserve_rng_state=True), gradient(p, preserve_rng_state=False)
    )
    assert torch.equal(y, kept_y) and torch.equal(y, lost_y)
    assert torch.equal(wanted, kept)
    error = (lost - wanted).norm() / wanted.norm()
    assert error == 0 if p == 0 else error > 0.2, (p, error)
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`recompute_fn`, `fork_rng(enabled=preserve_rng_state)`);
pytorch/torchtitan#1323; allenai/OLMo-core#828.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import ABSENT, Dict, Ref, Value, equals, options, same
from ..finding import Applicability, Severity
from ..model.conditions.ramps import may_be_first_of_ramp
from ..model.events import (
    BlockWrapping,
    Checkpointing,
    Compile,
    HfEnable,
    HfSetting,
    KbitPrepare,
    KwargsWrite,
    TorchCheckpoint,
    TrainerArgs,
    TrainerBuild,
    WrapperCheckpointing,
)
from ..model.events.extract import args_of
from ..model.known_models.transformers_layers import is_checkpointed_layer
from ..model.libraries.trainer import overriding_trainer, settings_of, written_at
from ..model.names import canonical
from ..model.regions.bodies import classes_checked
from ..model.report import DropKeyword, Remark, Report, Rewrite
from ..model.state.modes import trained_in_eval
from ..model.state.randomness import Draw, adapter_dropout, config_dropout, loaded_dropout, torch_draws
from ..model.variant import from_json
from ..model.wrapping.wrapped import wrapper_argument

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT108", "unpreserved-rng-state", Severity.ERROR
NEEDS = ("preserve_rng_state",)


def check(run: Run) -> Iterator[Report]:
    """Report regions that draw other numbers when they are recomputed."""
    if any(run.of(Compile)):
        return
    nested = any(run.of(HfEnable))  # Its own checkpoint, inside the wrapper, restores the random state.
    for event in run.replayed(Checkpointing):
        if equals(_setting(run, event), False) and not (nested and not isinstance(event, TorchCheckpoint)):
            draws = list(torch_draws(run, run.region(event), training=not run.stays_in_eval(event)))
            draws += _in_library_layers(run, event)[:1]
            if draws and not may_be_first_of_ramp(run, event):
                yield from (_report(event.node, draw, _fix(event.call)) for draw in draws)
    for setting in settings_of(run):
        kwargs = from_json(setting.kwargs)
        unpreserved = isinstance(kwargs, Dict) and equals(kwargs.get("preserve_rng_state"), False)
        if unpreserved and not (isinstance(setting, HfEnable) and _has_no_effect(run, setting)):
            yield from (_report(written_at(setting), draw) for draw in list(_dropouts(run, _models(run, setting)))[:1])


def _in_library_layers(run: Run, event: Checkpointing) -> list[Draw]:
    """What the layers of a model of transformers drop, where a wrapper goes around each of them."""
    if not isinstance(event, BlockWrapping) or run.stays_in_eval(event):
        return []
    kinds = classes_checked(event.check, run.bodies)
    are_layers = all(isinstance(kind, Ref) and is_checkpointed_layer(canonical(kind.name)) for kind in kinds)
    return [*_dropouts(run, [event.model])] if kinds and are_layers else []


def _dropouts(run: Run, models: Iterable[Value]) -> Iterator[Draw]:
    for model in models:
        draw = adapter_dropout(run, model) or config_dropout(model) or loaded_dropout(run, model)
        if draw is not None:
            yield draw


def _has_no_effect(run: Run, enable: HfEnable) -> bool:
    """Whether a Trainer enables checkpointing again in its own way, or the model is in eval mode."""
    return overriding_trainer(run, enable) is not None or trained_in_eval(run, enable) is not None


def _setting(run: Run, event: Checkpointing) -> Value:
    if isinstance(event, WrapperCheckpointing):
        return wrapper_argument(run, event, "preserve_rng_state")
    return event.call.keyword("preserve_rng_state") if isinstance(event, TorchCheckpoint) else ABSENT


def _models(run: Run, setting: HfSetting | KwargsWrite) -> Iterator[Value]:
    """The models that ``setting`` reaches."""
    if isinstance(setting, HfEnable | KbitPrepare):
        yield setting.model
    elif isinstance(setting, KwargsWrite):
        yield from (trainer.model for trainer in run.of(TrainerBuild) if same(trainer.args, setting.target))
    elif isinstance(setting, TrainerArgs):
        for trainer in run.of(TrainerBuild):
            found = (args_of(option) for option in options(trainer.args))
            if any(args is not None and args.node is setting.node for args in found):
                yield trainer.model


def _fix(call: Call) -> Rewrite | None:
    if not call.written("preserve_rng_state"):
        return None
    return Rewrite(Applicability.SAFE, "Keep the random state", (DropKeyword(call.node, "preserve_rng_state"),))


def _report(node: ast.AST, draw: Draw, fix: Rewrite | None = None) -> Report:
    return Report(
        node,
        f"the recomputation draws other random numbers for `{draw.what}` than the forward pass did, and gradients are "
        "silently wrong; drop `preserve_rng_state=False`",
        notes=(Remark(draw.node, f"`{draw.what}` runs in the checkpointed region", draw.conditions),),
        fix=fix,
    )
