"""A checkpoint policy that compares operators without their overload.

## What it does
Flags `op == torch.ops.aten.mm`, `op in {torch.ops.aten.mm, ...}`, `{torch.ops.aten.mm: ...}.get(op)` and
`op is torch.mm` in a policy for `create_selective_checkpoint_contexts`, a function or an object that is called. An
operator in a table is reported once.

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

NAMED = [getattr(torch.ops.aten, name) for name in ("mm", "addmm")]

def policy(ctx, op, *args, **kwargs):
    if op in NAMED:  # error
        return CheckpointPolicy.MUST_SAVE
    if op in (torch.matmul, torch.bmm):  # error
        return CheckpointPolicy.MUST_SAVE
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

```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

TABLE = {torch.ops.aten.mm: CheckpointPolicy.MUST_SAVE}

class Policy:
    def __init__(self):
        self.saved = frozenset((torch.ops.aten.bmm,))

    def __call__(self, ctx, op, *args, **kwargs):
        if op in self.saved:  # error
            return CheckpointPolicy.MUST_SAVE
        return TABLE.get(op, CheckpointPolicy.PREFER_RECOMPUTE)  # error

def forward(block, x):
    contexts = partial(create_selective_checkpoint_contexts, Policy())
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```

## Good
```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

TABLE = {torch.ops.aten.mm.default: CheckpointPolicy.MUST_SAVE}
BOTH = {torch.ops.aten.bmm: CheckpointPolicy.MUST_SAVE, torch.ops.aten.mm.default: CheckpointPolicy.MUST_SAVE}

def policy(ctx, op, *args, **kwargs):
    return TABLE.get(op, CheckpointPolicy.PREFER_RECOMPUTE)

def by_packet(ctx, op, *args, **kwargs):
    return BOTH.get(op) or BOTH.get(op.overloadpacket, CheckpointPolicy.PREFER_RECOMPUTE)

def forward(block, x, chosen):
    contexts = partial(create_selective_checkpoint_contexts, by_packet if chosen else policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```
```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

NAMED = [getattr(torch.ops.aten, name).default for name in ("mm", "addmm")]
PACKETS = {getattr(torch.ops.aten, name) for name in ("mm", "addmm")}

def policy(ctx, op, *args, **kwargs):
    if op in NAMED or op.overloadpacket in PACKETS or args[0].dtype is torch.float16:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE

def forward(block, x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```
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
from ..facts.values import Ref, Value, options
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
#: Functions of Python that come to the operators that are worth to be saved.
_FUNCTIONS = frozenset(
    (
        *(f"torch.{name}" for name in ("addmm", "baddbmm", "bmm", "conv2d", "einsum", "matmul", "mm")),
        *(f"torch.nn.functional.{name}" for name in ("conv2d", "linear", "scaled_dot_product_attention")),
    )
)


def check(run: Run) -> Iterator[Report]:
    """Report comparisons in policies that are never true."""
    reported = set()
    for policy in policies(run):
        for compared in comparisons(run, policy):
            packet = next(filter(_is_packet, (it for value in compared.values for it in options(value))), None)
            if packet is not None and packet.node not in reported:
                reported.add(packet.node)
                yield _report(compared.node, packet)


def _is_packet(value: Value) -> TypeGuard[Ref]:
    return isinstance(value, Ref) and (
        (value.name.startswith("torch.ops.") and value.name.count(".") == 3) or value.name in _FUNCTIONS
    )


def _report(node: ast.AST, packet: Ref) -> Report:
    name = attribute(packet.node)
    is_function = packet.name in _FUNCTIONS
    fix = None
    if name is not None and not is_function:
        fix = Rewrite(Applicability.UNSAFE, "Name the overload", (Replace(name, f"{source_text(name)}.default"),))
    what, wanted = "an op packet", f"`{packet.name}.default`"
    if is_function:
        what, wanted = "a function of Python", "the overload that it comes to, such as `torch.ops.aten.mm.default`"
    return Report(
        node,
        f"`{packet.name}` is {what} and a policy receives overloads, so it never matches; write {wanted}",
        notes=(Remark(name, "the function" if is_function else "the packet"),) if name is not None else (),
        fix=fix,
    )
