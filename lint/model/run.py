"""One training run as the rules see it: its events in program order, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..facts.nesting import Nesting
from ..facts.values import truth
from .conditions.first_iteration import depends_on_iteration
from .conditions.guards import excludes_mode
from .events import (
    Backward,
    Checkpoint,
    Checkpointing,
    CheckpointPartial,
    Compile,
    DeepSpeedCheckpoint,
    Detach,
    Event,
    HfSetting,
    KwargsWrite,
    TorchCheckpoint,
    TrainerArgs,
)
from .flow.loss import Losses, UpTo
from .frozen.frozen_statistics import KeptStatistics
from .history import History
from .regions.inputs import Inputs
from .results.dropped import is_dropped, is_whole
from .state.modes import ScriptModes
from .tensors.lost_gradients import loses_gradients, needs_no_gradients

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Place, Value
    from ..facts.walk import Program, Write
    from .conditions.versions import Versions
    from .regions.region import Region

C = TypeVar("C", bound=Checkpointing)


class Run(History):
    """The events of a program that a run comes to, and what holds for all of it."""

    __slots__ = (
        "_checkpoints",
        "_detached_losses",
        "_enabling",
        "_idle",
        "_in_eval",
        "_inputs",
        "_is_compiled",
        "_losses",
        "_lost",
        "_met",
        "_modes",
        "_nesting",
        "_statistics",
    )

    def __init__(self, program: Program, versions: Versions) -> None:
        super().__init__(program, versions)
        self._met: dict[ast.AST, list[Call | Write]] | None = None
        self._nesting: Nesting | None = None
        self._enabling: frozenset[ast.AST] | None = None
        self._in_eval: dict[ast.Call, bool] = {}
        self._modes = ScriptModes(self)
        self._inputs = Inputs(self)
        self._statistics = KeptStatistics(self)
        self._idle: frozenset[ast.AST] | None = None
        self._lost: dict[Checkpointing, bool] = {}
        self._losses: Losses | None = None
        self._detached_losses: Losses | None = None
        self._is_compiled: bool | None = None
        self._checkpoints: dict[ast.AST, list[Checkpointing]] | None = None

    @property
    def losses(self) -> Losses:
        """What feeds the backward passes of the program."""
        if self._losses is None:
            self._losses = Losses(self, [event.call for event in self.of(Backward)])
        return self._losses

    @property
    def detached_losses(self) -> Losses:
        """What they would be fed with where nothing were detached: each `detach()` counts as a source."""
        if self._detached_losses is None:
            cuts = UpTo(event.node for event in self.of(Detach))
            self._detached_losses = Losses(self, [event.call for event in self.of(Backward)], cuts)
        return self._detached_losses

    def written(self, kind: type[C]) -> Iterator[C]:
        """Those of ``kind`` that can run at all: for a mistake in the call itself, whatever comes to it."""
        return (event for event in self.events if isinstance(event, kind) and self._can_run(event))

    def _is_reached(self, event: Event) -> bool:
        return self._can_run(event) and self._waits_for_gradient_of_data(event) is False

    def _can_run(self, event: Event) -> bool:
        if not super()._is_reached(event):
            return False
        if isinstance(event, TorchCheckpoint) and self._is_outside_of_its_mode(event):
            return False
        return self._waits_for_gradient_of_data(event) is not True

    def _waits_for_gradient_of_data(self, event: Event) -> bool | None:
        return isinstance(event, Checkpoint) and self._inputs.needs_gradient_of_data(event)

    def _is_outside_of_its_mode(self, event: TorchCheckpoint) -> bool:
        """Whether the checkpoint is behind `self.training`, and the model is in eval mode all the time."""
        behind = any(excludes_mode(guard, training=False) for guard in event.place.guards)
        return behind and self._modes.models_in_eval(event)

    def stays_in_eval(self, event: Checkpointing) -> bool:
        """Whether what ``event`` checkpoints is in eval mode whenever it runs."""
        if event.node not in self._in_eval:
            modes = self._modes
            self._in_eval[event.node] = modes.models_in_eval(event) or modes.region_in_eval(event)
        return self._in_eval[event.node]

    @property
    def is_compiled(self) -> bool:
        """Whether `torch.compile` may take the checkpoints over: which variant they ask for, it does not look at."""
        if self._is_compiled is None:
            by_trainer = (args.setting("torch_compile") for args in self.of(TrainerArgs))
            self._is_compiled = any(self.of(Compile)) or any(map(truth, by_trainer))
        return self._is_compiled

    def runs_reentrant(self, event: Checkpointing) -> bool:
        """Whether torch certainly runs the region of ``event`` in the reentrant variant; DeepSpeed always does."""
        return bool(event.reentrant) and (isinstance(event, DeepSpeedCheckpoint) or not self.is_compiled)

    def replayed(self, kind: type[C]) -> Iterator[C]:
        """Those of ``kind`` whose region a backward pass may run again: their result is used, and gets a gradient."""
        return (event for event in self.used(kind) if not self._is_cut_off(event))

    def used(self, kind: type[C]) -> Iterator[C]:
        """Those of ``kind`` whose result something uses."""
        if self._idle is None:
            found = (event for event in self.of(Checkpointing) if self._is_idle(event))
            self._idle = frozenset(event.node for event in found)
        return (event for event in self.of(kind) if event.node not in self._idle)

    def _is_cut_off(self, event: Checkpointing) -> bool:
        """Whether no gradient comes to the region in any iteration of a loop."""
        lost = self.loses_gradients(event) and not depends_on_iteration(event.place)
        return lost or needs_no_gradients(self, event)

    def may_keep_statistics(self, norm: Value) -> bool:
        """Whether something in the program may keep the normalization ``norm`` from updating its statistics."""
        return self._statistics.may_keep(norm)

    def loses_gradients(self, event: Checkpointing) -> bool:
        """Whether no input of the reentrant region ``event``, or of its first iteration in a loop, needs a gradient."""
        if event not in self._lost:
            self._lost[event] = loses_gradients(self, event)
        return self._lost[event]

    def _is_idle(self, event: Checkpointing) -> bool:
        return is_whole(event) or is_dropped(self, event)

    def regions(self) -> Iterator[tuple[Checkpointing, Region]]:
        """Every checkpoint whose region may run again, with what runs inside it."""
        return ((event, self.region(event)) for event in self.replayed(Checkpointing))

    def met(self, node: ast.AST) -> list[Call | Write]:
        """The call or the write ``node``, once for each time it was met; for a part of one, the one around it."""
        if self._met is None:
            self._met = {}
            facts: list[Call | Write] = [*self.program.calls, *self.program.writes]
            for fact in facts:
                self._met.setdefault(fact.node, []).append(fact)
        return self._met.get(node) or self._met.get(self._around(node) or node, [])

    def _around(self, node: ast.AST) -> ast.AST | None:
        """The innermost call or write that ``node`` is a part of."""
        if self._nesting is None:
            self._nesting = Nesting(self._met or ())
        return self._nesting.innermost(node)

    def places(self, node: ast.AST) -> list[Place]:
        """Where what ``node`` is, or is a part of, happens, once for each time it was met."""
        return [fact.place for fact in self.met(node)]

    def running_again(self, node: ast.AST) -> frozenset[ast.AST]:
        """The functions that run again because of the checkpoint at ``node``; none for other calls."""
        return frozenset(
            function.node for event in self.checkpoints_at(node) for function in self.region(event).functions
        )

    def checkpoints_at(self, node: ast.AST) -> list[Checkpointing]:
        """The checkpoints that ``node`` makes, in program order; several where it is met several times."""
        if self._checkpoints is None:
            self._checkpoints = {}
            for event in self.of(Checkpointing):
                self._checkpoints.setdefault(event.node, []).append(event)
        return self._checkpoints.get(node, [])

    def enables(self, node: ast.AST) -> bool:
        """Whether ``node`` is a call that makes something checkpointed, or says how."""
        if self._enabling is None:
            kinds = Checkpointing, HfSetting, KwargsWrite, CheckpointPartial
            self._enabling = frozenset(event.node for event in self.events if isinstance(event, kinds))
        return node in self._enabling
