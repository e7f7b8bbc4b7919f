"""Parameters that an expression names: of which modules they are, and whether these run inside of regions alone."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ...facts.nodes import source_text
from ...facts.objects.containers import container_kind, held_by
from ...facts.values import Attr, Call, Computed, Dict, Element, Instance, Result, Seq, Value, options, same
from ..conditions.guards import own_guards, tests_training
from ..events import Checkpointing
from ..libraries.sharding import attributes
from ..types import same_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..run import Run

#: What models of transformers call what lies behind their layers, and what lies in or before these.
_BEHIND_LAYERS = re.compile(
    r"head|classif|score|\bcls\b|pool|norm|proj|\bfc|out|logit|linear|dense|predict|\bln_|last|final"
)
_UP_TO_LAYERS = re.compile(r"\b(layers?|h|blocks?)\b|emb|wte|wpe|lora")
_LISTS = ("builtins.list", "builtins.tuple")


def owners_of_parameters(value: Value) -> list[Value]:
    """The modules whose parameters ``value`` is, or holds; none where something else is in it."""
    found = [_owners(option) for option in options(value)]
    return [owner for owners in found for owner in owners] if all(found) else []


def _owners(value: Value) -> list[Value]:
    match value:
        case Result(call) if call.name in _LISTS and call.args:
            return owners_of_parameters(call.args[0])
        case Result(call) if call.name == "builtins.filter" and len(call.args) == 2:
            return owners_of_parameters(call.args[1])
        case Result(call) if call.method == "parameters":
            return [call.receiver]
        case Result(call) if call.method == "values":
            return _owners_of_named(call.receiver)
        case Element() if (optimizer := _optimizer_of(value)) is not None:
            return owners_of_parameters(optimizer.call.argument(0, "params"))
        case Attr(base=Instance() | Result() | Attr() | Element() as module, name="weight" | "bias"):
            return [module]
        case Element(of=Result(call)) if call.method == "parameters":
            return [call.receiver]
        case Result(call) if call.name == "itertools.chain" and not call.open_args:
            return _all_owners(tuple(call.args))
        case Seq(items=[Element(of=Element(of=Result(call)), index=1)]) if call.method == "named_parameters":
            return [call.receiver] if _are_of_adapters(value.node) else []
        case Seq(items=items) if items and (not value.open or len(items) == 1 or _is_written(value)):
            return _all_owners(tuple(items))
        case Computed(operands=operands):
            return _all_owners(operands)
        case Dict() as group:
            return owners_of_parameters(group.get("params"))
    return []


def _owners_of_named(value: Value) -> list[Value]:
    """The module of `dict(net.named_parameters())`."""
    match value:
        case Result(call=Call(name="builtins.dict", args=[Result(named)])) if named.method == "named_parameters":
            return [named.receiver]
    return []


def _optimizer_of(value: Value) -> Result | None:
    """The optimizer of `optimizer.param_groups[0]["params"]`, or of a parameter in it."""
    while isinstance(value, Element):
        value = value.of
    match value:
        case Attr(base=Result(call) as made, name="param_groups") if call.name.startswith("torch.optim."):
            return made
    return None


def _are_of_adapters(comprehension: ast.AST | None) -> bool:
    """Whether names choose the parameters of adapters, which are inside of the layers: `if "lora_" in name`."""
    generators = comprehension.generators if isinstance(comprehension, ast.ListComp) else []
    tests = [test for generator in generators for test in generator.ifs]
    return all("lora" in source_text(test) for test in tests)


def are_behind_layers(value: Value) -> bool:
    """Whether the parameters ``value`` may all be of what a model of transformers has behind its layers: its head."""
    owners = owners_of_parameters(value)
    if not owners:
        return (
            isinstance(value, Seq) and isinstance(value.node, ast.ListComp) and _speaks_of_head(_tests_in(value.node))
        )
    return all(_speaks_of_head(" ".join(attributes(owner))) for owner in owners)


def _tests_in(comprehension: ast.ListComp) -> str:
    return " ".join(source_text(test) for generator in comprehension.generators for test in generator.ifs)


def _speaks_of_head(text: str) -> bool:
    return _BEHIND_LAYERS.search(text) is not None and _UP_TO_LAYERS.search(text) is None


def _is_written(held: Seq) -> bool:
    """Whether it is a display, `[*net.stem.parameters(), *net.head.parameters()]`: only how many there are is open."""
    return isinstance(held.node, ast.List | ast.Tuple)


def _all_owners(values: tuple[Value, ...]) -> list[Value]:
    found = [owners_of_parameters(value) for value in values]
    return [owner for owners in found for owner in owners] if all(found) else []


def reentrant_around(run: Run, module: Value) -> Iterator[Checkpointing]:
    """The reentrant checkpoints, under no condition but the mode, in whose regions ``module`` runs and nowhere else."""
    parts = list(_parts(module))
    for event in run.used(Checkpointing):
        if event.reentrant is not True or not all(map(tests_training, own_guards(event.place))):
            continue
        region = run.region(event)
        inside = all(any(same(part, other) for other in region.modules) for part in parts)
        if parts and inside and not _runs_elsewhere(run, [module, *parts], event):
            yield event


def is_in_region(run: Run, module: Value, event: Checkpointing) -> bool:
    """Whether ``module``, or a part of it, runs in the region of ``event``."""
    modules = run.region(event).modules
    return any(same(part, other) for part in _parts(module) for other in modules)


def _parts(module: Value, depth: int = 4) -> Iterator[Value]:
    """The modules that a container holds; ``module`` itself where it is none."""
    module = same_object(module)
    held = held_by(module) if container_kind(module) and depth else []
    for part in held:
        yield from (inner for option in options(part) for inner in _parts(option, depth - 1))
    if not held:
        yield module


def _runs_elsewhere(run: Run, modules: list[Value], event: Checkpointing) -> bool:
    """Whether something outside of the region calls one of ``modules``."""
    functions = {function.node for function in run.region(event).functions}
    for call in run.program.calls:
        around = call.place.function
        called = any(same(option, module) for option in options(call.func) for module in modules)
        if called and (around is None or around.node not in functions):
            return True
    return False
