"""A checkpointing flag that is set on a finished transformers model, or `checkpointing_enable` without a call.

## What it does
Flags `model.config.gradient_checkpointing = True` and `model.gradient_checkpointing = True` on a model of transformers
that nothing in this file enables checkpointing for, the same on its encoder or decoder (Dinov2, Swin, Wav2Vec2, Whisper
and such among them), on a tower of CLIP (`model.vision_model.gradient_checkpointing = True`) or in a loop over its
layers or modules, on a module of torch such as `nn.TransformerEncoder` in a file that never reads the flag, the
statement `model.gradient_checkpointing_enable` without parentheses, and `model.gradient_checkpointing_enable = True`,
which replaces the method.

## Why is this bad?
The configuration is read when the model is built, and the flag that counts is the one of each layer, which needs the
function that `gradient_checkpointing_enable()` puts beside it. Nothing is checkpointed; `is_gradient_checkpointing` can
say True all the same. A layer that has the flag without this function raises an AttributeError in train mode. A method
that is replaced by a value raises where something calls it later, as a Trainer or `prepare_model_for_kbit_training` do:
`'bool' object is not callable`.

## Bad
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.config.gradient_checkpointing = True  # error
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def build(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.model.gradient_checkpointing = True  # error
    return get_peft_model(model, LoraConfig())
```
```python
from transformers import T5ForConditionalGeneration

model = T5ForConditionalGeneration.from_pretrained("t5")
model.encoder.gradient_checkpointing = True  # error
model.decoder.gradient_checkpointing = True  # error
model.train()
```
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable  # error
model.train()
```
```python
from transformers import AutoModelForCausalLM

class Chat:
    def load(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable = True  # error
```

```python
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)
        self.encoder.gradient_checkpointing = True  # error

    def forward(self, x):
        return self.encoder(x)
```
```python
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

def save_memory(model):
    model.gradient_checkpointing = True  # error
    return model

def train(name, optimizer, loader):
    accelerator = Accelerator()
    model = save_memory(AutoModelForCausalLM.from_pretrained(name))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    for batch in loader:
        accelerator.backward(model(**batch).loss)
```
```python
from transformers import AutoModelForCausalLM

def save_memory(model):
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True  # error

model = AutoModelForCausalLM.from_pretrained("base")
save_memory(model)
```
```python
from transformers import T5Config, T5ForConditionalGeneration

def build(settings, name):
    if settings:
        model = T5ForConditionalGeneration(T5Config(**settings))
    else:
        model = T5ForConditionalGeneration.from_pretrained(name)
    model.config.gradient_checkpointing = True  # error
    return model
```
```python
from transformers import CLIPModel

model = CLIPModel.from_pretrained("base")
model.vision_model.gradient_checkpointing = True  # error
for tower in (model.vision_model, model.text_model):
    tower.encoder.gradient_checkpointing = True  # error
model.get_submodule("text_model.encoder").gradient_checkpointing = True  # error
setattr(model.text_model, "gradient_checkpointing", True)  # error
for layer in model.vision_model.encoder.layers:
    layer.gradient_checkpointing = True  # error
model.train()
```
```python
from transformers import AutoModelForCausalLM

SETTINGS = {"model": "base", "flags": {"use_cache": False, "gradient_checkpointing": True}}

def load(settings):
    model = AutoModelForCausalLM.from_pretrained(settings["model"])
    for name, value in settings.get("flags", {}).items():
        setattr(model.config, name, value)  # error
    return model

load(SETTINGS)
```

```python
from transformers import AutoModelForTokenClassification

model = AutoModelForTokenClassification.from_pretrained("base", num_labels=9)
model.config.update({"hidden_dropout_prob": 0.0, "gradient_checkpointing": True})  # error
```
```python
from transformers import CLIPModel

def build(name):
    model = CLIPModel.from_pretrained(name)
    model.vision_model.encoder.gradient_checkpointing = True  # error
    model.text_model.gradient_checkpointing_enable()
    return model.train()
```

## Good
```python
from transformers import CLIPModel

def build(name):
    model = CLIPModel.from_pretrained(name)
    model.vision_model.encoder.gradient_checkpointing = True
    model.gradient_checkpointing_enable()
    return model.train()

def build_vision(name):
    model = CLIPModel.from_pretrained(name)
    model.vision_model.encoder.gradient_checkpointing = True
    model.vision_model.gradient_checkpointing_enable()
    return model.train()
```
```python
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

def configured(name):
    config = AutoConfig.from_pretrained(name)
    config.update({"gradient_checkpointing": True})
    model = AutoModelForTokenClassification.from_pretrained(name, config=config)
    model.config.update({"use_cache": False, "gradient_checkpointing": False})
    return model

def enabled_too(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.config.update({"use_cache": False, "gradient_checkpointing": True})
    model.activation_checkpointing_enable()
    return model
```
```python
from transformers import AutoModelForCausalLM

def load():
    model = AutoModelForCausalLM.from_pretrained("base")
    for name, value in (("use_cache", True), ("gradient_checkpointing", False)):
        setattr(model.config, name, value)
    return model
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.layers.gradient_checkpointing = True

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.layers.gradient_checkpointing else layer(x)
        return x
```
```python
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments

def before_it_is_built(name):
    config = AutoConfig.from_pretrained(name)
    config.gradient_checkpointing = True
    return AutoModelForCausalLM.from_config(config)

def enabled(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.config.gradient_checkpointing = True
    model.gradient_checkpointing_enable()
    return model
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, GemmaForCausalLM, PreTrainedModel, Trainer, TrainingArguments

from own_package import OwnEncoder, run_stack

class MyModel(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gradient_checkpointing = True

def of_what_the_importing_file_asks(width):
    trunk = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    trunk.gradient_checkpointing = True
    return trunk

class Given(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stack = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.stack.gradient_checkpointing = True

    def forward(self, x):
        return run_stack(self.stack, x)

class Inherited(OwnEncoder):
    def __init__(self, width):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.encoder.gradient_checkpointing = True

def by_trainer(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.config.gradient_checkpointing = True
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True)).train()

def off(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.config.gradient_checkpointing = False
    return model

class Pair(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.expert = GemmaForCausalLM(config)

    def enable(self):
        self.expert.model.gradient_checkpointing = True

    def forward(self, x):
        if self.expert.model.gradient_checkpointing and self.training:
            return checkpoint(self.expert.model.layers[0], x, use_reentrant=False)
        return self.expert.model.layers[0](x)

def of_another_library(unet, name):
    unet.gradient_checkpointing = True
    model = AutoModelForCausalLM.from_pretrained(name)
    model.config.gradient_checkpointing = True
    return AutoModelForCausalLM.from_config(model.config)
```

```python
from functools import partial

from torch.utils.checkpoint import checkpoint
from transformers import T5ForConditionalGeneration

model = T5ForConditionalGeneration.from_pretrained("t5")
model.encoder.gradient_checkpointing = True
for block in model.encoder.block:
    block.gradient_checkpointing = True
    block._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
```

```python
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel

class MyModel(PreTrainedModel):
    def forward(self, x):
        if self.config.gradient_checkpointing:
            return checkpoint(self.block, x, use_reentrant=False)
        return self.block(x)

def one_of_two(name, settings):
    model = AutoModelForCausalLM.from_pretrained(name) if name else MyModel(settings)
    model.config.gradient_checkpointing = True
    return model

def goes_on_to_build(name):
    model = AutoModelForCausalLM.from_pretrained(name) if name else AutoModelForCausalLM.from_pretrained("base")
    model.config.gradient_checkpointing = True
    return AutoModelForCausalLM.from_config(model.config)
```

## Fix safety
Unsafe: checkpointing begins to work, which is what was meant but changes the speed of the run.

## Evidence
```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

settings = dict(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)
ids = torch.ones(1, 4, dtype=torch.long)

def runs(change, **more):
    model = LlamaForCausalLM(LlamaConfig(**settings, **more))
    change(model)
    count = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: count.append(1))
    model(input_ids=ids, labels=ids).loss.backward()
    return len(count)

assert runs(lambda model: setattr(model.config, "gradient_checkpointing", True)) == 1
assert runs(lambda model: setattr(model.model, "gradient_checkpointing", True)) == 1
assert runs(lambda model: setattr(model, "gradient_checkpointing", True)) == 1
assert runs(lambda model: model.gradient_checkpointing_enable) == 1
assert runs(lambda model: setattr(model, "gradient_checkpointing_enable", True)) == 1
try:
    runs(lambda model: setattr(model.model.layers[0], "gradient_checkpointing", True))
except AttributeError as error:
    assert "_gradient_checkpointing_func" in str(error)
else:
    raise AssertionError("a layer needs the function beside the flag")
assert runs(lambda model: model.gradient_checkpointing_enable()) == 2
assert runs(lambda model: None, gradient_checkpointing=True) == 2

def block_runs(change):
    model = T5ForConditionalGeneration(
        T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )
    change(model)
    count = []
    model.encoder.block[0].layer[0].SelfAttention.register_forward_pre_hook(lambda *_: count.append(1))
    model.train()(input_ids=ids, labels=ids).loss.backward()
    return len(count)

assert block_runs(lambda model: setattr(model.encoder, "gradient_checkpointing", True)) == 1
assert block_runs(lambda model: model.gradient_checkpointing_enable()) == 2
```

## References
transformers 5.23 `modeling_utils.py` (`PreTrainedModel.__init__` reads `config.gradient_checkpointing`),
`modeling_layers.py` (`self.gradient_checkpointing and self.training`).
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from ..facts.identifiers import names_in
from ..facts.nodes import attribute, source_text
from ..facts.values import Attr, Class, Element, Function, Method, Result, Value, equals, options, same
from ..finding import Applicability, Severity
from ..model.conditions.guards import own_guards
from ..model.events import FlagWrite, OverwrittenEnable, TorchCheckpoint, UncalledEnable
from ..model.flow.iterations import bound_each_iteration
from ..model.known_models.model_families import family_of
from ..model.known_models.plain_stacks import BASES, has_plain_stacks
from ..model.known_models.transformers_layers import model_of_layer
from ..model.libraries.finished_models import finished_model, trainer_may_enable
from ..model.libraries.sharding import is_in, root
from ..model.names import canonical
from ..model.report import DeleteStatement, InsertBefore, Replace, Report, Rewrite
from ..model.types import bases, is_accelerator, is_hf_model, is_loaded, may_be_same_model, origins, unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..facts.walk import Write
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT205", "checkpointing-flag-assignment", Severity.WARNING
NEEDS = (UncalledEnable, OverwrittenEnable, FlagWrite)
VERSIONS = {"transformers": ">=4.53"}
_METHODS = ("gradient_checkpointing_enable", "activation_checkpointing_enable")
#: Where models of the families that are known keep their stacks, which read the flag for a warning at most.
_STACKS = frozenset(("encoder", "decoder", "transformer", "model", "bert", "roberta", "vision_model", "text_model"))
#: Modules of torch whose own `forward` runs the layers in them.
_OF_TORCH = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Sequential", "Transformer", "TransformerEncoder", "TransformerDecoder"),
        *("TransformerEncoderLayer", "TransformerDecoderLayer", "MultiheadAttention", "LSTM", "GRU", "RNN"),
    )
)
#: Packages of which nothing asks a module of torch for the flag.
_READ_NO_FLAG = ("torch.", "builtins.", "transformers.", "lightning.", "pytorch_lightning.", "peft.", "accelerate.")
#: A place that sets or reads the flag of an object.
_MENTION = re.compile(r"""\.gradient_checkpointing\b|["']gradient_checkpointing["']""")
_OWN_FUNCTION = "_gradient_checkpointing_func"


def check(run: Run) -> Iterator[Report]:
    """Report flags that come too late or to the wrong object, and methods that are not called."""
    yield from _not_called(run)
    yield from _on_torch(run)
    if trainer_may_enable(run):
        return
    by_hand = any(write.field == _OWN_FUNCTION for write in run.writes)
    by_hand = by_hand or any(run.method_calls("_set_gradient_checkpointing"))
    for flag in run.of(FlagWrite):
        targets = options(flag.target)
        is_late = all(_is_late(it, flag, by_hand) for it in targets)
        in_layers = not by_hand and all(map(_is_in_layers, targets)) and not _is_picked(flag)
        enabled = any(
            not (_is_beside(call.receiver, flag.target) or _is_another(call.receiver, flag.target))
            for call in run.method_calls(*_METHODS)
        )
        if enabled or not (is_late or in_layers) or equals(flag.value, True) is False:
            continue
        if not _is_read_again(run, flag) and not _is_asked_for(run, flag):
            yield _report(run, flag, in_layers)


def _is_late(obj: Value, flag: FlagWrite, by_hand: bool) -> bool:
    return finished_model(obj, options(flag.target)) is not None or (not by_hand and _is_stack(obj))


def _is_beside(enabled: Value, target: Value) -> bool:
    """Whether ``enabled`` is another part of the model than ``target``: the text tower of one, the vision tower."""
    models = options(enabled)
    is_other = all(isinstance(it, Attr) and not is_in(target, it) and not is_in(it, target) for it in models)
    return is_other and all(root(it) is root(part) for it in models for part in options(target))


def _is_another(enabled: Value, target: Value) -> bool:
    """Whether ``enabled`` was loaded by itself, and so was the one with the flag ``target``: no model is in both."""
    models = [finished_model(option) for option in options(target)]
    return all(map(is_loaded, origins(enabled))) and all(
        model is not None and all(map(is_loaded, origins(model))) and not may_be_same_model(enabled, model)
        for model in models
    )


def _not_called(run: Run) -> Iterator[Report]:
    for named in run.of(UncalledEnable):
        name = named.node.attr
        fix = Rewrite(Applicability.UNSAFE, "Call it", (Replace(named.node, f"{source_text(named.node)}()"),))
        yield Report(named.node, f"`{name}` is not called, so this does nothing; write `{name}()`", fix=fix)
    for made in run.of(OverwrittenEnable):
        method, target = made.write.field, made.write.target
        yield Report(
            made.node,
            f"this replaces the method and checkpoints nothing, and what calls it later raises; write `{method}()`",
            fix=_call_in_place(made.write, None if target is None else target.value, method),
        )


def _call_in_place(write: Write, model: ast.expr | None, method: str) -> Rewrite | None:
    """Call the method in place of the statement that sets something."""
    statement = write.statement
    if statement is None or model is None:
        return None
    changes = (InsertBefore(statement, f"{source_text(model)}.{method}()"), DeleteStatement(statement))
    return Rewrite(Applicability.UNSAFE, f"Call `{method}()`", changes)


def _on_torch(run: Run) -> Iterator[Report]:
    """Flags on modules of torch, which know none, in programs that never ask for the flag themselves."""
    flags = [flag for flag in run.of(FlagWrite) if _is_of_torch(flag.target)]
    texts = run.program.text, *run.program.texts.values()
    if sum(len(_MENTION.findall(text)) for text in texts) > len(flags):
        return
    for flag in flags:
        known = run.program.script is not None or _is_part_of_self(flag)
        if equals(flag.value, True) and known and not _may_be_asked_elsewhere(run, flag):
            yield Report(
                flag.node,
                "no module of torch reads this flag, so nothing is checkpointed; call `checkpoint` for each layer",
            )


def _is_part_of_self(flag: FlagWrite) -> bool:
    """Whether a class sets the flag of what its own `forward` runs; what a function gives away, other files may ask."""
    target = attribute(flag.write.target)
    return target is not None and source_text(target.value).startswith("self.")


def _may_be_asked_elsewhere(run: Run, flag: FlagWrite) -> bool:
    """Whether code that the program does not show gets the module: it may ask for the flag and checkpoint."""
    given = (call for call in run.uses.handed_over.of(flag.target) if not isinstance(call.func, Class | Function))
    if any(not canonical(call.name).startswith(_READ_NO_FLAG) for call in given):
        return True
    function = flag.place.function
    owner = function.owner if function is not None and _is_part_of_self(flag) else None
    # The `forward` of another base may run the part.
    return owner is not None and any(not base.startswith(_READ_NO_FLAG) for base in bases(owner))


def _is_of_torch(value: Value) -> bool:
    """Whether ``value`` is certainly a module of torch that runs a forward pass of its own."""
    return isinstance(value, Result) and canonical(value.call.name) in _OF_TORCH


def _is_stack(obj: Value) -> bool:
    """Whether ``obj`` is the encoder, decoder or backbone of a finished model, of a family that is known."""
    depth = 0
    while isinstance(obj, Attr) and obj.name in _STACKS and depth < 4:
        obj, depth = obj.base, depth + 1
    obj = obj.base if isinstance(obj, Attr) and obj.name in BASES else obj
    models = options(unwrapped(obj))
    return depth > 0 and is_hf_model(obj) and all(family_of(model) or has_plain_stacks(model) for model in models)


def _is_in_layers(value: Value) -> bool:
    """Whether ``value`` is any of the modules, or of the layers, of a finished model."""
    if model_of_layer(value) is not None:
        return True
    passed = value
    while isinstance(passed, Element):
        passed = passed.of
    goes_through = isinstance(passed, Result) and passed.call.method in ("modules", "named_modules")
    return isinstance(value, Element) and goes_through and finished_model(root(value)) is not None


def _is_picked(flag: FlagWrite) -> bool:
    """Whether a condition picks the modules that get the flag, other than by asking whether they have it."""
    passed = bound_each_iteration(flag.place)
    asked = (guard for guard in own_guards(flag.place) if not names_in(guard.test).isdisjoint(passed))
    return any(not (isinstance(it.value, Result) and it.value.call.name == "builtins.hasattr") for it in asked)


def _is_read_again(run: Run, flag: FlagWrite) -> bool:
    """Whether the configuration goes on to build a model, or code that is not shown gets what has the flag."""
    targets = options(flag.target)
    is_config = any(isinstance(target, Attr) and target.name == "config" for target in targets)
    later = (call for call in run.uses.handed_over.of(*targets) if call.order > flag.order)
    return any(
        same(value, target)
        for call in later
        if is_config or not (isinstance(call.func, Class | Function | Method) or _knows_no_flag(call))
        for given in (*call.args, *call.kwargs.values())
        for value, target in product(options(given), targets)
    )


def _knows_no_flag(call: Call) -> bool:
    """Whether a library is called that never asks a model for the flag."""
    return canonical(call.name).startswith(_READ_NO_FLAG) or is_accelerator(call.receiver)


def _is_asked_for(run: Run, flag: FlagWrite) -> bool:
    """Whether the program asks for the flag of this part of the model, to checkpoint by itself."""
    target = attribute(flag.write.target)
    owner = None if target is None else source_text(target.value).rpartition(".")[2]
    if owner is None or owner == "config":
        return False
    read = re.compile(rf"\b{re.escape(owner)}\.gradient_checkpointing\b(?!\s*=[^=])")
    return any(map(read.search, (run.program.text, *run.program.texts.values())))


def _report(run: Run, flag: FlagWrite, in_layers: bool) -> Report:
    enable = _METHODS[0] if run.versions.may_be("transformers", "<5.23") else _METHODS[1]
    what = (
        f"a layer with this flag and without `{_OWN_FUNCTION}` raises an AttributeError when it is trained"
        if in_layers
        else "this flag has no effect on a model that is built"
    )
    return Report(
        flag.node,
        f"{what}; call `{enable}()` of the model",
        # Where the program checkpoints by itself, the method would do it twice.
        fix=None if any(run.of(TorchCheckpoint)) else _fix(flag, enable),
        assumes=_condition(flag),
    )


def _condition(flag: FlagWrite) -> str | None:
    """What must hold for the flag to be set at all; None where it certainly is."""
    if equals(flag.value, True):
        return None
    given = flag.write.written
    return "the flag is set" if given is None else f"`{source_text(given)}`"


def _fix(flag: FlagWrite, enable: str) -> Rewrite | None:
    target = flag.write.target
    if target is None or not equals(flag.value, True):
        return None
    if any(finished_model(option) is None for option in options(flag.target)):
        return None  # One call stands for the flags of several stacks.
    owner = attribute(target.value)
    return _call_in_place(
        flag.write, owner.value if owner is not None and owner.attr == "config" else target.value, enable
    )
