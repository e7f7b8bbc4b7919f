"""The grad mode as the walk through the program goes on, and what it was at each statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .values.answers import is_same_call
from .values.grad_mode import AT_START, GradMode, GradState

if TYPE_CHECKING:
    import ast
    from collections.abc import Collection, Sequence

    from .values import Call


class Passage(NamedTuple):
    """One walk of a function, with the mode that it switched to; None where it left the mode as it was."""

    call: Call
    mode: GradMode | None


class GradModes:
    """The state that `torch.no_grad()` and its like switch, of one program."""

    __slots__ = (
        "at_start",
        "before_main",
        "current",
        "left_by",
        "restored_by",
        "statements",
        "yielded_by",
        "yielded_in",
    )

    def __init__(self) -> None:
        self.current = AT_START
        #: What the module was in when it came to `if __name__ == "__main__"`.
        self.before_main: GradState | None = None
        #: What functions begin in that nothing calls: the module has run by then, as it does when it is imported.
        self.at_start = AT_START
        #: By statement; OPEN where two walks came to it in different modes.
        self.statements: dict[ast.stmt, GradMode] = {}
        #: By function, what its calls left behind.
        self.left_by: dict[ast.AST, list[Passage]] = {}
        #: By generator function that is a context manager, what its calls handed over in.
        self.yielded_by: dict[ast.AST, list[Passage]] = {}
        #: By call of such a function, the mode at each `yield` the last time; None where it was as before.
        self.yielded_in: dict[ast.AST, list[GradMode | None]] = {}
        #: By the call that made a context or a stack of them, what leaving it brings back.
        self.restored_by: dict[ast.AST, GradState] = {}

    def come_to(self, statement: ast.stmt) -> None:
        """Note the mode in which the walk comes to ``statement``."""
        known, mode = self.statements.get(statement), self.current.mode
        self.statements[statement] = mode if known is None else mode.met_by(known)

    def come_to_main(self) -> None:
        """Note that what follows runs in the script alone."""
        self.before_main = self.before_main or self.current

    def end_module(self) -> None:
        """Note that the module has run; functions that nothing calls come now.

        Whoever calls them may have switched gradients on again, so where a module switched them off they may be on.
        """
        left = self.before_main or self.current
        self.at_start = GradState(GradMode.EITHER) if left.mode is GradMode.OFF else left

    def at(self, statement: ast.AST) -> GradMode | None:
        """The mode in which walks came to ``statement``; None for what is no statement or was not walked."""
        return self.statements.get(statement)  # type: ignore[call-overload, no-any-return]

    def is_off_at(self, statement: ast.AST) -> bool:
        """Whether every walk came to ``statement`` without gradients."""
        return self.at(statement) is GradMode.OFF

    def switched_since(self, before: GradState) -> GradMode | None:
        """The mode that was switched to since the state was ``before``; None where it is that state still."""
        return None if self.current is before else self.current.mode


def agreed(modes: Collection[GradMode | None]) -> GradMode | None:
    """What several walks made of the mode; None where all left it as it was."""
    different = set(modes)
    return GradMode.OPEN if len(different) > 1 else next(iter(different), None)


def expected(passages: Sequence[Passage], call: Call) -> GradMode | None:
    """What ``call``, whose function is not walked again, makes of the mode by earlier ``passages`` of that function."""
    alike = [passage.mode for passage in passages if is_same_call(passage.call, call)]
    if alike:
        return agreed(alike)
    return None if all(passage.mode is None for passage in passages) else GradMode.OPEN
