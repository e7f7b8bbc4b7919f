"""`apply_activation_checkpointing` with a check that no module of the model passes.

## What it does
Flags `apply_activation_checkpointing(model, check_fn=...)` when the check compares a module with a class instead of
asking `isinstance`, or its class with a tuple of classes, when it asks, by class or by its name, for the layer class of
another model of transformers than the one it is given, or when the model is made of classes this file shows and none of
those asked for, by class, name or part of a name, is among them. The model of an Auto class is known by its
configuration and by well-known names of weights (`mistralai/Mistral-7B-v0.3`).

## Why is this bad?
Nothing is wrapped and nothing is said: training runs without checkpointing.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

model = LlamaForCausalLM.from_pretrained("base")
apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, MistralDecoderLayer))  # error
apply_activation_checkpointing(model, check_fn=lambda m: type(m).__name__ == "MistralDecoderLayer")  # error
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import Gemma2ForCausalLM
from transformers.models.gemma.modeling_gemma import GemmaDecoderLayer

model = Gemma2ForCausalLM.from_pretrained("base")  # Its layers are of `Gemma2DecoderLayer`.
apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, GemmaDecoderLayer))  # error
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def enable(model, layer):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, layer))  # error

enable(AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3"), LlamaDecoderLayer)
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

def compare(model):
    apply_activation_checkpointing(model, check_fn=lambda module: module is Block)  # error

def compare_with_text(model):
    apply_activation_checkpointing(model, check_fn=lambda module: type(module) == "Block")  # error

def is_block(module):
    return module == Block

def compare_by_name(model):
    apply_activation_checkpointing(model, check_fn=is_block)  # error

def other_class():
    model = nn.Sequential(Block(), nn.GELU(), Block())
    apply_activation_checkpointing(  # error
        model, check_fn=lambda module: isinstance(module, nn.TransformerEncoderLayer)
    )
    return model
```

```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

net = nn.Sequential(Layer(), Layer())
apply_activation_checkpointing(net, check_fn=lambda module: type(module).__name__ == "Block")  # error
apply_activation_checkpointing(net, check_fn=lambda module: module.__class__.__name__ in ("Layer", "Block"))
apply_activation_checkpointing(net, check_fn=lambda module: type(module).__name__.endswith("Block"))  # error
apply_activation_checkpointing(net, check_fn=lambda m: type(m).__name__.startswith(("Block", "layer")))  # error
apply_activation_checkpointing(net, check_fn=lambda module: "block" in type(module).__name__.lower())  # error
```

```python
import re
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

net = nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.GELU())
apply_activation_checkpointing(net, check_fn=lambda m: re.match(r"\\w*Block$", m.__class__.__name__))  # error
apply_activation_checkpointing(  # error
    net, check_fn=lambda m: m.__class__.__name__ == "Block" or bool(re.search("Layer", m.__class__.__name__))
)
```
```python
import functools
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

class Unused(nn.Module):
    pass

net = nn.Sequential(Block(), Block())
layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Unused, nn.TransformerEncoderLayer})
apply_activation_checkpointing(net, auto_wrap_policy=ModuleWrapPolicy({Unused}))  # error
apply_activation_checkpointing(net, auto_wrap_policy=layers)  # error
apply_activation_checkpointing(net, check_fn=lambda module: type(module) is nn.TransformerEncoderLayer)  # error
```
```python
from functools import partial

import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

def is_one_of(module, kinds):
    return isinstance(module, kinds)

model = nn.Sequential(Block(), Block())
apply_activation_checkpointing(model, check_fn=partial(is_one_of, kinds=(nn.TransformerEncoderLayer,)))  # error
```

## Good
```python
from functools import partial

import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

def is_one_of(module, kinds):
    return isinstance(module, kinds)

def wrap(kinds):
    model = nn.Sequential(Block(), Block())
    apply_activation_checkpointing(model, check_fn=partial(is_one_of, kinds=kinds))

apply_activation_checkpointing(nn.Sequential(Block(), Block()), check_fn=partial(is_one_of, kinds=(Block,)))
```
```python
import functools
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

net = nn.Sequential(Block(), nn.TransformerEncoderLayer(8, 2))
layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})
apply_activation_checkpointing(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
apply_activation_checkpointing(net, auto_wrap_policy=layers)
apply_activation_checkpointing(net, check_fn=lambda module: type(module) is nn.TransformerEncoderLayer)
```
```python
import re
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM, LlamaForCausalLM, LlavaForConditionalGeneration
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from my_project import Net, Special

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

def right(name, chosen):
    model = LlamaForCausalLM.from_pretrained(name)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    apply_activation_checkpointing(
        model, check_fn=lambda module: isinstance(module, (LlamaDecoderLayer, MistralDecoderLayer))
    )
    # Both hold decoders of any family.
    for other in (AutoModelForCausalLM.from_pretrained(name), LlavaForConditionalGeneration.from_pretrained(name)):
        apply_activation_checkpointing(other, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    weights = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
    apply_activation_checkpointing(weights, check_fn=lambda module: isinstance(module, MistralDecoderLayer))
    apply_activation_checkpointing(model, check_fn=lambda module: module is model.model.layers[0])
    apply_activation_checkpointing(model, check_fn=lambda module: type(module) is LlamaDecoderLayer)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, chosen))

def own():
    model = nn.Sequential(Block(), nn.GELU())
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    apply_activation_checkpointing(Net(), check_fn=lambda module: isinstance(module, Block))
    apply_activation_checkpointing(nn.Sequential(Block(), Net()), check_fn=lambda module: isinstance(module, Special))
    encoder = nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2))
    apply_activation_checkpointing(encoder, check_fn=lambda module: isinstance(module, nn.TransformerEncoderLayer))
    apply_activation_checkpointing(encoder, check_fn=lambda module: type(module).__name__.endswith("Layer"))

def by_part_of_a_name(pattern):
    model = nn.Sequential(Block(), nn.GELU())
    apply_activation_checkpointing(model, check_fn=lambda module: "lock" in type(module).__name__)
    apply_activation_checkpointing(model, check_fn=lambda module: "block" in type(module).__name__.lower())
    apply_activation_checkpointing(model, check_fn=lambda module: type(module).__name__.startswith(("Layer", "Bl")))
    apply_activation_checkpointing(model, check_fn=lambda module: re.search("B.*k$", type(module).__name__))
    apply_activation_checkpointing(model, check_fn=lambda module: re.search(pattern, type(module).__name__))
    apply_activation_checkpointing(
        model, check_fn=lambda module: type(module).__name__ == "Layer" or len(list(module.children())) == 1
    )
```

## Evidence
```python
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1,
)

def wrappers(check):
    model = LlamaForCausalLM(config)
    apply_activation_checkpointing(model, check_fn=check)
    return sum(isinstance(module, CheckpointWrapper) for module in model.modules())

assert wrappers(lambda module: isinstance(module, LlamaDecoderLayer)) == 2
assert wrappers(lambda module: isinstance(module, MistralDecoderLayer)) == 0
assert wrappers(lambda module: module is LlamaDecoderLayer) == 0
```

## References
torch 2.13 `torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py` (`apply_activation_checkpointing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..facts.nodes import expression
from ..facts.objects.classes import ancestors
from ..facts.objects.torch_classes import is_known_class, may_be_one_of
from ..facts.values import Class, Const, Ref, Value, options
from ..finding import Severity
from ..model.events import ApplyCheckpointing
from ..model.known_models.transformers_layers import (
    has_no_layer_named,
    is_checkpointed_layer,
    is_misnamed_layer,
    is_of_other_family,
)
from ..model.names import canonical
from ..model.regions.bodies import classes_checked
from ..model.regions.module_tree import module_tree
from ..model.report import Remark, Report
from ..model.types import bases, unwrapped
from ..model.wrapping.check_functions import (
    asks_by_isinstance,
    asks_by_type,
    compared_with,
    compared_with_container,
    conjuncts_of,
    policy_classes,
)
from ..model.wrapping.named_checks import names_asked

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.regions.module_tree import ModuleTree
    from ..model.run import Run
    from ..model.wrapping.named_checks import NamedCheck

CODE, NAME, SEVERITY = "CKPT208", "checkpoint-wrapper-matches-nothing", Severity.WARNING
NEEDS = (ApplyCheckpointing,)
VERSIONS = {"torch": ">=1.13"}
#: Classes that more derive from than torch shows.
_GENERAL = frozenset(f"torch.nn.{name}" for name in ("Module", "ModuleList", "ModuleDict", "Sequential"))


class Reason(NamedTuple):
    """Why no module passes a check, in words, and where."""

    text: str
    node: ast.AST


def check(run: Run) -> Iterator[Report]:
    """Report checks that are false for every module of the model."""
    for event in run.of(ApplyCheckpointing):
        checks = conjuncts_of(event.check)
        reasons = (_compares_with_class(it) or _asks_for_others(run, event.model, it) for it in checks)
        reason = next(filter(None, reasons), None)
        if reason is not None:
            yield Report(
                event.node,
                f"{reason.text}, so nothing is wrapped and training runs without checkpointing; ask "
                f"`isinstance(module, <the class of the layers>)`",
                notes=(Remark(reason.node, "this is false for every module"),),
            )


def _compares_with_class(check: Value) -> Reason | None:
    """``module is Block`` or ``module == Block``: a module is never its class."""
    compared = compared_with(check)
    if compared is not None and isinstance(compared.value, Const):
        return Reason(f"this check compares a class with the text {compared.name}", compared.node)
    if compared is None:
        held = compared_with_container(check)
        return Reason("this check compares a class with what holds classes", held) if held is not None else None
    if not all(map(_is_class, (compared.value, *compared.others))):
        return None
    kind = "classes" if compared.others else "class"
    return Reason(f"this check compares a module with the {kind} `{compared.name}`", compared.node)


def _is_class(value: Value) -> bool:
    if not isinstance(value, Ref):
        return isinstance(value, Class)
    name = canonical(value.name)
    return is_checkpointed_layer(name) or (name.startswith("torch.nn.") and is_known_class(name))


def _asks_for_others(run: Run, whole: Value, check: Value) -> Reason | None:
    """A single question, by class or by its name, to which no module of the model answers yes."""
    model, names = unwrapped(whole), names_asked(check)
    if names is not None:
        if not _shows_no_name(model, names):
            return None
        return Reason("the model has no module of the class whose name this check asks for", names.node)
    test = asks_by_isinstance(check) or asks_by_type(check)
    if policy_classes(check):
        test = expression(check.node)
    kinds = classes_checked(check, run.bodies) if test is not None else []
    asked = [option for kind in kinds for option in options(kind)]
    if test is None or not asked:
        return None
    if all(is_of_other_family(model, cls) for cls in asked) or _shows_none(model, asked):
        return Reason("the model has no module of the class this check asks for", test)
    return None


def _shows_no_name(model: Value, names: NamedCheck) -> bool:
    """Whether every module of the model is shown and none has such a name, or each asked for is of another family."""
    held = _names_held(model)
    if held is None:
        return bool(names.exact) and all(_is_no_layer_of(model, name) for name in names.exact)
    return not any(map(names.accepts, held | {late for name in held for late in _names_later(name)}))


def _is_no_layer_of(model: Value, name: str) -> bool:
    return is_misnamed_layer(model, name) or has_no_layer_named(model, f"transformers.{name}")


def _names_held(model: Value) -> set[str] | None:
    """The names of the classes of all modules of the model; None when some are not shown."""
    tree = _shown(model)
    return {cls.name for cls in tree.own} | {name.rpartition(".")[2] for name in tree.torch} if tree else None


def _names_later(name: str) -> tuple[str, ...]:
    """What torch calls a class while the program runs: built out, parametrized or synchronized."""
    return name.removeprefix("Lazy"), f"Parametrized{name}", "SyncBatchNorm" if "BatchNorm" in name else name


def _shows_none(model: Value, asked: list[Value]) -> bool:
    """Whether every module of the model is shown, of torch or of this file, and none is of a class asked for."""
    tree = _shown(model)
    return tree is not None and all(_is_none_of(tree, cls) for cls in asked)


def _shown(model: Value) -> ModuleTree | None:
    """The kinds of all modules of the model; None when some are not shown."""
    tree = module_tree(model)
    return tree if tree is not None and tree.is_whole and (tree.own or tree.torch) else None


def _is_none_of(tree: ModuleTree, asked: Value) -> bool:
    match asked:
        case Ref(name):
            name = canonical(name)
            held = tree.torch.union(*map(bases, tree.own))
            if is_checkpointed_layer(name):
                return not any(kind.startswith("transformers.") for kind in held)
            is_shown = name.startswith("torch.nn.") and name not in _GENERAL and is_known_class(name)
            return is_shown and not any(may_be_one_of(kind, name) for kind in held)
        case Class():
            return not any(kind is asked or asked in ancestors(kind) for kind in tree.own)
    return False
