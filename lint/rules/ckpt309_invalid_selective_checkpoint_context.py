"""A `context_fn` that raises.

## What it does
Flags `context_fn` given the result of `create_selective_checkpoint_contexts(...)`, that function itself, or a policy,
where a function without arguments is due; one pair of contexts that several calls share; a list of operators that holds
something else than overloads (`torch.ops.aten.mm`, `torch.mm`), or a set of them; and `context_fn` together with the
reentrant variant or with `debug=True`. The same holds for what torch's `checkpoint_wrapper` and
transformers pass on.

## Why is this bad?
torch calls `context_fn()` in every forward pass and expects two new contexts. Anything else raises a TypeError or
ValueError in the first step, and a pair that is used twice raises `Trying to backward an extra time`.

## Bad
```python
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

def forward(block, layers, x):
    contexts = create_selective_checkpoint_contexts(policy)
    x = checkpoint(block, x, use_reentrant=False, context_fn=create_selective_checkpoint_contexts(policy))  # error
    x = checkpoint(block, x, use_reentrant=False, context_fn=policy)  # error
    x = checkpoint(block, x, use_reentrant=False, context_fn=create_selective_checkpoint_contexts)  # error
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False, context_fn=lambda: contexts)  # error
    return x
```
```python
import torch
from functools import partial
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

def forward(block, x):
    save = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    x = checkpoint(block, x, use_reentrant=True, context_fn=save)  # error
    x = checkpoint(block, x, use_reentrant=False, debug=True, context_fn=save)  # error
    packets = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm])
    x = checkpoint(block, x, use_reentrant=False, context_fn=packets)  # error
    names = partial(create_selective_checkpoint_contexts, {torch.ops.aten.mm.default})
    return checkpoint(block, x, use_reentrant=False, context_fn=names)  # error
```

```python
import functools
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper as wrap,
)
from torch.utils.checkpoint import create_selective_checkpoint_contexts

SAVED = [torch.ops.aten.mm.default]

def apply_to_layers(model):
    for name, layer in model.layers.named_children():
        layer = wrap(layer, context_fn=create_selective_checkpoint_contexts(SAVED), preserve_rng_state=False)  # error
        model.layers.register_module(name, layer)

def apply_to_linears(model):
    wrapper = functools.partial(wrap, context_fn=create_selective_checkpoint_contexts)  # error
    apply_activation_checkpointing(model, wrapper, lambda module: isinstance(module, nn.Linear))

def apply_reentrant(layer, context):
    lazily = functools.partial(create_selective_checkpoint_contexts, SAVED)
    return wrap(layer, CheckpointImpl.REENTRANT, context_fn=lazily)  # error
```
```python
import functools
import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts
from transformers import AutoModelForCausalLM, TrainingArguments

def saved(names):
    return [getattr(torch.ops.aten, name) for name in names]

def of_trainer(policy):
    lazily = functools.partial(create_selective_checkpoint_contexts, saved(["mm", "addmm"]))
    return TrainingArguments(
        "out",
        activation_checkpointing=True,
        activation_checkpointing_kwargs=dict(use_reentrant=False, context_fn=lazily),  # error
    )

def by_hand(policy):
    model = AutoModelForCausalLM.from_pretrained("base")
    contexts = create_selective_checkpoint_contexts(policy)
    model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": contexts})  # error
    model.activation_checkpointing_enable({"use_reentrant": True, "context_fn": lambda: contexts})  # error
    model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": lambda: contexts})  # error
    return model
```

## Good
```python
import functools
import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts
from transformers import AutoModelForCausalLM, TrainingArguments

def saved(names):
    return [getattr(torch.ops.aten, name).default for name in names]

def of_trainer(policy):
    lazily = functools.partial(create_selective_checkpoint_contexts, saved(["mm", "addmm"]))
    return TrainingArguments(
        "out",
        activation_checkpointing=True,
        activation_checkpointing_kwargs=dict(use_reentrant=False, context_fn=lazily),
    )

def by_hand(policy):
    model = AutoModelForCausalLM.from_pretrained("base")
    lazily = functools.partial(create_selective_checkpoint_contexts, policy)
    model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": lazily})
    model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": None})
    return model
```
```python
import functools
import torch
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from torch.utils.checkpoint import create_selective_checkpoint_contexts

SAVED = [torch.ops.aten.mm.default]

def apply_to_layers(model, context_fn):
    lazily = functools.partial(create_selective_checkpoint_contexts, SAVED)
    for name, layer in model.layers.named_children():
        model.layers.register_module(name, wrappers.checkpoint_wrapper(layer, context_fn=lazily))
    wrapper = functools.partial(wrappers.checkpoint_wrapper, context_fn=context_fn)
    wrappers.apply_activation_checkpointing(model, wrapper, lambda module: isinstance(module, torch.nn.Linear))
```
```python
import torch
from functools import partial
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

SAVED = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]

def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in SAVED else CheckpointPolicy.PREFER_RECOMPUTE

def contexts():
    return create_selective_checkpoint_contexts(policy)

def with_default(ops=SAVED):
    return create_selective_checkpoint_contexts(ops)

def forward(block, x, context_fn):
    x = checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))
    x = checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, SAVED))
    x = checkpoint(block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
    x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    x = checkpoint(block, x, use_reentrant=False, context_fn=with_default)
    x = checkpoint(block, x, use_reentrant=False, debug=False, context_fn=context_fn)
    used_once = create_selective_checkpoint_contexts(policy)
    x = checkpoint(block, x, use_reentrant=False, context_fn=lambda: used_once)
    return checkpoint(block, x, use_reentrant=True)
```

## Evidence
```python
import torch
from functools import partial
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts as create

block = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Tanh(), torch.nn.Linear(4, 4, bias=False))
mm = torch.ops.aten.mm.default

def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is mm else CheckpointPolicy.PREFER_RECOMPUTE

def raises(context_fn, use_reentrant=False, steps=1, **options):
    try:
        for _ in range(steps):
            x = torch.ones(2, 4, requires_grad=True)
            checkpoint(block, x, use_reentrant=use_reentrant, context_fn=context_fn, **options).sum().backward()
    except Exception as error:
        return type(error)
    return None

assert raises(create(policy)) is TypeError
assert raises(create) is TypeError
assert raises(policy) is TypeError
assert raises(partial(create, [torch.ops.aten.mm])) is ValueError
assert raises(partial(create, [torch.mm])) is ValueError
assert raises(partial(create, {mm})) is TypeError
assert raises(partial(create, policy), use_reentrant=True) is ValueError
assert raises(partial(create, policy), debug=True) is ValueError
shared = create(policy)
assert raises(lambda: shared, steps=2) is RuntimeError
for right in (partial(create, policy), partial(create, [mm]), lambda: create(policy)):
    assert raises(right, steps=2) is None

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

def wrapped_raises(*implementation, context_fn):
    try:
        wrapped = checkpoint_wrapper(block, *implementation, context_fn=context_fn)
        wrapped(torch.ones(2, 4, requires_grad=True)).sum().backward()
    except Exception as error:
        return type(error)
    return None

assert wrapped_raises(context_fn=create([mm])) is TypeError
assert wrapped_raises(context_fn=create) is TypeError
assert wrapped_raises(CheckpointImpl.REENTRANT, context_fn=partial(create, [mm])) is ValueError
assert wrapped_raises(context_fn=partial(create, [mm])) is None
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`create_selective_checkpoint_contexts`, `checkpoint`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..facts.values import (
    ABSENT,
    Absent,
    Const,
    Dict,
    Element,
    Function,
    Method,
    Partial,
    Ref,
    Result,
    Seq,
    equals,
    options,
    same,
    truth,
)
from ..finding import Severity
from ..model.events import CallEvent, Checkpoint, CheckpointWrap, HfEnable, TrainerArgs
from ..model.libraries.finished_models import trainer_may_enable
from ..model.libraries.trainer import is_enabled, object_of, settings_of, written_at
from ..model.report import Report
from ..model.variant import torch_reentrant
from ..model.wrapping.keywords import partials_with
from ..model.wrapping.policies import CONTEXTS, given_each_time, policy_each_time

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Place, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT309", "invalid-selective-checkpoint-context", Severity.ERROR
NEEDS = ("context_fn",)
VERSIONS = {"torch": ">=2.1"}
RAISES = True
_KEYWORD = "context_fn"
_NO_REENTRANT = "checkpoint_impl=NO_REENTRANT"
_LAZILY = "write `functools.partial(create_selective_checkpoint_contexts, policy)`"


class _Given(NamedTuple):
    """A `context_fn` that checkpoints run with."""

    context_fn: Value
    #: The call or the argument that gives it.
    node: ast.AST
    reentrant: bool | None
    debug: Value
    #: How the other variant is asked for.
    variant: str
    #: The one checkpoint that it is for; None where that is each of several layers.
    place: Place | None


def check(run: Run) -> Iterator[Report]:
    """Report contexts that raise in the first step."""
    reported = set()
    for given in _given(run):
        context_fn = given.context_fn
        if isinstance(context_fn, Absent) or (isinstance(context_fn, Const) and context_fn.value is None):
            continue
        policy = policy_each_time(run, context_fn)
        problem = _combination(given) or _problem(context_fn) or _shared(given) or _operators(policy)
        if problem and given.node not in reported:
            reported.add(given.node)
            yield Report(given.node, problem)


def _given(run: Run) -> Iterator[_Given]:
    """The functions that are given to checkpoints, to torch's wrappers of modules and to transformers."""
    for event in run.of(Checkpoint, CheckpointWrap):
        variant = "use_reentrant=False" if isinstance(event, Checkpoint) else _NO_REENTRANT
        arguments = event.call.keyword(_KEYWORD), event.node, event.reentrant, event.call.keyword("debug")
        yield _Given(*arguments, variant, event.place)
    for apply, wrapper in partials_with(run, _KEYWORD):
        debug = wrapper.kwargs.get("debug", ABSENT)
        yield _Given(
            wrapper.kwargs[_KEYWORD], wrapper.call.node, apply.reentrant, debug, _NO_REENTRANT, wrapper.call.place
        )
    for setting in settings_of(run):
        kwargs = setting.kwargs
        if not isinstance(kwargs, Dict) or not isinstance(setting, CallEvent):
            continue
        if not _reaches_layers(run, setting):
            continue
        reentrant = torch_reentrant(kwargs.get("use_reentrant"))
        context_fn, debug = kwargs.get(_KEYWORD), kwargs.get("debug")
        yield _Given(context_fn, written_at(setting), reentrant, debug, '"use_reentrant": False', None)


def _reaches_layers(run: Run, setting: CallEvent) -> bool:
    """Whether the layers of a model certainly get the arguments: those of a Trainer replace what a model was given."""
    if isinstance(setting, TrainerArgs):
        return is_enabled(run, setting, object_of(setting)) is True
    return isinstance(setting, HfEnable) and not trainer_may_enable(run)


def _combination(given: _Given) -> str:
    if given.reentrant and truth(given.context_fn):
        return f"the reentrant variant refuses `context_fn` with a ValueError; write `{given.variant}`"
    if equals(given.debug, True):
        return "`debug=True` together with `context_fn` raises a ValueError; drop one of them"
    return ""


def _problem(context_fn: Value) -> str:
    """What is wrong with the function that is to make two contexts; empty when nothing is."""
    match context_fn:
        case Result(call) if call.name == CONTEXTS:
            return f"`context_fn` is called without arguments, and this is no function: a TypeError; {_LAZILY}"
        case Ref(name) if name == CONTEXTS:
            return f"`context_fn` is called without arguments, and this needs a policy: a TypeError; {_LAZILY}"
        case Partial(func=Ref(name), args=[policy, *_]) if name == CONTEXTS:
            return _operators(policy)
        case Function() as function if function.owner is None and _needs_arguments(function):
            return f"`context_fn` is called without arguments, and `{function.name}` needs some: a TypeError; {_LAZILY}"
        case Method(function=function) if _needs_arguments(function, given=1):
            return f"`context_fn` is called without arguments, and `{function.name}` needs some: a TypeError; {_LAZILY}"
    return ""


def _operators(policy: Value | None) -> str:
    if not isinstance(policy, Seq):
        return ""
    if policy.kind == "set":
        return "a set of operators is no policy: a TypeError; write a list"
    for item in (option for held in policy.items for option in options(held)):
        if isinstance(item, Ref) and item.name.startswith("torch.") and not _is_overload(item.name):
            return f"`{item.name}` is no overload of an operator: a ValueError; write `torch.ops.aten.mm.default`"
    return ""


def _is_overload(name: str) -> bool:
    if name.startswith("torch.nn.functional.") or name.count(".") == 1:
        return False  # a function: `torch.mm`
    return not name.startswith("torch.ops.") or name.count(".") >= 4


def _needs_arguments(function: Function, given: int = 0) -> bool:
    """Whether ``function`` needs more positional arguments than ``given``, or one by its name."""
    arguments = function.node.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    required = sum(default is None for default in arguments.kw_defaults)
    return positional > given or required > 0


def _pair(held: Value | None) -> Result | None:
    """The pair of contexts that ``held`` is, or that a tuple takes the two of."""
    if isinstance(held, Seq) and not held.open:
        pairs = [item.of for item in held.items if isinstance(item, Element)]
        held = pairs[0] if pairs and len(pairs) == len(held.items) and all(same(it, pairs[0]) for it in pairs) else None
    return held if isinstance(held, Result) and held.call.name == CONTEXTS else None


def _shared(given: _Given) -> str:
    """Whether a function gives several calls the contexts that were made once, outside of it."""
    made = _pair(given_each_time(given.context_fn))
    if made is None:
        return ""
    origin, used = made.call.place, given.place
    if used is not None and origin.function is used.function and origin.loops == used.loops:
        return ""
    return f"every call gets the same pair of contexts, which backward may use once; {_LAZILY}"
