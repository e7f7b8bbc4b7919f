"""Turning checkpointing on for a model that is only evaluated.

## What it does
Flags `gradient_checkpointing_enable()` on a transformers model that the same program uses in evaluation mode alone,
after `eval()` or as it was loaded, when nothing in the file trains: no backward pass, no Trainer, no `train()`, and the
model is not handed to code that could. An object, or a module, may keep the model where its methods use it, always
without gradients.

## Why is this bad?
transformers checkpoints only in training mode, and there is no backward pass to save memory for. The line has no
effect; whoever copied it hoped that it lowers the memory of inference. `torch.no_grad()` does.

## Bad
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()  # error
model.eval()
with torch.no_grad():
    print(model.generate(max_new_tokens=8))
```
```python
import torch
from transformers import AutoModelForCausalLM

def perplexity(model, batches):
    with torch.no_grad():
        return sum(model(**batch).loss.item() for batch in batches)

def main(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()  # error
    model.eval()
    print(perplexity(model, batches))
```

```python
import torch
from transformers import AutoModelForCausalLM

class Evaluator:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path)
        self.model.gradient_checkpointing_enable()  # error
        self.model.eval()

    @torch.no_grad()
    def evaluate(self, batches):
        return [self.model(**batch).loss.item() for batch in batches]
```

## Good
```python
import torch
from mylib import fit
from transformers import AutoModelForCausalLM

def attack(config, ids):
    model = AutoModelForCausalLM.from_config(config)
    model.gradient_checkpointing_enable()
    model(input_ids=ids).logits.sum().backward()

def elsewhere():
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable()
    fit(model)

def run(model, ids):
    fit(model.cuda())

def by_a_helper(ids):
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable()
    model.eval()
    run(model, ids)

def in_a_tuple():
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable()
    model.eval()
    return model, model.config

def in_a_dict():
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable()
    return {"policy": model.eval()}

class Holder:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()

def back_and_forth():
    model = AutoModelForCausalLM.from_pretrained("base")
    model.gradient_checkpointing_enable()
    model.eval()
    model.train()
```

## Fix safety
Safe: the statement is removed, and it had no effect.

## Evidence
```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM

model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )
)
calls = []
model.gradient_checkpointing_enable()
for layer in model.model.layers:
    original = layer._gradient_checkpointing_func

    def counted(*args, _original=original, **kwargs):
        calls.append(1)
        return _original(*args, **kwargs)

    layer._gradient_checkpointing_func = counted
ids = torch.ones(1, 4, dtype=torch.long)
model.eval()
model(input_ids=ids)
assert calls == []
model.train()
model(input_ids=ids)
assert calls == [1]
```

## References
transformers 5.23 `modeling_layers.py` (`if self.gradient_checkpointing and self.training`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import is_plain, is_run_as_written, is_torch_module
from ..facts.values import Call, Dict, Function, Instance, Method, Result, Seq, options, same
from ..finding import Applicability, Severity
from ..model.events import AutogradGrad, Backward, EvalSwitch, Generate, HfEnable, TrainerBuild, TrainSwitch
from ..model.flow.statements import own_statement
from ..model.names import canonical
from ..model.report import DeleteStatement, Remark, Report, Rewrite
from ..model.tensors.gradient_free import is_always_gradient_free
from ..model.types import PASS_THROUGH, is_loaded, prepares, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..facts.walk import Write
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT211", "checkpointing-for-evaluation", Severity.WARNING
NEEDS = (
    *((HfEnable, word) for word in ("no_grad", "inference_mode", "set_grad_enabled", ".evaluate(", ".predict(")),
    (HfEnable, EvalSwitch),
    (HfEnable, Generate),
)
MAY_BE_MEANT = True
_EVALUATES = ("evaluate", "predict", "log_metrics", "save_metrics")
_TRAINS = ("training_step", "fit", "step")
_HARMLESS = ("builtins.", "torch.compile", "transformers.")
#: Methods that give what an optimizer takes.
_PARTS = ("parameters", "named_parameters", "modules", "named_modules", "children", "get_submodule")


def check(run: Run) -> Iterator[Report]:
    """Report switches that nothing can make use of."""
    if any(run.of(Backward, AutogradGrad, TrainSwitch)) or any(run.method_calls(*_TRAINS)):
        return
    evaluations = {trainer: _evaluation(run, trainer) for trainer in run.of(TrainerBuild)}
    if None in evaluations.values():
        return
    for enable in run.of(HfEnable):
        uses = list(_uses(run, unwrapped(enable.model)))
        evaluated = next((event.node for event in run.of(EvalSwitch) if _follows(event, enable)), None)
        if evaluated is None and is_loaded(unwrapped(enable.model)) and _are_gradient_free(uses):
            evaluated = uses[0].node
        if evaluated is None and not uses:
            of_it = (call for it, call in evaluations.items() if same(unwrapped(it.model), unwrapped(enable.model)))
            evaluated = next((call.node for call in of_it if call is not None), None)
        if evaluated is not None and not _is_handed_on(run, enable.model, uses):
            yield Report(
                enable.node,
                "checkpointing works in training mode only and nothing here trains; remove it",
                notes=(Remark(evaluated, "the model is evaluated"),),
                fix=_removal(run, enable),
            )


def _evaluation(run: Run, trainer: TrainerBuild) -> Call | None:
    """The call by which the program evaluates with a Trainer; None where it may train with that too."""
    made = Result(trainer.call)
    calls = [call for call in run.program.calls if call.method and same(call.receiver, made)]
    handed = (given for call in run.program.calls for given in (*call.args, *call.kwargs.values()))
    if any(call.method not in _EVALUATES for call in calls) or any(same(given, made) for given in handed):
        return None
    return next(iter(calls), None)


def _uses(run: Run, model: Value) -> Iterator[Call]:
    """The forward passes of the model, and what it generates."""
    yield from (call for call in run.uses.calls.of(model) if same(unwrapped(call.func), model))
    yield from (event.call for event in run.of(Generate) if same(unwrapped(event.model), model))


def _are_gradient_free(uses: list[Call]) -> bool:
    return bool(uses) and all(call.method == "generate" or is_always_gradient_free(call) for call in uses)


def _follows(switch: EvalSwitch, enable: HfEnable) -> bool:
    same_model = same(unwrapped(switch.receiver), unwrapped(enable.model))
    return same_model and switch.order > enable.order and not switch.place.excludes(enable.place)


def _is_handed_on(run: Run, model: Value, uses: list[Call]) -> bool:
    """Whether code that is not shown gets the model, or a function of the file returns it to nobody."""
    for call in run.program.calls:
        given = [*call.args, *call.kwargs.values()]
        if not _is_shown(run, call) and any(_is(value, model) for value in given):
            return True
    left = [found.value for returned in run.program.returns.values() for found in returned if not found.place.stack]
    # What an object keeps, others may train.
    left += [write.value for write in run.writes if not _only_evaluates(write, uses)]
    return any(_is(value, model) for value in left)


def _only_evaluates(write: Write, uses: list[Call]) -> bool:
    """Whether a plain object, or the `forward` of a module, uses what it keeps, always without gradients."""
    if not isinstance(write.obj, Instance) or write.is_item or not _are_gradient_free(uses):
        return False
    cls = write.obj.cls
    around = [function for call in uses if (function := call.place.function) is not None and function.owner is cls]
    return any(is_plain(cls) or (is_torch_module(cls) and function.name == "forward") for function in around)


def _is_shown(run: Run, call: Call) -> bool:
    """Whether what ``call`` does with the model is known: a function of the file is read with what it is given.

    Of a generator it is not: what it yields goes to whoever iterates.
    """
    match call.func:
        case (Function() as function) | Method(function=function):
            return is_run_as_written(function) and not run.program.generators.get(function.node, False)
    return call.name.startswith(_HARMLESS) or canonical(call.name) in PASS_THROUGH or prepares(call)


def _is(value: Value, model: Value) -> bool:
    """Whether ``value`` is the model, or holds it."""
    match value:
        case Seq(_, items):
            return any(_is(item, model) for item in items)
        case Dict(items):
            return any(_is(item, model) for item in items.values())
        case Instance(_, Call() as made):
            return any(_is(item, model) for item in (*made.args, *made.kwargs.values()))
        case Result(call) if call.method in _PARTS:
            return _is(call.receiver, model)
        case Result(call) if prepares(call):
            return any(_is(given, model) for given in call.args)
    return any(same(unwrapped(option), unwrapped(model)) for option in options(value))


def _removal(run: Run, enable: HfEnable) -> Rewrite | None:
    statement = own_statement(run, enable.call)
    if statement is None:
        return None
    return Rewrite(Applicability.SAFE, "Remove the statement", (DeleteStatement(statement),))
