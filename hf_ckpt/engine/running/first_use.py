"""The first use of every recipe on every layer: nothing is dropped before its rebuild is known to be equal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..random_state import can_redraw, random_state, random_state_kept
from ..untraceable import in_words
from ..verb import packing_verb
from ..verbs.keep import keep
from .ending import Ending
from .frame import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .prepared import ParameterView, Prepared


class CheckedFrame(Frame):
    """Holds every saved tensor during forward, rebuilds at its end, compares bitwise, and only then drops.

    What is rebuilt is compared and dropped one by one, so that the layer's backward takes as much. It costs one layer's
    saved tensors for the length of one forward. ``problem`` is "" when all are equal, and ``is_undecided`` when there
    was no memory to compare; else everything stays held, so that the gradients of this call are right anyway.
    """

    __slots__ = ("_devices", "hook_problem", "is_undecided", "later", "originals", "position", "problem")

    def __init__(self, prepared: Prepared, leaves: Sequence[torch.Tensor]) -> None:
        super().__init__(prepared, leaves)
        self.originals: list[torch.Tensor] = []
        #: The handles that later rebuilds read, by their places in ``sources``; the comparison reads what is here.
        self.later: dict[int, Any] = {}
        self.position = 0
        self.problem = ""
        #: What a hook inside the layer changed; it is the ``problem`` then.
        self.hook_problem = ""
        self.is_undecided = False
        drawing = (leaf.device for leaf in leaves if can_redraw(leaf.device))
        self._devices = tuple(dict.fromkeys((torch.device("cpu"), *drawing)))

    def run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Run the layer and check its rebuild."""
        ending = Ending(self.prepared) if self.prepared.endings else None
        packing = self.pack if ending is None else ending.watching(self.pack)
        with torch.autograd.graph.saved_tensors_hooks(self.hook(packing), self.unpack):
            output = self.called(call, args)
        if not self.problem and ending is not None:
            self.problem = ending.problem(first=True)
        elif not self.problem and self.position != self.prepared.count:
            self.problem = f"it saved {self.position} tensors, and {self.prepared.count} when traced"
        if not self.problem:
            self._compare()
        if not self.problem and not self.is_undecided:
            for handle in self.dropped:
                handle[0] = None
            for index, handle in self.later.items():
                self.sources[index] = handle
            self.store_inputs()
        else:
            self.release()
            viewed = {id(view.slot) for view in self.prepared.views.values()}
            marked = zip(self.parameters, self.marks, strict=True)
            of_views = [(slot, mark) for slot, mark in marked if id(slot) in viewed]
            self.parameters, self.marks = [slot for slot, _ in of_views], [mark for _, mark in of_views]
        self.originals, self.later = [], {}
        return output

    def pack(self, tensor: torch.Tensor) -> Any:
        """Hold what will be dropped too, and note a saved tensor that the trace did not see."""
        position = self.position
        self.position = position + 1
        kept = keep(self, tensor)
        if self.problem or position >= self.prepared.count:
            return kept
        if tensor.shape != self.prepared.shapes[position]:
            self.problem = f"saved tensor {position} has shape {tuple(tensor.shape)} and not the traced one"
            return kept
        action = self.prepared.recipe.actions[position]
        if action.verb is None:
            view = self.prepared.views[position]
            return view if self._is_view(view, tensor) else kept
        if packing_verb(action.verb).stores:
            return self._store(position, tensor, kept)
        handle = [kept[0]]
        self.dropped.append(handle)
        self.originals.append(kept[0])
        return handle

    def hook_changed(self, how: str) -> None:
        """A trace knows nothing of it."""
        self.problem = self.hook_problem = how

    def hook_not_called(self) -> None:
        """Nobody knows yet what that hook changes."""
        if not self.problem:
            self.hook_changed("not every module with a hook is called, whatever it reads off its tensors")

    def _store(self, position: int, tensor: torch.Tensor, kept: Any) -> Any:
        handle = self.prepared.packers[position](self, tensor)
        if self.prepared.recipe.actions[position].is_source:
            self.sources[-1] = kept
            self.later[len(self.sources) - 1] = handle
        return handle

    def _is_view(self, view: ParameterView, tensor: torch.Tensor) -> bool:
        try:
            ours = view()
        except Exception as error:
            self.problem = f"a saved view of {view.slot.path} cannot be made again ({in_words(error)})"
            return False
        same = ours.data_ptr() == tensor.data_ptr() and ours.stride() == tensor.stride()
        if not same or ours.dtype != tensor.dtype:
            self.problem = f"saved tensor {self.position - 1} is not the traced view of {view.slot.path}"
        return not self.problem

    def _compare(self) -> None:
        with random_state_kept(self._devices):
            try:
                self.problem = self._rebuild_problem()
            except torch.OutOfMemoryError:  # says nothing about the trace
                self.is_undecided = True

    def _rebuild_problem(self) -> str:
        before = self._random_states()
        try:
            places = self._places_that_differ()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            return f"its rebuild failed ({in_words(error)})"
        if any(not torch.equal(a, b) for a, b in zip(before, self._random_states(), strict=True)):
            return "its rebuild draws random numbers"
        if places:
            recipe = self.prepared.recipe
            maker = recipe.trace.maker_of(recipe.rebuilt[min(places)])
            return f"the rebuilt output of {maker} differs from the real one"
        return ""

    def _places_that_differ(self) -> list[int]:
        """Among the dropped packs, those that a rebuild does not make again."""
        found = []

        def compare(place: int, ours: torch.Tensor) -> torch.Tensor:
            theirs = self.originals[place]
            if not same_bits(ours, theirs):
                found.append(place)
                return ours
            return theirs if _is_as_whole(ours, theirs) else ours

        self.run_slice(partial(self.prepared.recipe.writer.tell_rebuilt, compare))
        return found

    def _random_states(self) -> list[torch.Tensor]:
        return [random_state(device) for device in self._devices]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit (NaN equals the same NaN), in the same layout."""
    if a.dtype != b.dtype or a.shape != b.shape or not _same_layout(a, b):
        return False
    if a.numel() == 0:
        return True
    # In the order in which they lie in memory, so that a transposed tensor is not copied.
    order = sorted(range(a.dim()), key=a.stride, reverse=True)
    rows = (x.permute(order).contiguous() for x in (a, b))
    # An expanded tensor of one element is contiguous, and its stride 0 is that of no bytes.
    return torch.equal(*(x.as_strided((x.numel(),), (1,)).view(torch.uint8) for x in rows))


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    return all(x == y for size, x, y in zip(a.shape, a.stride(), b.stride(), strict=True) if size > 1)


def _is_as_whole(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two equal tensors stand in their storages alike, so that a view of one is one of the other."""
    size, other = a.untyped_storage().nbytes(), b.untyped_storage().nbytes()
    return a.storage_offset() == b.storage_offset() and a.stride() == b.stride() and size == other
