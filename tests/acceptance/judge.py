"""What a case holds under each budget, and whether its gradients are those without checkpointing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hf_ckpt import apply
from hf_ckpt.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cases import Case, Program

SHARES = (1.0, 0.8, 0.5, 0.3)
#: The points by which a plan may stay below its budget.
MARGIN = 0.03
#: Steps under each budget: one to learn from, one for the first use of the plan, one that is measured.
STEPS = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """What one budget did: the share of ``none`` that the layers held, their replays, whether gradients are bitwise.

    ``floor`` is the least share that any plan holds, where the budget is below it; ``modes`` how layers are recomputed,
    and why where they are not traced; ``error`` what stopped the run.
    """

    share: float
    held: float = 0.0
    replays: int = 0
    bitwise: bool = True
    floor: float | None = None
    modes: tuple[str, ...] = ()
    error: str = ""

    @property
    def problem(self) -> str:
        """What is wrong with it, or ""."""
        asked = self.share if self.floor is None else max(self.share, self.floor)
        if self.error:
            return self.error
        if not self.bitwise:
            return "gradients differ"
        if self.held > asked:
            return f"holds {self.held:.4f}"
        if self.share == 1.0:
            return f"{self.replays} replays" if self.replays else ""
        return f"holds {self.held:.3f} only" if self.held < asked - MARGIN else ""


def judge(case: Case) -> list[Cell]:
    """All cells of one case."""
    torch.manual_seed(0)
    program = case.build()
    everything, _, _, expected = _run(program, "none", 1)
    return [_cell(program, share, everything, expected[0]) for share in SHARES]


def _cell(program: Program, share: float, everything: int, expected: Sequence[torch.Tensor]) -> Cell:
    asked, floor = share, None
    for _ in range(2):
        try:
            held, replays, modes, found = _run(program, f"budget={asked}", STEPS)
        except BudgetError as error:
            named = re.search(r"raise it to budget=([\d.]+)", str(error))
            if named is None:
                return Cell(share, error=str(error))
            asked = floor = float(named[1])
        except Exception as error:
            return Cell(
                share, error=f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
            )
        else:
            bitwise = all(_same(gradients, expected) for gradients in found)
            return Cell(share, held / everything, replays, bitwise, floor, modes)
    return Cell(share, error=f"budget={floor}, which was named as the least, does not fit either")


def _same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def _run(program: Program, policy: str, steps: int) -> tuple[int, int, tuple[str, ...], list[list[torch.Tensor]]]:
    """Bytes that the layers hold in the last step, their replays, how they are recomputed, all gradients."""
    handle = apply(program.model, policy)
    try:
        found = [_step(program) for _ in range(steps - 1)]
        with handle.measure():
            found.append(_step(program))
        layers = handle.report().layers
        modes = {f"{layer.mode}: {layer.reason}" if layer.reason else layer.mode for layer in layers if layer.mode}
        return (
            sum(layer.held_bytes or 0 for layer in layers),
            sum(layer.replays for layer in layers),
            tuple(sorted(modes)),
            found,
        )
    finally:
        handle.restore()


def _step(program: Program) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return program.step()
