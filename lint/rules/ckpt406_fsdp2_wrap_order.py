"""An order of checkpoint, compile and shard in which one of them has no effect.

## What it does
Flags two orders. `fully_shard(block)` before `checkpoint_wrapper(block)` (or `apply_activation_checkpointing`) when the
wrapped block or the model is compiled afterwards, also where every module is wrapped; and a `checkpoint_wrapper` with a
selective `context_fn` around a block that is compiled already.

## Why is this bad?
In the first order FSDP's hooks run inside the checkpoint. Dynamo cannot trace them there: with `fullgraph=True` it
raises `Unsupported`, without it nothing of the block is compiled. In the second the policy sees only the kernels that
the compiler wrote, finds none of the operators it should save, and everything is recomputed.

Every other order of the three works: checkpoint, compile, shard is the documented one. Without `torch.compile` the
order of `fully_shard` and the checkpoint wrapper makes no difference at all.

## Bad
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

def parallelize(model):
    for index, block in enumerate(model.layers):
        fully_shard(block)
        model.layers[index] = checkpoint_wrapper(block)  # error
    fully_shard(model)
    return torch.compile(model)
```
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

def wrap(block, save_matmuls):
    return checkpoint_wrapper(torch.compile(block), context_fn=save_matmuls)  # error
```

```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing, checkpoint_wrapper,
)
from torch.distributed.fsdp import fully_shard

def shard(model):
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)

def wrap(model):
    for index, block in enumerate(model.layers):
        model.layers[index] = checkpoint_wrapper(block)  # error

def main(model):
    shard(model)
    wrap(model)
    return torch.compile(model)

def by_class(model, Block):
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))  # error
    return torch.compile(model)
```

```python
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.linear(x).relu()

class Tower(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def setup(device):
    model = Tower().to(device)
    for index, block in enumerate(model.layers):
        fully_shard(block)
        model.layers[index] = checkpoint_wrapper(block)  # error
    fully_shard(model)
    return torch.compile(model)
```

## Good
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

def parallelize(model, save_matmuls):
    for index, block in enumerate(model.layers):
        block = checkpoint_wrapper(block, context_fn=save_matmuls)
        block = torch.compile(block, fullgraph=True)
        fully_shard(block)
        model.layers[index] = block
    fully_shard(model)
    return model

def without_compile(model):
    for index, block in enumerate(model.layers):
        fully_shard(block)
        model.layers[index] = checkpoint_wrapper(block)
    return model

def compiled_inside(block):
    fully_shard(block)
    return checkpoint_wrapper(torch.compile(block))
```
```python
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.linear(x).relu()

class Tower(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def student_and_teacher():
    student, teacher = Tower(), Tower()
    for index, block in enumerate(student.layers):
        fully_shard(block)
        student.layers[index] = checkpoint_wrapper(block)
    return student, torch.compile(teacher)
```

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

def graphs(order, fullgraph):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    mesh = init_device_mesh("cpu", (1,))
    block = Block()
    for step in order:
        if step == "shard":
            fully_shard(block, mesh=mesh)
        elif step == "checkpoint":
            block = checkpoint_wrapper(block)
        else:
            block = torch.compile(block, backend="aot_eager", fullgraph=fullgraph)
    block(torch.ones(2, 8)).sum().backward()
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=1)
    for order in (("checkpoint", "compile", "shard"), ("shard", "compile", "checkpoint")):
        assert graphs(order, fullgraph=True) == 1
    wrong = ("shard", "checkpoint", "compile")
    assert graphs(wrong, fullgraph=False) == 0
    try:
        graphs(wrong, fullgraph=True)
    except torch._dynamo.exc.Unsupported:
        pass
    else:
        raise AssertionError("no error")
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=1)
```

## References
pytorch/torchtitan `parallelize.py` (checkpoint, compile, shard); huggingface/accelerate `fsdp_utils.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Attr, Const, Element, Instance, Ref, Result, Value, options, same
from ..finding import Severity
from ..model.conditions.guards import kinds_asked, own_guards
from ..model.events import ApplyCheckpointing, CheckpointWrap, Compile, Fsdp2Shard, WrapperCheckpointing
from ..model.flow.statements import is_stored_as_item
from ..model.frozen.frozen_inputs import path_in
from ..model.known_models.backbones import BOTTOMS
from ..model.known_models.transformers_layers import is_checkpointed_layer
from ..model.libraries.sharding import root
from ..model.names import canonical
from ..model.regions.bodies import classes_checked
from ..model.report import Remark, Report
from ..model.types import unwrapped
from ..model.wrapping.every_module import accepts_every_module

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Guard
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT406", "fsdp2-wrap-order", Severity.WARNING
NEEDS = ((Compile, CheckpointWrap), (Compile, ApplyCheckpointing))
VERSIONS = {"torch": ">=2.4"}
#: Methods of containers that give each layer, or each with its name.
_LAYERS, _NAMED_LAYERS = ("children", "values"), ("named_children", "items")


def check(run: Run) -> Iterator[Report]:
    """Report the two orders that switch something off."""
    for wrap in run.of(WrapperCheckpointing):
        compiled = _compiled_before(run, wrap) if isinstance(wrap, CheckpointWrap) and _is_selective(wrap) else None
        if compiled is not None:
            yield Report(
                wrap.node,
                "the selective policy sees none of the operators of a compiled block, so everything is recomputed; "
                "compile the wrapped block instead",
                notes=(Remark(compiled, "the block is compiled here"),),
            )
        shard, compiling = _shard_before(run, wrap), _compile_after(run, wrap)
        if shard is not None and compiling is not None:
            yield Report(
                wrap.node,
                "FSDP's hooks run inside this checkpoint, where torch.compile cannot trace them: nothing is compiled, "
                "or `fullgraph=True` raises; wrap before `fully_shard`",
                notes=(Remark(shard.node, "sharded here"), Remark(compiling.node, "compiled here")),
            )


def _compile_of(module: Value) -> Result | None:
    return module if isinstance(module, Result) and canonical(module.call.name) == "torch.compile" else None


def _compiled_before(run: Run, wrap: CheckpointWrap) -> ast.AST | None:
    """Where the block of ``wrap`` was compiled: by itself, or in the list that it is taken from."""
    compiled = _compile_of(wrap.module)
    if compiled is not None:
        return compiled.call.node
    for compiling in run.of(Compile):
        earlier = compiling.order < wrap.order and compiling.place.walk == wrap.place.walk
        if not earlier or compiling.place.excludes(wrap.place) or not _stays(run, compiling):
            continue
        blocks, wrapped = options(compiling.module), options(wrap.module)
        if any(same(mine, other) or _are_layers_of_one_list(mine, other) for mine in blocks for other in wrapped):
            return compiling.node
    return None


def _stays(run: Run, compiling: Compile) -> bool:
    """Whether the block is compiled where it is, or what `torch.compile` gives is put in its place."""
    if compiling.call.method:
        return True
    registered = [call.node for call in run.method_calls("register_module", "add_module")]
    return is_stored_as_item(run, compiling.call) or any(compiling.node in node.args for node in registered)


def _is_selective(wrap: CheckpointWrap) -> bool:
    context = wrap.call.keyword("context_fn")
    return not (isinstance(context, Absent) or (isinstance(context, Const) and context.value is None))


def _shard_before(run: Run, wrap: WrapperCheckpointing) -> Fsdp2Shard | None:
    """The ``fully_shard`` of the very modules that are wrapped, of several the first one."""
    earlier = (it for it in run.of(Fsdp2Shard) if it.order < wrap.order and it.place.walk == wrap.place.walk)
    shards = [shard for shard in earlier if not shard.place.excludes(wrap.place)]
    found = next((shard for shard in shards if _shards_wrapped(run, shard, wrap)), None)
    if found is not None or not isinstance(wrap, CheckpointWrap):
        return found
    each = [next((it for it in shards if same(it.module, part)), None) for part in options(unwrapped(wrap.module))]
    return None if None in each else next(iter(each), None)


def _shards_wrapped(run: Run, shard: Fsdp2Shard, wrap: WrapperCheckpointing) -> bool:
    if isinstance(wrap, ApplyCheckpointing):
        checked = classes_checked(wrap.check, run.bodies)
        sharded = unwrapped(shard.module)
        if isinstance(sharded, Instance) and sharded.cls in checked and _is_in_the_only(run, sharded, wrap.model):
            return True
        is_part = isinstance(shard.module, Element) and root(shard.module) is root(wrap.model)
        if wrap.wraps_all or accepts_every_module(wrap.check):
            # The model itself gets no wrapper.
            is_whole = same(sharded, unwrapped(wrap.model))
            return is_part or (not is_whole and _is_in_the_only(run, sharded, wrap.model))
        asked = any(_asks_for(guard, checked) for guard in shard.place.guards)
        return is_part and (asked or _are_all_layers(shard.module, wrap.model, checked))
    wrapped = unwrapped(wrap.module)
    return same(shard.module, wrapped) or _are_layers_of_one_list(shard.module, wrapped)


def _are_all_layers(sharded: Value, model: Value, checked: list[Value]) -> bool:
    """Whether a loop goes through all decoder layers of a model of transformers, which are what is ``checked`` for."""
    if not isinstance(sharded, Element) or sharded.index is not None:
        return False
    is_list = path_in(sharded.of, root(model)) in BOTTOMS
    return is_list and any(isinstance(kind, Ref) and is_checkpointed_layer(canonical(kind.name)) for kind in checked)


def _are_layers_of_one_list(left: Value, right: Value) -> bool:
    """Whether both are what loops over the same list go through."""
    held, other = _list_of(left), _list_of(right)
    return held is not None and other is not None and same(held, other)


def _list_of(layer: Value) -> Attr | None:
    """The list, an attribute, whose every layer a loop goes through: with names too, `layers.named_children()`."""
    match layer:
        case Element(of=Attr() as held) if layer.index is None:
            return held
        case Element(of=Result(call)) if layer.index is None and call.method in _LAYERS:
            return call.receiver if isinstance(call.receiver, Attr) else None
        case Element(of=Element(of=Result(call)) as pair) if pair.index is None and call.method in _NAMED_LAYERS:
            return call.receiver if isinstance(call.receiver, Attr) else None
    return None


def _asks_for(guard: Guard, classes: list[Value]) -> bool:
    """Whether the condition is ``isinstance`` with one of ``classes``."""
    kinds = kinds_asked(guard) if guard.taken else []
    return any(same(kind, cls) or kind is cls for kind in kinds for cls in classes)


def _compile_after(run: Run, wrap: WrapperCheckpointing) -> Compile | None:
    """The compilation of the wrapper or of the model it is put into."""
    for compiling in run.of(Compile):
        later = compiling.order > wrap.order and compiling.place.walk == wrap.place.walk
        wrapped = _list_of(wrap.module) or wrap.module
        holds = root(compiling.module) is root(wrapped)
        holds = holds or any(_is_in_the_only(run, part, compiling.module) for part in options(wrap.module))
        holds = holds or _is_wrapped_block(run, compiling.module, wrap)
        holds = holds or _is_surely_one_of(compiling.module, wrap)
        if later and holds and not compiling.place.excludes(wrap.place):
            return compiling
    return None


def _is_surely_one_of(compiled: Value, wrap: WrapperCheckpointing) -> bool:
    """Whether the wrapper, which no switch leaves out, is among what a loop compiles."""
    return not any(own_guards(wrap.place)) and any(option.node is wrap.node for option in options(compiled))


def _is_wrapped_block(run: Run, module: Value, wrap: WrapperCheckpointing) -> bool:
    """Whether ``module`` is one of the blocks that ``wrap`` put into wrappers."""
    block = unwrapped(module)
    if not isinstance(wrap, ApplyCheckpointing) or not isinstance(block, Instance):
        return False
    return block.cls in classes_checked(wrap.check, run.bodies) and _is_in_the_only(run, block, wrap.model)


def _is_in_the_only(run: Run, part: Value, model: Value) -> bool:
    """Whether ``model`` is the one object of a class of the file, and ``part`` a module in it.

    What objects hold is known by class: of two, the part may be in the other one.
    """
    part, model = unwrapped(part), unwrapped(model)
    if not (isinstance(part, Instance) and isinstance(model, Instance)) or part.copied_by or model.copied_by:
        return False
    built = [call for call in run.program.calls if call.func is model.cls]
    once = len(built) == 1 and built[0] is model.call and not built[0].place.loops
    return once and any(same(part, inner) for inner in run.bodies.of(model).modules)
