"""Where in the program something happens: the conditions, loops and blocks around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .exclusion import contradict

if TYPE_CHECKING:
    from .values import Function, FunctionNode, Value

Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While | ast.comprehension


class Guard(NamedTuple):
    """A condition that holds: ``test`` is true, or false when ``taken`` is False."""

    test: ast.AST
    value: Value
    taken: bool
    #: The program raises or exits otherwise: every run that goes on is under it.
    asserted: bool = False

    def contradicts(self, other: Guard) -> bool:
        """Whether both cannot hold."""
        return contradict(self.test, self.taken, other.test, other.taken)


class Place(NamedTuple):
    """The surroundings of a statement, outermost first; those of the callers come first when a call was followed."""

    #: The function whose body this is; None at module level.
    function: Function | None = None
    guards: tuple[Guard, ...] = ()
    loops: tuple[Loop, ...] = ()
    #: What the `with` blocks around it enter.
    contexts: tuple[Value, ...] = ()
    tries: tuple[ast.Try, ...] = ()
    #: The calls that were followed to come here.
    stack: tuple[ast.Call, ...] = ()
    #: The functions that those calls led to.
    callees: tuple[FunctionNode, ...] = ()
    #: Which walk this belongs to: 0 is the script from its first line, every function nobody calls has its own.
    walk: int = 0

    def excludes(self, other: Place) -> bool:
        """Whether no run of the program comes to both places, by the conditions around them."""
        apart = any(mine.contradicts(their) for mine in self.guards for their in other.guards)
        return apart or self._calls_another(other)

    def _calls_another(self, other: Place) -> bool:
        """Whether one call led to another function here than there: it runs one of those that it may mean."""
        ways = zip(
            zip(self.stack, self.callees, strict=True), zip(other.stack, other.callees, strict=True), strict=False
        )
        for (call, function), (its_call, its_function) in ways:
            if call is not its_call or function is not its_function:
                return call is its_call
        return False

    def deeper_than(self, other: Place) -> bool:
        """Whether this place is under a condition that ``other`` is not under."""
        if not self.guards:
            return False
        around = {(guard.test, guard.taken) for guard in other.guards}
        return any((guard.test, guard.taken) not in around for guard in self.guards)
