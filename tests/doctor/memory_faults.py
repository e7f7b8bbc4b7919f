"""Planted faults that end in an out-of-memory error: each in a real training under a memory limit.

``@fault(cause)`` names what the diagnosis must say first; ``# grows here`` marks the line that it must name.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer, TrainerCallback

from .runs import run, small_llama, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from hf_ckpt import SelectiveCkpt

#: What a training of the small Llama takes with blocks of 32 tokens, and then some: bytes.
ROOM = 2_200_000
Outcome = tuple["SelectiveCkpt", BaseException | None, Any]


@dataclass(frozen=True)
class Fault:
    name: str
    cause: str
    line: int | None
    train: Callable[[], Outcome]


FAULTS: list[Fault] = []
MARK = "# grows here"


def fault(cause: str) -> Callable[[Callable[[], Outcome]], Callable[[], Outcome]]:
    def note(train: Callable[[], Outcome]) -> Callable[[], Outcome]:
        lines, first = inspect.getsourcelines(train)
        marked = [first + i for i, line in enumerate(lines) if MARK in line]
        FAULTS.append(Fault(train.__name__, cause, marked[0] if marked else None, train))
        return train

    return note


def _even(count: int = 120) -> list[dict[str, torch.Tensor]]:
    return texts([32] * count)


class Each(TrainerCallback):
    """Calls a function at the end of every step."""

    def __init__(self, call: Callable[..., None]) -> None:
        self.call = call

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.call(model, state.global_step)


@fault("larger-batch")
def one_long_example_late() -> Outcome:
    return run(ROOM, small_llama(), texts([32] * 20 + [400] * 4))


@fault("larger-batch")
def lengths_that_creep_up() -> Outcome:
    return run(ROOM, small_llama(), texts([24 + 12 * step for step in range(60)]))


@fault("larger-batch")
def more_rows_than_ever() -> Outcome:
    class Rows(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            if self.state.global_step == 6:
                inputs = {name: value.repeat(16, 1) for name, value in inputs.items()}
            return model(**inputs).loss

    return run(ROOM, small_llama(), _even(), Rows)


@fault("larger-batch")
def longer_examples_in_no_larger_a_batch() -> Outcome:
    class Shapes(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            shape = (1, 160) if self.state.global_step == 6 else (8, 20)
            return model(**{name: value.reshape(shape) for name, value in inputs.items()}).loss

    return run(ROOM, small_llama(attn_implementation="eager"), texts([80] * 60), Shapes)


@fault("growing-holder")
def logits_in_a_list() -> Outcome:
    class Keeps(Trainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.kept = []

        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            out = model(**inputs)
            self.kept.append(out.logits)  # grows here
            return out.loss

    return run(ROOM, small_llama(), _even(), Keeps)


@fault("growing-holder")
def whole_outputs_in_a_dict() -> Outcome:
    class Keeps(Trainer):
        by_step: dict = {}  # noqa: RUF012

        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            self.history = getattr(self, "history", {})
            out = model(**inputs)
            self.history[self.state.global_step] = out  # grows here
            return out.loss

    return run(ROOM, small_llama(), _even(), Keeps)


@fault("growing-holder")
def hidden_states_by_a_hook() -> Outcome:
    model, captured = small_llama(), []

    def capture(module: Any, args: Any, output: Any) -> None:
        captured.append((output[0] if isinstance(output, tuple) else output).detach().repeat(1, 1, 8))  # grows here

    model.model.layers[1].register_forward_hook(capture)
    return run(ROOM, model, _even(), arguments_of={"max_steps": 60})


@fault("growing-holder")
def snapshots_of_the_weights() -> Outcome:
    class Average(TrainerCallback):
        def __init__(self) -> None:
            self.snapshots = []

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            self.snapshots.append({name: p.detach().clone() for name, p in model.named_parameters()})  # grows here

    return run(ROOM, small_llama(), _even(), callbacks=[Average()])


_SEEN: list[torch.Tensor] = []


@fault("growing-holder")
def gradients_in_a_global() -> Outcome:
    _SEEN.clear()

    def keep(model: Any, step: int) -> None:
        _SEEN.extend(p.detach().clone() for p in model.parameters())  # grows here

    try:
        return run(ROOM, small_llama(), _even(), callbacks=[Each(keep)])
    finally:
        _SEEN.clear()


@fault("growing-holder")
def a_list_of_the_class() -> Outcome:
    class Keeps(TrainerCallback):
        seen: list = []  # noqa: RUF012

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            Keeps.seen.append([p.detach().clone() for p in model.parameters()])  # grows here

    return run(ROOM, small_llama(), _even(), callbacks=[Keeps()])


@fault("growing-holder")
def records_of_each_step() -> Outcome:
    @dataclass(slots=True)
    class Record:
        step: int
        logits: torch.Tensor

    class Plain:
        def __init__(self, record: Record) -> None:
            self.record = record

    class Keeps(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            self.records = getattr(self, "records", [])
            out = model(**inputs)
            self.records.append(Plain(Record(self.state.global_step, out.logits.detach())))  # grows here
            return out.loss

    return run(ROOM, small_llama(), _even(), Keeps)


@fault("growing-holder")
def key_value_caches() -> Outcome:
    class Keeps(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            self.caches = getattr(self, "caches", [])
            with torch.no_grad():
                out = model(inputs["input_ids"], use_cache=True)
            self.caches.append(out.past_key_values)  # grows here
            return model(**inputs).loss

    return run(ROOM, small_llama(), _even(), Keeps, policy="none")


@fault("growing-holder")
def one_tensor_that_grows() -> Outcome:
    class Concatenates(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            out = model(**inputs)
            self.all_logits = getattr(self, "all_logits", out.logits[:0].detach())
            self.all_logits = torch.cat([self.all_logits, out.logits.detach()])  # grows here
            return out.loss

    # The first line makes it, only the second one makes it from itself
    return run(ROOM, small_llama(), _even(), Concatenates)


@fault("graph-alive")
def an_evaluation_with_gradients() -> Outcome:
    class Evaluates(TrainerCallback):
        def __init__(self) -> None:
            self.total = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            batch = texts([32])[0]["input_ids"][None]
            self.total += model(input_ids=batch, labels=batch).loss  # grows here

    return run(ROOM, small_llama(), _even(), callbacks=[Evaluates()])


@fault("graph-alive")
def losses_never_stepped_on() -> Outcome:
    class Consistency(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            self.others = getattr(self, "others", [])
            self.others.append(model(**inputs).loss)  # grows here
            return model(**inputs).loss

    return run(ROOM, small_llama(), _even(), Consistency)


@fault("graph-alive")
def a_retained_graph() -> Outcome:
    losses = []

    class Retains(Trainer):
        def training_step(self, model: Any, inputs: Any, *args: Any) -> Any:
            loss = model(**inputs).loss
            loss.backward(retain_graph=True)
            losses.append(loss)  # grows here
            return loss.detach()

    return run(ROOM, small_llama(), _even(), Retains)


@fault("gathered-predictions")
def an_evaluation_that_gathers_logits() -> Outcome:
    more = {"eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 2}
    return run(
        ROOM,
        small_llama(),
        _even(),
        arguments_of=more,
        eval_dataset=_even(60),
        compute_metrics=lambda p: {"count": 1.0},
    )


@fault("optimizer-state")
def state_that_the_first_step_makes() -> Outcome:
    return run(850_000, small_llama(), texts([8] * 20))


@fault("more-trained")
def layers_unfrozen_on_the_way() -> Outcome:
    model = small_llama(hidden_size=128, intermediate_size=256)
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.lm_head.weight.requires_grad = True

    def unfreeze(model: Any, step: int) -> None:
        if step == 4:
            for parameter in model.parameters():
                parameter.requires_grad = True

    return run(5_600_000, model, texts([16] * 40), callbacks=[Each(unfreeze)])


@fault("more-forwards")
def several_forwards_before_one_backward() -> Outcome:
    class Later(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            times = 24 if self.state.global_step == 5 else 1
            return sum(model(**inputs).loss for _ in range(times))

    return run(ROOM, small_llama(), _even(), Later)


@fault("other-model")
def a_judge_that_comes_late() -> Outcome:
    judges = torch.nn.ModuleList()

    def load(model: Any, step: int) -> None:
        if step in (4, 8):
            judges.append(copy.deepcopy(model.model))

    return run(1_600_000, small_llama(), _even(), callbacks=[Each(load)])
