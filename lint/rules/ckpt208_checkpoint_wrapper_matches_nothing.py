"""`apply_activation_checkpointing` with a check that no module of the model passes.

## What it does
Flags `apply_activation_checkpointing(model, check_fn=...)` when the check compares a module with a class instead of
asking `isinstance`, when it asks for the layer class of another model of transformers than the one it is given, or when
the model is made of classes this file shows and none of those asked for is among them.

## Why is this bad?
Nothing is wrapped and nothing is said: training runs without checkpointing.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

model = LlamaForCausalLM.from_pretrained("base")
apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, MistralDecoderLayer))  # error
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
```

## Good
```python
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

import ast
from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors
from ..facts.values import Class, Function, Ref, Result, Value
from ..finding import Severity
from ..model.events import ApplyCheckpointing
from ..model.libraries.transformers_layers import is_checkpointed_layer
from ..model.names import canonical
from ..model.regions.module_tree import module_tree
from ..model.regions.region import classes_checked
from ..model.report import Remark, Report
from ..model.types import bases, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.regions.module_tree import ModuleTree
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT208", "checkpoint-wrapper-matches-nothing", Severity.WARNING
NEEDS = (ApplyCheckpointing,)
_LAYER_ENDINGS = ("DecoderLayer", "EncoderLayer", "Layer", "Block")
#: Modules of torch that are built of others, and classes that others of torch derive from.
_COMPOSED = ("torch.nn.Transformer", "torch.nn.MultiheadAttention")
_GENERAL = frozenset(f"torch.nn.{name}" for name in ("Module", "ModuleList", "ModuleDict", "Sequential", "RNNBase"))
#: A plain text decoder of one family, which holds no layers of another.
_MODEL_ENDINGS = ("ForCausalLM", "LMHeadModel")


def check(run: Run) -> Iterator[Report]:
    """Report checks that are false for every module of the model."""
    for event in run.of(ApplyCheckpointing):
        reason = _compares_with_class(event.check) or _asks_for_others(run, event)
        if reason is not None:
            what, node = reason
            yield Report(
                event.node,
                f"{what}, so nothing is wrapped and training runs without checkpointing; ask "
                f"`isinstance(module, <the class of the layers>)`",
                notes=(Remark(node, "this is false for every module"),),
            )


def _test(check: Value) -> ast.expr | None:
    """The expression that a check function consists of."""
    match check:
        case Function(node=ast.Lambda(body=test)):
            return test
        case Function(node=ast.FunctionDef(body=[ast.Return(value=test)])):
            return test
    return None


def _compares_with_class(check: Value) -> tuple[str, ast.AST] | None:
    """``module is Block`` or ``module == Block``: a module is never its class."""
    test = _test(check)
    match test:
        case ast.Compare(left=ast.Name(left), ops=[ast.Is() | ast.Eq()], comparators=[ast.Name(right)]):
            if isinstance(check, Function) and left in _parameters(check) and _is_class(check.scope.look_up(right)):
                return f"this check compares a module with the class `{right}`", test
    return None


def _parameters(function: Function) -> list[str]:
    return [argument.arg for argument in function.node.args.args]


def _is_class(value: Value) -> bool:
    return isinstance(value, Class) or (isinstance(value, Ref) and is_checkpointed_layer(canonical(value.name)))


def _asks_for_others(run: Run, event: ApplyCheckpointing) -> tuple[str, ast.AST] | None:
    """A single ``isinstance`` whose classes are none of the model's."""
    test = _test(event.check)
    match test:
        case ast.Compare(left=named, ops=[ast.Eq() | ast.In()], comparators=[texts]) if _is_class_name(named):
            asked_names = frozenset(_strings(texts))
            return _named_otherwise(event, asked_names, test) if asked_names else None
        case ast.Call(func=ast.Name("isinstance")):
            asked = classes_checked(event.check, run.bodies)
        case _:
            return None
    model = unwrapped(event.model)
    if asked and (all(_is_of_other_family(model, cls) for cls in asked) or _shows_none(model, asked)):
        return "the model has no module of the class this check asks for", test
    return None


def _is_class_name(node: ast.expr) -> bool:
    """`type(module).__name__` or `module.__class__.__name__`."""
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name("type")) | ast.Attribute(attr="__class__"), attr="__name__"):
            return True
    return False


def _strings(node: ast.expr) -> Iterator[str]:
    """The texts of a display or of one constant; none when something else is among them."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    yield from texts if len(texts) == len(parts) else ()


def _named_otherwise(event: ApplyCheckpointing, names: frozenset[str], test: ast.expr) -> tuple[str, ast.AST] | None:
    tree = _shown(unwrapped(event.model))
    held = {cls.name for cls in tree.own} | {name.rpartition(".")[2] for name in tree.torch} if tree else names
    return None if names & held else ("the model has no module of the class whose name this check asks for", test)


def _is_of_other_family(model: Value, cls: Value) -> bool:
    if not (isinstance(model, Result) and isinstance(cls, Ref)):
        return False
    kind, layer = canonical(model.call.name).split("."), canonical(cls.name)
    family = next((kind[1].removesuffix(end) for end in _MODEL_ENDINGS if len(kind) > 1 and kind[1].endswith(end)), "")
    if kind[0] != "transformers" or not family or family.startswith("Auto") or not is_checkpointed_layer(layer):
        return False
    name = layer.rpartition(".")[2]
    other = next(name.removesuffix(end) for end in _LAYER_ENDINGS if name.endswith(end))
    return not (family.lower().startswith(other.lower()) or other.lower().startswith(family.lower()))


def _shows_none(model: Value, asked: list[Value]) -> bool:
    """Whether every module of the model is shown, of torch or of this file, and none is of a class asked for."""
    tree = _shown(model)
    return tree is not None and all(_is_none_of(tree, cls) for cls in asked)


def _shown(model: Value) -> ModuleTree | None:
    """The kinds of all modules of the model; None when some are not shown."""
    tree = module_tree(model)
    if tree is None or not (tree.own or tree.torch) or any(name.startswith(_COMPOSED) for name in tree.torch):
        return None
    return tree


def _is_none_of(tree: ModuleTree, asked: Value) -> bool:
    match asked:
        case Ref(name):
            name = canonical(name)
            is_leaf = name.startswith("torch.nn.") and name not in _GENERAL
            return is_leaf and name not in tree.torch and not any(name in bases(kind) for kind in tree.own)
        case Class():
            return not any(kind is asked or asked in ancestors(kind) for kind in tree.own)
    return False
