"""`loss.requires_grad_()` before `loss.backward()`.

## What it does
Flags `loss.requires_grad_()`, `loss.requires_grad = True` and `loss = Variable(loss, requires_grad=True)` on a computed
loss that then goes through `backward()`, in a file that uses checkpointing. A tensor the file makes itself
(`torch.zeros(())`, `.detach()`) may require gradients, and where nothing is frozen and no region is reentrant the line
is idle and not reported.

## Why is this bad?
A loss that depends on a trainable parameter requires gradients already, and the line does nothing. When it does not,
torch's `element 0 of tensors does not require grad` is the sign that no parameter is reached, as it happens with the
reentrant variant and frozen embeddings. The line silences the error: `backward()` succeeds and trains nothing.

## Bad
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def train(name, loader):
    model = AutoModelForCausalLM.from_pretrained(name)
    model = get_peft_model(model, LoraConfig())
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.train()
    for batch in loader:
        loss = model(**batch).loss
        loss.requires_grad_(True)  # error
        loss.backward()
        out = model(**batch)
        total = out["loss"]
        total.requires_grad_()  # a name that does not say loss is left alone
        loss = out["loss"]
        loss.requires_grad = True  # error
        loss.backward()

def scaled(model, batch, scaler, optimizer):
    loss = model(**batch).loss
    loss.requires_grad_(True)  # error
    scaler.scale(loss).backward()
    scaler.step(optimizer)

def accumulated(model, batch, scaler, accelerator, steps):
    loss = model(**batch).loss
    loss.requires_grad_(True)  # error
    (loss / steps).backward()
    loss = model(**batch).loss
    loss.requires_grad_(True)  # error
    scaler.scale(0.5 * loss / steps).backward()
    loss = model(**batch).loss
    loss.requires_grad_(True)  # error
    accelerator.backward(loss / steps)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

criterion = nn.CrossEntropyLoss()

def step(net, accelerator, x, y):
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    loss.requires_grad = True  # error
    accelerator.backward(loss)

def in_one_statement(net, accelerator, x, y):
    loss = criterion(checkpoint(net, x, use_reentrant=True), y).requires_grad_()  # error
    loss.backward()
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    total = loss.requires_grad_(True)  # error
    total.backward()
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    loss.requires_grad_().backward()  # error
    accelerator.backward(criterion(net(x), y).requires_grad_())  # what has no name is left alone

def symmetric(a, b):
    return (nn.functional.l1_loss(a, b) + nn.functional.mse_loss(b, a)) / 2

def sums(net, x, y, weight):
    out = checkpoint(net, x, use_reentrant=True)
    loss = criterion(out, y) + weight * out.pow(2).mean()
    loss.requires_grad_(True)  # error
    loss.backward()
    loss = symmetric(out, y)
    loss.requires_grad_(True)  # error
    loss.backward()
```

```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

KWARGS = {"use_reentrant": True}

class LossTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        out = model(**inputs)
        loss = out.loss
        loss.requires_grad_(True)  # error
        return (loss, out) if return_outputs else loss

    def shown(self, model, inputs):
        loss = model(**inputs).loss
        loss.requires_grad_(True)
        return loss

model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
args = TrainingArguments("out", activation_checkpointing=True, activation_checkpointing_kwargs=KWARGS)
LossTrainer(model, args).train()
```

```python
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.utils.checkpoint import checkpoint

criterion = nn.MSELoss()

def step(net, x, y):
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    loss = Variable(loss, requires_grad=True)  # error
    loss.backward()
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    loss = torch.tensor(loss.item(), requires_grad=True)  # error
    loss.backward()
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    loss = Variable(loss.detach(), True)  # error
    loss.backward()
```

## Good
```python
import torch
from torch.utils.checkpoint import checkpoint

def step(net, x, y):
    x.requires_grad_()
    loss = checkpoint(net, x, use_reentrant=True).pow(2).mean()
    loss.backward()

def nothing_to_learn(net, x):
    loss = checkpoint(net, x, use_reentrant=False).mean()
    if x.numel() == 0:
        loss = torch.zeros((), requires_grad=True)
        loss.requires_grad_()
    loss.backward()

def cut(net, x):
    loss = checkpoint(net, x, use_reentrant=False).mean()
    surrogate_loss = loss.detach()
    surrogate_loss.requires_grad_()
    surrogate_loss.backward()
    leaf_loss = loss.detach().requires_grad_()
    leaf_loss.backward()
    loss.backward(surrogate_loss.grad)

def made_here(net, x, weights):
    total = checkpoint(net, x, use_reentrant=False).mean()
    loss = weights.get("scale") * torch.ones(()) + total.item() / x.size(0)
    loss.requires_grad_()
    loss.backward()
    rest_loss = total.detach() * 2 + 1
    rest_loss.requires_grad_()
    rest_loss.backward()
```

```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def idle(name, batch):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    loss = model(**batch).loss
    loss.requires_grad_(True)  # it has a graph already
    loss.backward()
```

```python
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.utils.checkpoint import checkpoint

criterion = nn.MSELoss()

def step(net, x, y):
    x = Variable(x, requires_grad=True)
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    leaf_loss = Variable(loss, requires_grad=True)
    leaf_loss.square().backward()
    loss.backward(leaf_loss.grad)

def logged(net, x, y, history):
    loss = criterion(checkpoint(net, x, use_reentrant=True), y)
    loss.backward()
    loss = torch.tensor(loss.item())
    history.append(loss)

def started(net, x, y):
    loss = torch.tensor(0.0, requires_grad=True)
    loss = loss + criterion(checkpoint(net, x, use_reentrant=True), y)
    loss.backward()
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

net = torch.nn.Linear(4, 1)

def loss_of(reentrant):
    return checkpoint(net, torch.ones(2, 4), use_reentrant=reentrant).mean()

loss = loss_of(True)
try:
    loss.backward()
except RuntimeError as error:
    assert "does not require grad" in str(error)
else:
    raise AssertionError("torch must notice")

loss = loss_of(True)
loss.requires_grad_(True)
loss.backward()
assert net.weight.grad is None

loss = loss_of(False)
loss.requires_grad_(True)
loss.backward()
assert net.weight.grad is not None

net.zero_grad()
loss = torch.autograd.Variable(loss_of(True), requires_grad=True)
loss.backward()
assert net.weight.grad is None
```

## References
PyTorch forum and model-hub scripts answer `element 0 of tensors does not require grad` with this line; see CKPT104 for
what is behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.identifiers import attributes_in
from ..facts.nodes import source_text
from ..facts.values import Absent, Attr, Choice, Computed, Element, Instance, Result, Value, equals, options
from ..finding import Severity
from ..model.conditions.guards import own_guards
from ..model.events import (
    AdapterAttach,
    Backward,
    Checkpointing,
    Detach,
    GradientSwitch,
    GradientSwitchCall,
    GradientSwitchWrite,
    HfEnable,
    KbitPrepare,
    TrainerArgs,
)
from ..model.flow.statements import own_statement, return_behind, stored_under, unscaled
from ..model.libraries.trainer import enable_reentrant
from ..model.names import canonical
from ..model.needs import CHECKPOINTS, together
from ..model.report import Remark, Report
from ..model.tensors.batches import is_loss_for_trainer
from ..model.tensors.gradient_free import is_gradient_free
from ..model.tensors.tensor_values import is_operation
from ..model.types import bases, is_hf_model, same_object

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Place
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT130", "loss-requires-grad", Severity.ERROR
NEEDS = together(GradientSwitch, (Backward, "compute_loss", "training_step"), "oss", CHECKPOINTS)
_CHECKPOINTS = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")
#: They build layers that are frozen by default.
_FREEZES = ("torch.nn.Embedding.from_pretrained", "torch.nn.EmbeddingBag.from_pretrained")
#: Methods that give one without it.
_CUTS = ("detach", "item", "numpy")
#: They give a new leaf with the values of what they get.
_LEAVES = ("torch.autograd.Variable", "torch.tensor")
#: Methods that give a tensor with the graph of their object.
_KEEP_GRAPH = frozenset(("mean", "sum", "pow", "square", "abs", "exp", "log", "sqrt", "clamp", "norm", "float", "to"))


def check(run: Run) -> Iterator[Report]:
    """Report losses that are made to require gradients by hand."""
    if not any(run.of(Checkpointing, HfEnable, KbitPrepare, TrainerArgs)):
        return
    # A leaf that is made anew has no graph, whatever the loss had.
    for target, names, value, node, place in (*(() if _keeps_graph(run) else _switched_on(run)), *_made_anew(run)):
        backward = _backward(run, names, node, place) or _given_to_trainer(names, node, place)
        # `if not loss.requires_grad:` handles a batch that nothing is learned from.
        asks = any("requires_grad" in attributes_in(guard.test) for guard in own_guards(place))
        called = next((name for name in (target, *names) if "loss" in name.lower()), None)
        if called is not None and _is_computed(value) and backward is not None and not asks:
            yield Report(
                node,
                f"`{called}` requires gradients by itself unless no parameter is reached, and then this hides it: "
                f"`backward()` succeeds and trains nothing; remove the line and mend what cuts the graph",
                notes=(Remark(backward, "succeeds with or without a gradient for any parameter"),),
            )


def _keeps_graph(run: Run) -> bool:
    """Whether nothing in the program can keep a loss from having a graph: then the line does nothing.

    That takes frozen parts, the reentrant variant where the program asks for it, an adapter on a model whose embeddings
    are frozen where the variant is open, a reentrant region of the program that may get data alone, or a function that
    gives its result detached.
    """
    if any(switch.freezes for switch in run.of(GradientSwitch)) or any(run.calls_to(*_FREEZES)):
        return False
    if any(event.reentrant is not False for event in run.of(Checkpointing)):
        return False
    if any(run.detached_losses.is_returned(cut.call) for cut in run.of(Detach)):
        return False
    hooked = any(run.method_calls("enable_input_require_grads")) or any(it.is_on for it in run.of(KbitPrepare))
    adapters = any(run.of(AdapterAttach)) and not hooked
    variants = [enable_reentrant(run, enable) for enable in run.of(HfEnable)]
    if True in variants:
        return False
    return not adapters or (bool(variants) and not any(variant is not False for variant in variants))


def _switched_on(run: Run) -> Iterator[tuple[str, tuple[str, ...], Value, ast.AST, Place]]:
    """Every ``x.requires_grad_()`` and ``x.requires_grad = True``.

    Yields:
        The text of x, that of what is called so afterwards, the value of x, the node, the place.
    """
    for switch in run.of(GradientSwitch):
        if not isinstance(switch.value, Absent) and not equals(switch.value, True):
            continue
        match switch:
            case GradientSwitchCall(call) if call.attribute is not None:
                written, names = call.attribute.value, _names_for(run, call)
            case GradientSwitchWrite(write) if write.target is not None:
                written, names = write.target.value, (source_text(write.target.value),)
            case _:
                continue
        yield source_text(written), names, switch.target, switch.node, switch.place


def _made_anew(run: Run) -> Iterator[tuple[str, tuple[str, ...], Value, ast.AST, Place]]:
    """Every `x = Variable(x, requires_grad=True)`, which leaves the graph of x behind, as `_switched_on` does."""
    for call in run.calls_to(*_LEAVES):
        given = call.argument(1 if call.name.endswith("Variable") else None, "requires_grad")
        if equals(given, True) is not True or not call.node.args:
            continue
        written, value = call.node.args[0], call.args[0]
        while isinstance(value, Result) and value.call.method in _CUTS and value.call.attribute is not None:
            written, value = value.call.attribute.value, value.call.receiver
        stored = stored_under(run, call)
        # `loss = Variable(criterion(x, y), requires_grad=True)` gives the result its first name.
        text = source_text(written)
        name = next(iter(stored), "") if text.endswith(")") else text
        if stored == {name}:
            yield name, (name,), value, call.node, call.place


def _names_for(run: Run, call: Call) -> tuple[str, ...]:
    """What has the tensor that ``call`` gives: its own statement leaves it where it was."""
    assert call.attribute is not None
    if own_statement(run, call) is not None:
        return (source_text(call.attribute.value),)
    return (*stored_under(run, call), source_text(call.node))


def _is_computed(value: Value) -> bool:
    """Whether the tensor certainly comes out of a model or a function of tensors, not out of a factory of torch."""
    match value:
        case Attr(base=Result(), name="loss") | Element(of=Result(), index="loss"):
            return True
        case Result(call):
            made_here = call.method in ("detach", "clone", "new_zeros", "new_tensor", "item")
            return bool(call.method or not call.name or call.name.startswith("torch.nn.functional")) and not made_here
        case Choice():
            return all(_is_computed(option) for option in options(value))
        case Computed(operands=operands) if is_operation(value):
            return any(_comes_of_module(operand) for operand in operands)
    return False


def _comes_of_module(value: Value, depth: int = 6) -> bool:
    """Whether a module, a loss of torch or a checkpoint certainly computed ``value``, or a part of it."""
    if not depth:
        return False
    match value:
        case Attr(base=inner) | Element(of=inner):
            return _comes_of_module(inner, depth - 1)
        case Choice():
            return all(_comes_of_module(option, depth - 1) for option in options(value))
        case Computed(operands=operands) if is_operation(value):
            return any(_comes_of_module(operand, depth - 1) for operand in operands)
        case Result(call) if call.method:
            return call.method in _KEEP_GRAPH and _comes_of_module(call.receiver, depth - 1)
        case Result(call):
            name = canonical(call.name)
            if is_gradient_free(call) or any(isinstance(it, Result) and it.call.method in _CUTS for it in call.args):
                return False
            return name.startswith("torch.nn.functional") or name in _CHECKPOINTS or _is_module(call.func)
    return False


def _is_module(called: Value) -> bool:
    called = same_object(called)
    if isinstance(called, Result) and canonical(called.call.name).startswith("torch.nn."):
        return True
    return is_hf_model(called) or (isinstance(called, Instance) and "torch.nn.Module" in bases(called.cls))


def _given_to_trainer(names: tuple[str, ...], node: ast.AST, place: Place) -> ast.AST | None:
    """The statement behind ``node`` that gives a tensor called one of ``names`` to a trainer, which runs backward."""
    if place.function is None or not is_loss_for_trainer(place.function):
        return None
    return return_behind(place.function, node, names)


def _backward(run: Run, names: tuple[str, ...], node: ast.AST, place: Place) -> ast.AST | None:
    """The backward pass from the tensor called one of ``names``, in the same function behind ``node`` or around it."""
    for event in run.of(Backward):
        call = event.call
        given = [*([call.attribute.value] if call.attribute is not None else []), *call.node.args]
        written = [*given, *(part for value in given for part in unscaled(value))]
        follows = call.place.function is place.function and call.node.lineno > getattr(node, "lineno", 0)
        if node in written or (follows and any(source_text(expression) in names for expression in written)):
            return call.node
    return None
