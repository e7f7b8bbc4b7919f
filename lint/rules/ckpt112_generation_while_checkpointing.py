"""`generate()` on a model that is in train mode with checkpointing on.

## What it does
Flags `model.generate(...)` when the program has put the model in train mode with checkpointing on and not taken it
back: after `model.train()`, also in another iteration of a loop or in the constructor of the object that generates,
on a model built from a configuration, after `trainer.train()` without an evaluation, in `compute_loss` of an own
Trainer, and in `on_step_end` or `on_log` of a callback of such a Trainer, or what they call, also in `on_epoch_end`
and `on_save` where the Trainer never evaluates. `model.eval()`, `use_cache=False` in the call or in
`model.generation_config`, `gradient_checkpointing_disable()` and trl's `unwrap_model_for_generation` are fine, and so
is everything the Trainer generates itself. `model.config.use_cache = False` changes nothing: `generate` does not read
it.

## Why is this bad?
Every checkpointed layer throws the key/value cache away, but `generate` feeds it only the newest token: from the second
token on the model does not see the prompt. The text is wrong, with one warning in the log; scores and rewards
computed from it are too.

## Bad
```python
from transformers import AutoModelForCausalLM

def train(name, batches, optimizer, prompt):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model.train()
    for step, batch in enumerate(batches):
        model(**batch).loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(model.generate(**prompt, max_new_tokens=20))  # error
```
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("base")
trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True))
trainer.train()
print(model.generate(max_new_tokens=20))  # error
```
```python
from transformers import Trainer, TrainerCallback, TrainingArguments

class Sample(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        print(model.generate(max_new_tokens=20))  # error

def train(model):
    args = TrainingArguments("out", gradient_checkpointing=True)
    Trainer(model, args, callbacks=[Sample()]).train()
```

```python
from transformers import Trainer, TrainerCallback, TrainingArguments

class Sample(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        kwargs["model"].generate(max_new_tokens=8)  # error

args = TrainingArguments("out", activation_checkpointing=True)
trainer = Trainer("base", args)
trainer.add_callback(Sample())
trainer.train()
```

```python
from transformers import Trainer, TrainerCallback, TrainingArguments

class Sample(TrainerCallback):
    def show(self, model):
        print(model.generate(max_new_tokens=20))  # error

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 100 == 0:
            self.show(kwargs["model"])

def train(model):
    args = TrainingArguments("out", gradient_checkpointing=True)
    Trainer(model, args, callbacks=[Sample()]).train()
```

```python
from transformers import AutoModelForCausalLM

def train(name, batches, optimizer, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.config.use_cache = False
    model.gradient_checkpointing_enable()
    model.train()
    for batch in batches:
        model(**batch, use_cache=False).loss.backward()
        optimizer.step()
    inputs = tokenizer("The", return_tensors="pt")
    return model.generate(**inputs, max_new_tokens=20)  # error
```

```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def load(name):
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    return get_peft_model(model, LoraConfig(r=16))

def train(name, loader, prompt):
    model = load(name)
    for epoch in range(3):
        model.train()
        for batch in loader:
            model(**batch).loss.backward()
        with torch.no_grad():
            print(model.generate(**prompt, max_new_tokens=20))  # error
```

```python
import torch
from transformers import AutoModelForCausalLM

class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    @torch.no_grad()
    def rollout(self, prompts):
        return self.model.generate(**prompts, max_new_tokens=64)  # error

    def update(self, tokens):
        self.model.train()
        self.model(input_ids=tokens, labels=tokens).loss.backward()
        self.optimizer.step()

    def fit(self, loader):
        for prompts in loader:
            self.update(self.rollout(prompts))
```

```python
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

class Preview(TrainerCallback):
    @torch.inference_mode()
    def on_log(self, args, state, control, model=None, **kwargs):
        if state.is_world_process_zero:
            print(model.generate(max_new_tokens=20))  # error

    def on_epoch_end(self, args, state, control, model, **kwargs):
        print(model.generate(max_new_tokens=20))  # error

def train(model):
    args = TrainingArguments("out", gradient_checkpointing=True, logging_steps=50)
    Trainer(model, args, callbacks=[Preview()]).train()
```

## Good
```python
from transformers import Trainer, TrainerCallback, TrainingArguments

class AfterEvaluation(TrainerCallback):
    def on_log(self, args, state, control, logs=None, model=None, **kwargs):
        if "eval_loss" in logs:
            print(model.generate(max_new_tokens=20))

    def on_evaluate(self, args, state, control, model, **kwargs):
        print(model.generate(max_new_tokens=20))

    def on_save(self, args, state, control, model, **kwargs):
        print(model.generate(max_new_tokens=20))

def train(model, data):
    args = TrainingArguments("out", gradient_checkpointing=True, eval_strategy="steps")
    Trainer(model, args, eval_dataset=data, callbacks=[AfterEvaluation()]).train()
```
```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def load(name, **options):
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))
    model = prepare_model_for_kbit_training(model, **options)
    return get_peft_model(model, LoraConfig(r=16))

def in_eval_mode(name, batch, prompt):
    model = load(name, gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    model(**batch).loss.backward()
    model.eval()
    print(model.generate(**prompt, max_new_tokens=20))

def off(name, batch, prompt):
    model = load(name, use_gradient_checkpointing=False)
    model.train()
    model(**batch).loss.backward()
    print(model.generate(**prompt, max_new_tokens=20))

def not_quantized(batch, prompt):
    model = AutoModelForCausalLM.from_pretrained("base")
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16))
    model.train()
    model(**batch).loss.backward()
    print(model.generate(**prompt, max_new_tokens=20))
```
```python
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
from trl.models import unwrap_model_for_generation

def train(name, batches, prompt, accelerator):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model.train()
    for batch in batches:
        model(**batch).loss.backward()
        model.generate(**prompt, use_cache=False)
        with unwrap_model_for_generation(model, accelerator) as unwrapped:
            unwrapped.generate(**prompt)
        model.eval()
        model.generate(**prompt)
        model.train()
    model.gradient_checkpointing_disable()
    return model.generate(**prompt)

def without_cache(name, prompt):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.generation_config.use_cache = False
    model.gradient_checkpointing_enable()
    model.train()
    model.generate(max_new_tokens=20)
    return model.generate(**prompt)

def evaluated_last(model):
    trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True, eval_strategy="epoch"))
    trainer.train()
    model.generate(max_new_tokens=20)
    other = Trainer(model, TrainingArguments("out", gradient_checkpointing=True))
    other.train()
    other.evaluate()
    model.generate(max_new_tokens=20)

def switched_on_the_trainer(model):
    trainer = Trainer(model, TrainingArguments("out", gradient_checkpointing=True))
    trainer.train()
    trainer.model.eval()
    model.generate(max_new_tokens=20)

def enabled_and_evaluated(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model.train()
    trainer = Trainer(model, TrainingArguments("out"))
    trainer.evaluate()
    trainer.model.generate(max_new_tokens=20)

def without_checkpointing(model):
    Trainer(model, TrainingArguments("out")).train()
    model.generate(max_new_tokens=20)

class Sample(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.eval()
        print(model.generate(max_new_tokens=20))
        model.train()

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        print(model.generate(max_new_tokens=20))

def with_callback(model):
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), callbacks=[Sample()]).train()
```
```python
from transformers import Trainer, TrainerCallback, TrainingArguments

class Sample(TrainerCallback):
    def show(self, model):
        print(model.generate(max_new_tokens=20))

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.eval()
        self.show(model)
        model.train()

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        self.show(model)

def with_callback(model):
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), callbacks=[Sample()]).train()
```
```python
from tools import switch_mode
from transformers import Trainer, TrainerCallback, TrainingArguments

class Sample(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        switch_mode(model)
        print(model.generate(max_new_tokens=20))

def with_callback(model):
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), callbacks=[Sample()]).train()
```
```python
from transformers import Trainer, TrainerCallback, TrainingArguments

class Sample(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.gradient_checkpointing_disable()
        print(model.generate(max_new_tokens=20))
        model.gradient_checkpointing_enable()

def with_callback(model):
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True), callbacks=[Sample()]).train()
```

## Evidence
```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(3)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=1, initializer_range=0.3,
))

def tokens(**options):
    ids = torch.arange(3, 11)[None]
    return model.generate(ids, max_new_tokens=8, do_sample=False, **options)[0, 8:].tolist()

wanted = tokens()
model.train()
assert tokens() == wanted  # train mode alone does no harm: there is no dropout
model.gradient_checkpointing_enable()
assert tokens() != wanted
assert tokens(use_cache=False) == wanted
model.config.use_cache = False
assert tokens() != wanted
model.generation_config.use_cache = False
assert tokens() == wanted
model.generation_config.use_cache = True
model.eval()
assert tokens() == wanted
model.train()
model.gradient_checkpointing_disable()
assert tokens() == wanted
```

## References
transformers 5.23 `modeling_layers.py` (`GradientCheckpointingLayer` sets `past_key_values=None`);
huggingface/transformers#36051, huggingface/trl#3683.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

from ..facts.nodes import source_text
from ..facts.objects.classes import ancestors, is_run_as_written
from ..facts.values import (
    Attr,
    Choice,
    Class,
    Instance,
    Param,
    Result,
    Seq,
    Unknown,
    Value,
    is_absent,
    one,
    options,
    same,
    truth,
)
from ..finding import Severity
from ..model.events import (
    FlagWrite,
    Generate,
    HfDisable,
    HfEnable,
    KbitPrepare,
    ModeChange,
    ModeSwitch,
    TrainerArgs,
    TrainerBuild,
    TrainSwitch,
)
from ..model.events.extract import args_of
from ..model.flow.lifetimes import surely_done
from ..model.flow.ordering import surely_before
from ..model.flow.uses import ByObject
from ..model.libraries.generation import asks_for_metrics, uses_cache
from ..model.libraries.quantized import is_quantized
from ..model.libraries.trainer import is_enabled
from ..model.names import canonical
from ..model.needs import SWITCHED_ON, together
from ..model.report import Remark, Report
from ..model.state.left_in_train import held_models, left_in_train
from ..model.types import bases, is_accelerator, is_hf_model, unwrapped, whole_model

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Function
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT112", "generation-while-checkpointing", Severity.WARNING
NEEDS = (
    (Generate, HfEnable),
    (Generate, KbitPrepare),
    *together(Generate, TrainerBuild, SWITCHED_ON),
)

_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer")
#: Arguments after which the last step may be an evaluation, which leaves the model in eval mode.
_EVALUATING = ("eval_strategy", "evaluation_strategy", "do_eval", "load_best_model_at_end", "eval_on_start")
#: Events of a Trainer at which its model is in train mode, and those that an evaluation may come right before.
_IN_TRAINING = ("on_step_end", "on_substep_end", "on_log")
_AFTER_STEPS = ("on_epoch_end", "on_save")
#: Methods of a Trainer that run in train mode, in training.
_STEPS = ("compute_loss", "training_step")
#: What conditions ask for that may hold in evaluations alone.
_OF_EVALUATION = re.compile(r"return_outputs|\.training\b|eval")
_KNOWN = ("torch.", "transformers.", "peft.", "accelerate.", "builtins.", "tqdm.", "datasets.")


def check(run: Run) -> Iterator[Report]:
    """Report generation with layers that drop the cache."""
    if any(call.name.startswith("unsloth.") for call in run.program.calls):
        return  # Its models switch to inference in `generate` themselves.
    known = _Models(run)
    for event in run.of(Generate):
        call = event.call
        entered = (option for context in call.place.contexts for option in options(context))
        if any(isinstance(option, Instance) for option in entered) or _is_decorated(run, call):
            continue  # What own context managers and decorators do around it is not followed.
        cause = _after_enable(run, known, call) or _after_trainer(run, known, call)
        cause = cause or _in_callback(run, call) or _in_own_step(run, call)
        if cause is not None and uses_cache(run, call):
            yield Report(
                call.node,
                "in train mode with checkpointing on, every layer drops the key/value cache and `generate` loses the "
                "prompt after one token; call `model.eval()` first and `model.train()` afterwards",
                notes=(Remark(cause, "this leaves the model in train mode with checkpointing on"),),
            )


def _is_decorated(run: Run, generate: Call) -> bool:
    """Whether a decorator may do more around one of the functions that lead to ``generate``."""
    functions = [call.place.function for call in run.path_to(generate)]
    known = [function for function in functions if function is not None]
    return any(function.around or not is_run_as_written(function) for function in known)


class _Models:
    """What happens to the models of a program; `trainer.model` is the one that the Trainer was given."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def enables(self) -> ByObject[HfEnable | KbitPrepare]:
        """What switches their checkpointing on."""
        events: list[HfEnable | KbitPrepare] = [*self._run.of(HfEnable)]
        events += [it for it in self._run.of(KbitPrepare) if _switches_on(self._run, it)]
        return ByObject((it, [_model(self._run, whole_model(it.model))]) for it in events)

    @cached_property
    def modes(self) -> ByObject[ModeChange]:
        """What changes their mode, or that of the model of a Trainer."""
        changes = self._run.of(ModeChange)
        return ByObject((it, [it.receiver, _model(self._run, it.receiver), *self.switched(it)]) for it in changes)

    def switched(self, change: ModeChange) -> list[Value]:
        """The model whose mode ``change`` sets; all that a module of the program holds."""
        values = [change.receiver, *held_models(change.receiver)]
        return [_model(self._run, whole_model(value)) for value in values]

    @cached_property
    def trainers(self) -> ByObject[TrainerBuild]:
        """The Trainers, found by themselves too."""
        return ByObject((it, [Result(it.call), _model(self._run, it.model)]) for it in self._run.of(TrainerBuild))


def _switches_on(run: Run, prepare: KbitPrepare) -> bool:
    """Whether the preparation certainly switches checkpointing on: peft does so for a quantized model only."""
    model = _model(run, whole_model(prepare.model))
    loaded = isinstance(model, Result) and model.call.name.endswith(".from_pretrained")
    return loaded and prepare.is_on and is_quantized(run, model, prepare.place) is True


def _after_enable(run: Run, known: _Models, generate: Call) -> ast.AST | None:
    """What put the model of ``generate``, which checkpoints, in train mode: `model.train()`, or its construction."""
    if isinstance(generate.receiver, Choice):
        return None
    model = _model(run, generate.receiver)
    enables = [event.call for event in known.enables.of(model) if one(_model(run, whole_model(event.model)), model)]
    is_on = any(surely_done(run, call, generate) for call in enables)
    owners = [Result(trainer.call) for trainer in known.trainers.of(model) if same(_model(run, trainer.model), model)]
    modes = [
        event
        for event in known.modes.of(model, *owners)
        if any(same(held, model) for held in known.switched(event)) or any(same(event.receiver, it) for it in owners)
    ]
    if not is_on or any(run.of(HfDisable)) or any(truth(flag.value) is not True for flag in run.of(FlagWrite)):
        return None
    if not modes:
        left = _is_built(model, run) and not _is_handed_over(run, model, model.call, generate)
        return model.node if left else None
    before = [event for event in modes if _is_before(event, generate)]
    last = before[-1] if before else _left_in_train(run, modes, generate, model)
    if last is None or any(same(last.receiver, owner) for owner in owners):
        return None  # What a Trainer leaves behind depends on its arguments.
    on = isinstance(last, TrainSwitch) and last.on is True and any(one(held, model) for held in known.switched(last))
    certain = on and (not before or surely_before(last.call, generate))
    return last.node if certain and not _is_handed_over(run, model, last.call, generate) else None


def _is_before(change: ModeChange, generate: Call) -> bool:
    place = change.place
    return place.walk == generate.place.walk and change.order < generate.order and not place.excludes(generate.place)


def _left_in_train(run: Run, changes: list[ModeChange], generate: Call, model: Value) -> ModeChange | None:
    """What an iteration or a constructor before left behind, where nobody else gets the model on the way."""
    made = model.call if isinstance(model, Result | Instance) else None
    last = left_in_train(run, changes, generate, made)
    return None if last is None or _is_handed_over(run, model, None, generate) else last


def _is_built(model: Value, run: Run) -> TypeGuard[Result]:
    """Whether ``model`` comes from a configuration, in train mode; what is loaded, an adapter too, is in eval mode."""
    made = canonical(model.call.name) if isinstance(model, Result) else ""
    is_constructor = made.startswith("transformers.") and made.count(".") == 1
    loads = any(run.calls_to("peft.PeftModel.from_pretrained"))
    return (is_constructor or made.endswith((".from_config", "._from_config"))) and is_hf_model(model) and not loads


def _after_trainer(run: Run, known: _Models, generate: Call) -> ast.AST | None:
    """The `trainer.train()` whose Trainer leaves the model of ``generate`` in train mode."""
    used = _model(run, generate.receiver)
    for trainer in known.trainers.of(used, *([used.base] if isinstance(used, Attr) else [])):
        made = Result(trainer.call)
        is_own = isinstance(used, Attr) and used.name == "model" and same(used.base, made)
        if not (is_own or same(_model(run, trainer.model), used)) or not _leaves_on(run, trainer):
            continue
        modes = [
            event
            for event in known.modes.of(made, used)
            if event.order < generate.order and (same(event.receiver, made) or same(_model(run, event.receiver), used))
        ]
        last = modes[-1] if modes else None
        trains = isinstance(last, TrainSwitch) and same(last.receiver, made)
        if last is not None and trains and surely_before(last.call, generate):
            return None if _is_handed_over(run, used, last.call, generate) else last.node
    return None


def _model(run: Run, value: Value) -> Value:
    """The model that ``value`` is: `trainer.model` is the one that the Trainer was given."""
    value = unwrapped(value)
    if isinstance(value, Attr) and value.name == "model":
        for trainer in run.of(TrainerBuild):
            # What it loads itself from a name is known as `trainer.model` only.
            if same(value.base, Result(trainer.call)) and isinstance(trainer.model, Result | Instance | Param):
                return unwrapped(trainer.model)
    return value


def _leaves_on(run: Run, trainer: TrainerBuild) -> bool:
    """Whether the model of ``trainer`` certainly checkpoints, and no evaluation can come last."""
    if canonical(trainer.call.name) not in _TRAINERS or any(run.of(HfDisable)):
        return False
    found = [(args_of(option), option) for option in options(trainer.args)]
    return all(
        args is not None and is_enabled(run, args, value) is True and _never_evaluates(args) for args, value in found
    )


def _never_evaluates(args: TrainerArgs) -> bool:
    return all(is_absent(args.setting(name)) is True for name in _EVALUATING)


def _in_callback(run: Run, generate: Call) -> ast.AST | None:
    """The Trainer in whose `on_step_end` and such, or what it calls, ``generate`` gets the model as it trains."""
    callers = run.callers_of(generate.place)
    if callers is None:
        return None
    function, model = (callers[0] if callers else generate).place.function, generate.receiver
    if function is None or function.owner is None or function.name not in (*_IN_TRAINING, *_AFTER_STEPS):
        return None
    if not _is_given_model(function, model) or asks_for_metrics(function):
        return None
    if "transformers.TrainerCallback" not in bases(function.owner) or not _stays_as_given(run, generate, model):
        return None
    for trainer in run.of(TrainerBuild):
        found = [(args_of(option), option) for option in options(trainer.args)]
        on = all(
            args is not None
            and is_enabled(run, args, value) is True
            and (function.name in _IN_TRAINING or _never_evaluates(args))
            for args, value in found
        )
        if on and _has_callback(run, trainer, function.owner):
            return trainer.node
    return None


def _stays_as_given(run: Run, generate: Call, model: Value) -> bool:
    """Whether nothing on the way to ``generate`` may switch the mode, or the checkpointing, of what a Trainer gives."""
    switched = any(same(switch.receiver, model) for switch in run.of(ModeSwitch))
    if switched or any(run.method_calls("gradient_checkpointing_disable")):
        return False
    return not _is_handed_over(run, model, None, generate)


def _in_own_step(run: Run, generate: Call) -> ast.AST | None:
    """The own Trainer in whose `compute_loss`, or what that calls, ``generate`` gets the model in training."""
    callers = run.callers_of(generate.place)
    if callers is None:
        return None
    step, model = (callers[0] if callers else generate).place.function, unwrapped(generate.receiver)
    if step is None or step.owner is None or step.name not in _STEPS or not _is_given_model(step, model):
        return None
    if any(_OF_EVALUATION.search(source_text(guard.test)) for guard in generate.place.guards) or not _stays_as_given(
        run, generate, model
    ):
        return None
    for trainer in run.of(TrainerBuild):
        cls = trainer.call.func
        found = [(args_of(option), option) for option in options(trainer.args)]
        on = all(args is not None and is_enabled(run, args, value) is True for args, value in found)
        if on and isinstance(cls, Class) and step.owner in (cls, *ancestors(cls)):
            return trainer.node
    return None


def _is_given_model(function: Function, value: Value) -> bool:
    """Whether ``value`` is what the Trainer gives as `model`: the parameter, or an item of `**kwargs`."""
    if isinstance(value, Unknown):
        return value.node is not None and value.node is function.node.args.kwarg
    return isinstance(value, Param) and value.name == "model" and value.function is function


def _has_callback(run: Run, trainer: TrainerBuild, cls: Class) -> bool:
    callbacks: Value = trainer.call.keyword("callbacks")
    items = [*callbacks.items] if isinstance(callbacks, Seq) else []
    for call in run.program.calls:
        if call.method == "add_callback" and same(call.receiver, Result(trainer.call)):
            items.append(call.argument(0, "callback"))
    return any(isinstance(item, Instance) and item.cls is cls for item in items)


def _is_handed_over(run: Run, model: Value, first: Call | None, second: Call) -> bool:
    """Whether a function that this file does not show gets the model in between, and may switch the mode.

    Without ``first`` the walk that ``second`` belongs to is looked at from its start.
    """
    trained = [Attr(Result(trainer.call), "model", None) for trainer in run.of(TrainerBuild)]
    return any(
        (first.order if first is not None else -1) < call.order < second.order
        and call.place.walk == second.place.walk
        and not (call.name.startswith(_KNOWN) or (not call.name and not call.method) or is_accelerator(call.receiver))
        and any(same(_model(run, value), model) for value in (*call.args, *call.kwargs.values()))
        for call in run.uses.handed_over.of(model, *trained)
    )
