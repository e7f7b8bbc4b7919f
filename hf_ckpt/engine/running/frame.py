"""One forward call of one layer: what it saved, and how backward gets the rest again.

The autograd graph owns a frame through its hooks, so a frame lives exactly as long as some node of its call does.
Everything here runs for every saved tensor of every step: handles are bare tuples and lists because a class costs more
than all the rest. What is packed and unpacked how is the verbs' (``engine/verbs/``).

``torch.autograd.graph.saved_tensors_hooks`` calls the pack hook once for every tensor that a node saves, in the order
of the forward, and the unpack hook every time that the node's backward reads it (SavedVariable, in
torch/csrc/autograd/saved_variable.cpp). That order is what a trace's positions stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..random_state import random_state_kept
from ..verb import packing_verbs
from .casts import with_uncached_casts
from .ending import Ending
from .graph import graph_is_retained
from .prepared import ParameterView, after_a_check, one_too_many
from .stored_inputs import is_whole
from .watched_hooks import HookWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..layer.slots import Slot
    from ..verb import Unpack
    from .prepared import Prepared


class Frame:
    """What one call keeps for its backward.

    Attributes:
        sources: The handles that a rebuild reads, in the order they were packed.
        dropped: The handles that a rebuild fills, in the same order.
        states: The random state before each run of draws that a rebuild repeats.
        retained: Whether the backward that is running may come again.
        checked: Whether this backward found the parameters as the forward left them.
        of_verb: What a verb needs for the whole call, by its name.
        witness: Told every tensor that the call holds until backward, while somebody measures.
    """

    __slots__ = (
        "checked", "dropped", "inputs", "marks", "of_verb", "parameters", "prepared", "retained", "sources", "states",
        "versions", "witness",
    )  # fmt: skip

    def __init__(self, prepared: Prepared, leaves: Sequence[torch.Tensor]) -> None:
        self.prepared = prepared
        #: The tensors, or the handles of those that a verb stores: both tell their version.
        self.inputs: list[Any] = [leaves[i] for i in prepared.recipe.inputs]
        self.versions = [tensor._version for tensor in self.inputs]
        self.parameters = prepared.referred
        #: What stood behind each when the forward ended: PEFT's LoRA on experts touches its weights on the way.
        self.marks: list[tuple[int, int]] = []
        self.checked = False
        self.sources: list[Any] = []
        self.dropped: list[list[torch.Tensor | None]] = []
        self.retained = False
        self.of_verb: dict[str, Any] = {}
        self.states: dict[int, torch.Tensor] = {}
        self.witness: Callable[[torch.Tensor], None] | None = None

    def run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run the layer, packing what it saves as the recipe says."""
        next_packer = iter(self.prepared.packers).__next__

        def pack(tensor: torch.Tensor) -> Any:
            return next_packer()(self, tensor)

        self.store_inputs()
        ending = Ending(self.prepared) if self.prepared.endings else None
        packing = pack if ending is None else ending.watching(pack)
        with torch.autograd.graph.saved_tensors_hooks(self.hook(packing), self.unpack):
            output = self.called(call, args)
        if next_packer() not in _AT_THE_END:
            raise RuntimeError(self.differs("it saved fewer tensors"))
        if ending is not None and (problem := ending.problem()):
            raise RuntimeError(self.differs(problem))
        return output

    def store_inputs(self) -> None:
        """Hand the verbs the inputs that they store, and tell the witness the others."""
        for place, pack in self.prepared.input_packers:
            if is_whole(self.inputs[place]):
                self.inputs[place] = pack(self, self.inputs[place])
        if self.witness is not None:
            for tensor in self.held_inputs():
                self.witness(tensor)

    def called(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """``call(*args)``, its hooks watched."""
        if self.prepared.known.binding.hooked:
            output = with_uncached_casts(self.called_with_hooks, call, args)
        else:
            output = with_uncached_casts(call, *args)
        self.marks = _marks(self.parameters)
        return output

    def called_with_hooks(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """``call(*args)``, told when a hook does what it did not do before."""
        binding = self.prepared.known.binding
        watch = HookWatch(binding.hooked, binding.slots, self.hook_changed)
        output = watch.run(call, args)
        if self.prepared.endings and watch.called < len(binding.hooked):
            self.hook_not_called()
        return output

    def hook_changed(self, how: str) -> None:
        """A hook inside the layer did what it had not done when this recipe was first used."""
        raise RuntimeError(self.differs(how))

    def hook_not_called(self) -> None:
        """A module with a hook was not called, and another answer to the layer's check may call it."""

    def hook(self, pack: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        """``pack`` with what the recipe's verbs and the witness need around it."""
        for around in self.prepared.around:
            pack = around(self, pack)
        return pack if self.witness is None else self._watched(pack, self.witness)

    def unpack(self, handle: Any) -> torch.Tensor:
        """Backward needs a saved tensor."""
        return _UNPACK[type(handle)](self, handle)

    def rebuilt(self) -> list[torch.Tensor]:
        """Run the slice once: the dropped packs, in order."""
        packs: list[torch.Tensor] = self.run_slice(self.prepared.recipe.rebuild)
        return packs

    def run_slice(self, rebuild: Callable[..., Any]) -> Any:
        """Run one of the recipe's functions with what it reads."""
        prepared = self.prepared
        if [tensor._version for tensor in self.inputs] != self.versions:
            raise RuntimeError(self.modified("an input of the layer"))
        if not self.checked:
            self.check_parameters()
        arguments = (
            [slot.fetch() for slot in prepared.parameters],
            self.read_inputs(),
            [_UNPACK[type(source)](self, source) for source in self.sources],
            prepared.recipe.trace.constants,
            prepared.symbols,
            self.states,
        )
        with torch.no_grad():
            if not prepared.generators and not torch.is_autocast_enabled(prepared.device_type):
                return rebuild(*arguments)
            with random_state_kept(prepared.generators), torch.autocast(prepared.device_type, enabled=False):
                return rebuild(*arguments)

    def read_inputs(self) -> list[torch.Tensor]:
        """What the rebuild reads of the layer's inputs."""
        if not self.prepared.input_packers:
            return self.inputs
        return [x if isinstance(x, torch.Tensor) else _UNPACK[type(x)](self, x) for x in self.inputs]

    def held_inputs(self) -> list[torch.Tensor]:
        """The inputs that stay where they are until backward."""
        return [x for x in self.inputs if isinstance(x, torch.Tensor)]

    def release(self) -> None:
        """Let go of what only a rebuild needs."""
        for kept in (self.dropped, self.sources, self.inputs, self.states):
            kept.clear()  # emptied in place: the pack hook holds these very lists

    def check_parameters(self) -> None:
        """Once a backward, at its start: an optimizer that steps during backward may write them from then on."""
        marks = _marks(self.parameters)
        if marks != self.marks:
            for slot, mark, now in zip(self.parameters, self.marks, marks, strict=True):
                if now[0] != mark[0]:
                    raise RuntimeError(self.replaced(slot.path))
                # FSDP1 gathers into views of one flat parameter, and that is a write to them.
                if now != mark and slot.fetch().is_leaf:
                    raise RuntimeError(self.modified(slot.path))
        self.checked = not graph_is_retained()

    def modified(self, what: str) -> str:
        """The message for a write between forward and backward."""
        return (
            f"{self.prepared.layer}: {what} was modified in place between forward and backward, "
            "so its gradients cannot be computed; use the out-of-place op, or step the optimizer after backward"
        )

    def replaced(self, what: str) -> str:
        """The message for another tensor behind a parameter's attribute."""
        return (
            f"{self.prepared.layer}: {what} is another tensor in backward than in forward, so what it made cannot "
            "be rebuilt; leave this layer out of the policy (torch.func.functional_call, for one, swaps parameters)"
        )

    def differs(self, how: str) -> str:
        """The message for a forward that is not the traced one."""
        return (
            f"{self.prepared.layer} did something else than when it was traced: {how}; its forward depends on state "
            'that cannot be watched, so leave this layer out of the policy, or pass engine="torch" to SelectiveCkpt or '
            "apply"
        )

    def _watched(
        self, pack: Callable[[torch.Tensor], Any], witness: Callable[[torch.Tensor], None]
    ) -> Callable[[torch.Tensor], Any]:
        """``pack``, telling the witness every tensor that stays held until backward."""

        def pack_and_tell(tensor: torch.Tensor) -> Any:
            handle = pack(tensor)
            held = _HELD[type(handle)](handle)
            if held is not None:
                witness(held)
            return handle

        return pack_and_tell


def _unpack_view(frame: Frame, view: ParameterView) -> torch.Tensor:
    """A saved view of a parameter, which must be the one that the forward saw."""
    if not frame.checked:
        frame.check_parameters()
    return view()


#: How a handle is unpacked, and what it holds, by its exact type.
_UNPACK: dict[type, Unpack] = {verb.handle: verb.unpack for verb in packing_verbs()} | {ParameterView: _unpack_view}
_HELD: dict[type, Callable[[Any], torch.Tensor | None]] = {verb.handle: verb.held for verb in packing_verbs()} | {
    ParameterView: lambda view: None
}


#: The packers that come when all that the trace knows was saved.
_AT_THE_END = (one_too_many, after_a_check)
#: The mark of a slot behind which no tensor stands any more.
_GONE = (0, -1)


def _marks(slots: list[Slot]) -> list[tuple[int, int]]:
    """The mark of each slot. Most are a module's own parameters, and one expression reads those."""
    return [
        _mark(slot)
        if (tensor := slot.table.get(slot.attribute)) is None or slot.within or slot.kind == "__dict__"
        else (id(tensor), tensor._version)
        for slot in slots
    ]


def _mark(slot: Slot) -> tuple[int, int]:
    """Which tensor stands behind a slot, and its version.

    FSDP1 may make a new view of the gathered parameter for backward, as a plain attribute (``_use_unsharded_views``, in
    torch/distributed/fsdp/_flat_param.py); its storage, which ``_cdata`` is the address of, is the same then.
    """
    try:
        tensor: torch.Tensor | None = slot.fetch()
    except AttributeError:
        tensor = None
    if tensor is None:  # bitsandbytes' first forward moves the scales from the weight to its module
        return _GONE
    return tensor.untyped_storage()._cdata if slot.kind == "__dict__" else id(tensor), tensor._version
