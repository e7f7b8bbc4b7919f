"""`autograd.grad`, double backward or `torch.func` through a checkpoint that cannot do it.

## What it does
Flags `torch.autograd.grad(...)` and `backward(create_graph=True)` of a value computed by a reentrant checkpoint,
`jacobian`, `hessian`, `vjp` and the others of `torch.autograd.functional` of a function with such a one in it, and
`torch.func.grad`, `vjp`, `jacrev`, `hessian` and their like of a function with any checkpoint in it.
`torch.autograd.grad(loss, last_layer.weight)` of a layer behind the checkpoint is fine, and so is the gradient for what
the checkpoint gives. A model of transformers counts in train mode: in a loop of the file, and in a Trainer's
own `compute_loss` or `training_step`, where the arguments or the model ask for the reentrant variant. A parameter
`critic` of a function that nothing in the file calls is taken for a `Critic` where that is a module of the file.

## Why is this bad?
The reentrant variant works with a plain `.backward()` only: `autograd.grad` raises a RuntimeError, and after
`backward(create_graph=True)` the gradients have no graph, so a penalty on them raises or trains nothing. The transforms
of `torch.func` support neither variant. The non-reentrant one is exact under `autograd.grad` and double backward.

## Bad
```python
import torch
from torch.utils.checkpoint import checkpoint

def gradient_penalty(critic, x):
    x.requires_grad_()
    score = checkpoint(critic, x, use_reentrant=True)
    (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)  # error
    return (gradient.norm(dim=1) - 1).pow(2).mean()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, self.embed(x), use_reentrant=True)

def step(batch):
    net = Net()
    loss = net(batch).sum()
    loss.backward(create_graph=True)  # error
```
```python
from torch.func import grad
from torch.utils.checkpoint import checkpoint

def loss(x, block):
    return checkpoint(block, x, use_reentrant=False).sum()

def sensitivity(x, block):
    return grad(loss)(x, block)  # error
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

def gradient_penalty(critic, real, fake):
    mixed = torch.lerp(real, fake, torch.rand(len(real), 1)).requires_grad_()
    scores = critic(mixed)
    gradient = torch.autograd.grad(  # error
        outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores), create_graph=True
    )[0]
    return ((gradient.norm(dim=1) - 1) ** 2).mean()

def train(batches):
    critic = Critic()
    for batch in batches:
        gradient_penalty(critic, batch, torch.randn_like(batch)).backward()
```
```python
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.autograd.functional import jacobian
from torch.utils.checkpoint import checkpoint

accelerator = Accelerator()

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, self.embed(x), use_reentrant=True)

def penalty(critic, x):
    x.requires_grad_()
    score = critic(x)
    return torch.autograd.grad(score.sum(), x, create_graph=True)[0].norm()  # error

def slope(score, x):
    return torch.autograd.grad(score.sum(), x, create_graph=True)[0]  # error

def energies(x):
    net = nn.DataParallel(Critic())
    return slope(net(x), x.requires_grad_())

def step(x):
    net = accelerator.prepare(Critic())
    accelerator.backward(net(x).mean(), create_graph=True)  # error

def sensitivity(x):
    net = Critic()
    product = torch.autograd.functional.hvp(lambda y: net(y).sum(), x, x)  # error
    return jacobian(net, x), product  # error
```

```python
import torch
import torch.nn as nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

def gradients_per_sample(x, y):
    net = Classifier()

    def loss_of(parameters, row, label):
        scores = functional_call(net, parameters, (row[None],))
        return nn.functional.cross_entropy(scores, label[None])

    per_sample = vmap(grad(loss_of), in_dims=(None, 0, 0))  # error
    return per_sample(dict(net.named_parameters()), x, y)
```

## Good
```python
import torch
import torch.nn as nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(checkpoint(self.block, x, use_reentrant=False))

def of_the_head(x, y):
    net = Checkpointed()
    features = net(x).detach()

    def loss_of(parameters, row, label):
        return nn.functional.cross_entropy(functional_call(net.head, parameters, (row[None],)), label[None])

    return vmap(grad(loss_of), in_dims=(None, 0, 0))(dict(net.head.named_parameters()), features, y)
```
```python
import torch
from torch.func import grad, vmap
from torch.utils.checkpoint import checkpoint

def gradient_penalty(critic, x):
    x.requires_grad_()
    score = checkpoint(critic, x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    return (gradient.norm(dim=1) - 1).pow(2).mean()

def train(block, head, x):
    y = checkpoint(block, x, use_reentrant=True)
    y.sum().backward(retain_graph=True)
    y.mean().backward()
    return torch.autograd.grad(head(x).sum(), x), torch.autograd.grad(head(y.detach()).sum(), head.weight)

def plain(x):
    return x.sin().sum()

def two_losses(block, head, x):
    loss = checkpoint(block, x, use_reentrant=True).sum()
    loss.backward()
    loss = head(x).sum()
    return torch.autograd.grad(loss, x)

class Scorer(torch.nn.Module):
    def __init__(self, reentrant=True):
        super().__init__()
        self.block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, x * 2, use_reentrant=True)

def slope_of(score, x):
    return torch.autograd.grad(score.detach().sum() + head(x), x)

def slope_of_scorer(x):
    return slope_of(Scorer()(x), x)

def slope_of_another(scorer, x):
    return torch.autograd.grad(scorer(x).sum(), x)

def with_another(x):
    return slope_of_another(torch.nn.Linear(8, 1), x)

def slope_of_any(model, x):
    return torch.autograd.grad(model(x).sum(), x)

class Painter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.last = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.last(checkpoint(self.block, x * 2, use_reentrant=True))

def weight_of_the_last_layer(x):
    painter = Painter()
    loss = (painter(x) - x).abs().mean()
    return torch.autograd.grad(loss, painter.last.weight, retain_graph=True)[0].norm()  # behind the checkpoint

def batched(block, x):
    return vmap(lambda row: checkpoint(block, row, use_reentrant=False))(x), grad(plain)(x)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

def run(x, reentrant):
    return block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)

def fails(action):
    try:
        action()
    except RuntimeError:
        return True
    return False

def penalty(reentrant):
    block.zero_grad()
    x = torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(run(x, reentrant).sum(), x, create_graph=True)
    gradient.pow(2).sum().backward()
    return block[0].weight.grad.clone()

assert torch.allclose(penalty(False), penalty(None))
assert fails(lambda: penalty(True))

last = torch.nn.Linear(4, 1)
x = torch.ones(2, 4, requires_grad=True)
assert torch.autograd.grad(last(run(x, True)).sum(), last.weight)[0].any()  # it need not enter the region

for reentrant in (False, True):
    x = torch.ones(2, 4, requires_grad=True)
    run(x, reentrant).pow(2).sum().backward(create_graph=True)
    assert x.grad.requires_grad is (not reentrant)
    assert fails(lambda: torch.func.grad(lambda z: run(z, reentrant).sum())(torch.ones(2, 4)))
    x = torch.ones(2, 4, requires_grad=True)
    loss = run(x, reentrant).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    jacobian = torch.autograd.functional.jacobian
    assert fails(lambda: jacobian(lambda z: run(z, reentrant), torch.ones(2, 4))) is reentrant
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.backward`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..facts.values import ABSENT, Param, Ref, equals, options, same
from ..finding import Severity
from ..model.conditions.guards import excludes_mode
from ..model.events import AutogradGrad, Backward, Checkpointing, TorchCheckpoint
from ..model.libraries.enabled import reentrant_settings
from ..model.libraries.trainer import default_versions
from ..model.needs import RECOMPUTES, SWITCHED_ON, together
from ..model.regions.parameters_inside import are_behind_layers, is_in_region, owners_of_parameters
from ..model.report import Remark, Report
from ..model.results.outputs import Derived, feeds, forwards, given_back, is_passed_over, passed_from
from ..model.types import unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Value
    from ..model.results.outputs import Forward
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT305", "autograd-api-with-checkpoint", Severity.ERROR
NEEDS = (
    *together((("autograd", "grad"), "create_graph"), RECOMPUTES),
    *together((("autograd", "grad"), "create_graph"), "Trainer", SWITCHED_ON),
    *together("func", ("grad", "vjp", "jac", "hessian", "linearize"), TorchCheckpoint),
    *together("functional", ("jvp", "hvp", "vhp"), TorchCheckpoint),
)
_TRANSFORMS = tuple(
    f"torch.func.{name}" for name in ("grad", "grad_and_value", "vjp", "jacrev", "hessian", "linearize")
)

_FUNCTIONALS = tuple(
    f"torch.autograd.functional.{name}" for name in ("jacobian", "hessian", "vjp", "jvp", "hvp", "vhp")
)


#: Names of a parameter that is the weight of a layer: `last_layer`.
_LAYER = re.compile(r"layer|weight|param")


def check(run: Run) -> Iterator[Report]:
    """Report what only a plain backward pass, or no checkpoint at all, supports."""
    asking = list(_higher_order(run))
    reentrant = list(forwards(run, run.program.calls, reentrant=True)) if asking else []
    reentrant += [outer for forward in reentrant for outer in given_back(run, forward)]
    for call, loss in asking:
        cause = _source(run, call, loss, reentrant)
        if cause is not None:
            yield Report(
                call.node,
                "the reentrant variant supports only a plain `backward()`: this raises a RuntimeError or gives "
                "gradients without a graph; write `use_reentrant=False`",
                notes=(Remark(cause.cause.node, "this checkpoint is reentrant"),),
                versions=default_versions(cause.cause),
            )
    yield from _differentiated_functions(run)
    yield from _transformed_functions(run)


def _transformed_functions(run: Run) -> Iterator[Report]:
    """The transforms of `torch.func`, as calls or as decorators, of what runs any checkpoint."""
    nodes = {event.node for event in run.of(TorchCheckpoint)}
    for name, function, node in _transforms(run):
        found = next((inner.node for inner in run.bodies.of(function).calls if inner.node in nodes), None)
        if found is not None:
            yield Report(
                node,
                f"`{name.rpartition('.')[2]}` of `torch.func` raises a RuntimeError on a checkpointed function; "
                "take the gradient with `torch.autograd.grad`, or without the checkpoint",
                notes=(Remark(found, "this is checkpointed"),),
            )


def _transforms(run: Run) -> Iterator[tuple[str, Value, ast.AST]]:
    """Each with its name, the function that it is given, and where it stands."""
    yield from ((call.name, call.argument(0, "func"), call.node) for call in run.calls_to(*_TRANSFORMS))
    for function in run.program.functions.values():
        for decorator in function.decorators:
            if isinstance(decorator, Ref) and decorator.name in _TRANSFORMS and decorator.node is not None:
                yield decorator.name, function, decorator.node


def _differentiated_functions(run: Run) -> Iterator[Report]:
    """The calls of `torch.autograd.functional`, which use `autograd.grad`, of what runs a reentrant checkpoint."""
    for call in run.calls_to(*_FUNCTIONALS):
        inside = run.bodies.of(call.argument(0, "func")).calls
        found = forwards(run, inside, reentrant=True)
        cause = next((it for it in found if not is_passed_over(run, call, it.call)), None)
        if cause is not None:
            yield Report(
                call.node,
                f"`{call.name.rpartition('.')[2]}` calls `autograd.grad`, which raises a RuntimeError on the "
                "reentrant variant; write `use_reentrant=False`",
                notes=(Remark(cause.cause.node, "this checkpoint is reentrant"),),
                versions=default_versions(cause.cause),
            )


def _higher_order(run: Run) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that ask for more than a plain backward pass, with what they differentiate."""
    for event in run.of(AutogradGrad, Backward):
        call = event.call
        if isinstance(event, AutogradGrad):
            named = (word.value for word in call.node.keywords if word.arg == "outputs")
            yield from ((call, outputs) for outputs in (*call.node.args[:1], *named))
        elif call.method and equals(call.keyword("create_graph"), True) is True:
            # `loss.backward(...)`, or `accelerator.backward(loss, ...)`.
            yield from ((call, loss) for loss in (*call.node.args[:1], call.node.func))


def _asks_behind(run: Run, call: Call, forward: Forward) -> bool:
    """Whether `autograd.grad` may ask for what lies behind the region alone: its backward pass need not enter it."""
    if call.name.endswith(".grad") and _asks_for_results(run, call, forward):
        return True
    inputs = call.argument(1, "inputs") if call.name.endswith(".grad") else ABSENT
    if isinstance(inputs, Param) and _LAYER.search(inputs.name):
        return True
    if not isinstance(forward.cause, Checkpointing):  # a model of transformers, in train mode alone
        in_eval = any(excludes_mode(guard, training=True, of_any=True) for guard in call.place.guards)
        return in_eval or all(map(are_behind_layers, options(inputs)))
    owners = owners_of_parameters(inputs)
    return bool(owners) and not any(_has_to_enter(run, owner, forward) for owner in owners)


def _asks_for_results(run: Run, call: Call, forward: Forward) -> bool:
    """Whether `autograd.grad` asks for nothing but what is computed from the region's result."""
    written = call.written_arguments(["outputs", "inputs"]).get("inputs")
    for function, inputs, place in passed_from(run, call, written) if written is not None else ():
        if function is forward.call.place.function:
            return Derived(run, function, [forward.call], place.node).holds_all(inputs)
    return False


def _has_to_enter(run: Run, owner: Value, forward: Forward) -> bool:
    """Whether parameters of ``owner`` lie in a reentrant region or in front of one, or are all those of the model."""
    if same(unwrapped(owner), unwrapped(forward.call.func)) or any(reentrant_settings(run, owner)):
        return True
    reentrant = [event for event in run.of(Checkpointing) if run.runs_reentrant(event)]
    return any(is_in_region(run, owner, event) or feeds(run, owner, event) for event in reentrant)


def _source(run: Run, call: Call, loss: ast.expr, reentrant: list[Forward]) -> Forward | None:
    for function, outputs, place in passed_from(run, call, loss):
        for forward in reentrant:
            here = forward.call.place.function is function and not forward.call.place.excludes(place.place)
            if not here or _asks_behind(run, call, forward):
                continue
            if Derived(run, function, [forward.call], place.node).holds(outputs):
                return forward
    return None
