"""A transformers layer whose `forward` is replaced, and with it the checkpoint.

## What it does
Flags `LlamaDecoderLayer.forward = f`, or `type(layer).forward = f`, when `f` is a function of this file that does not
checkpoint by itself, also one that calls the old `forward`; and `layer.forward = f` on a layer object when `f` does not
call the old `forward` either.
Attention, MLP and norm classes may be patched: the checkpoint is not there. Silent where FSDP2 shards the model: it
makes a class of its own from the patched one, which checkpoints again.

## Why is this bad?
Since transformers 5.23 the checkpoint is part of `forward`, put there when the class is made. The new function runs
without it: every activation of the layer is kept, although `is_activation_checkpointing` says True. The old `forward`
checkpoints only while it is the one that the class has: called by its replacement in the class, it does not. A subclass
gets a checkpoint of its own, and a layer object leaves its class as it is.

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
import functools
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

shapes = {}
old_forward = LlamaDecoderLayer.forward

@functools.wraps(old_forward)
def forward(self, hidden_states, *args, **kwargs):
    shapes[self] = hidden_states.shape
    return old_forward(self, hidden_states, *args, **kwargs)

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
```python
import types
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def skip(self, hidden_states, **kwargs):
    return hidden_states

def load(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    for _, module in model.named_modules():
        if isinstance(module, LlamaDecoderLayer):
            module.forward = types.MethodType(skip, module)  # error
    model.activation_checkpointing_enable()
    return model
```
```python
import types
from functools import partial
from transformers import AutoModelForCausalLM, BertModel, Trainer, TrainingArguments, ViTForImageClassification

def mlp_only(layer, hidden_states, **kwargs):
    return hidden_states + layer.mlp(hidden_states)

def by_name_of_the_class(name, rows):
    model = AutoModelForCausalLM.from_pretrained(name)
    for _, module in model.named_modules():
        if module.__class__.__name__ == "LlamaDecoderLayer":
            module.forward = partial(mlp_only, module)  # error
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()

def scaled(layer, hidden_states, *args, scale=1.0, **kwargs):
    return hidden_states + scale * layer.mlp(hidden_states)

def bound_partial(scales, rows):
    model = ViTForImageClassification.from_pretrained("base")
    for layer, scale in zip(model.vit.layers, scales):
        layer.forward = types.MethodType(partial(scaled, scale=scale), layer)  # error
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()

def by_number(rows):
    model = BertModel.from_pretrained("base")
    for number in range(len(model.encoder.layer)):
        layer = model.encoder.layer[number]
        layer.forward = mlp_only.__get__(layer)  # error
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), train_dataset=rows).train()
```

## Good
```python
from transformers import AutoModelForCausalLM, BertModel, SwinForImageClassification

def mlp_only(layer, hidden_states, **kwargs):
    return hidden_states + layer.mlp(hidden_states)

def of_attention(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    for module in model.modules():
        if type(module).__name__ in ("LlamaAttention", "LlamaMLP"):
            module.forward = mlp_only.__get__(module)
    model.gradient_checkpointing_enable()
    return model

def of_others(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    for module in model.modules():
        if type(module).__name__ != "LlamaDecoderLayer":
            module.forward = mlp_only.__get__(module)
    model.gradient_checkpointing_enable()
    return model

def of_stages(name):
    model = SwinForImageClassification.from_pretrained(name)
    for stage in model.swin.encoder.layers:
        stage.forward = mlp_only.__get__(stage)
    model.gradient_checkpointing_enable()
    return model

def of_a_part(name):
    model = BertModel.from_pretrained(name)
    for number in range(12):
        model.encoder.layer[number].output.forward = mlp_only
    model.gradient_checkpointing_enable()
    return model
```
```python
import functools
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaDecoderLayer

def skip(self, hidden_states, **kwargs):
    return hidden_states, None

def load(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    for module in model.modules():
        if isinstance(module, (LlamaDecoderLayer, LlamaAttention)) and hasattr(module, "q_proj"):
            module.forward = functools.partial(skip, module)
    model.activation_checkpointing_enable()
    return model
```
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
    for layer in model.model.layers:
        old = layer.forward
        layer.forward = lambda *args, old=old, **kwargs: old(*args, **kwargs)
    return model

def wrap(old):
    def run(*args, **kwargs):
        return old(*args, **kwargs)
    return run
```
```python
# The new one checkpoints by itself, by a function that is given the old one.
from my_project import run_again
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

old_forward = LlamaDecoderLayer.forward

def forward(self, *args, **kwargs):
    return run_again(old_forward, self, *args, **kwargs)

LlamaDecoderLayer.forward = forward
model = LlamaForCausalLM.from_pretrained("base")
model.activation_checkpointing_enable()
```
```python
# FSDP2's class of each layer checkpoints; with an `Accelerator`, its launcher may ask for FSDP2.
from torch.distributed.fsdp import fully_shard
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

old_forward = LlamaDecoderLayer.forward

def forward(self, *args, **kwargs):
    return old_forward(self, *args, **kwargs)

LlamaDecoderLayer.forward = forward
model = LlamaForCausalLM.from_pretrained("base")
model.activation_checkpointing_enable()
for layer in model.model.layers:
    fully_shard(layer)
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

def wrap_class(layer):
    LlamaDecoderLayer.forward = lambda self, *args, **kwargs: with_checkpoint(self, *args, **kwargs)

def patch_class_then_derive(layer):
    wrap_class(layer)
    layer.__class__ = type("FSDPLlamaDecoderLayer", (LlamaDecoderLayer,), {})  # as FSDP2 does

def derive(layer):
    class Timed(LlamaDecoderLayer):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    layer.__class__ = Timed

def patch_object(layer):
    layer.forward = types.MethodType(plain, layer)

def wrap_object(layer):
    layer.forward = lambda *args, old=layer.forward, **kwargs: old(*args, **kwargs)

assert runs(lambda layer: None) == 2
assert runs(patch_object) == 1
assert runs(wrap_object) == 2
assert runs(derive) == 2
for change, expected in ((patch_class, 1), (wrap_class, 1), (patch_class_then_derive, 2)):
    assert runs(change) == expected
    LlamaDecoderLayer.forward = with_checkpoint
assert runs(lambda layer: None) == 2
```

## References
transformers 5.23 `modeling_layers.py` (`GradientCheckpointingLayer.__init_subclass__`, `is_outermost`); up to
5.22 the checkpoint was in `__call__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.identifiers import attributes_in, names_in
from ..facts.objects.classes import is_run_as_written
from ..facts.objects.containers import is_slice
from ..facts.parameters import defaults
from ..facts.values import (
    Absent,
    Attr,
    Element,
    Function,
    Method,
    Param,
    Partial,
    Ref,
    Result,
    Seq,
    Value,
    equals,
    options,
    same,
)
from ..finding import Severity
from ..model.calls.put_in_place import function_put
from ..model.conditions.class_names import class_names_asked
from ..model.conditions.guards import own_guards
from ..model.events import (
    AcceleratorBuild,
    Backward,
    Checkpointing,
    Event,
    ForwardPatch,
    Fsdp2Shard,
    HfEnable,
    KbitPrepare,
    TrainerArgs,
    TrainSwitch,
)
from ..model.known_models.backbones import HOLDERS
from ..model.known_models.transformers_layers import (
    is_checkpointed_layer,
    is_of_other_family,
    names_of_layers,
)
from ..model.libraries.sharding import attributes, root
from ..model.libraries.trainer import is_enabled, object_of
from ..model.names import canonical
from ..model.needs import OneOf, together, whole
from ..model.regions.free_variables import free_names
from ..model.report import Remark, Report
from ..model.state.trained import training_is_over
from ..model.types import is_hf_model, object_of_class, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call, Guard
    from ..model.regions.region import Region
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT204", "patched-layer-forward", Severity.WARNING
_LISTS = ("layers", "h", "layer", "blocks", "block")
#: What stands between a model and the list of its layers.
_BACKBONES = HOLDERS | {
    *("model", "encoder", "decoder", "language_model", "vision_model", "text_model"),
    # Of pictures and sound, where the list holds what transformers 5.23 checkpoints; Swin's stages checkpoint inside.
    *("vit", "deit", "beit", "dinov2", "videomae", "layoutlmv3", "vilt"),
    *("wav2vec2", "hubert", "wavlm", "unispeech", "data2vec_audio", "audio_spectrogram_transformer"),
}
NEEDS = (
    # The class itself, perhaps by another name, or an element of what `_LISTS` names.
    *together(
        (".forward =", ".forward="),
        (
            "Layer.forward",
            "Block.forward",
            "Layer as ",
            "Block as ",
            OneOf(names_of_layers),
            *(whole(f".{name}") for name in _LISTS),
        ),
        ("transformers", HfEnable),
    ),
    *together("transformers", "setattr", ('"forward"', "'forward'")),
)
VERSIONS = {"transformers": ">=5.23"}
_LOST = (
    "transformers checkpoints a layer in the `forward` that this replaces, so these layers are not checkpointed any "
    "more"
)
_OF_OBJECT = f"{_LOST}; override it in a subclass, or call the old `forward`"
_OF_CLASS = (
    f"{_LOST}, even where the new one calls it; override it in a subclass that the model uses, or wrap the `forward` "
    "of each layer object"
)


def check(run: Run) -> Iterator[Report]:
    """Report replaced `forward` functions that took the checkpoint with them."""
    for patch in run.of(ForwardPatch):
        function = _function(patch.function) if _is_layer(patch) else None
        if function is None or training_is_over(run, patch):
            continue
        of_class = isinstance(patch.target, Ref) or object_of_class(patch.target) is not None
        if _class_loses_it(run, patch, function) if of_class else _object_loses_it(run, patch, function):
            yield Report(
                patch.node,
                _OF_CLASS if of_class else _OF_OBJECT,
                notes=(Remark(function.node, "runs without a checkpoint"),),
            )


def _object_loses_it(run: Run, patch: ForwardPatch, function: Function) -> bool:
    return not _keeps_checkpoint(run, function) and _matters(run, patch)


def _class_loses_it(run: Run, patch: ForwardPatch, function: Function) -> bool:
    """Whether the layers of a class lose the checkpoint; calling the old `forward` does not bring it back."""
    if any(map(_may_make_subclasses, run.of(Fsdp2Shard, AcceleratorBuild, TrainerArgs))):
        return False
    if _is_taken_back(run, patch):
        return False
    if not _keeps_checkpoint(run, function):
        return _matters(run, patch)
    return _is_on(run, patch.target) and not _may_checkpoint(run, function)


def _may_make_subclasses(event: Event) -> bool:
    """Whether FSDP2 may derive a class from each layer's, which gets a checkpoint of its own."""
    match event:
        case TrainerArgs():
            return any(not isinstance(event.call.keyword(name), Absent) for name in ("fsdp", "fsdp_config"))
        case AcceleratorBuild():  # Without a plugin of the script, `accelerate launch` says which FSDP it is.
            versions = [plugin.call.keyword("fsdp_version") for plugin in event.plugins]
            return not versions or any(equals(version, 1, "1") is not True for version in versions)
    return True


def _is_layer(patch: ForwardPatch) -> bool:
    """Whether a layer, or its class, gets another `forward`: of its objects one stands for all, `type(layers[0])`."""
    match _part_of_whole_list(object_of_class(patch.target) or patch.target):
        case Ref(name):
            return is_checkpointed_layer(canonical(name))
        case Element(of=Attr(name=name) as held) if name in _LISTS:
            model = root(held)
            between = [*attributes(held)][1:]
            return is_hf_model(model) and all(part in _BACKBONES for part in between)
        case Element() as part:
            return is_hf_model(root(part)) and any(_asks_for_layer(guard, part) for guard in own_guards(patch.place))
    return False


def _part_of_whole_list(part: Value) -> Value:
    """An element of `model.layers[:4]` as one of `model.layers`; all else as it is."""
    while isinstance(part, Element) and is_slice(part.of):
        part = part.of
    return part


def _asks_for_layer(guard: Guard, part: Value) -> bool:
    """Whether a condition holds for layers alone: `isinstance(module, LlamaDecoderLayer)`, or by their name."""
    named = class_names_asked(guard, part)
    if named:
        return all(is_checkpointed_layer(f"transformers.{name}") for name in named)
    match guard.value:
        case Result(call) if guard.taken and call.name == "builtins.isinstance" and len(call.args) == 2:
            asked, kinds = call.args
            found = kinds.items if isinstance(kinds, Seq) and not kinds.open else [kinds]
            layers = [isinstance(kind, Ref) and is_checkpointed_layer(canonical(kind.name)) for kind in found]
            return same(asked, part) and all(layers) and bool(layers)
    return False


def _function(value: Value) -> Function | None:
    """The function of the file that ``value`` is, bound to an object or not; None under a decorator that does more."""
    found = None if isinstance(value, Method) else function_put(value)
    return found if found is not None and is_run_as_written(found) else None


def _keeps_checkpoint(run: Run, function: Function) -> bool:
    if attributes_in(function.node) & {"forward", "__wrapped__", "_gradient_checkpointing_func"}:
        return True
    if _has_checkpoint(run, run.bodies.of(function)):
        return True
    given = (name for default in defaults(function.node).values() for name in names_in(default))
    read = (function.scope.look_up(name) for name in (*free_names(function.node), *given))
    return any(_may_be_forward(option) for value in read for option in options(value))


def _may_be_forward(value: Value) -> bool:
    match value:
        case Ref(name) | Attr(name=name):
            return name.rpartition(".")[2] in ("forward", "checkpoint")
        case Ref() | Function() | Partial():
            return False
    return True


def _may_checkpoint(run: Run, function: Function) -> bool:
    """Whether a function that calls the old `forward` may checkpoint by itself, or hands it to code that may."""
    inside = run.bodies.of(function)
    if any("checkpoint" in name for name in attributes_in(function.node)) or _has_checkpoint(run, inside):
        return True
    return any(_may_be_checkpoint(call) for call in inside.calls if call.place.function in inside.functions)


def _has_checkpoint(run: Run, region: Region) -> bool:
    return any(event.place.function in region.functions for event in run.of(Checkpointing))


def _may_be_checkpoint(call: Call) -> bool:
    called = call.func
    if isinstance(called, Param) and called.default is not None:
        called = called.default  # `old=layer.forward`
    match called:
        case Function() | Method():
            return False  # Its body is read, too.
        case Ref(name) | Attr(name=name):
            given = (option for value in (*call.args, *call.kwargs.values()) for option in options(value))
            return "checkpoint" in name or any(_names_forward(value) for value in given)
    return True


def _names_forward(value: Value) -> bool:
    match value:
        case Ref(name) | Attr(name=name):
            return name.rpartition(".")[2] == "forward"
        case Partial(func=inner):
            return _names_forward(inner)
    return isinstance(value, Function)


def _is_taken_back(run: Run, patch: ForwardPatch) -> bool:
    """Whether the class gets its own `forward` again, with no training in between that this file shows."""
    for other in run.of(ForwardPatch):
        if same(other.target, patch.target) and _function(other.function) is None:
            trained = any(patch.order < event.order < other.order for event in run.of(Backward, TrainSwitch))
            if other.place.walk != patch.place.walk or (other.order > patch.order and not trained):
                return True
    return False


def _is_on(run: Run, layer: Value) -> bool:
    """Whether the file turns checkpointing on for a model that may have such layers, or may do so."""
    models = (*(event.model for event in run.of(HfEnable)), *(event.model for event in run.of(KbitPrepare)))
    if any(not is_of_other_family(unwrapped(option), layer) for model in models for option in options(model)):
        return True
    return any(is_enabled(run, args, object_of(args)) is not False for args in run.of(TrainerArgs))


def _matters(run: Run, patch: ForwardPatch) -> bool:
    """Whether checkpointing is turned on here, or this is a patch for scripts elsewhere."""
    turns_on = any(True for kind in (HfEnable, KbitPrepare, TrainerArgs) for _ in run.of(kind))
    return turns_on or patch.place.walk > 0
