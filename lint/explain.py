"""``ckpt-lint explain``: the checkpointing that will really hold in a run, and which line decides it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from .facts.origin import origin
from .facts.program import read_program
from .facts.values import is_absent, options, same, truth
from .model import events as e
from .model.hf import KWARGS, SWITCHES, args_of, is_args, is_enabled, trainer_reentrant
from .model.run import Run
from .model.types import unwrapped
from .model.variant import hf_kwargs_reentrant
from .model.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .facts.modules import FindModule
    from .facts.values import Value

_LONGEST = 76


class State(NamedTuple):
    """Checkpointing of a model. None stands for what the file does not decide."""

    on: bool | None
    reentrant: bool | None = None

    def __str__(self) -> str:
        if not self.on:
            return "off" if self.on is False else "not decided in this file"
        variant = {True: "reentrant", False: "non-reentrant", None: "variant not decided in this file"}
        return f"on, {variant[self.reentrant]}"


class Where(NamedTuple):
    """A line; ``file`` is None in the explained file itself, a path in a module it imports."""

    line: int
    file: str | None


class Step(NamedTuple):
    """A line that has to do with checkpointing, and what it does."""

    where: Where
    code: str
    effect: str


class Verdict(NamedTuple):
    """What holds in the end for one model."""

    model: str
    state: State
    #: The line that decides; None when no line does.
    decided: Where | None
    #: Lines whose settings are replaced.
    overwritten: tuple[Where, ...]


class Explanation(NamedTuple):
    """All of a file."""

    filename: str
    steps: tuple[Step, ...]
    verdicts: tuple[Verdict, ...]


class _Model:
    """A model of the run, with what happened to it so far."""

    def __init__(self, value: Value, name: str) -> None:
        self.value = value
        self.name = name
        self.history: list[tuple[Where, State]] = []

    @property
    def state(self) -> State:
        return self.history[-1][1] if self.history else State(False)

    def change(self, where: Where, state: State, certain: bool) -> str:
        """Set the state; under a condition it may also stay as it is. Returns what to say."""
        old = self.state
        if not certain and state != old:
            joined = State(old.on if old.on == state.on else None, old.reentrant if old == state else None)
            self.history.append((where, joined))
            return f"under a condition: {state}"
        self.history.append((where, state))
        return str(state)

    def verdict(self) -> Verdict:
        places = [where for where, _ in self.history]
        return Verdict(self.name, self.state, places[-1] if places else None, tuple(dict.fromkeys(places[:-1])))


def explain(
    text: str, filename: str, versions: Mapping[str, str], find_module: FindModule | None = None
) -> Explanation:
    """What every line of ``text`` does to checkpointing, in program order, and what holds in the end.

    ``find_module`` gives the project's modules that it imports. Raises SyntaxError.
    """
    run = Run(read_program(text, filename, find_module), Versions(versions))
    models: list[_Model] = []
    steps = [(event.order, step) for event in run.events if (step := _step(run, event, models)) is not None]
    steps += _writes(run)
    unique = dict.fromkeys(step for _, step in sorted(steps))
    return Explanation(filename, tuple(unique), tuple(model.verdict() for model in models))


def _step(run: Run, event: e.Event, models: list[_Model]) -> Step | None:
    where = _where(event.node)
    certain = not event.place.guards
    match event:
        case e.HfEnable():
            default = None if run.versions.may_be("transformers", "<5.0") else False
            state = State(True, hf_kwargs_reentrant(event.kwargs, default))
            effect = _model(models, event).change(where, state, certain)
        case e.HfDisable():
            effect = _model(models, event).change(where, State(False), certain)
        case e.KbitPrepare():
            enables = True if is_absent(event.enables) else truth(event.enables)
            # It passes a dict of its own even when none is given, and an empty one means torch's default.
            state = State(enables, hf_kwargs_reentrant(event.kwargs, default=True)) if enables else State(enables)
            effect = _model(models, event).change(where, state, certain)
        case e.TrainerArgs():
            effect = f"asks the Trainer for: {_asked(run, event)}"
        case e.TrainerBuild():
            effect = _train(run, event, models, certain)
        case e.Checkpointing():
            variant = {True: "reentrant", False: "non-reentrant", None: "variant not decided in this file"}
            effect = f"checkpoints a region of its own, {variant[event.reentrant]}"
        case _:
            return None
    return Step(where, _code(event.node), effect)


def _asked(run: Run, args: e.TrainerArgs) -> State:
    enabled = is_enabled(run, args, args.call.receiver)
    return State(enabled, trainer_reentrant(args)) if enabled else State(enabled)


def _train(run: Run, trainer: e.TrainerBuild, models: list[_Model], certain: bool) -> str:
    model = _model(models, trainer)
    for value in options(trainer.args):
        args = args_of(value)
        if args is None:
            model.change(_where(trainer.node), State(None), certain=True)
            return "what it turns on is not known: its arguments do not come from this file"
        enabled = is_enabled(run, args, value)
        if enabled is False:
            return f"leaves the model as it is: {model.state}"
        replaced = model.history[-1][0] if model.history else None
        state = State(enabled, trainer_reentrant(args)) if enabled else State(None)
        said = model.change(_where(args.node), state, certain)
        if not enabled:
            return f"left open by {_words(args.node)}: the command line or a value from elsewhere decides"
        again = "; replaces what was asked for before" if replaced is not None else ""
        return f"{said} (from {_words(args.node)}){again}"
    return f"leaves the model as it is: {model.state}"


def _words(node: ast.AST) -> str:
    where = _where(node)
    return f"line {where.line}" if where.file is None else f"{where.file}:{where.line}"


def _where(node: ast.AST) -> Where:
    return Where(getattr(node, "lineno", 1), origin(node))


def _writes(run: Run) -> Iterator[tuple[int, Step]]:
    """Settings written after the arguments were built: since transformers 5.23 the old names are not read any more."""
    for write in run.writes:
        if write.field not in (*SWITCHES, *KWARGS) or not is_args(write.obj):
            continue
        old_name = write.field.startswith("gradient_")
        dead = old_name and not run.versions.may_be("transformers", "<5.23")
        effect = "no effect: the Trainer reads the new name only" if dead else "changes what the Trainer is asked for"
        yield write.order, Step(_where(write.node), _code(write.node), effect)


def _model(models: list[_Model], event: e.HfEnable | e.HfDisable | e.KbitPrepare | e.TrainerBuild) -> _Model:
    inner = unwrapped(event.model)
    for model in models:
        if same(inner, model.value):
            return model
    models.append(_Model(inner, _name(event.node)))
    return models[-1]


def _name(call: ast.Call) -> str:
    """How the code calls the model that ``call`` is about."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "model"), None)
    if given is None and call.args and not isinstance(call.args[0], ast.Dict):
        given = call.args[0]
    if given is None and isinstance(call.func, ast.Attribute):
        given = call.func.value
    return _code(given) if given is not None else "the model"


def _code(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
