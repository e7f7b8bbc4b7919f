"""One cell: steps of a model under a policy on the simulated card, the plan beside what torch's allocator gave."""

from __future__ import annotations

import gc
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hf_ckpt.planner.budget import allowed_bytes
from hf_ckpt.planner.memory.device_memory import device_memory

from ..counters import Span
from .subjects import ALIKE, MOST_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hf_ckpt.handle import Handle
    from hf_ckpt.planner.batches.batch_planner import BatchPlanner
    from hf_ckpt.planner.batches.per_batch import MadePlan


@dataclass
class Cell:
    """What steps took, in bytes of the whole card, the CUDA context included.

    Attributes:
        planned_held: What the plan in force says is alive when the layers' forward ends; None: nothing is planned.
        held: What was allocated then, in the last step.
        planned: What the plan says is alive at the peak of forward and backward.
        spare: What it leaves to the allocator beyond that.
        allocated: The peak of the last step's forward and backward.
        reserved: What the allocator had reserved at most in that step.
        ever: The same in any step, the optimizer's part included.
        steps: How many ran.
        out_of_memory: Steps that ran out.
        retries: Times that the allocator gave its cache back because the card had nothing left.
        launches: Of the last step's forward and backward, likewise the rest.
        told: Whether the product said that the card gives more than the budget whatever is planned.
        modes: How layers ran.
        error: The first error.
    """

    planned_held: int | None = None
    held: int = 0
    planned: int | None = None
    spare: int = 0
    allocated: int = 0
    reserved: int = 0
    ever: int = 0
    steps: int = 0
    out_of_memory: int = 0
    retries: int = 0
    launches: int = 0
    synchronisations: int = 0
    device_allocations: int = 0
    told: bool = False
    modes: list[str] = field(default_factory=list)
    error: str = ""


def free() -> None:
    """Give the card back what nobody holds, and begin to count peaks."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def measure(
    model: Any, last_layer: Any, handle: Handle | None, optimizer: torch.optim.Optimizer, loss: Callable[[], Any]
) -> Cell:
    """Run steps until they are alike and read the last one; the step after one that runs out of memory runs."""
    cell, beside = Cell(), _beside_the_allocator()
    before = torch.cuda.memory_stats()["num_alloc_retries"]
    ends = last_layer.register_forward_hook(lambda *_: _note(cell, beside))
    latest: deque[Any] = deque(maxlen=ALIKE)
    while cell.steps < MOST_STEPS and not _settled(latest):
        cell.steps += 1
        torch.cuda.reset_peak_memory_stats()
        try:
            with Span() as span:
                loss().backward()
            _read_step(cell, span, beside)
            optimizer.step()
        except torch.OutOfMemoryError as error:
            cell.out_of_memory += 1
            cell.error = cell.error or str(error).partition(". GPU")[0]
        model.zero_grad(set_to_none=True)
        cell.ever = max(cell.ever, torch.cuda.max_memory_reserved() + beside)
        latest.append(_reading(cell, handle))
    ends.remove()
    cell.retries = torch.cuda.memory_stats()["num_alloc_retries"] - before
    _read_plan(cell, handle)
    return cell


def _reading(cell: Cell, handle: Handle | None) -> tuple[Any, ...]:
    """What is the same in two steps that are alike: their figures, the plan, and what the next one would be made from."""
    read = (cell.held, cell.allocated, cell.reserved, cell.launches, cell.synchronisations, cell.device_allocations)
    planner = None if handle is None else handle.planner
    if planner is None:
        return read
    left = planner.fragmentation
    return (*read, torch.cuda.memory_reserved(), planner.current, left.nbytes, left.share, left._tries)


def _settled(latest: deque[Any]) -> bool:
    return len(latest) == ALIKE and all(reading == latest[0] for reading in latest)


def _beside_the_allocator() -> int:
    free_bytes, total = torch.cuda.mem_get_info()
    return total - free_bytes - torch.cuda.memory_reserved()


def _note(cell: Cell, beside: int) -> None:
    if torch._C._current_graph_task_id() == -1:  # not a layer that backward runs again
        cell.held = torch.cuda.memory_allocated() + beside


def _read_step(cell: Cell, span: Span, beside: int) -> None:
    cell.allocated = torch.cuda.max_memory_allocated() + beside
    cell.reserved = torch.cuda.max_memory_reserved() + beside
    cell.launches = span.launches
    cell.synchronisations = span.synchronisations
    cell.device_allocations = span.device_allocations


def _read_plan(cell: Cell, handle: Handle | None) -> None:
    if handle is None:
        return
    cell.modes = sorted({f"{layer.mode} {layer.reason}".strip() for layer in handle.report().layers})
    planner = handle.planner
    if planner is None or planner.current is None:
        return
    cell.told = planner.exceeded
    plan, predicted = planner.current, planner.current.solution.predicted
    cell.planned, cell.spare = plan.alive, _left_to_allocator(planner, plan)
    # At the peak is what the model takes, and the activations; when the layers end those that they hold.
    problem = planner.learning.problem
    cell.planned_held = plan.alive - predicted.peak + predicted.held + (problem.always if problem else 0)


def _left_to_allocator(planner: BatchPlanner, plan: MadePlan) -> int:
    """What the plan leaves of what the card may give: no more than there is, where nothing smaller can be planned."""
    limit = allowed_bytes(planner.budget, device_memory(torch.device("cuda")))
    if limit is None:
        return 0
    room = limit - plan.alive + plan.solution.predicted.peak
    return max(0, min(planner.fragmentation.spare.of(room), limit - plan.alive))
