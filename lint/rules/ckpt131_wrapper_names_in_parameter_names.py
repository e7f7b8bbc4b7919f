"""Selecting parameters or modules by a name that a checkpoint wrapper interrupts.

## What it does
Flags a test on the names of `named_parameters()` or `named_modules()` after the model's layers were wrapped with
`apply_activation_checkpointing`, when the text reaches across a layer's index (`"layers.0.mlp"`), and a regular
expression for LoRA's `target_modules` that does, when the adapter is attached after the wrapping. Names that went
through a call first (`name.replace(...)`), and loops that mention the wrapper's name, are fine.

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

```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = nn.Linear(8, 8), nn.Linear(8, 8)

def groups():
    net = Net()
    net.attn = checkpoint_wrapper(net.attn)
    whole = [p for n, p in net.named_parameters() if n.startswith("attn.")]
    other = [p for n, p in net.named_parameters() if n == "mlp.weight"]
    return whole, other, [p for n, p in net.named_parameters() if n == "attn.weight"]  # error
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

def freeze(model, is_block, clean_name):
    apply_activation_checkpointing(model, check_fn=is_block)
    for name, parameter in model.named_parameters():
        name = name.replace("_checkpoint_wrapped_module.", "")
        if "layers.0.mlp" in name:
            parameter.requires_grad = False
    for name, parameter in model.named_parameters():
        if "layers.0.mlp" in clean_name(name):
            parameter.requires_grad = False

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

from ..facts.values import Const, Result, same
from ..finding import Severity
from ..model.events import AdapterAttach, ApplyCheckpointing, CheckpointWrap, WrapperCheckpointing
from ..model.libraries.sharding import root
from ..model.names import canonical
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT131", "wrapper-names-in-parameter-names", Severity.ERROR
NEEDS = (ApplyCheckpointing, CheckpointWrap)

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
#: Methods of a name, and functions of `re`, that test it.
_TESTS = frozenset(("startswith", "endswith", "find"))
_MATCHES = frozenset(("match", "fullmatch", "search"))
_REACHES_INSIDE = re.compile(r"(?:^|\.)[a-z_]+\.\d+\.[a-z_]\w*")


def check(run: Run) -> Iterator[Report]:
    """Report names and patterns that meant something before the wrapping."""
    for wrap in run.of(ApplyCheckpointing):
        model = root(wrap.model)
        for call in run.method_calls("named_parameters", "named_modules"):
            later = call.order > wrap.order and call.place.walk == wrap.place.walk
            if later and root(call.receiver) is model:
                for text in _names_tested(run, call, _REACHES_INSIDE):
                    yield _report(text, wrap, "this name")
        for attach in run.of(AdapterAttach):
            pattern = _pattern(attach)
            if pattern is not None and attach.order > wrap.order and root(attach.model) is model:
                yield _report(pattern, wrap, "this pattern")
    for single in run.of(CheckpointWrap):
        yield from _below_attribute(run, single)


def _below_attribute(run: Run, wrap: CheckpointWrap) -> Iterator[Report]:
    """Names below ``model.block = checkpoint_wrapper(model.block)``."""
    for write in run.writes:
        if not (isinstance(write.value, Result) and write.value.call is wrap.call) or write.is_item:
            continue
        below = re.compile(rf"^{re.escape(write.field)}\.[a-z_]\w*")
        for call in run.method_calls("named_parameters", "named_modules"):
            later = call.order > wrap.order and call.place.walk == wrap.place.walk
            if later and same(call.receiver, write.obj) and not call.place.excludes(wrap.place):
                for text in _names_tested(run, call, below):
                    yield _report(text, wrap, "this name")


def _names_tested(run: Run, names: Call, interrupted: re.Pattern[str]) -> Iterator[ast.Constant]:
    """The texts that the names of ``names`` are tested with and that reach into a layer; of a tuple, the first."""
    for loop in ast.walk(run.program.tree):
        if isinstance(loop, ast.For | ast.comprehension) and loop.iter is names.node:
            name = _untouched_name(loop)
            for test in _tests(loop) if name else ():
                for texts in _texts(test, name):
                    yield from islice((text for text in texts if _is_found(interrupted, text)), 1)


def _untouched_name(loop: ast.For | ast.comprehension) -> str:
    """The variable that holds a name as the model has it; empty when the loop changes it or knows of the wrappers."""
    match loop.target:
        case ast.Name(id=name) | ast.Tuple(elts=[ast.Name(id=name), _]):
            for node in _inside(loop):
                match node:
                    case ast.Name(id=bound, ctx=ast.Store()) | ast.arg(arg=bound) if bound == name:
                        return ""
                    case ast.Constant(value=str(text)) if _WRAPPED.rstrip(".") in text:
                        return ""
            return name
    return ""


def _inside(loop: ast.For | ast.comprehension) -> Iterator[ast.AST]:
    for part in loop.body if isinstance(loop, ast.For) else loop.ifs:
        yield from ast.walk(part)


def _tests(loop: ast.For | ast.comprehension) -> list[ast.expr]:
    if isinstance(loop, ast.comprehension):
        return loop.ifs
    return [node.test for node in _inside(loop) if isinstance(node, ast.If)]


def _texts(test: ast.expr, name: str) -> Iterator[list[ast.Constant]]:
    """The constants that the variable ``name`` itself is tested with, those of one tuple or list together."""
    each = {
        node.target.id: node.iter
        for node in ast.walk(test)
        if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(test):
        text = _tested_with(node, name)
        match each.get(text.id, text) if isinstance(text, ast.Name) else text:
            case ast.Constant() as constant:
                yield [constant]
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                yield [item for item in items if isinstance(item, ast.Constant)]


def _tested_with(node: ast.AST, name: str) -> ast.expr | None:
    """What ``node`` compares the variable ``name`` with or looks for in it; None when it does something else."""
    match node:
        case ast.Compare(
            left=text, ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq()], comparators=[ast.Name(id=own)]
        ):
            return text if own == name else None
        case ast.Compare(left=ast.Name(id=own), ops=[ast.Eq() | ast.NotEq()], comparators=[text]):
            return text if own == name else None
        case ast.Compare(left=ast.Name(id=own), ops=[ast.In() | ast.NotIn()], comparators=[text]):
            return text if own == name and not isinstance(text, ast.Constant) else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[text, ast.Name(id=own), *_]):
            return text if own == name and method in _MATCHES else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr=method), args=[text, *_]):
            return text if own == name and method in _TESTS else None
    return None


def _is_found(interrupted: re.Pattern[str], text: ast.Constant) -> bool:
    name = text.value
    return isinstance(name, str) and interrupted.search(name) is not None


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


def _report(node: ast.AST, wrap: WrapperCheckpointing, what: str) -> Report:
    return Report(
        node,
        f"{what} matches nothing: below every wrapped layer names contain `_checkpoint_wrapped_module`; "
        "select before wrapping",
        notes=(Remark(wrap.node, "the layers are wrapped here"),),
    )
