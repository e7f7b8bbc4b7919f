"""What a layer's backward needs on top of what the layers before it hold, from its ledger. Pure arithmetic, no torch.

Backward goes through the ops in reverse. At an op there are alive: the layer's input, what was saved for this op and
for those before it, the gradients of what crosses it (made before or by it, read by or after it), and the parameters'
gradients made so far. Dropped tensors come back all at once, where backward first asks for one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...ledger import Source
from ...op_catalogue import traits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from ...ledger import Buffer, LayerLedger


def transient_bytes(ledger: LayerLedger, *, gradients: int = 0, held: Set[int] | None = None) -> int:
    """Bytes alive at the worst moment of one layer's backward, the tensors it saved included.

    ``gradients`` is bytes of parameter gradients that the backward makes; ``held`` the buffers kept or offloaded. None
    is the most that any plan needs: when the whole layer is replayed first.
    """
    if ledger.workspace is not None:
        return _counted_bytes(ledger, ledger.workspace, held) + gradients
    own = next((b for b in ledger.buffers if b.source is Source.INPUT), None)
    further = ledger.own_input_bytes()
    saved = frozenset(b.index for b in ledger.saved_activations())
    if held is None:
        timeline = _Timeline(ledger, gradients, further + (own.nbytes if own is not None else 0))
        everything = frozenset(range(len(ledger.ops)))
        return max(timeline.backward(frozenset(), -1), timeline.replay(everything, saved, len(ledger.ops)))
    dropped, again = saved - held, ledger.rebuild_ops(frozenset(held))
    is_there = own is not None and (bool(own.saved) or any(own.index in ledger.ops[op].inputs for op in again))
    timeline = _Timeline(ledger, gradients, further + (own.nbytes if own is not None and is_there else 0))
    asked = max(map(timeline.last_user, dropped), default=-1)
    worst = timeline.backward(dropped, asked)
    return max(worst, timeline.replay(again, dropped, asked)) if dropped else worst


def _counted_bytes(ledger: LayerLedger, workspace: int, held: Set[int] | None) -> int:
    """What :func:`transient_bytes` says of a counted ledger: its ops are sublayers, the last one the whole layer.

    A sublayer is replayed when backward comes to it, and those behind it are done by then.
    """
    own = next((b.nbytes for b in ledger.buffers if b.source is Source.INPUT), 0)
    made = {b.producer: b for b in ledger.saved_activations()}
    *sublayers, rest = (made[op.index] for op in ledger.ops)
    alive = own + ledger.own_input_bytes() + rest.nbytes + workspace
    if held is None or rest.index not in held:
        return alive + sum(b.nbytes for b in sublayers)
    worst = before = 0
    for buffer in sublayers:
        worst = max(worst, before + buffer.nbytes)
        before += buffer.nbytes if buffer.index in held else 0
    return alive + worst


@dataclass
class _Timeline:
    """The order of a layer's ops, and until when each buffer is needed; ``own`` is bytes of the layer's inputs."""

    ledger: LayerLedger
    gradients: int
    own: int

    def backward(self, dropped: Set[int], asked: int) -> int:
        """The most bytes alive in the ops' backward; ``dropped`` buffers are there from op ``asked`` on."""
        worst = 0
        for op in range(len(self.ledger.ops)):
            absent = dropped if op > asked else frozenset()
            crossing = self._gradients_of(b for b in self._made if _born(b) <= op <= self._last_reader[b.index])
            worst = max(worst, self._saved_for(op, absent) + crossing + self._parameter_gradients[op])
        return worst

    def replay(self, ops: Set[int], dropped: Set[int], asked: int) -> int:
        """The most bytes alive while ``ops`` run again to make ``dropped``, before the backward of op ``asked``."""
        buffers, last = self.ledger.buffers, dict.fromkeys(range(len(self.ledger.buffers)), -1)
        last |= {b: op for op in sorted(ops) for b in self.ledger.ops[op].inputs}
        crossing = self._gradients_of(b for b in self._made if _born(b) <= asked < self._last_reader[b.index])
        after = self._parameter_gradients[asked + 1] if asked + 1 < len(self.ledger.ops) else 0
        around = self._saved_for(asked, dropped) + crossing + after
        worst, made = 0, set[int]()
        for op in sorted(ops):
            made.update(self.ledger.ops[op].outputs)
            worst = max(worst, sum(buffers[b].nbytes for b in made))
            made = {b for b in made if b in dropped or last[b] > op}
        return around + worst

    def last_user(self, buffer: int) -> int:
        """The op whose backward is the first to ask for a saved buffer."""
        producer = self.ledger.buffers[buffer].producer
        readers = (op.index for op in self.ledger.ops if buffer in op.inputs and traits_of(op.name).reads_input)
        return max(readers, default=-1 if producer is None else producer)

    def _saved_for(self, op: int, absent: Set[int]) -> int:
        """Bytes of the layer's input, and of what is saved for the backward of ``op`` and of those before it."""
        saved = (b for b in self.ledger.saved_activations() if b.index not in absent)
        return self.own + sum(b.nbytes for b in saved if self._needed_from[b.index] <= op)

    def _gradients_of(self, buffers: Iterable[Buffer]) -> int:
        """Bytes of these buffers' gradients. The gradients of what an addition adds are one tensor, that of the sum."""
        return sum({self._gradient_of[b.index]: b.nbytes for b in buffers if "float" in b.dtype}.values())

    @cached_property
    def _made(self) -> tuple[Buffer, ...]:
        """The buffers that may have a gradient, parameters aside."""
        return tuple(b for b in self.ledger.buffers if b.source is not Source.PARAMETER)

    @cached_property
    def _last_reader(self) -> dict[int, int]:
        """The last op that reads each buffer; one never read lives until the end."""
        last = {b.index: len(self.ledger.ops) for b in self.ledger.buffers}
        return last | {b: op.index for op in self.ledger.ops for b in op.inputs}

    @cached_property
    def _needed_from(self) -> list[int]:
        """For each buffer, the op whose backward is the last to need it: its first reader, or the op that made it."""
        first = [len(self.ledger.ops)] * len(self.ledger.buffers)
        for op in reversed(self.ledger.ops):
            for b in op.inputs:
                first[b] = op.index
        for buffer in self.ledger.buffers:
            if buffer.producer is not None and traits_of(self.ledger.ops[buffer.producer].name).reads_output:
                first[buffer.index] = buffer.producer
        return first

    @cached_property
    def _gradient_of(self) -> list[int]:
        """For each buffer, the buffer whose gradient is stored with its own."""
        stands_for = list(range(len(self.ledger.buffers)))
        for op in reversed(self.ledger.ops):
            if op.name.startswith("aten.add.") and op.outputs:
                total = self.ledger.buffers[op.outputs[0]]
                for b in op.inputs:
                    if self.ledger.buffers[b].nbytes == total.nbytes:
                        stands_for[b] = stands_for[total.index]
        return stands_for

    @cached_property
    def _parameter_gradients(self) -> list[int]:
        """For each op, the bytes of parameter gradients once its backward is done, its own included.

        The ledger does not say which parameters are trained: each is taken for the same share of its bytes.
        """
        first = {b: op.index for op in reversed(self.ledger.ops) if op.outputs for b in op.inputs}
        trained = [
            (b, first[b.index]) for b in self.ledger.buffers if b.source is Source.PARAMETER and b.index in first
        ]
        total = sum(b.nbytes for b, _ in trained) or 1
        return [
            self.gradients * sum(b.nbytes for b, made in trained if made >= op) // total
            for op in range(len(self.ledger.ops))
        ]


def _born(buffer: Buffer) -> int:
    return -1 if buffer.producer is None else buffer.producer
