"""Selecting parameters or modules by a name that a checkpoint wrapper interrupts.

## What it does
Flags a test on the names of `named_parameters()` or `named_modules()`, a look-up of them in a table, or in a dict of
them (`dict(model.named_parameters())["layers.0.mlp.weight"]`), after the model's layers were wrapped with
`apply_activation_checkpointing`, when the text reaches across a layer's index
(`"layers.0.mlp"`, `f"layers.{i}.mlp"`),
and a regular expression for LoRA's `target_modules` that does, when the adapter is attached after the wrapping. The
names below a module, or a list of modules, that the file wraps with `checkpoint_wrapper` are treated in the same way,
and so are tests on parts of a name (`name.split(".")[2] == "mlp"`) that some name passed before and none passes now.
Names that went through a call first (`name.replace(...)`), and loops that mention the wrapper's name, are fine.

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
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def rates(model, is_block, depth):
    apply_activation_checkpointing(model, check_fn=is_block)
    wanted = {f"blocks.{i}.fc.weight": 0.001 * 0.8**i for i in range(depth)}
    return [{"params": [p], "lr": wanted.get(name, 0.001)} for name, p in model.named_parameters()]  # error
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def decayed(model, is_block, depth):
    apply_activation_checkpointing(model, check_fn=is_block)
    scale = {f"blocks.{i}.{part}": 0.75 ** (depth - i) for i in range(depth) for part in ("attn", "mlp")}
    for name, parameter in model.named_parameters():
        factor = next((value for key, value in scale.items() if name.startswith(key)), 1.0)  # error
        yield {"params": [parameter], "lr": 0.001 * factor}
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
        self.attn, self.mlp = nn.MultiheadAttention(8, 2), nn.Linear(8, 8)

def groups():
    net = Net()
    net.attn = checkpoint_wrapper(net.attn)
    whole = [p for n, p in net.named_parameters() if n.startswith("attn.")]
    other = [p for n, p in net.named_parameters() if n == "mlp.weight"]
    return whole, other, [p for n, p in net.named_parameters() if n == "attn.in_proj_weight"]  # error
```

```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(checkpoint_wrapper(Block()) for _ in range(4))

def rates(model, decay=0.8):
    for name, parameter in model.named_parameters():
        for i in range(4):
            if name.startswith((f"blocks.{i}.norm.", f"blocks.{i}.fc.")):  # error
                yield {"params": [parameter], "lr": decay**i}

def main():
    return list(rates(Encoder()))
```

```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(checkpoint_wrapper(Block()) for _ in range(4))

def freeze():
    model = Encoder()
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if int(parts[1]) < 2 and parts[2] == "fc":  # error
            parameter.requires_grad = False
    return model
```

```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def first(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    parameters = dict(model.named_parameters())
    if "layers.0.fc.bias" in parameters:  # error
        return None
    return [parameters[f"layers.{i}.fc.weight"] for i in range(3)]  # error
```

## Good
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def first(model, is_block):
    parameters = dict(model.named_parameters())
    apply_activation_checkpointing(model, check_fn=is_block)
    return parameters["layers.0.fc.weight"]

def cleaned(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    parameters = {n.replace("_checkpoint_wrapped_module.", ""): p for n, p in model.named_parameters()}
    outside = dict(model.named_parameters())["head.weight"]
    return outside, parameters["layers.0.fc.weight"], model.state_dict()["layers.0.fc.weight"]
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(checkpoint_wrapper(Block()) for _ in range(4))
        self.tail = nn.ModuleList(checkpoint_wrapper(Block()) for _ in range(2))
        self.tail.append(Block())

def whole_blocks(model):
    keys = ["0._checkpoint_wrapped_module"]
    for name, parameter in model.named_parameters():
        for i in range(4):
            if name.startswith(f"blocks.{i}.") or name.startswith(f"tail.{i}.norm"):
                yield parameter
        for key in keys:
            if name.startswith(f"blocks.{key}.norm"):
                yield parameter

def cleaned(model):
    for name, parameter in model.named_parameters():
        name = name.replace("_checkpoint_wrapped_module.", "")
        for i in range(4):
            if name.startswith(f"blocks.{i}.norm"):
                yield parameter

def main():
    model = Encoder()
    return list(whole_blocks(model)), list(cleaned(model))
```
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

def by_part(model, is_block, chosen):
    apply_activation_checkpointing(model, check_fn=is_block)
    wrapped = {f"blocks.{i}.{part}" for i in range(4) for part in ("attn", "_checkpoint_wrapped_module.attn")}
    known = {f"blocks.{i}.{part}" for i in range(4) for part in chosen}
    first = [p for n, p in model.named_parameters() if any(n.startswith(key) for key in wrapped)]
    for name, parameter in model.named_parameters():
        for part in ("attn", "mlp"):
            part = f"_checkpoint_{'wrapped'}_module.{part}"
            if name.startswith(f"blocks.0.{part}"):
                first.append(parameter)
    return first, [p for n, p in model.named_parameters() if any(n.startswith(key) for key in known)]

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

import re
from functools import partial
from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors
from ..facts.objects.containers import held_by
from ..facts.values import Const, Instance, Param, Result, options, same
from ..finding import Severity
from ..model.events import AdapterAttach, BlockWrapping, CheckpointWrap, NamedParts, WrapperCheckpointing
from ..model.flow.lifetimes import surely_done
from ..model.libraries.sharding import attributes, root
from ..model.names import canonical
from ..model.report import Remark, Report
from ..model.texts.name_patterns import name_for
from ..model.texts.name_tests import names_tested, tests_that_fail
from ..model.types import unwrapped
from ..model.wrapping.renamed import names_below, names_wrapped_in
from ..model.wrapping.wrapped import list_filled_with, lists_of_wrapped, wrapped_classes

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterable, Iterator

    from ..facts.values import Class, Value
    from ..model.run import Run
    from ..model.texts.written_texts import WrittenText
    from ..model.wrapping.renamed import Renamed

CODE, NAME, SEVERITY = "CKPT131", "wrapper-names-in-parameter-names", Severity.ERROR
NEEDS = (BlockWrapping, CheckpointWrap)

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
#: How deep modules in modules are looked into.
_DEPTH = 3
_REACHES_INSIDE = re.compile(r"(?:^|\.)[a-z_]+\.\d+\.[a-z_]\w*")


def check(run: Run) -> Iterator[Report]:
    """Report names and patterns that meant something before the wrapping."""
    for wrap in run.of(BlockWrapping):
        model = root(wrap.model)
        if _may_be_copy(run, wrap, model):
            continue
        for names in run.of(NamedParts):
            if _is_later(run, names, wrap) and root(names.module) is model:
                for text in names_tested(run, names, _REACHES_INSIDE):
                    if _is_in_wrapped_part(wrap, names, text.text) and not _misses(run, wrap, model, text.text):
                        yield _report(text.node, wrap, _called(text))
                if unwrapped(names.module) is unwrapped(wrap.model):
                    yield from _failing(run, wrap, names, partial(names_wrapped_in, run, wrap, model))
        for attach in run.of(AdapterAttach):
            pattern = _pattern(attach)
            if pattern is not None and attach.order > wrap.order and root(attach.model) is model:
                yield _report(pattern, wrap, "this pattern")
    for single in run.of(CheckpointWrap):
        yield from _below_attribute(run, single)
        yield from _below_list(run, single)
        yield from _below_filled_list(run, single)
        yield from _adapters_below(run, single)


def _may_be_copy(run: Run, wrap: BlockWrapping, model: Value) -> bool:
    """Whether ``model``, of which the file shows no construction, is copied before: the copy has the old names."""
    copies = (call for call in run.calls_to("copy.deepcopy") if call.order < wrap.order)
    return isinstance(model, Param) and any(root(given) is model for call in copies for given in call.args)


def _below_attribute(run: Run, wrap: CheckpointWrap) -> Iterator[Report]:
    """Names below ``model.block = checkpoint_wrapper(model.block)``."""
    for write in run.writes:
        if not (isinstance(write.value, Result) and write.value.call is wrap.call) or write.is_item:
            continue
        for names in run.of(NamedParts):
            if _is_later(run, names, wrap) and not names.place.excludes(wrap.place):
                for path in _paths(names.module, write.obj):
                    yield from _below(run, wrap, names, path + re.escape(write.field))


def _below_list(run: Run, wrap: CheckpointWrap) -> Iterator[Report]:
    """Names below ``self.blocks = nn.ModuleList(checkpoint_wrapper(Block()) for ...)``."""
    for write in lists_of_wrapped(run, wrap):
        for names in run.of(NamedParts):
            if _is_later(run, names, wrap) and not wrap.place.deeper_than(names.place):
                for path in _paths(names.module, write.obj):
                    yield from _below(run, wrap, names, rf"{path}{re.escape(write.field)}\.\d+")


def _paths(module: Value, part: Value, depth: int = _DEPTH) -> Iterator[str]:
    """What stands before the names of ``part`` in those of ``module``, as regular expressions."""
    if same(module, part):
        yield ""
    elif isinstance(module, Instance) and depth:
        for owner in (module.cls, *ancestors(module.cls)):
            for name, field in owner.fields.items():
                for held in options(field):
                    yield from (f"{re.escape(name)}\\.{path}" for path in _paths(held, part, depth - 1))


def _below_filled_list(run: Run, wrap: CheckpointWrap) -> Iterator[Report]:
    """Names below `model.blocks`, whose elements a loop replaces: `model.blocks[i] = checkpoint_wrapper(block)`."""
    field, classes = list_filled_with(run, wrap), wrapped_classes(run, wrap)
    if field is None or not classes:
        return
    below = rf"{re.escape(field)}\.\d+"
    for names in run.of(NamedParts):
        held = [
            option for value in _children(names.module, field) for inner in options(value) for option in _held(inner)
        ]
        are_wrapped = bool(held) and all(_is_or_wraps(it, wrap, classes) for it in held)
        if are_wrapped and _is_later(run, names, wrap):
            yield from _below(run, wrap, names, below)


def _below(run: Run, wrap: CheckpointWrap, names: NamedParts, path: str) -> Iterator[Report]:
    """The tests of names below ``path``, a regular expression, where each wrapped module stands."""
    for text in names_tested(run, names, re.compile(rf"^{path}\.[a-z_]\w*")):
        yield _report(text.node, wrap, _called(text))
    yield from _failing(run, wrap, names, partial(names_below, names.module, path))


def _failing(
    run: Run, wrap: WrapperCheckpointing, names: NamedParts, renaming: Callable[[], Iterable[Renamed]]
) -> Iterator[Report]:
    return (_report(test, wrap, "this test of a part of the name") for test in tests_that_fail(run, names, renaming))


def _is_or_wraps(module: Value, wrap: CheckpointWrap, classes: list[Class]) -> bool:
    if isinstance(module, Result):
        return module.call is wrap.call
    return isinstance(module, Instance) and _is_one_of(module.cls, classes)


def _held(container: Value) -> Iterator[Value]:
    return (option for value in held_by(container) for option in options(value))


def _is_in_wrapped_part(wrap: BlockWrapping, names: NamedParts, name: str) -> bool:
    """Whether ``name``, as the module that gives ``names`` has it, leads into the part of the model that is wrapped."""
    outer, inner = tuple(attributes(names.module))[::-1], tuple(attributes(wrap.model))[::-1]
    if inner[: len(outer)] == outer:
        return all(part == wanted for part, wanted in zip(name.split("."), inner[len(outer) :], strict=False))
    return outer[: len(inner)] == inner


def _misses(run: Run, wrap: BlockWrapping, model: Value, name: str) -> bool:
    """Whether no module above ``name`` is of a class that ``wrap`` wraps, as far as the file shows them."""
    classes = wrapped_classes(run, wrap)
    held = [model]
    for part in name.split(".")[:-1] if classes else ():
        held = [inner for value in held for option in options(value) for inner in _children(option, part)]
        if not held or not all(isinstance(value, Instance) or _is_of_torch(value) for value in held):
            return False
        if any(isinstance(value, Instance) and _is_one_of(value.cls, classes) for value in held):
            return False
    return bool(classes)


def _adapters_below(run: Run, wrap: CheckpointWrap) -> Iterator[Report]:
    """Patterns of adapters that lead through such a list: `target_modules=r"layers\\.\\d+\\.attn"`."""
    field = list_filled_with(run, wrap)
    for attach in run.of(AdapterAttach) if field is not None else ():
        pattern = _pattern(attach)
        text = _text_of_pattern(attach)
        name = name_for(text, "fullmatch") if text is not None else None
        if pattern is None or name is None or attach.place.walk != wrap.place.walk or attach.order < wrap.order:
            continue
        if re.search(rf"(?:^|\.){re.escape(field or '')}\.\d+\.", name):
            yield _report(pattern, wrap, "this pattern")


def _children(module: Value, name: str) -> list[Value]:
    """What ``module`` holds under ``name``, which is a number for one of a list."""
    if name.isdigit():
        return held_by(module)
    if not isinstance(module, Instance):
        return []
    fields = [owner.fields[name] for owner in (module.cls, *ancestors(module.cls)) if name in owner.fields]
    return [option for field in fields[:1] for option in options(field)]


def _is_of_torch(module: Value) -> bool:
    return isinstance(module, Result) and canonical(module.call.name).startswith("torch.nn.")


def _is_one_of(cls: Class, classes: list[Class]) -> bool:
    return any(other is cls or other in ancestors(cls) for other in classes)


def _called(text: WrittenText) -> str:
    if text.is_pattern:
        return "this pattern"
    return f"the name `{text.text}` in this" if text.is_held else "this name"


def _is_later(run: Run, names: NamedParts, wrap: WrapperCheckpointing) -> bool:
    """Whether the names are asked for behind the wrapping, or in another method of the object that does it first."""
    if names.place.walk == wrap.place.walk:
        return names.order > wrap.order
    return surely_done(run, wrap.call, names.call)


def _text_of_pattern(attach: AdapterAttach) -> str | None:
    config = attach.config
    target = config.call.keyword("target_modules") if isinstance(config, Result) else None
    return target.value if isinstance(target, Const) and isinstance(target.value, str) else None


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
    written = next((word.value for word in config.call.node.keywords if word.arg == "target_modules"), target.node)
    if name_for(target.value, "fullmatch") is not None:
        return written
    stems = [stem.format(index) for stem in _STEMS for index in (0, 3, 11)]
    plain = any(pattern.fullmatch(stem + leaf) for stem in stems for leaf in _LEAVES)
    wrapped = any(pattern.fullmatch(stem + _WRAPPED + leaf) for stem in stems for leaf in _LEAVES)
    return written if plain and not wrapped else None


def _report(node: ast.AST, wrap: WrapperCheckpointing, what: str) -> Report:
    return Report(
        node,
        f"{what} matches nothing: below every wrapped layer names contain `_checkpoint_wrapped_module`; "
        "select before wrapping",
        notes=(Remark(wrap.node, "the layers are wrapped here"),),
    )
