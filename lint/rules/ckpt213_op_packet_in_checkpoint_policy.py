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

def by_packet(ctx, op, *args, **kwargs):
    packet = op.overloadpacket if hasattr(op, "overloadpacket") else op
    return CheckpointPolicy.MUST_SAVE if packet == torch.ops.aten.mm else CheckpointPolicy.PREFER_RECOMPUTE

def unrelated(op):
    return op == torch.ops.aten.mm

def forward(block, x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)

def forward_by_packet(block, x):
    contexts = partial(create_selective_checkpoint_contexts, by_packet)
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

from typing import TYPE_CHECKING, TypeGuard

from ..facts.nodes import attribute, source_text
from ..facts.values import Ref, Seq, Value
from ..finding import Applicability, Severity
from ..model.report import Remark, Replace, Report, Rewrite
from ..model.wrapping.policies import comparisons, policies

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT213", "op-packet-in-checkpoint-policy", Severity.WARNING
NEEDS = ("create_selective_checkpoint_contexts",)
VERSIONS = {"torch": ">=2.4"}


def check(run: Run) -> Iterator[Report]:
    """Report comparisons in policies that are never true."""
    for policy in policies(run):
        for compared in comparisons(policy):
            packet = next((packet for value in compared.values for packet in _packets(value)), None)
            if packet is not None:
                yield _report(compared.node, packet)


def _packets(value: Value) -> Iterator[Ref]:
    for item in value.items if isinstance(value, Seq) else [value]:
        if _is_packet(item):
            yield item


def _is_packet(value: Value) -> TypeGuard[Ref]:
    return isinstance(value, Ref) and value.name.startswith("torch.ops.") and value.name.count(".") == 3


def _report(node: ast.AST, packet: Ref) -> Report:
    name = attribute(packet.node)
    fix = None
    if name is not None:
        fix = Rewrite(Applicability.UNSAFE, "Name the overload", (Replace(name, f"{source_text(name)}.default"),))
    return Report(
        node,
        f"`{packet.name}` is an op packet and a policy receives overloads, so it never matches; "
        f"write `{packet.name}.default`",
        notes=(Remark(name, "the packet"),) if name is not None else (),
        fix=fix,
    )
