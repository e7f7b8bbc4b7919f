"""The engine of one decoder layer: stands as its ``_gradient_checkpointing_func``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from ..errors import CkptError, PolicyError
from ..policy.decision import Keep, RecomputeSegment
from .notices import Notices
from .report import EngineReport, Mode
from .running.first_use import CheckedFrame
from .running.frame import Frame
from .running.lookup import Lookup
from .tracing.ledgers import SizedTrace, ledger_at
from .untraceable import UntraceableError, in_words
from .untraced.layer import UntracedLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..ledger import LayerLedger
    from ..policy.decision import Role
    from .recipes.plans import Plan
    from .running.prepared import Prepared


class TracedReplay:
    """Activation checkpointing of one layer: keep some saved tensors, rebuild the others in backward.

    ``layer`` is the layer's name, for messages. ``plan`` is a policy's decision, or keys of buffers by verb;
    writing the attribute switches the plan from the next forward on. ``sublayers`` names, by role, modules relative to
    the layer. Instances can be copied and pickled; what they learned about a layer is left behind. Where a trace would
    not be faithful its sublayers, or the whole layer, are replayed by ``torch.utils.checkpoint``, and :meth:`report`
    says why.
    """

    def __init__(
        self,
        layer: str,
        plan: Plan,
        sublayers: Mapping[Role, tuple[str, ...]] | None = None,
    ) -> None:
        self.layer = layer
        self.sublayers = dict(sublayers or {})
        self.plan = plan
        self.forwards = 0
        self.replays = 0
        #: How often a trace of this layer was given up, so that what its ledger said holds no more.
        self.given_up = 0
        self._lookup = Lookup(layer, self.sublayers, self._replayed)
        self._last: Prepared | None = None
        self._reason = ""
        #: The storages, by key, of the tensors that the last counted forward was given (see :attr:`counts`).
        self.given: tuple[int, ...] = ()
        #: Keeps their keys from being given to other storages.
        self._alive: list[StorageWeakRef] = []
        #: Shared by the layers of a model.
        self.notices = Notices()
        self._untraced = UntracedLayer(self.sublayers, self._replayed)
        #: Set while somebody measures: told every tensor that a forward holds until backward.
        self.witness: Callable[[torch.Tensor], None] | None = None

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run ``call(*args)``, the layer's forward, saving for backward what the plan says."""
        if not torch.is_grad_enabled() or forward_ad._current_level >= 0:  # forward mode saves nothing for later
            return call(*args)
        if torch.compiler.is_compiling():
            return call(*args) if isinstance(self._plan, Keep) else checkpoint(call, *args, use_reentrant=False)
        self.forwards += 1
        if isinstance(self._plan, Keep):
            self._last, self._reason = None, ""
            return call(*args)
        try:
            prepared, leaves = self._lookup.find(self._plan, call, args)
        except UntraceableError as error:
            return self._run_untraced(call, args, error.reason)
        except CkptError:
            raise
        except Exception as error:
            return self._run_untraced(call, args, f"its trace could not be looked up ({in_words(error)})")
        self._last = prepared
        self._reason = ""
        if self.counts:
            self._alive = [StorageWeakRef(leaf.untyped_storage()) for leaf in leaves]  # type: ignore[no-untyped-call]
            self.given = tuple(storage.cdata for storage in self._alive)
        if not prepared.count:
            return call(*args)
        if not prepared.verified:
            return self._first_use(prepared, leaves, call, args)
        frame = Frame(prepared, leaves)
        frame.witness = self.witness
        return frame.run(call, args)

    @property
    def plan(self) -> Plan:
        """What to keep, rebuild and offload."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        if isinstance(plan, RecomputeSegment):
            raise PolicyError(f"{self.layer}: a segment spans several layers; it needs `engine=torch`")
        self._plan = plan

    @property
    def mode(self) -> Mode:
        """How the last forward ran."""
        if self._reason:
            return self._untraced.mode
        if self._last is None:
            return Mode.KEEP if self.forwards else Mode.UNUSED
        return Mode.SYMBOLIC if self._last.recipe.trace.symbolic else Mode.PER_SHAPE

    def report(self) -> EngineReport:
        """What happened in the last forward, and how often the layer ran."""
        last = self._last
        return EngineReport(
            layer=self.layer,
            mode=self.mode,
            reason=self._reason,
            forwards=self.forwards,
            replays=self.replays,
            stored_bytes={} if last is None else {v: last.nbytes(b) for v, b in last.recipe.assignment.stored},
            rebuilt_bytes=0 if last is None else last.nbytes(last.recipe.dropped),
            traces=len(self._lookup.traces),
            settled=last is None or not last.count or last.verified,
        )

    def ledger(self) -> LayerLedger | None:
        """The ledger of the last forward, at its shapes: of its trace, or counted while :attr:`counts` was set."""
        return ledger_at(self._last.recipe.trace, self._last.sizes) if self._last else self._untraced.ledger()

    def sized_trace(self) -> SizedTrace | None:
        """The trace of the last forward with its sizes; None without one that holds for several sizes."""
        last = self._last
        if last is None or not last.recipe.trace.symbolic:
            return None
        return SizedTrace(last.recipe.trace, last.sizes)

    @property
    def counts(self) -> bool:
        """Whether a forward without a trace counts what the layer's sublayers save, for :meth:`ledger`."""
        return self._untraced.counts

    @counts.setter
    def counts(self, value: bool) -> None:
        self._untraced.counts = value

    def _first_use(
        self, prepared: Prepared, leaves: list[torch.Tensor], call: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        frame = CheckedFrame(prepared, leaves)
        frame.witness = self.witness
        output = frame.run(call, args)
        if frame.hook_problem:
            self._lookup.refuse(prepared, frame.hook_problem)
            self.given_up += 1
        elif frame.problem:
            if not self._lookup.distrust(prepared, frame.problem):
                self._warn(frame.problem)
                self.given_up += 1
        elif not frame.is_undecided:
            self._lookup.trust(prepared)
        return output

    def _run_untraced(self, call: Callable[..., Any], args: tuple[Any, ...], reason: str) -> Any:
        self._last, self._reason = None, reason
        output = self._untraced.run(call, args, self._plan)
        self.given = self._untraced.given()
        if self._untraced.mode is Mode.WHOLE:
            self._warn(reason)
        return output

    def _warn(self, reason: str) -> None:
        self._reason = reason
        self.notices.whole_layer(self.layer, reason)

    def _replayed(self) -> None:
        self.replays += 1

    def __reduce__(self) -> tuple[Any, ...]:
        return TracedReplay, (self.layer, self._plan, self.sublayers)
