"""A transformers layer whose `forward` is replaced, and with it the checkpoint.

## What it does
Flags `LlamaDecoderLayer.forward = f`, and the same on a layer object, when `f` is a function of this file that neither
calls the old `forward` nor checkpoints by itself. Attention, MLP and norm classes may be patched: the checkpoint is not
there.

## Why is this bad?
Since transformers 5.23 the checkpoint is part of `forward`, put there when the class is made. The new function runs
without it: every activation of the layer is kept, although `is_activation_checkpointing` says True.

## Bad
```python
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def forward(self, hidden_states, **kwargs):
    hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), **kwargs)[0]
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

LlamaDecoderLayer.forward = forward  # error
model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()
```
```python
import types
from transformers import LlamaForCausalLM

def forward(self, hidden_states, **kwargs):
    return hidden_states + self.mlp(hidden_states)

def prepare(config):
    model = LlamaForCausalLM(config)
    model.activation_checkpointing_enable()
    for layer in model.model.layers:
        layer.forward = types.MethodType(forward, layer)  # error
    return model
```

## Good
```python
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP

def mlp(self, x):
    return self.down_proj(self.up_proj(x))

LlamaMLP.forward = mlp

old_forward = LlamaDecoderLayer.forward

def timed(self, *args, **kwargs):
    print("layer")
    return old_forward(self, *args, **kwargs)

LlamaDecoderLayer.forward = timed
LlamaDecoderLayer.forward = old_forward

class MyLayer(LlamaDecoderLayer):
    def forward(self, hidden_states, **kwargs):
        return super().forward(hidden_states, **kwargs)

modeling_llama.LlamaDecoderLayer = MyLayer

def prepare(config):
    model = LlamaForCausalLM(config)
    model.activation_checkpointing_enable()
    for layer in model.model.layers:
        layer.forward = wrap(layer.forward)
    return model

def wrap(old):
    def run(*args, **kwargs):
        return old(*args, **kwargs)
    return run
```
```python
# A script that never checkpoints.
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def forward(self, hidden_states, **kwargs):
    return hidden_states

LlamaDecoderLayer.forward = forward
LlamaForCausalLM.from_pretrained("base").generate()
```

## Evidence
```python
import types
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)
ids = torch.ones(1, 4, dtype=torch.long)
with_checkpoint = LlamaDecoderLayer.forward
plain = with_checkpoint.__wrapped__

def runs(change):
    model = LlamaForCausalLM(config)
    model.activation_checkpointing_enable()
    change(model.model.layers[0])
    count = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: count.append(1))
    model(input_ids=ids, labels=ids).loss.backward()
    return len(count)

def patch_class(layer):
    LlamaDecoderLayer.forward = lambda self, *args, **kwargs: plain(self, *args, **kwargs)

def patch_object(layer):
    layer.forward = types.MethodType(plain, layer)

def wrap_object(layer):
    layer.forward = lambda *args, old=layer.forward, **kwargs: old(*args, **kwargs)

assert runs(lambda layer: None) == 2
assert runs(patch_object) == 1
assert runs(wrap_object) == 2
assert runs(patch_class) == 1
LlamaDecoderLayer.forward = with_checkpoint
assert runs(lambda layer: None) == 2
```

## References
transformers 5.23 `modeling_layers.py` (`GradientCheckpointingLayer.__init_subclass__`); up to 5.22 the checkpoint was
in `__call__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.identifiers import attributes_in
from ..facts.values import Attr, Element, Function, Partial, Ref, Result, Value, options
from ..finding import Severity
from ..model.events import Checkpointing, ForwardPatch, HfEnable, KbitPrepare, TrainerArgs
from ..model.libraries.transformers_layers import is_checkpointed_layer
from ..model.names import canonical
from ..model.needs import together, whole
from ..model.regions.free_variables import free_names
from ..model.report import Remark, Report
from ..model.types import is_hf_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT204", "patched-layer-forward", Severity.WARNING
_LISTS = ("layers", "h", "layer", "blocks", "block")
NEEDS = (
    # The class itself, perhaps by another name, or an element of what `_LISTS` names.
    *together(
        (".forward =", ".forward="),
        ("Layer.forward", "Block.forward", "Layer as ", "Block as ", *(whole(f".{name}") for name in _LISTS)),
        ("transformers", HfEnable),
    ),
    *together("transformers", "setattr", ('"forward"', "'forward'")),
)
VERSIONS = {"transformers": ">=5.23"}


def check(run: Run) -> Iterator[Report]:
    """Report replaced `forward` functions that took the checkpoint with them."""
    for patch in run.of(ForwardPatch):
        function = _function(patch.function) if _is_layer(patch.target) else None
        if function is not None and not _keeps_checkpoint(run, function) and _matters(run, patch):
            yield Report(
                patch.node,
                "transformers checkpoints a layer in the `forward` that this replaces, so these layers are not "
                "checkpointed any more; override it in a subclass, or call the old `forward`",
                notes=(Remark(function.node, "runs without a checkpoint"),),
            )


def _is_layer(obj: Value) -> bool:
    match obj:
        case Ref(name):
            return is_checkpointed_layer(canonical(name))
        case Element(of=Attr(base=model, name=name)):
            return name in _LISTS and is_hf_model(model)
    return False


def _function(value: Value) -> Function | None:
    """The undecorated function of the file that ``value`` is, bound to an object or not."""
    match value:
        case Result(call) if call.name == "types.MethodType" and call.args:
            value = call.args[0]
        case Result(call) if call.method == "__get__":
            value = call.receiver
    return value if isinstance(value, Function) and not value.decorators else None


def _keeps_checkpoint(run: Run, function: Function) -> bool:
    if attributes_in(function.node) & {"forward", "__wrapped__", "_gradient_checkpointing_func"}:
        return True
    inside = run.bodies.of(function).functions
    if any(event.place.function in inside for event in run.of(Checkpointing)):
        return True
    read = (function.scope.look_up(name) for name in free_names(function.node))
    return any(_may_be_forward(option) for value in read for option in options(value))


def _may_be_forward(value: Value) -> bool:
    match value:
        case Ref(name) | Attr(name=name):
            return name.rpartition(".")[2] in ("forward", "checkpoint")
        case Ref() | Function() | Partial():
            return False
    return True


def _matters(run: Run, patch: ForwardPatch) -> bool:
    """Whether checkpointing is turned on here, or this is a patch for scripts elsewhere."""
    turns_on = any(True for kind in (HfEnable, KbitPrepare, TrainerArgs) for _ in run.of(kind))
    return turns_on or patch.place.walk > 0
