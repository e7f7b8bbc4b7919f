"""A mixed-integer linear program under construction, solved by ``scipy.optimize.milp`` (HiGHS)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..costs.problem import Problem

#: Seconds after which the best plan found so far is taken. Real models need a few hundredths.
TIME_LIMIT = 0.7
#: Relative distance from the optimum at which the search may stop.
GAP = 1e-4

#: What ``milp`` answers when the rows contradict each other.
INFEASIBLE = 2

#: A linear expression: coefficient by variable.
Row = dict[int, float]


@dataclass(frozen=True, slots=True)
class Group:
    """All layers (positions, ascending) of one kind: they share variables.

    ``again`` maps an op to the variable that counts the layers running it again; ``stored`` has, for every verb that
    stores besides keeping, the variable that counts the layers in which it stores a buffer, by buffer; ``inputs`` the
    variable that counts those in which it stores the layer's own input, where it may.
    """

    kind: int
    layers: tuple[int, ...]
    again: dict[int, int]
    stored: dict[str, dict[int, int]]
    inputs: dict[str, int]


@dataclass(frozen=True, slots=True)
class Optimum:
    """Values of all variables, and the relative distance within which their cost is proven to be the least."""

    values: NDArray[np.float64]
    gap: float


@dataclass
class Program:
    """The linear program: minimise a cost over variables in ``[0, upper]`` under rows ``expression <= bound``."""

    problem: Problem
    unit: float
    upper: list[float] = field(default_factory=list)
    integral: list[int] = field(default_factory=list)
    rows: list[tuple[Mapping[int, float], float]] = field(default_factory=list)
    seconds: Row = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    peak: int = 0
    held: int = 0
    #: How many bytes fewer the layers hold, in units, by variable.
    freed: Row = field(default_factory=dict)
    #: The variable for the bytes that a verb must have ready before a layer's backward, by verb.
    room: dict[str, int] = field(default_factory=dict)

    def variable(self, upper: float, seconds: float = 0.0, *, integral: bool = True) -> int:
        """A new variable that costs ``seconds`` a unit."""
        self.upper.append(upper)
        self.integral.append(int(integral))
        index = len(self.upper) - 1
        self.add_seconds(index, seconds)
        return index

    def add_seconds(self, variable: int, seconds: float) -> None:
        """Let a unit of ``variable`` cost so much more."""
        if seconds:
            self.seconds[variable] = self.seconds.get(variable, 0.0) + seconds

    def at_most(self, row: Mapping[int, float], bound: float) -> None:
        """Require ``row <= bound``."""
        self.rows.append((row, bound))

    def minimise(self, cost: Mapping[int, float]) -> Optimum | None:
        """The values of least cost, or None when the rows contradict each other.

        Raises RuntimeError when HiGHS finds neither.
        """
        entries = [(i, j, v) for i, (row, _) in enumerate(self.rows) for j, v in row.items()]
        i, j, v = zip(*entries, strict=True)
        matrix = csr_array((v, (i, j)), shape=(len(self.rows), len(self.upper)))
        weights = np.zeros(len(self.upper))
        weights[list(cost)] = np.array(list(cost.values())) / (max(cost.values(), default=0.0) or 1.0)
        # HiGHS's presolve writes to stdout now and then, and these programs are small. Without it a search now and then
        # ends in "solve error", or out of time on a busy machine: then everything is allowed. Where that fails
        # too, another scale of the cost does not.
        for scale, options in (
            (1.0, {"time_limit": TIME_LIMIT, "presolve": False}),
            (1.0, {"presolve": True}),
            (3.0, {"presolve": True}),
        ):
            result = milp(
                scale * weights,
                integrality=self.integral,
                bounds=Bounds(0, self.upper),
                constraints=LinearConstraint(matrix, -np.inf, [bound for _, bound in self.rows]),
                options={"mip_rel_gap": GAP, **options},
            )
            if result.x is not None:
                return Optimum(np.asarray(result.x, dtype=np.float64), float(result.mip_gap or 0.0))
            if result.status == INFEASIBLE:
                return None
        raise RuntimeError(f"the plan's linear program could not be solved: {result.message}")
