"""One forward call of one layer: what it saved, and how backward gets the rest again.

The autograd graph owns a frame through its hooks, so a frame lives exactly as long as some node of its call does.
Everything here runs for every saved tensor of every step: handles are bare tuples and lists because a class costs more
than all the rest. A *kept* handle is ``(tensor, version)``; a *dropped* handle is ``[None]``, filled by the rebuild and
emptied by autograd when it lets go of the handle.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from ..verbs.offload import Away, Luggage
from ..verbs.redraw import ENTRY, random_state, random_state_kept
from .prepared import END, SOURCE, Offload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from ..layer.slots import Slot
    from .prepared import Prepared

    Kept: TypeAlias = tuple[torch.Tensor, int]
    Dropped: TypeAlias = list[torch.Tensor | None]


class Frame:
    """What one call keeps for its backward."""

    __slots__ = (
        "checked", "dropped", "inputs", "luggage", "parameters", "prepared", "retained", "sources", "states",
        "versions", "witness",
    )  # fmt: skip

    def __init__(self, prepared: Prepared, leaves: Sequence[torch.Tensor]) -> None:
        self.prepared = prepared
        self.inputs = [leaves[i] for i in prepared.recipe.inputs]
        self.versions = [tensor._version for tensor in self.inputs]
        self.parameters = [(slot, _mark(slot)) for slot in prepared.referred]
        self.checked = False
        self.sources: list[Kept | Away] = []
        self.dropped: list[Dropped] = []
        self.retained = False
        self.luggage: Luggage | None = None
        #: The random state before each run of draws that a rebuild repeats.
        self.states: dict[int, torch.Tensor] = {}
        if prepared.runs_at:
            self.take_states(ENTRY)
        #: Told every tensor this frame holds, while somebody measures.
        self.witness: Callable[[torch.Tensor], None] | None = None

    def run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run the layer, keeping what the recipe keeps."""
        next_action = iter(self.prepared.actions).__next__
        sources, dropped = self.sources, self.dropped

        def pack(tensor: torch.Tensor) -> Any:
            action = next_action()
            if action is None:
                return tensor.detach(), tensor._version
            if type(action) is tuple:
                if tensor.shape != action:
                    raise RuntimeError(self._differs(f"a saved tensor has shape {tuple(tensor.shape)}, not {action}"))
                handle: Dropped = [None]
                dropped.append(handle)
                return handle
            if action is SOURCE:
                kept = tensor.detach(), tensor._version
                sources.append(kept)
                return kept
            if type(action) is Offload:
                return self.send(action, tensor)
            if action is END:
                raise RuntimeError(self._differs("it saves more tensors"))
            return action

        with torch.autograd.graph.saved_tensors_hooks(self.watched(self.taking_states(pack)), self.unpack):
            output = call(*args)
        if next_action() is not END:
            raise RuntimeError(self._differs("it saved fewer tensors"))
        return output

    def take_states(self, place: int) -> None:
        """Note the random state that the runs of draws anchored at this place start from."""
        for run, device in self.prepared.runs_at.get(place, ()):
            self.states[run] = random_state(device)

    def taking_states(self, pack: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        """``pack``, noting the random states that are taken when autograd saves a tensor."""
        if self.prepared.runs_at.keys() <= {ENTRY}:
            return pack
        next_position = itertools.count().__next__

        def take_and_pack(tensor: torch.Tensor) -> Any:
            self.take_states(next_position())
            return pack(tensor)

        return take_and_pack

    def send(self, action: Offload, tensor: torch.Tensor) -> Away:
        """Offload ``tensor``."""
        if self.luggage is None:
            self.luggage = Luggage(tensor.device)
        away = self.luggage.send(action.buffer, tensor)
        if action.is_source:
            self.sources.append(away)
        return away

    def watched(self, pack: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        """``pack``, telling the witness (if there is one) every tensor that stays held until backward."""
        witness = self.witness
        if witness is None:
            return pack

        def pack_and_tell(tensor: torch.Tensor) -> Any:
            handle = pack(tensor)
            if type(handle) is tuple:
                witness(handle[0])
            return handle

        for tensor in self.inputs:
            witness(tensor)
        return pack_and_tell

    def unpack(self, handle: Any) -> torch.Tensor:
        """Backward needs a saved tensor."""
        if type(handle) is tuple:
            tensor: torch.Tensor | None
            tensor, version = handle
            if tensor._version != version:
                raise RuntimeError(self._modified("a saved tensor"))
            return tensor
        if type(handle) is list:
            tensor = handle[0]
            if tensor is None:
                self._rebuild()
                tensor = handle[0]
            if self.retained:
                handle[0] = None
            return tensor
        if not self.checked:
            self._check_parameters()
        tensor = handle()
        if self.retained and type(handle) is Away:
            handle.parcel.leave_again()
        return tensor

    def rebuilt(self) -> list[torch.Tensor]:
        """Run the slice once: the dropped packs, in order."""
        prepared = self.prepared
        self._check_versions()
        parameters = [slot.fetch() for slot in prepared.parameters]
        held = [source() if isinstance(source, Away) else source[0] for source in self.sources]
        arguments = (
            parameters, self.inputs, held, prepared.recipe.trace.constants, prepared.symbols, self.states,
        )  # fmt: skip
        with torch.no_grad():
            if not prepared.generators and not torch.is_autocast_enabled(prepared.device_type):
                return prepared.recipe.rebuild(*arguments)
            with random_state_kept(prepared.generators), torch.autocast(prepared.device_type, enabled=False):
                return prepared.recipe.rebuild(*arguments)

    def release(self) -> None:
        """Let go of what only a rebuild needs."""
        for kept in (self.dropped, self.sources, self.inputs, self.states):
            kept.clear()  # emptied in place: the pack hook holds these very lists

    def _rebuild(self) -> None:
        if not self.dropped:
            raise RuntimeError(
                f"{self.prepared.layer}: a saved tensor was asked for after its backward freed it; "
                "pass retain_graph=True to go through the graph twice"
            )
        for handle, tensor in zip(self.dropped, self.rebuilt(), strict=True):
            handle[0] = tensor
        self.prepared.replayed()
        self.retained = graph_is_retained()
        if not self.retained:
            self.release()

    def _check_versions(self) -> None:
        if [tensor._version for tensor in self.inputs] != self.versions:
            raise RuntimeError(self._modified("an input of the layer"))
        for source in self.sources:
            if not isinstance(source, Away) and source[0]._version != source[1]:
                raise RuntimeError(self._modified("a saved tensor"))
        if not self.checked:
            self._check_parameters()

    def _check_parameters(self) -> None:
        """Once a backward, at its start: an optimizer that steps during backward may write them from then on."""
        for slot, mark in self.parameters:
            now = _mark(slot)
            if now == mark:
                continue
            if now[0] != mark[0]:
                raise RuntimeError(self._replaced(slot.path))
            if slot.fetch().is_leaf:  # FSDP1 gathers into views of one flat parameter, and that is a write to them
                raise RuntimeError(self._modified(slot.path))
        self.checked = not graph_is_retained()

    def _modified(self, what: str) -> str:
        return (
            f"{self.prepared.layer}: {what} was modified in place between forward and backward, "
            "so its gradients cannot be computed; use the out-of-place op, or step the optimizer after backward"
        )

    def _replaced(self, what: str) -> str:
        return (
            f"{self.prepared.layer}: {what} is another tensor in backward than in forward, so what it made cannot "
            "be rebuilt; leave this layer out of the policy (torch.func.functional_call, for one, swaps parameters)"
        )

    def _differs(self, how: str) -> str:
        return (
            f"{self.prepared.layer} did something else than when it was traced: {how}; its forward depends on state "
            'that cannot be watched, so leave this layer out of the policy, or pass engine="torch" to SelectiveCkpt or '
            "apply"
        )


def _mark(slot: Slot) -> tuple[int, int]:
    """Which tensor stands behind a slot, and its version.

    FSDP1 may make a new view of the gathered parameter for backward, as a plain attribute; its memory is the same then.
    """
    tensor = slot.fetch()
    return tensor.untyped_storage()._cdata if slot.kind == "__dict__" else id(tensor), tensor._version


def graph_is_retained() -> bool:
    """Whether saved tensors may be asked for again: a retained graph, or a look from outside a backward."""
    if torch._C._current_graph_task_id() == -1:
        return True
    return torch._C._autograd._get_current_graph_task_keep_graph()
