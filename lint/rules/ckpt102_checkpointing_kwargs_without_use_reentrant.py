"""A dict of checkpointing arguments for transformers that lacks `use_reentrant`.

## What it does
Flags a dict given to `gradient_checkpointing_enable` (or `activation_checkpointing_enable`) of a transformers model, or
to `gradient_checkpointing_kwargs` (or `activation_checkpointing_kwargs`) of `TrainingArguments` and trl's configs, that
certainly has no key `use_reentrant`. A model that is not known is taken for one of transformers where the argument is
given by its name and no class of the program has the method. The Trainer's own keys (`every_n_layers`, `offload`,
`selective`) do not count, and an empty dict given to the Trainer is no dict. What is written to the dict later counts.

## Why is this bad?
transformers picks the non-reentrant variant only when no dict is given. A dict without the key goes to torch as it is,
and torch falls back to the reentrant variant: adding `preserve_rng_state` or `early_stop` silently changes how
gradients are computed, and with it come lost gradients of inputs that need none, detached router logits, and crashes
under DDP and FSDP.

## Bad
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def enable(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"early_stop": False})  # error
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={})  # error
    return model.train()

def of_what_holds_it(runner):
    runner.model.llama.gradient_checkpointing_enable(gradient_checkpointing_kwargs={})  # error

def train(model):
    args = TrainingArguments(
        "out",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"preserve_rng_state": True},  # error
    )
    Trainer(model, args).train()
```
```yaml
# accelerate launch train.py --config this.yaml
output_dir: out
per_device_train_batch_size: 4
learning_rate: 2.0e-5
gradient_checkpointing: true
gradient_checkpointing_kwargs:  # error
  # keep the last layer's recomputation whole
  early_stop: false
```

## Good
```python
from transformers import AutoModelForCausalLM, TrainingArguments

def train(name, extra):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model.gradient_checkpointing_enable({"use_reentrant": False, "early_stop": False})
    model.gradient_checkpointing_enable(extra)
    model.gradient_checkpointing_enable({**extra, "early_stop": False})
    return TrainingArguments(
        "out",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"every_n_layers": 2},
    )

class Other:
    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
        self.options = gradient_checkpointing_kwargs

Other().gradient_checkpointing_enable({})

def other(model):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={})
```
```python
def not_known(model, options):
    model.gradient_checkpointing_enable({"early_stop": False})
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
```
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"early_stop": False})
args.activation_checkpointing_kwargs["use_reentrant"] = False
Trainer("model", args)
other = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"early_stop": False})
other.activation_checkpointing_kwargs = {"use_reentrant": False}

def enable(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    kwargs, more = {"early_stop": False}, {"early_stop": False}
    dict.update(kwargs, use_reentrant=False)
    model.gradient_checkpointing_enable(kwargs)
    more.__setitem__("use_reentrant", False)
    model.gradient_checkpointing_enable(more)
```
```yaml
output_dir: out
per_device_train_batch_size: 4
learning_rate: 2.0e-5
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: false, early_stop: false}
```

## Fix safety
Unsafe: `"use_reentrant": False` runs the other variant. It computes the same gradients where the reentrant one was
right.

## Evidence
```python
import warnings
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

def variant(*args):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = LlamaForCausalLM(config).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.gradient_checkpointing_enable(*args)
        logits = model(input_ids=torch.ones(1, 4, dtype=torch.long)).logits
    nodes, seen = [logits.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [parent for parent, _ in node.next_functions]
    return any(type(node).__name__ == "CheckpointFunctionBackward" for node in seen)

assert variant() is (int(transformers.__version__.split(".")[0]) < 5)
assert variant({}) is True
assert variant({"preserve_rng_state": True}) is True
assert variant({"use_reentrant": False, "preserve_rng_state": True}) is False
```

## References
transformers 5.23 `modeling_utils.py` (`_gradient_checkpointing_enable`), `trainer.py` (`gc_kwargs or None`);
huggingface/transformers#33208, #43203.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..facts.values import Dict, Instance, Value, equals, is_absent, options
from ..finding import Applicability, Severity
from ..model.events import HfEnable, SwiftArgs, TrainerArgs, TrainerBuild
from ..model.events.extract import ENABLES, args_of
from ..model.libraries.trainer import (
    KWARGS,
    SWITCHES,
    default_switch,
    kwargs_may_change,
    overriding_trainer,
    trainer_kwargs,
    written_at,
    written_kwargs,
)
from ..model.needs import together
from ..model.report import Report, Rewrite, SetKey
from ..model.variant import from_json

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT102", "checkpointing-kwargs-without-use-reentrant", Severity.WARNING
NEEDS = (HfEnable, *together("checkpointing_kwargs", TrainerArgs))
VERSIONS = {"transformers": ">=4.35"}
#: A class of the program that has the method itself.
_DEFINED = re.compile(rf"\bdef ({'|'.join(sorted(ENABLES))})\b")


def check(run: Run) -> Iterator[Report]:
    """Report dicts that flip the variant without naming it."""
    for enable in run.of(HfEnable):
        if _lacks_key(enable.kwargs) and overriding_trainer(run, enable) is None:
            yield _report(enable.kwargs, enable.node)
    yield from _by_the_name_of_the_argument(run)
    for args in run.of(TrainerArgs):
        if isinstance(args, SwiftArgs):
            continue  # ms-swift chooses the variant itself when the dict does not.
        kwargs = from_json(args.kwargs)
        if _lacks_key(trainer_kwargs(kwargs)) and _may_be_on(args) and not kwargs_may_change(run, args):
            is_text = kwargs is not args.kwargs
            yield _report(kwargs, (kwargs.node if is_text else None) or written_at(args))
    for setting in written_kwargs(run):
        if _lacks_key(trainer_kwargs(setting.kwargs)):
            yield _report(setting.kwargs, setting.node)
    for args in _parsed(run):
        kwargs = args.declared(*KWARGS)
        may_be_on = equals(args.declared(*SWITCHES), False, None) is not True
        if _lacks_key(trainer_kwargs(kwargs)) and may_be_on and not kwargs_may_change(run, args):
            yield _report(kwargs, args.node)


def _by_the_name_of_the_argument(run: Run) -> Iterator[Report]:
    """Calls on models that are not known: the argument is transformers' own, and what else takes it hands it on."""
    known = {enable.node for enable in run.of(HfEnable)}
    if any(map(_DEFINED.search, (run.program.text, *run.program.texts.values()))):
        return
    for call in run.method_calls(*ENABLES):
        given = next((call.kwargs[name] for name in KWARGS if name in call.kwargs), None)
        made = any(isinstance(option, Instance) for option in options(call.receiver))
        if given is not None and call.node not in known and not made and _lacks_key(given):
            yield _report(given, call.node)


def _parsed(run: Run) -> Iterator[TrainerArgs]:
    """The arguments of Trainers that a command line fills: what their class declares holds unless it says otherwise."""
    for trainer in run.of(TrainerBuild):
        for value in options(trainer.args):
            args = args_of(value)
            if args is not None and args.call.open_kwargs:
                yield args


def _lacks_key(kwargs: Value) -> bool:
    return isinstance(kwargs, Dict) and is_absent(kwargs.get("use_reentrant")) is True


def _may_be_on(args: TrainerArgs) -> bool:
    if is_absent(args.enabled):
        return default_switch(args)
    return equals(args.enabled, False, None) is not True


def _report(kwargs: Value, call: ast.AST) -> Report:
    literal = kwargs.display if isinstance(kwargs, Dict) else None
    fix = (
        Rewrite(Applicability.UNSAFE, 'Add `"use_reentrant": False`', (SetKey(literal, "use_reentrant", "False"),))
        if literal
        else None
    )
    return Report(
        literal or call,
        "a dict without `use_reentrant` makes torch run the reentrant variant, unlike no dict at all; "
        'add `"use_reentrant": False`',
        fix=fix,
    )
