"""What an explanation is made of: lines and what they do, models and what holds for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..facts.values import Value

UNDECIDED = "not decided in this file"


class State(NamedTuple):
    """Checkpointing of a model. None stands for what the file does not decide."""

    on: bool | None
    reentrant: bool | None = None
    #: What decides where the file alone does not, in words: "on, reentrant when `args.save`, otherwise off".
    said: str = ""

    def __str__(self) -> str:
        if self.said:
            return self.said
        if not self.on:
            return "off" if self.on is False else UNDECIDED
        return f"on, {variant(self.reentrant)}"


def variant(reentrant: bool | None) -> str:
    """How torch calls the variant."""
    return {True: "reentrant", False: "non-reentrant", None: f"variant {UNDECIDED}"}[reentrant]


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
    #: Why checkpointing that is on is not used all the same; empty otherwise.
    caveat: str = ""


class Explanation(NamedTuple):
    """All of a file."""

    filename: str
    steps: tuple[Step, ...]
    verdicts: tuple[Verdict, ...]


class Model:
    """A model of the run, with what happened to it so far."""

    def __init__(self, values: list[Value], name: str) -> None:
        #: What it may be: the ways in which it is built.
        self.values = values
        self.name = name
        self.history: list[tuple[Where, State]] = []
        #: The last change, if it was under a condition.
        self._last: _Change | None = None

    @property
    def state(self) -> State:
        """What holds now."""
        return self.history[-1][1] if self.history else State(False)

    def change(self, where: Where, state: State, condition: str) -> str:
        """Set the state; under a ``condition`` it may also stay as it is. Returns what to say."""
        last = self._last
        old = last.before if last is not None and last.condition == condition else self.state
        self._last = _Change(condition, state, old) if condition else None
        if not condition or state == old:
            self.history.append((where, state))
            return str(state)
        self.history.append((where, _either(old, last, condition, state)))
        return f"when {condition}: {state}"

    def verdict(self, caveat: str) -> Verdict:
        """What holds in the end."""
        places = [where for where, _ in self.history]
        last = places[-1] if places else None
        earlier = tuple(where for where in dict.fromkeys(places[:-1]) if where != last)
        return Verdict(self.name, self.state, last, earlier, caveat if self.state.on is not False else "")


class _Change(NamedTuple):
    """A change under a condition: what holds then, and what held before."""

    condition: str
    state: State
    before: State


def _either(old: State, last: _Change | None, condition: str, state: State) -> State:
    """What holds where ``state`` does under ``condition``, and else ``old``, as the change ``last`` left it."""
    if last is not None and last.state == state and condition.startswith(f"{last.condition} and "):
        return old  # What that one did, under a part of its condition: the way of an exception handler.
    before = "as before" if old.said else str(old)
    if last is not None and last.condition == f"not {condition}":
        old, before = last.state, str(last.state)
    elif last is not None and condition == f"not {last.condition}":
        condition, old, before, state = last.condition, state, str(state), last.state
    reentrant = old.reentrant if old.reentrant == state.reentrant else None
    on = old.on if old.on == state.on else None
    return State(on, reentrant, f"{state} when {condition}, otherwise {before}")
