"""Studies the model of a command: metadata of its layers, rates and memory of the device."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

import click
import torch

from ..anatomy import Anatomy, read_anatomy
from ..chunks.install import install as install_chunks
from ..chunks.measured import parts_in
from ..compat.models import supports_flash_attention
from ..devices.flash_attn import planned_attention
from ..errors import BudgetError, CkptError, ForecastError
from ..head.install import obstacle
from ..head.shape import head_shape
from ..measuring.dry_run import dry_ledgers
from ..measuring.forecast import ForecastInputs, Growing, as_solution, spare_at_first
from ..planner.budget import AutoBudget, DeviceMemory, PeakBudget, most_alive, parse_budget
from ..planner.costs.unpacking import unpacking
from ..planner.memory.cards import placed
from ..planner.memory.gathering import Gathering
from ..planner.memory.setup import Setup, Standing, standing
from ..policy.resolve import ResolvedPolicy, resolve
from ..resolving import read_platform
from .model import build_model, token_ids
from .optimizer import check_optimizer
from .packed import pack
from .positions import fit_length, positions_of
from .target import target_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._undo import Change
    from ..chunks.measured import ChunkedParts
    from ..devices.cuda_ops import CudaOps
    from ..head.options import HeadShape
    from ..ledger import LayerLedger
    from ..planner.budget import Budget
    from ..planner.costs.problem import Problem
    from ..planner.costs.roofline import Calibration
    from ..planner.memory.cards import Card
    from ..planner.solver.solve import Solution
    from ..policy import Policy
    from ..policy.base import Chunks
    from ..policy.decision import Stack
    from ..policy.platform import Platform
    from .subject import Subject


@dataclass(frozen=True, slots=True)
class Study:
    """What a command knows of the model it speaks about.

    Attributes:
        subject: The model and the size of its batch.
        stacks: All of its stacks of decoder layers.
        platform: What a policy on it has to work with.
        inputs: What a forecast reads, for the stacks that run on token ids.
        step_copies: Bytes that the optimizer's step takes for itself.
        inputs_of_chunks: What a forecast reads where parts of the layers run in so many chunks.
        cards: What each card holds where the layers stand on several; none: on one.
        total: Bytes of a card; None where nobody says.
    """

    subject: Subject
    stacks: tuple[Stack, ...]
    platform: Platform
    inputs: ForecastInputs
    step_copies: int
    inputs_of_chunks: Callable[[Chunks], ForecastInputs]
    cards: tuple[Card, ...] = ()
    total: int | None = None

    def solve(self, policy: Policy) -> tuple[Problem, Solution]:
        """What there is to decide under this policy, and what it decides. Raises CkptError where that is not known."""
        resolved = self.resolve(policy)
        if self.cards and isinstance(resolved.requests.budget, PeakBudget | AutoBudget):
            raise ForecastError(f"`{policy}` bounds one card: under --device-map, name a share such as budget=0.5")
        return as_solution(self.inputs_under(resolved), resolved)

    def leaves_room(self, alive: int, beside: int) -> bool:
        """Whether a card with ``alive`` bytes at the peak, ``beside`` of them all along, has room for its allocator.

        As much as a run under ``budget=auto`` leaves it at first; True where nobody says what the card has.
        """
        memory = replace(self.inputs.memory, total=self.total)
        most = most_alive(memory, beside, spare_at_first(self.inputs))
        return most is None or alive <= most

    def inputs_under(self, policy: ResolvedPolicy) -> ForecastInputs:
        """What a forecast of this policy reads. Raises ForecastError for more chunks than tokens."""
        chunks = policy.requests.chunks
        if any(count > self.subject.length for _, count in chunks):
            raise ForecastError(f"`{policy.policy}` cuts sequences of {self.subject.length} tokens: use fewer chunks")
        return self.inputs_of_chunks(chunks)

    def resolve(self, policy: Policy) -> ResolvedPolicy:
        """The policy on this model, as ``hf_ckpt.apply`` resolves it. Raises PolicyError and ModelStructureError."""
        return resolve(policy, self.stacks, self.platform)


@dataclass(frozen=True)
class Model:
    """The model of a command on the meta device, and the machine to train it on.

    Attributes:
        subject: How the options describe it; its length is one that the model's positions allow.
        module: The model.
        anatomy: All of its decoder layers.
        device: The device to plan for.
        card: The ops that it runs, where a profile stands for it; None: those of the machine at hand.
        rates: Rates of that device.
        total: Its bytes; None where nobody says.
        setup: How the model is trained.
    """

    subject: Subject
    module: torch.nn.Module
    anatomy: Anatomy
    device: torch.device
    card: CudaOps | None
    rates: Calibration
    total: int | None
    setup: Setup

    def study(self, batch: int, length: int) -> Study:
        """Trace the layers at one size of batch. Raises CkptError when the model does not run on token ids."""
        key = (batch, length)
        if key not in self._studies:
            asked = replace(self.subject, batch=batch, length=length, length_asked=True)
            self._studies[key] = self._new_study(fit_length(asked, self.module))
        return self._studies[key]

    @cached_property
    def positions(self) -> int | None:
        """The most tokens of a sequence; None when the model has no table of positions."""
        return positions_of(self.module)

    @cached_property
    def standing(self) -> Standing:
        """What one card holds before any activation."""
        return self.standing_under(self.setup)

    def standing_under(self, setup: Setup) -> Standing:
        """The same under another setup."""
        return standing(self.module, [layer.module for layer in self.anatomy.reached_by_tokens().layers], setup)

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """What each card holds where the layers stand on several. Raises ForecastError where that cannot be."""
        if not self.setup.in_turn:
            return ()
        if self.total is None:
            raise ForecastError("--device-map places weights by the bytes of a card: give --gpu or --memory")
        layers = [layer.module for layer in self.anatomy.reached_by_tokens().layers]
        return placed(self.module, layers, self.setup, self.total)

    @cached_property
    def _studies(self) -> dict[tuple[int, int], Study]:
        return {}

    @cached_property
    def _platform(self) -> Platform:
        return read_platform(self.module, self.anatomy, device=self.device)

    def _new_study(self, subject: Subject) -> Study:
        traced = cache(partial(self._inputs, subject))
        copies = self.standing.step_copies
        stacks, inputs = self.anatomy.stacks, traced(())
        return Study(subject, stacks, self._platform, inputs, copies, traced, self.cards, self.total)

    def _inputs(self, subject: Subject, chunks: Chunks) -> ForecastInputs:
        """What a forecast reads where parts of the layers run in so many chunks."""
        anatomy, stands = self.anatomy.reached_by_tokens(), self.standing
        with _in_chunks(self.module, anatomy, chunks) as chunked:
            ledgers = self._ledgers(subject, anatomy)
            parts = parts_in(chunked, (layer.module for layer in anatomy.layers))
            head = self._head(subject)
        return ForecastInputs(
            anatomy=anatomy,
            ledgers=ledgers,
            head=head,
            chunkable=obstacle(self.module) is None,
            rates=self.rates,
            memory=DeviceMemory(None if self.setup.in_turn else self.total, stands.weights, self._given(stands)),
            to_come=stands.all_along - stands.weights + (stands.gradients if self.setup.accumulates else 0),
            growing=self._growing(stands),
            cached=stands.whole.cached,
            chunks=chunks,
            chunked=parts,
        )

    def _head(self, subject: Subject) -> HeadShape | None:
        """The loss head for a batch, with the copy that autocast makes of its weights."""
        shape = head_shape(self.module, subject.batch * subject.length)
        if shape is None or self.setup.autocast is None:
            return shape
        return shape.read_as(getattr(torch, self.setup.autocast).itemsize)

    def _growing(self, stands: Standing) -> Growing | None:
        """What comes up in backward; whole gradients are there until they are reduced, so their shards come after."""
        whole, stand = stands.whole, self.setup.accumulates
        if stand and whole == Gathering():
            return None
        head, late = whole.head_gradients, whole.late_gradients
        if not (head or late or stand):
            head, late = stands.head_gradients, stands.late_gradients
        layers = (0,) * len(stands.layer_gradients) if stand else stands.layer_gradients
        return Growing(layers, head, late, whole.in_layer, 0 if stand else stands.gradients)

    def _given(self, stands: Standing) -> int | None:
        """What the allocator of a card has taken for the weights: plans leave it room for more than is alive."""
        return stands.weights if self.device.type == "cuda" else None

    def _ledgers(self, subject: Subject, anatomy: Anatomy) -> list[LayerLedger | None]:
        ids = token_ids(subject, self.module, "meta")
        traced_on = self.device if self.card is None else torch.device("cpu")
        autocast = None if self.setup.autocast is None else getattr(torch, self.setup.autocast)
        found = dry_ledgers(self.module, anatomy, ids, traced_on, autocast=autocast, card=self.card)
        return [unpacking(ledger, self.rates) if ledger and self.setup.four_bit else ledger for ledger in found]


def read_model(subject: Subject, memory: str | None, setup: Setup, gpu: str | None = None) -> Model:
    """Build the model on the meta device.

    Args:
        subject: The model, and the size of its batch.
        memory: Memory of the device to plan for, with its unit; None: the device's.
        setup: How the model is trained.
        gpu: The card to plan for, by the name of its profile; None: this machine.

    Returns:
        The model, at a length that its positions allow.

    Raises:
        CkptError: there is no such model, or its length cannot be.
        BadParameter: the optimizer or the size of memory cannot be.
    """
    check_optimizer(setup.optimizer)
    target = target_named(gpu, subject)
    planned = planned_attention(subject.attention)
    module = build_model(replace(subject, attention=planned), "meta")
    if planned != subject.attention and not supports_flash_attention(module):
        raise CkptError(f"`{subject.model}` does not run with --attention {subject.attention}: use sdpa or eager")
    if setup.four_bit:
        pack(module, widen=setup.widened)
    return Model(
        subject=fit_length(subject, module),
        module=module,
        anatomy=read_anatomy(module),
        device=target.device,
        card=target.card,
        rates=target.rates,
        total=target.total if memory is None else _bytes_of(memory),
        setup=setup,
    )


def study(subject: Subject, memory: str | None, setup: Setup, gpu: str | None = None) -> Study:
    """The study of a model at the size of its subject; arguments and errors as in :func:`read_model`."""
    model = read_model(subject, memory, setup, gpu)
    return model.study(model.subject.batch, model.subject.length)


@contextmanager
def _in_chunks(model: torch.nn.Module, anatomy: Anatomy, chunks: Chunks) -> Iterator[tuple[ChunkedParts, ...]]:
    """Parts of these layers in so many chunks."""
    changes: list[Change] = []
    try:
        yield install_chunks(model, anatomy, chunks, into=changes)
    finally:
        for change in reversed(changes):
            change.undo()


def _bytes_of(memory: str) -> int:
    try:
        budget: Budget | None = parse_budget(memory)
    except BudgetError:
        budget = None
    if not isinstance(budget, PeakBudget):
        raise click.BadParameter(f"{memory!r} is not a size with its unit, such as 80GiB", param_hint="--memory")
    return budget.nbytes
