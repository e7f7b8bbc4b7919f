"""Checkpointing a region whose checkpoint keeps as much as it frees.

## What it does
Flags a checkpoint of a single `Linear`, `Embedding`, `GELU`, `ReLU`, `SiLU`, `Tanh` or `Sigmoid` module, of torch's
function for the same, or of a function that makes one such call (`lambda x: F.gelu(x)`), of a single `LayerNorm` or
`GroupNorm` in a program that trains without autocast (elsewhere a note), and a checkpoint of the whole model, or of a
function that runs it alone, in a training step, in a function that one step calls, in the `training_step` that
Lightning trains with, or in the `forward` of a module that does nothing else. The same holds for a
`checkpoint_wrapper` around it, and for a `forward` of the model that is replaced by a checkpoint of itself. So is an
`apply_activation_checkpointing` for such layers alone, and a `checkpoint_wrapper` around one where nothing else is
checkpointed. A layer inside a block that is checkpointed already is left alone. DeepSpeed's own
`deepspeed.checkpointing.checkpoint` is treated alike; a configuration that moves its inputs makes it a note.

## Why is this bad?
Such a layer saves little more than its input, and the checkpoint keeps exactly that input: the same memory, one more
run of the layer. A checkpoint around the whole model holds nothing during the forward pass, but the recomputation
builds every activation at once: the peak is that of no checkpointing, for a third more compute.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.act = nn.GELU()
        self.down = nn.Linear(32, 8)

    def forward(self, x):
        h = checkpoint(self.act, self.up(x), use_reentrant=False)  # error
        return checkpoint(self.down, h, use_reentrant=False)  # error

def step(batch, optimizer):
    model = Block()
    loss = checkpoint(model, batch, use_reentrant=False).mean()  # error
    loss.backward()
    optimizer.step()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

def loss_of(model, batch):
    return checkpoint(model, batch, use_reentrant=False).mean()  # error

def main(batches):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
```
```python
import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

def main(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name)
    optimizer = torch.optim.AdamW(model.parameters())

    def run(ids, labels):
        return model(input_ids=ids, labels=labels).logits

    model.train()
    for ids, labels in batches:
        logits = checkpoint(run, ids, labels, use_reentrant=False)  # error
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Step:
    def __init__(self, model: nn.Module):
        self.model, self.loss = model, nn.MSELoss()

    def forward(self, x):
        return checkpoint(self.model, x, use_reentrant=False)  # error

    def __call__(self, batch):
        x, y = batch
        return self.loss(self.forward(x), y)

def main(batches):
    model = Model()
    step = Step(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        step(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
```
```python
import deepspeed
import torch.nn as nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(deepspeed.checkpointing.checkpoint(self.up, x).relu())  # error
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.mlp(checkpoint(self.norm, x, use_reentrant=False))  # error

def train(batches, optimizer):
    block = Block()
    for batch in batches:
        block(batch).mean().backward()
        optimizer.step()
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def is_light(module):
    return isinstance(module, (nn.Linear, nn.GELU))

def save_memory(model):
    apply_activation_checkpointing(model, check_fn=is_light)  # error
```
```python
import torch
import torch.nn as nn
import torch.nn.functional as F
from functools import partial
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.act = partial(F.gelu, approximate="tanh")

    def forward(self, x):
        def up(*inputs):
            return self.up(inputs[0])

        h = checkpoint(up, x, use_reentrant=False)  # error
        h = h + checkpoint(F.gelu, h, use_reentrant=False)  # error
        h = h + checkpoint(lambda y: torch.relu(y), h, use_reentrant=False)  # error
        return self.down(checkpoint(self.act, h, use_reentrant=False))  # error
```

## Good
```python
import functools
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing, checkpoint_wrapper, offload_wrapper,
)

def save_memory(model, contexts):
    selective = functools.partial(checkpoint_wrapper, context_fn=contexts)
    apply_activation_checkpointing(model, selective, lambda module: isinstance(module, nn.Linear))
    return offload_wrapper(nn.Linear(8, 8))
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, offload_wrapper

KINDS = (nn.Linear, nn.TransformerEncoderLayer)

def save_memory(model):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, KINDS))

def offload(model):
    apply_activation_checkpointing(model, offload_wrapper, lambda module: isinstance(module, nn.Linear))
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        # The float32 copy of its input is freed.
        return x + self.mlp(checkpoint(self.norm, x, use_reentrant=False))

def train(batches, optimizer):
    block = Block()
    for batch in batches:
        with torch.autocast("cuda", torch.bfloat16):
            loss = block(batch).mean()
        loss.backward()
        optimizer.step()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.act = nn.GELU()

    def forward(self, x, save):
        x = checkpoint(self.mlp, x, use_reentrant=False)
        return checkpoint(self.act, x, use_reentrant=False, context_fn=save)

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(checkpoint(self.up, x, use_reentrant=False).relu())

def within(part: Part, x):
    # The block that `up` belongs to is checkpointed already.
    return checkpoint(part, x, use_reentrant=True)

def chunked(batches, optimizer, save):
    model = Block()
    # Only one chunk's activations exist at a time.
    losses = [checkpoint(model, batch, save, use_reentrant=False).mean() for batch in batches]
    sum(losses).backward()
    optimizer.step()

def in_chunks(batch, optimizer, save):
    model = Block()

    def run(x):
        return torch.cat([model(part, save) for part in x.chunk(2)])

    checkpoint(run, batch, use_reentrant=False).mean().backward()
    optimizer.step()

def with_another(batch, optimizer, head, save):
    model = Block()
    checkpoint(lambda x: head(model(x, save)), batch, use_reentrant=False).mean().backward()
    optimizer.step()

def before_the_head(batch, optimizer, head: nn.Linear, save):
    model = Block()
    head(checkpoint(lambda x: model(x, save), batch, use_reentrant=False)).mean().backward()
    optimizer.step()

def behind_another(batch, optimizer, encoder: Part, save):
    decoder = Block()
    loss = checkpoint(decoder, encoder(batch), save, use_reentrant=False).mean()
    loss.backward()
    optimizer.step()

def before_another(batch, optimizer, decoder, save):
    encoder = Block()
    loss = decoder(checkpoint(encoder, batch, save, use_reentrant=False)).mean()
    loss.backward()
    optimizer.step()

def twice(first, second, optimizer, save):
    model = Block()
    seen = model(first, save)
    loss = (seen - checkpoint(model, second, save, use_reentrant=False)).square().mean()
    loss.backward()
    optimizer.step()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Step:
    def __init__(self, model: nn.Module):
        self.model, self.loss = model, nn.MSELoss()

    def forward(self, x):
        return checkpoint(self.model, x, use_reentrant=False)

    def __call__(self, batch):
        x, y = batch
        return self.loss(torch.cat([self.forward(part) for part in x.chunk(4)]), y)

def main(batches):
    model = Model()
    step = Step(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        step(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
```

```python
# Each frees what is computed inside of it.
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, x, mask):
        h = checkpoint(lambda y: F.gelu(self.up(y)), x, use_reentrant=False)
        h = checkpoint(lambda y, z: F.gelu(y * z), h, h, use_reentrant=False)
        h = checkpoint(lambda y: F.linear(y, self.up.weight.t() * mask), h, use_reentrant=False)
        return checkpoint(self.mlp, h, use_reentrant=False)
```

## Evidence
```python
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

def saved(layer, x, checkpointed):
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    h = x * 1.0  # the output of a layer before
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = checkpoint(layer, h, use_reentrant=False) if checkpointed else layer(h)
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    # torch's checkpoint keeps its own input.
    held = {h.untyped_storage().data_ptr(): h, **kept} if checkpointed else kept
    y.sum().backward()
    return sum(t.untyped_storage().nbytes() for key, t in held.items() if key not in weights)

x = torch.ones(16, 8, requires_grad=True)
for layer in (torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.SiLU(), torch.nn.ReLU(), torch.nn.Tanh()):
    assert saved(layer, x, checkpointed=True) >= saved(layer, x, checkpointed=False), layer

for function in (F.gelu, F.relu, F.silu, torch.tanh, torch.sigmoid):
    layer = torch.nn.Module()
    layer.forward = function
    assert saved(layer, x, checkpointed=True) >= saved(layer, x, checkpointed=False), function

x = torch.ones(16, 512, requires_grad=True)
for norm in (torch.nn.LayerNorm(512), torch.nn.GroupNorm(4, 512)):  # besides their input, two numbers a group
    assert saved(norm, x, checkpointed=True) > 0.98 * saved(norm, x, checkpointed=False), norm
```

## References
Measured on torch 2.13: 24 blocks hold 6.31 MB without, 6.29 to 6.31 MB with such regions; the whole model peaks at
19.33 MB checkpointed and 19.25 MB not. DeepSpeed 0.19.8 `runtime/activation_checkpointing/checkpointing.py`
(`CheckpointFunction` saves its arguments).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..facts.nodes import source_text
from ..facts.objects.classes import is_plain, related
from ..facts.objects.containers import container_kind, held_by
from ..facts.origin import origin
from ..facts.values import (
    Absent,
    Attr,
    Class,
    Function,
    Instance,
    Method,
    Param,
    Partial,
    Ref,
    Result,
    Unknown,
    one,
    options,
)
from ..finding import Severity
from ..model.calls.only_called import entered_by
from ..model.calls.patched_forward import patched_forwards
from ..model.conditions.guards import own_guards, tests_training
from ..model.events import (
    ApplyCheckpointing,
    Backward,
    Checkpointing,
    CheckpointWrap,
    DeepSpeedCheckpoint,
    FunctionCheckpoint,
    HfEnable,
    WrapperCheckpointing,
)
from ..model.flow.mentions import mentions
from ..model.libraries.sharding import class_of
from ..model.names import canonical
from ..model.report import Remark, Report
from ..model.state.lightning_training import is_lightning_step
from ..model.tensors.gradient_free import is_gradient_free
from ..model.types import bases, is_hf_model, unwrapped
from ..model.wrapping.check_functions import classes_asked, classes_compared

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Place, Value
    from ..model.events.event import CallEvent
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT403", "useless-checkpoint-region", Severity.WARNING
NEEDS = (Checkpointing,)
_WHOLE = (
    "a checkpoint around the whole model rebuilds every activation at once: the same peak, and the forward pass runs "
    "twice; checkpoint its blocks"
)
#: Arguments of a wrapper that leave open nothing of what it keeps.
_HOW = frozenset(("module", "checkpoint_impl", "preserve_rng_state", "determinism_check", "debug", "early_stop"))
#: They say where DeepSpeed keeps the inputs of its checkpoints.
_CONFIGURING = ("deepspeed.initialize", "deepspeed.checkpointing.configure")
#: What makes a layer compute its weight in each forward pass.
_PARAMETRIZING = ("weight_norm", "spectral_norm", "register_parametrization")
#: How what only compares is called: no model.
_LOSS = re.compile(r"loss|criterion|metric|print|log", re.IGNORECASE)
#: Where the functions of libraries are that build a complete model.
_MODELS = ("torchvision.models.", "timm.create_model", "timm.models.create_model")
#: How many functions are followed from a region to the training step.
_CALLERS = 4
_LIGHT = frozenset(f"torch.nn.{name}" for name in ("Linear", "Embedding", "GELU", "ReLU", "SiLU", "Tanh", "Sigmoid"))
#: The same layers as functions.
_LIGHT_FUNCTIONS = frozenset(
    (
        *(f"torch.nn.functional.{name}" for name in ("linear", "embedding", "gelu", "relu", "silu", "tanh", "sigmoid")),
        *("torch.relu", "torch.tanh", "torch.sigmoid"),
    )
)
#: Under autocast they keep a float32 copy of what they get, which a checkpoint frees.
_NORMS = frozenset(("torch.nn.LayerNorm", "torch.nn.GroupNorm"))
#: What a program says that trains in mixed precision, or leaves that to others.
_MIXED = ("autocast", "amp", "mixed_precision", "precision", "Accelerator", "Trainer", "Fabric", "fp16", "bf16")


def check(run: Run) -> Iterator[Report]:
    """Report regions that free nothing, but those in a block that is checkpointed already."""
    yield from _useless_wrappers(run)
    yield from _wrapped_whole(run)
    yield from _patched_whole(run)
    useless = {report.node: report for report in _useless(run) if not _runs_others(run, report.node)}
    useful = (event for event in run.of(Checkpointing) if event.node not in useless) if useless else ()
    inside = {call.node for event in useful for call in run.region(event).calls}
    yield from (report for node, report in useless.items() if node not in inside)


def _useless(run: Run) -> Iterator[Report]:
    for event in run.of(FunctionCheckpoint):
        if not isinstance(event.call.keyword("context_fn"), Absent):
            continue
        module = _object_of(entered_by(run, event))
        kind = _light_kind(module)
        made = module.call.node if isinstance(module, Result) else module.node
        if kind and (made is None or origin(made) == origin(event.node)):  # A wrapper in a library runs other modules.
            yield Report(
                _chosen_at(run, event, module),
                f"a checkpoint around one `{kind}` keeps the input that the layer would keep: nothing is freed and the "
                "layer runs twice; checkpoint the block it belongs to",
                notes=() if made is None else (Remark(made, f"the `{kind}`"),),
                assumes=_assumed(run, event, module),
            )
        elif _is_whole_model(run, event):
            yield Report(event.node, _WHOLE)


def _object_of(called: Value) -> Value:
    """The module whose `forward` is called by itself: `checkpoint(self.act.forward, x)`."""
    return called.base if isinstance(called, Attr) and called.name == "forward" else called


def _light_kind(called: Value) -> str:
    """`GELU` or `gelu` for a module or a function that saves little more than its input; empty for others."""
    match called:
        case Result(call) if canonical(call.name) in _LIGHT | _NORMS:
            return call.name.rpartition(".")[2]
        case Ref(name) if name in _LIGHT_FUNCTIONS:
            return name.rpartition(".")[2]
    return ""


def _chosen_at(run: Run, event: FunctionCheckpoint, module: Value) -> ast.Call:
    """Where ``module`` is chosen: in the caller that gives it to a helper, where that runs others as well.

    A helper that checkpoints under a condition of its own decides that itself.
    """
    chosen, way = event.node, [*run.path_to(event.call)][:-1]
    while way and _runs_others(run, chosen) and any(one(given, module) for given in way[-1].args):
        if not all(map(tests_training, event.place.beyond(way[-1].place))):
            break
        chosen = way.pop().node
    return chosen


def _runs_others(run: Run, node: ast.AST) -> bool:
    """Whether the checkpoint at ``node``, in a loop or a function that others call, also runs what is worth it.

    A helper that does nothing but checkpoint decides nothing: what it runs is the choice of each of its callers.
    """
    kinds = [_light_kind(entered_by(run, event)) for event in _by_place(run).get(node, ())]
    return any(kinds) and not all(kinds)


@lru_cache(maxsize=1)
def _by_place(run: Run) -> dict[ast.AST, list[FunctionCheckpoint]]:
    """The checkpoints by where they are asked for, and by the calls that lead there."""
    found: dict[ast.AST, list[FunctionCheckpoint]] = {}
    for event in run.of(FunctionCheckpoint):
        for node in {event.node, *(call.node for call in run.path_to(event.call))}:
            found.setdefault(node, []).append(event)
    return found


def _wrapped_whole(run: Run) -> Iterator[Report]:
    """Wrappers around a whole model, in programs that checkpoint nothing else."""
    wrapped = list(run.of(CheckpointWrap))
    if len(wrapped) != 1 or any(run.of(HfEnable)) or sum(1 for _ in run.of(Checkpointing)) > 1:
        return
    (event,) = wrapped
    if (
        not _is_model(event.module)
        or event.place.loops
        or not event.call.kwargs.keys() <= _HOW
        or event.call.open_kwargs
    ):
        return
    calls = [call for call in run.uses.calls.of(unwrapped(event.module)) if not is_gradient_free(call)]
    if len(calls) == 1 and _is_trained_alone(run, event, calls[0]):
        yield Report(event.node, _WHOLE)


def _patched_whole(run: Run) -> Iterator[Report]:
    """Models whose whole `forward` is a checkpoint from some line on, in programs that checkpoint nothing else."""
    patched = list(patched_forwards(run))
    others = {event.node for event in run.of(Checkpointing)}
    if len(patched) != 1 or any(run.of(HfEnable)) or not others <= {patched[0].event.node}:
        return
    module, place, event = patched[0]
    if not _is_model(module) or place.loops:
        return
    calls = [call for call in run.uses.calls.of(unwrapped(module)) if not is_gradient_free(call)]
    if len(calls) == 1 and not place.deeper_than(calls[0].place) and _is_trained_alone(run, event, calls[0]):
        yield Report(event.node, _WHOLE)


def _useless_wrappers(run: Run) -> Iterator[Report]:
    """Wrappers around such layers, by a check or one by one, in programs that checkpoint nothing else."""
    wrapped = [(event, _kinds_wrapped(event)) for event in run.of(ApplyCheckpointing, CheckpointWrap)]
    if not wrapped or any(run.of(HfEnable)) or len(wrapped) < sum(1 for _ in run.of(Checkpointing)):
        return
    if any(mentions(run.program, name) for name in _PARAMETRIZING):
        return
    if all(names and names <= _LIGHT | _NORMS for _, names in wrapped):
        for event, names in wrapped:
            kinds = " or ".join(f"`{name.rpartition('.')[2]}`" for name in sorted(names))
            yield Report(
                event.node,
                f"a checkpoint around one {kinds} keeps the input that the layer would keep: nothing is freed and the "
                "layer runs twice; checkpoint the block it belongs to",
                assumes=None if names <= _LIGHT else _assumed_of_norm(run),
            )


def _kinds_wrapped(event: WrapperCheckpointing) -> frozenset[str]:
    """The classes of torch whose modules ``event`` puts into plain wrappers; empty where they are not all known."""
    if isinstance(event, CheckpointWrap):
        plain = event.reentrant is not None and event.call.kwargs.keys() <= _HOW and not event.call.open_kwargs
        made = [canonical(it.call.name) if isinstance(it, Result) else "" for it in options(event.module)]
        return frozenset(made) if plain else frozenset()
    if not isinstance(event, ApplyCheckpointing):
        return frozenset()
    given = event.wrapper.kwargs if isinstance(event.wrapper, Partial) else {}
    if (
        event.reentrant is None
        or given.keys() & {"context_fn", "checkpoint_fn"}
        or not isinstance(event.check, Function)
    ):
        return frozenset()
    kinds = (*classes_asked(event.check), *classes_compared(event.check))
    return frozenset(canonical(kind.name) if isinstance(kind, Ref) else "" for kind in kinds)


def _assumed_of_norm(run: Run) -> str | None:
    in_full = any(run.of(Backward)) and not any(mentions(run.program, name) for name in _MIXED)
    return None if in_full else "no autocast makes the norm keep a copy in float32"


def _assumed(run: Run, event: FunctionCheckpoint, module: Value) -> str | None:
    """What the program leaves open: the precision a norm runs in, and where DeepSpeed keeps inputs."""
    is_norm = isinstance(module, Result) and canonical(module.call.name) in _NORMS
    if is_norm and (assumed := _assumed_of_norm(run)) is not None:
        return assumed
    if not isinstance(event, DeepSpeedCheckpoint) or not any(run.calls_to(*_CONFIGURING)):
        return None
    return "DeepSpeed is configured to leave inputs on the GPU, whole"


def _is_whole_model(run: Run, event: FunctionCheckpoint) -> bool:
    """Whether a training step runs the complete model in this one region."""
    here = event.place
    function = here.function
    if function is not None and _is_forward(function) and not _is_built_once(run, function):
        return False
    if not _is_model(_own_model(event) or _only_module(run, event)):
        return False
    others = (
        other
        for other in run.of(FunctionCheckpoint)
        if other.place.function is function and other.node is not event.node
    )
    return not any(others) and _is_trained_alone(run, event, event.call)


def _own_model(event: FunctionCheckpoint) -> Instance | None:
    """The model whose `forward` checkpoints another method of its own: `checkpoint(self._forward, x)`."""
    function, here = event.function, event.place.function
    if isinstance(function, Method) and isinstance(function.receiver, Instance) and here is not None:
        is_own = here.owner is not None and related(function.receiver.cls, here.owner)
        return function.receiver if is_own and _is_forward(here) else None
    return None


def _is_trained_alone(run: Run, event: CallEvent, call: Call) -> bool:
    """Whether ``call``, which runs the region of ``event``, is all that a training step runs of a model."""
    if any(_runs_another(run, call, other) for other in run.calls_beside(call) if other is not event.call):
        return False
    return _is_trained_by(run, event, call)


def _is_forward(function: Function) -> bool:
    return function.name == "forward" and function.owner is not None and not is_plain(function.owner)


def _is_built_once(run: Run, forward: Function) -> bool:
    """Whether the program builds one module that runs ``forward``: a wrapper may be around blocks elsewhere."""
    assert forward.owner is not None
    built = [call for call in run.program.calls if isinstance(call.func, Class) and related(call.func, forward.owner)]
    return len(built) == 1 and not built[0].place.loops


def _is_trained_by(run: Run, event: CallEvent, call: Call) -> bool:
    """Whether ``call``, or the one that leads to it through functions which run nothing else, is trained."""
    for _ in range(_CALLERS):
        if _is_trained_at(run, call.place):
            return True
        if call.place.function is not None and is_lightning_step(run, call.place.function):
            return _is_all_of_step(run, event, call.place.function)
        caller = _only_caller(run, call)
        if caller is None or not _runs_nothing_else(run, event, (call, caller)):
            return False
        call = caller
    return False


def _only_module(run: Run, event: FunctionCheckpoint) -> Value:
    """What is checkpointed: the one module that it runs, for a function that runs one alone."""
    function = event.function
    if not isinstance(function, Function):
        return function
    here = [call for call in run.region(event).calls if call.place.function is function and not call.method]
    run_here = [call for call in here if isinstance(call.func, Param | Unknown) or _is_layer(call.func)]
    modules = [call.func for call in run_here if set(call.place.loops) <= set(function.place.loops)]
    alone = len(run_here) == 1 == len(modules) and not any(own_guards(run_here[0].place))
    return modules[0] if alone else function


def _is_model(value: Value) -> bool:
    cls = class_of(value)
    if isinstance(value, Result) and value.call.name.startswith(_MODELS) and value.call.called[:1].islower():
        return True
    if container_kind(value) == "Sequential" and any(isinstance(part, Instance) for part in held_by(value)):
        return True
    return is_hf_model(value) or (isinstance(cls, Class) and "torch.nn.Module" in set(bases(cls)))


def _is_trained_at(run: Run, here: Place) -> bool:
    """Whether a backward pass and a step of the optimizer are beside ``here``, in the same loops."""
    calls = [event.call for event in run.of(Backward)], list(run.method_calls("step"))
    return all(
        any(it.place.function is here.function and it.place.loops == here.loops for it in made) for made in calls
    )


def _is_all_of_step(run: Run, event: CallEvent, step: Function) -> bool:
    """Whether ``step``, which returns its loss, runs the region of ``event`` once and nothing else that trains."""
    inside = {event.node, *(call.node for call in run.region(event).calls)}
    beside = [call for call in run.bodies.of(step).calls if call.node not in inside]
    # The plain way beside the checkpoint, `if low_mem: ... else: ...`, is another run.
    beside = [call for call in beside if not call.place.excludes(event.place)]
    return not event.place.loops and not any(_is_layer(call.func) or _may_train(call) for call in beside)


def _may_train(call: Call) -> bool:
    """Whether ``call`` may run a module that is not shown; by its name it is no loss."""
    is_open = isinstance(call.func, Param | Unknown)
    is_open = is_open or (isinstance(call.func, Attr) and isinstance(call.func.base, Instance))
    return is_open and not _LOSS.search(source_text(call.node.func))


def _only_caller(run: Run, call: Call) -> Call | None:
    """The one call of the function around ``call``, which runs it once: `training_step(model, batch)`.

    Another one, without gradients, evaluates.
    """
    function = call.place.function
    if function is None or call.place.loops or not all(map(tests_training, own_guards(call.place))):
        return None
    calls = [it for it in _calls_of(run, function) if not is_gradient_free(it)]
    return calls[0] if len(calls) == 1 else None


def _calls_of(run: Run, function: Function) -> list[Call]:
    """The calls of ``function``, or of the module whose `forward` it is; none where that is in an `nn.Sequential`."""
    if not _is_forward(function):
        return run.calls_of(function)
    made = run.forwards.get(function.node, [])
    return made if all(isinstance(unwrapped(it.func), Instance) for it in made) else []


def _runs_nothing_else(run: Run, event: CallEvent, way: tuple[Call, Call]) -> bool:
    """Whether the functions around the calls of ``way``, to ``event``, checkpoint and run no other model."""
    around = [call.place.function for call in way]
    led = {event.node, *(call.node for call in way)}
    beside = [call for call in run.program.calls if call.place.function in around and call.node not in led]
    checkpoints = {other.node for other in run.of(FunctionCheckpoint)}
    beside = [call for call in beside if not call.place.excludes(way[0].place)]
    return not any(call.node in checkpoints or _is_layer(call.func) or _is_own_step(call) for call in beside)


def _is_own_step(call: Call) -> bool:
    """Whether a `forward` hands on to another function of the program, or to an attribute that is not known."""
    if call.place.function is None or not _is_forward(call.place.function):
        return False
    match call.func:
        case Attr(base=base):
            return isinstance(base, Instance)
    return not isinstance(call.func, Ref | Class | Result)


def _is_layer(value: Value) -> bool:
    """Whether it is a module that may train: a model, or a layer of torch that is no loss."""
    cls = class_of(value)
    return _is_model(value) or (isinstance(cls, str) and cls.startswith("torch.nn.") and not cls.endswith("Loss"))


def _runs_another(run: Run, region: Call, call: Call) -> bool:
    """Whether ``call`` runs something in the step of ``region`` that trains too: an encoder, a decoder."""
    if call.place.loops != region.place.loops or is_gradient_free(call) or call.place.excludes(region.place):
        return False
    if call.order < region.order:
        called = class_of(call.func)
        return isinstance(called, Class) or (isinstance(called, str) and called.startswith("torch.nn."))
    is_open = isinstance(call.func, Param | Unknown) and not _LOSS.search(source_text(call.node.func))
    passes = (other.order for other in run.of(Backward) if other.place.function is region.place.function)
    end = min((order for order in passes if order > region.order), default=0)
    return call.order < end and not call.method and (is_open or _is_layer(call.func))
