"""A checkpoint policy that compares operators without their overload.

## What it does
Flags `op == torch.ops.aten.mm` and `op in {torch.ops.aten.mm, ...}` in a policy function for
`create_selective_checkpoint_contexts`.

## Why is this bad?
The policy gets overloads (`torch.ops.aten.mm.default`), and a packet of overloads never equals one of its members. The
policy saves nothing it was written to save, and every operator is recomputed: selective checkpointing is plain
checkpointing with an overhead.

## Bad
```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

SAVED = {torch.ops.aten.mm.default, torch.ops.aten.bmm}

def policy(ctx, op, *args, **kwargs):
    if op == torch.ops.aten.addmm:  # error
        return CheckpointPolicy.MUST_SAVE
    if op in SAVED:  # error
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE

def forward(block, x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```

```python
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

def policy(ctx, op, *args, **kwargs):
    match op:
        case torch.ops.aten.mm:  # error
            return CheckpointPolicy.MUST_SAVE
        case torch.ops.aten.addmm.default | torch.ops.aten.bmm.default:
            return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE

def forward(block, x):
    return checkpoint(
        block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy)
    )
```

## Good
```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

SAVED = {torch.ops.aten.mm.default, torch.ops.aten.bmm.default}

def policy(ctx, op, *args, **kwargs):
    if op.overloadpacket == torch.ops.aten.addmm or op._overloadpacket in (torch.ops.aten.bmm,):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.MUST_SAVE if op in SAVED else CheckpointPolicy.PREFER_RECOMPUTE

def unrelated(op):
    return op == torch.ops.aten.mm

def forward(block, x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```

## Fix safety
Unsafe: `.default` is the overload that models use, but others exist, and the policy will then save what it names.

## Evidence
```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

def saved(wanted):
    found = []

    def policy(ctx, op, *args, **kwargs):
        found.append(op == wanted)
        return CheckpointPolicy.MUST_SAVE if found[-1] else CheckpointPolicy.PREFER_RECOMPUTE

    x, w = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
    contexts = partial(create_selective_checkpoint_contexts, policy)
    checkpoint(lambda h: (h @ w).sin(), x, use_reentrant=False, context_fn=contexts).sum().backward()
    return any(found)

assert not saved(torch.ops.aten.mm)
assert saved(torch.ops.aten.mm.default)
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`_CachingTorchDispatchMode`); a packet in a list is refused with a ValueError.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from ..facts.values import Function, Ref, Seq, Value, options
from ..finding import Applicability, Severity
from ..model.names import canonical
from ..model.regions.resolve import meaning, walk_body
from ..model.report import Remark, Replace, Report, Rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT213", "op-packet-in-checkpoint-policy", Severity.WARNING
NEEDS = ("create_selective_checkpoint_contexts",)
_CONTEXTS = "torch.utils.checkpoint.create_selective_checkpoint_contexts"


def check(run: Run) -> Iterator[Report]:
    """Report comparisons in policies that are never true."""
    for policy in _policies(run):
        for node in walk_body(policy):
            for compared, texts in _comparisons(node):
                packet = next(_packets(texts, policy), None)
                if packet is not None:
                    yield _report(compared, packet)


def _comparisons(node: ast.AST) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """Comparisons with a name, a `case` among them: what stands there, and what it compares with."""
    match node:
        case ast.Compare(left=ast.Name(), comparators=comparators):
            yield node, comparators
        case ast.Match(subject=ast.Name(), cases=cases):
            for case in cases:
                for pattern in ast.walk(case.pattern):
                    if isinstance(pattern, ast.MatchValue):
                        yield pattern.value, [pattern.value]


def _policies(run: Run) -> Iterator[Function]:
    """The functions of the file given to torch as a policy, directly or through a partial."""
    seen = set()
    for call in run.calls_to(_CONTEXTS, "functools.partial"):
        given = call.args
        if call.name == "functools.partial":
            maker = given[0] if given else None
            given = given[1:] if isinstance(maker, Ref) and canonical(maker.name) == _CONTEXTS else []
        for value in options(given[0]) if given else ():
            # A policy may ask other functions of the file.
            for policy in run.bodies.of(value).functions:
                if policy.node not in seen:
                    seen.add(policy.node)
                    yield policy


def _packets(comparators: list[ast.expr], policy: Function) -> Iterator[Ref]:
    for comparator in comparators:
        value = meaning(comparator, policy)
        for item in value.items if isinstance(value, Seq) else [value]:
            if _is_packet(item):
                yield item


def _is_packet(value: Value) -> TypeGuard[Ref]:
    return isinstance(value, Ref) and value.name.startswith("torch.ops.") and value.name.count(".") == 3


def _report(node: ast.AST, packet: Ref) -> Report:
    written = packet.node if isinstance(packet.node, ast.Attribute) else None
    fix = (
        Rewrite(Applicability.UNSAFE, "Name the overload", (Replace(written, f"{ast.unparse(written)}.default"),))
        if written is not None
        else None
    )
    return Report(
        node,
        f"`{packet.name}` is an op packet and a policy receives overloads, so it never matches; "
        f"write `{packet.name}.default`",
        notes=(Remark(written, "the packet"),) if written is not None else (),
        fix=fix,
    )
