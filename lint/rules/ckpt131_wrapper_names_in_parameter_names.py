"""Allow selecting parameters or modules by a name that a checkpoint wrapper interrupts.

## What it does
Flags a test on the names of `named_parameters()` or `named_modules()` after the model's layers were wrapped with
`apply_activation_checkpointing`, when the text reaches across a layer's index (`"layers.0.mlp"`), and a regular
expression for LoRA's `target_modules` that does, when the adapter is attached after the wrapping.

## Why is this bad?
Below every wrapped layer the names contain `_checkpoint_wrapped_module`, although `state_dict()` shows the old ones:
`model.layers.0.mlp...` is called `model.layers.0._checkpoint_wrapped_module.mlp...`. Optimizer groups and freezing by
name match nothing, silently; a LoRA pattern raises that no module was found.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def groups(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    return [p for n, p in model.named_parameters() if n.startswith("model.layers.0.mlp")]  # error
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def freeze(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    for name, parameter in model.named_parameters():
        if name.startswith(("model.embed", "model.layers.0.mlp", "model.layers.1.mlp")):  # error
            parameter.requires_grad = False
```
```python
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def attach(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    return get_peft_model(model, LoraConfig(target_modules=r".*layers\\.\\d+\\.self_attn\\.q_proj"))  # error
```

## Good
```python
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def groups(model, is_block):
    first = [p for n, p in model.named_parameters() if n.startswith("model.layers.0.mlp")]
    apply_activation_checkpointing(model, check_fn=is_block)
    decay = [p for n, p in model.named_parameters() if not n.endswith("bias") and "norm" not in n]
    layer = [p for n, p in model.named_parameters() if n.startswith("model.layers.0.")]
    return first, decay, layer

def attach(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj"]))
    return get_peft_model(model, LoraConfig(target_modules=r".*\\.self_attn\\.q_proj"))
```

## Evidence
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = torch.nn.Linear(2, 2)

model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Block()])})
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
names = [name for name, _ in model.named_parameters()]
assert not any(name.startswith("layers.0.mlp") for name in names)
assert all(name.startswith("layers.0._checkpoint_wrapped_module.mlp") for name in names)
assert "layers.0.mlp.weight" in model.state_dict()
```

## References
torch 2.13 `torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py` (`named_parameters`,
`_post_state_dict_hook`).
"""

from __future__ import annotations

import ast
import re
from itertools import islice
from typing import TYPE_CHECKING

from ..facts.values import Const, Result
from ..finding import Severity
from ..model.events import AdapterAttach, ApplyCheckpointing
from ..model.names import canonical
from ..model.report import Remark, Report
from ..model.sharding import root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT131", "wrapper-names-in-parameter-names", Severity.ERROR
TRIGGERS = ("apply_activation_checkpointing",)

_WRAPPED = "_checkpoint_wrapped_module."
#: Names of parameters as real models have them, cut where a wrapped layer begins.
_STEMS = (
    "model.layers.{}.",
    "transformer.h.{}.",
    "encoder.layer.{}.",
    "layers.{}.",
    "blocks.{}.",
    "model.decoder.layers.{}.",
)
_LEAVES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj", "mlp.up_proj", "attn.c_attn", "attn.qkv", "mlp.fc1")
_REACHES_INSIDE = re.compile(r"(?:^|\.)[a-z_]+\.\d+\.[a-z_]\w*")


def check(run: Run) -> Iterator[Report]:
    """Report names and patterns that meant something before the wrapping."""
    for wrap in run.of(ApplyCheckpointing):
        model = root(wrap.model)
        for call in run.method_calls("named_parameters", "named_modules"):
            later = call.order > wrap.order and call.place.walk == wrap.place.walk
            if later and root(call.receiver) is model:
                for text in _names_tested(run, call):
                    yield _report(text, wrap, "this name")
        for attach in run.of(AdapterAttach):
            pattern = _pattern(attach)
            if pattern is not None and attach.order > wrap.order and root(attach.model) is model:
                yield _report(pattern, wrap, "this pattern")


def _names_tested(run: Run, names: Call) -> Iterator[ast.Constant]:
    """The texts that the names of ``names`` are tested with and that reach into a layer; of a tuple, the first."""
    for loop in ast.walk(run.program.tree):
        for part in _loop_over(loop, names.node):
            for texts in _texts(part):
                yield from islice(filter(_is_interrupted, texts), 1)


def _texts(test: ast.AST) -> Iterator[list[ast.Constant]]:
    """The constants in ``test``, those of one tuple or list together."""
    match test:
        case ast.Constant():
            yield [test]
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            yield [item for item in items if isinstance(item, ast.Constant)]
        case _:
            for child in ast.iter_child_nodes(test):
                yield from _texts(child)


def _is_interrupted(text: ast.Constant) -> bool:
    name = text.value
    return isinstance(name, str) and _WRAPPED not in name and _REACHES_INSIDE.search(name) is not None


def _loop_over(loop: ast.AST, names: ast.Call) -> list[ast.AST]:
    """Where a loop over ``names`` tests them; empty for any other node."""
    if isinstance(loop, ast.comprehension) and loop.iter is names:
        return [*loop.ifs]
    if isinstance(loop, ast.For) and loop.iter is names:
        return [inner.test for statement in loop.body for inner in ast.walk(statement) if isinstance(inner, ast.If)]
    return []


def _pattern(attach: AdapterAttach) -> ast.AST | None:
    """The ``target_modules`` of the adapter, when it is an expression that matches unwrapped names only."""
    config = attach.config
    if not isinstance(config, Result) or not canonical(config.call.name).startswith("peft."):
        return None
    target = config.call.keyword("target_modules")
    if not isinstance(target, Const) or not isinstance(target.value, str):
        return None
    try:
        pattern = re.compile(target.value)
    except re.error:
        return None
    stems = [stem.format(index) for stem in _STEMS for index in (0, 3, 11)]
    plain = any(pattern.fullmatch(stem + leaf) for stem in stems for leaf in _LEAVES)
    wrapped = any(pattern.fullmatch(stem + _WRAPPED + leaf) for stem in stems for leaf in _LEAVES)
    return target.node if plain and not wrapped else None


def _report(node: ast.AST, wrap: ApplyCheckpointing, what: str) -> Report:
    return Report(
        node,
        f"{what} matches nothing: below every wrapped layer names contain `_checkpoint_wrapped_module`; "
        "select before wrapping",
        notes=(Remark(wrap.node, "the layers are wrapped here"),),
    )
