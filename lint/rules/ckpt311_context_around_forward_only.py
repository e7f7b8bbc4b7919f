"""`sdpa_kernel(SDPBackend.MATH)` around the forward pass of a checkpointed model only.

## What it does
Flags the forward pass of a non-reentrant checkpointed model inside `with sdpa_kernel(SDPBackend.MATH):` when the
backward pass of its loss runs outside of the block; the same for a block in the `forward` of a module around its
checkpoints, and in the training step of a module that Lightning trains.

## Why is this bad?
The recomputation runs in the backward pass, where torch chooses the kernel again. The fused kernel saves other tensors
than the plain one did, and torch raises
`CheckpointError: Recomputed values for the following tensors have different metadata`.

## Bad
```python
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM

def train(name, batches, optimizer):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for batch in batches:
        with sdpa_kernel(SDPBackend.MATH):  # reproducible
            loss = model(**batch).loss  # error
        loss.backward()
        optimizer.step()
```
```python
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)

def step(q, k, v):
    with sdpa_kernel([SDPBackend.MATH]):
        y = checkpoint(attend, q, k, v, use_reentrant=False)  # error
    y.sum().backward()
```
```python
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM

def compute_loss(model, batch):
    with sdpa_kernel(SDPBackend.MATH):
        outputs = model(**batch)  # error
    return outputs.loss

def train(batches, accelerator):
    model = LlamaForCausalLM(LlamaConfig())
    model.activation_checkpointing_enable({"use_reentrant": False})
    for batch in batches:
        loss = compute_loss(model, batch)
        accelerator.backward(loss)
```
```python
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM

class Loop:
    def __init__(self):
        self.model = LlamaForCausalLM(LlamaConfig())
        self.model.activation_checkpointing_enable({"use_reentrant": False})

    @sdpa_kernel(SDPBackend.MATH)
    def loss(self, batch):
        return self.model(**batch).loss  # error

    def run(self, batches):
        for batch in batches:
            self.loss(batch).backward()
```

## Good
```python
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM

class Loop:
    def __init__(self):
        self.model = LlamaForCausalLM(LlamaConfig())
        self.model.activation_checkpointing_enable({"use_reentrant": False})

    @sdpa_kernel(SDPBackend.MATH)
    def step(self, batch):
        self.model(**batch).loss.backward()

    def run(self, batches):
        for batch in batches:
            self.step(batch)
```
```python
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM

def compute_loss(model, batch):
    with sdpa_kernel(SDPBackend.MATH):
        return model(**batch).loss

def train(batches):
    model = LlamaForCausalLM(LlamaConfig())
    model.activation_checkpointing_enable({"use_reentrant": False})
    for batch in batches:
        with sdpa_kernel(SDPBackend.MATH):
            loss = compute_loss(model, batch)
            loss.backward()
    with torch.no_grad():
        return compute_loss(model, batches[0])
```
```python
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

def around_both(name, batch):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with sdpa_kernel(SDPBackend.MATH):
        model(**batch).loss.backward()
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        loss = model(**batch).loss
    loss.backward()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()

def eager(name, batch):
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with sdpa_kernel(SDPBackend.MATH):
        loss = model(**batch).loss
    loss.backward()

def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)

def inside(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        return attend(q, k, v)

def step(mlp, q, k, v):
    y = checkpoint(inside, q, k, v, use_reentrant=False)
    with sdpa_kernel(SDPBackend.MATH):
        z = checkpoint(mlp, q, use_reentrant=False)
        w = checkpoint(attend, q, k, v, use_reentrant=True)
    (y + z + w).sum().backward()
```

## Evidence
```python
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import CheckpointError, checkpoint

def attend(x):
    return F.scaled_dot_product_attention(x, x, x)

def inside(x):
    with sdpa_kernel(SDPBackend.MATH):
        return attend(x)

def raised(function, reentrant=False, backend=SDPBackend.MATH, around_backward=False):
    x = torch.randn(2, 2, 8, 4, requires_grad=True)
    try:
        with sdpa_kernel(backend):
            loss = checkpoint(function, x, use_reentrant=reentrant).sum()
            if around_backward:
                loss.backward()
        if not around_backward:
            loss.backward()
    except CheckpointError:
        return True
    return False

assert raised(attend)
assert not raised(attend, around_backward=True)
assert not raised(inside)
assert not raised(attend, reentrant=True)
assert not raised(attend, backend=[SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
```

## References
torch 2.13 `torch/utils/checkpoint.py` (what `recompute_fn` restores: random state, autocast, the default device).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import method_of
from ..facts.values import Class, Instance, Param, Ref, Result, Seq, equals, is_absent, options
from ..finding import Severity
from ..model.events import Backward, Checkpointing, LightningFit, TrainerBuild
from ..model.events.extract import args_of
from ..model.libraries.sharding import root
from ..model.libraries.trainer import is_enabled, trainer_reentrant
from ..model.names import canonical
from ..model.needs import RECOMPUTES, SWITCHED_ON, together
from ..model.report import Remark, Report
from ..model.results.outputs import forwards
from ..model.state.lightning_training import is_lightning_step
from ..model.tensors.batches import is_loss_for_trainer

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Function, Value
    from ..model.results.outputs import Forward
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT311", "context-around-forward-only", Severity.ERROR
NEEDS = (*together("sdpa_kernel", RECOMPUTES), *together("sdpa_kernel", "compute_loss", SWITCHED_ON))
VERSIONS = {"torch": ">=2.3"}
_MATH = "torch.nn.attention.SDPBackend.MATH"


def check(run: Run) -> Iterator[Report]:
    """Report forward passes whose recomputation runs with another kernel."""
    contexts = {call: context for call in run.program.calls if (context := _plain_kernel(call)) is not None}
    yield from _in_trainers(run, contexts)
    for forward in forwards(run, contexts, reentrant=False):
        if not _attends(run, forward):
            continue
        backward = next((it for it in run.losses.fed_by(forward.call) if not any(_kernels(it))), None)
        backward = backward or _backward_of_module(run, forward.call) or _fit_of_lightning(run, forward.call)
        if backward is not None:
            yield Report(
                forward.call.node,
                "the recomputation runs in the backward pass, outside of `sdpa_kernel`, with another kernel: a "
                "CheckpointError; put the backward pass inside the block too",
                notes=(
                    Remark(contexts[forward.call], "this holds for the forward pass"),
                    Remark(backward.node, "this runs outside"),
                ),
            )


def _backward_of_module(run: Run, call: Call) -> Call | None:
    """A backward pass where ``call``, in the `forward` of a module, is checkpointed, and none runs in a block."""
    function = call.place.function
    trained = [event.call for event in run.of(Backward)]
    if function is None or function.owner is None or function.name != "forward":
        return None
    return trained[0] if trained and not any(kernel for it in trained for kernel in _kernels(it)) else None


def _fit_of_lightning(run: Run, call: Call) -> Call | None:
    """What trains with the loss of ``call``, which a training step of Lightning gives, where none runs in a block."""
    function = call.place.function
    if function is None or not is_lightning_step(run, function) or not run.losses.is_returned(call):
        return None
    fits = [event.call for event in run.of(LightningFit) if any(_is_of(module, function) for module in event.modules)]
    return fits[0] if fits and not any(kernel for it in fits for kernel in _kernels(it)) else None


def _is_of(module: Value, step: Function) -> bool:
    """Whether ``module`` is of a class that has the training step ``step``."""
    return all(isinstance(option, Instance) and method_of(option.cls, step.name) is step for option in options(module))


def _in_trainers(run: Run, contexts: dict[Call, ast.Call]) -> Iterator[Report]:
    """Losses that a Trainer computes in the block; its backward pass comes behind `compute_loss`."""
    for call, context in contexts.items():
        function = call.place.function
        if function is None or function.name != "compute_loss" or not is_loss_for_trainer(function):
            continue
        is_forward = call.method == "compute_loss" or isinstance(call.func, Param)
        trainer = next((it for it in run.of(TrainerBuild) if _checkpoints_with(run, it, function)), None)
        if is_forward and trainer is not None and run.losses.is_returned(call):
            yield Report(
                call.node,
                "the recomputation runs in the backward pass, outside of `sdpa_kernel`, with another kernel: a "
                "CheckpointError; enter the block around `training_step`",
                notes=(
                    Remark(context, "this holds for the forward pass"),
                    Remark(trainer.node, "this Trainer calls `backward` behind it"),
                ),
            )


def _checkpoints_with(run: Run, trainer: TrainerBuild, compute_loss: Function) -> bool:
    """Whether a Trainer that has the method certainly checkpoints its model, non-reentrant, with fused attention."""
    cls, args = trainer.call.func, args_of(trainer.args)
    if not isinstance(cls, Class) or method_of(cls, "compute_loss") is not compute_loss or args is None:
        return False
    is_on = is_enabled(run, args, trainer.args) is True and trainer_reentrant(run, args) is False
    return is_on and _is_fused(trainer.model)


def _kernels(call: Call) -> Iterator[Result]:
    """The ``sdpa_kernel`` blocks around a call."""
    for context in call.place.contexts:
        if isinstance(context, Result) and canonical(context.call.name) == "torch.nn.attention.sdpa_kernel":
            yield context


def _plain_kernel(call: Call) -> ast.Call | None:
    for context in _kernels(call):
        if _is_math(context.call.argument(0, "backends")):
            return context.call.node
    return None


def _is_math(backends: Value) -> bool:
    match backends:
        case Ref(name):
            return name == _MATH
        case Seq(_, [*items], False) if items:
            return all(_is_math(item) for item in items)
    return False


def _attends(run: Run, forward: Forward) -> bool:
    """Whether the region certainly chooses among the kernels."""
    if isinstance(forward.cause, Checkpointing):
        region = run.region(forward.cause)
        return next(region.calls_to("torch.nn.functional.scaled_dot_product_attention"), None) is not None
    return _is_fused(root(forward.call.func))


def _is_fused(model: Value) -> bool:
    """Whether a model of transformers runs torch's attention, as it does by default."""
    for option in options(model):
        chosen = option.call.keyword("attn_implementation") if isinstance(option, Result) else None
        if chosen is None or not (is_absent(chosen) or equals(chosen, "sdpa")):
            return False
    return True
