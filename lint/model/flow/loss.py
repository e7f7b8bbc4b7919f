"""Which loss a forward pass feeds, followed by name through statements, and through the program's own functions."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING

from ...facts.objects.classes import is_run_as_written
from ...facts.parameters import positional_names
from ...facts.values import Function, Method
from .frames import Ways, ways_from_shared_function
from .gradient_steps import Cuts, Position, Steps, carried, end_of, own_nodes, position, reads
from .statements import body_around, holder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...facts.values import Call, FunctionNode, Value
    from ..history import History


class Losses:
    """Which of some calls surely get, through plain statements, what other calls of a run give.

    Args:
        run: The history that all these calls are of.
        sinks: The calls that may get something; functions around them may have it as an argument.
        cuts: What gradients do not pass; None for what detaches, functions of the program that do so too.
    """

    def __init__(self, run: History, sinks: list[Call], cuts: Cuts | None = None) -> None:
        self._run = run
        self._steps: dict[ast.AST, Steps] = {}
        self._cuts = cuts or _Detaching(run, self._steps_of)
        self._sources: dict[tuple[Call, ...], frozenset[ast.AST]] = {}
        self._calls: dict[tuple[ast.AST, tuple[ast.expr, ...], Position], frozenset[ast.AST]] = {}
        #: By the call that gives something, in any function on the way to a sink: the sinks.
        self._sinks: dict[ast.AST, dict[Call, None]] = {}
        for sink in sinks:
            way = self._way_to(sink)
            for depth in range(len(way)):
                for node in self._sources_of(way[depth:]):
                    self._sinks.setdefault(node, {})[sink] = None

    def fed_by(self, source: Call) -> Iterator[Call]:
        """Those that get what ``source`` gives, in program order; functions around it may return it."""
        found = {sink for call in self._way_to(source) for sink in self._sinks.get(call.node, ())}
        return (sink for sink in sorted(found, key=lambda call: call.order) if self._feeds(source, sink))

    def beside(self, source: Call, sink: Call) -> list[ast.Call]:
        """What else ``sink`` gets something of: calls of the function that leads to both, that ``source`` is not in.

        Nothing where no function is seen to lead to both.
        """
        ways = ways_from_shared_function(self._run, source, sink)
        if ways is None:
            return []
        given, body = ways.left[0].node, body_around(self._run, ways.left[0])
        calls = [node for node in self._sources_of(ways.right) if isinstance(node, ast.Call) and node is not given]
        return [node for node in calls if given not in self._calls_in(body, [node], position(node))]

    def beside_returned(self, call: Call) -> list[ast.Call]:
        """What else the function that makes ``call`` returns something of: calls that ``call`` is not in."""
        body = body_around(self._run, call)
        found = {
            node for value in self._returned_behind(call) for node in self._calls_in(body, [value], position(value))
        }
        calls = [node for node in found if isinstance(node, ast.Call) and node is not call.node]
        return [node for node in calls if call.node not in self._calls_in(body, [node], position(node))]

    def kept_for_next_iteration(self, sink: Call) -> frozenset[str]:
        """The names that ``sink`` reads and that the loop around it fills behind it, and not before it."""
        loop = sink.place.loops[-1] if sink.place.loops else None
        if not isinstance(loop, ast.For | ast.While):
            return frozenset()
        names, steps = self._reads(sink.node), self._steps_of(body_around(self._run, sink))
        if steps.filled(names, position(loop), position(sink.node)):
            return frozenset()
        return steps.filled(names, end_of(sink.node), end_of(loop))

    def feeds_next_iteration(self, source: Call, sink: Call) -> bool:
        """Whether ``sink`` gets, in an iteration of the loop around both, what ``source`` gave in the one before."""
        ways = ways_from_shared_function(self._run, source, sink)
        if ways is None or len(ways.right) > 1 or ways.left[0].place.loops != sink.place.loops:
            return False
        if not all(map(self.is_returned, ways.left[1:])):
            return False
        body = body_around(self._run, sink)
        return ways.left[0].node in self._calls_in(body, [sink.node], end_of(sink.place.loops[-1]))

    def _way_to(self, call: Call) -> list[Call]:
        return self._run.path_to(call) or [call]

    def _feeds(self, source: Call, sink: Call) -> bool:
        ways = ways_from_shared_function(self._run, source, sink)
        if ways is None or not all(map(self.is_returned, ways.left[1:])):
            return False
        return ways.left[0].node in self._sources_of(ways.right) and self._takes_its_element(ways)

    def comes_from(self, source: Call, sink: Call, part: ast.expr) -> bool:
        """Whether ``part``, of the function that ``sink`` stands in, surely holds what ``source`` gives."""
        ways = ways_from_shared_function(self._run, source, sink)
        if ways is None or len(ways.right) > 1 or not all(map(self.is_returned, ways.left[1:])):
            return False
        if ways.left[0].node not in self._calls_in(body_around(self._run, sink), [part], position(part)):
            return False
        return len(ways.left) < 2 or self._takes(ways.left[0], ways.left[1], [part], position(part))

    def takes_element(self, inner: Call, forward: Call, sink: Call | None) -> bool:
        """Whether ``sink``, or what the function of ``forward`` returns, gets the part that ``inner`` is in.

        Args:
            inner: What the `forward` that ``forward`` comes to returns, a part of a tuple perhaps.
            forward: The call of the module.
            sink: What gets something of it; None for the caller.
        """
        if sink is None:
            values = self._returned_behind(forward)
            return not values or any(self._takes(forward, inner, [value], position(value)) for value in values)
        ways = ways_from_shared_function(self._run, forward, sink)
        return ways is None or len(ways.left) > 1 or self._takes_its_element(Ways([forward, inner], ways.right))

    def _takes_its_element(self, ways: Ways) -> bool:
        """Whether the sink gets the part of a returned tuple that has the source: `first, second = losses_of(model)`.

        So it is where the elements are not told apart.
        """
        if len(ways.left) < 2:
            return True
        return self._takes(ways.left[0], ways.left[1], self._given_to(ways.right), position(ways.right[0].node))

    def _takes(self, outer: Call, inner: Call, values: list[ast.expr], end: Position) -> bool:
        names, given = self._unpacked(outer), outer.node
        returned = self._returned_behind(inner)
        if not names or not all(isinstance(it, ast.Tuple) and len(it.elts) == len(names) for it in returned):
            return True
        body, taken = body_around(self._run, outer), set[str]()
        wanted = set(self._reads(*values))
        for value in self._traced(body, wanted, end):
            taken |= wanted if value is given else set()
        function = body_around(self._run, inner)
        return any(
            inner.node in self._calls_in(function, [part], position(part))
            for value in returned
            if isinstance(value, ast.Tuple)
            for name, part in zip(names, value.elts, strict=True)
            if name in taken
        )

    def _unpacked(self, call: Call) -> list[str]:
        """The variables that get the elements of what ``call`` gives."""
        match holder_of(self._run, call):
            case ast.Assign(targets=[ast.Tuple(elts=parts)]):
                names = [part.id for part in parts if isinstance(part, ast.Name)]
                return names if len(names) == len(parts) else []
        return []

    def _sources_of(self, way: list[Call]) -> frozenset[ast.AST]:
        """The calls beside the first of ``way``, in one function, whose results go into the last one."""
        key = tuple(way)
        if key not in self._sources:
            body = body_around(self._run, way[0])
            self._sources[key] = self._calls_in(body, self._given_to(way), position(way[0].node))
        return self._sources[key]

    def _given_to(self, way: list[Call]) -> list[ast.expr]:
        """What the function of the first of ``way`` gives to the last one."""
        given: list[ast.expr] = [way[-1].node]
        for inner, caller in pairwise(reversed(way)):
            given = self._handed_over(inner, caller, given)
        return given

    def _calls_in(self, body: ast.AST, values: list[ast.expr], end: Position) -> frozenset[ast.AST]:
        """The calls that ``values``, which stand at ``end``, hold or come from; each forward pass asks for them."""
        key = body, tuple(values), end
        if key not in self._calls:
            traced = self._traced(body, set(self._reads(*values)), end)
            nodes = (node for value in (*values, *traced) for node in carried(value, self._cuts))
            self._calls[key] = frozenset(node for node in nodes if isinstance(node, ast.Call))
        return self._calls[key]

    def _traced(self, body: ast.AST, wanted: set[str], end: Position) -> Iterator[ast.expr]:
        return self._steps_of(body).traced(wanted, end, self._cuts)

    def _reads(self, *values: ast.expr) -> frozenset[str]:
        return reads(*values, cuts=self._cuts)

    def _steps_of(self, body: ast.AST) -> Steps:
        if body not in self._steps:
            self._steps[body] = Steps(body, self._run.program.grad)
        return self._steps[body]

    def is_returned(self, call: Call) -> bool:
        """Whether the function that makes ``call`` gives what that gives to its caller, gradients included."""
        function = call.place.function
        if function is None or not is_run_as_written(function):
            return False
        later = self._returned_behind(call)
        return bool(later) and all(
            call.node in self._calls_in(function.node, [value], position(value)) for value in later
        )

    def _returned_behind(self, call: Call) -> list[ast.expr]:
        """What the function that makes ``call`` may return then, as it is written."""
        function, place = call.place.function, call.place
        found = [
            _returned(it.node)
            for it in (self._run.program.returns.get(function.node, ()) if function is not None else ())
            if (it.place.walk, it.place.stack) == (place.walk, place.stack) and not it.place.excludes(place)
        ]
        return [value for value in found if end_of(value) > position(call.node)]

    def _handed_over(self, inner: Call, caller: Call, values: list[ast.expr]) -> list[ast.expr]:
        """The arguments of ``caller`` that ``values``, in ``inner`` of the function it called, come from."""
        function = inner.place.function
        if function is None:
            return []
        names = set(self._reads(*values))
        for _ in self._traced(function.node, names, position(inner.node)):
            pass
        roots = {name.partition(".")[0] for name in names}
        names_in_order = positional_names(function.node)[isinstance(caller.func, Method) :]
        return [value for name, value in caller.written_arguments(names_in_order).items() if name in roots]


class UpTo(Cuts):
    """Gradients go up to some calls, `x.detach()`, and to no other one that lets none through by its name."""

    def __init__(self, ends: Iterable[ast.AST]) -> None:
        self._ends = frozenset(ends)

    def is_end(self, node: ast.AST) -> bool:
        """Whether ``node`` is one of the calls."""
        return node in self._ends


class _Detaching(Cuts):
    """The calls of the program's own functions whose results have no gradient, as `x.detach()` has none.

    Few of a program's calls are asked for, so a function is looked at with the first of its calls.
    """

    def __init__(self, run: History, steps_of: Callable[[ast.AST], Steps]) -> None:
        self._grad = run.program.grad
        self._steps_of = steps_of
        self._called: dict[ast.AST, list[Value]] = {}
        for call in run.program.calls:
            self._called.setdefault(call.node, []).append(call.func)
        self._known: dict[ast.AST, bool] = {}

    def stops(self, node: ast.AST) -> bool:
        """Whether no gradient goes to ``node``, by its name or by what the program's function does."""
        called = self._called.get(node) if isinstance(node, ast.Call) else None
        return (called is not None and all(map(self._detaches, called))) or super().stops(node)

    def _detaches(self, called: Value) -> bool:
        match called:
            case (Function() as function) | Method(function=function):
                if function.node not in self._known:
                    self._known[function.node] = self._returns_detached(function.node)
                return self._known[function.node] and is_run_as_written(function)
        return False

    def _returns_detached(self, function: FunctionNode) -> bool:
        """Whether gradients of what ``function`` returns go to nothing that it is given or reads."""
        returned = [function] if isinstance(function, ast.Lambda) else _returns_in(function)
        recorded = (node for node in returned if not self._grad.is_off_at(node))
        return bool(returned) and not any(self._outer_names(function, _returned(node)) for node in recorded)

    def _outer_names(self, function: FunctionNode, value: ast.expr) -> set[str]:
        """The names outside of ``function``'s own steps that gradients of ``value`` go to."""
        names = set(reads(value))
        for _ in self._steps_of(function).traced(names, position(value)):
            pass
        return names


def _returns_in(function: FunctionNode) -> list[ast.Return]:
    """The statements of ``function`` that give a value back."""
    found: list[ast.Return] = []
    waiting = own_nodes(function)
    while waiting:
        part = waiting.pop()
        waiting += own_nodes(part)
        if isinstance(part, ast.Return) and part.value is not None:
            found.append(part)
    return found


def _returned(node: ast.Return | ast.Lambda) -> ast.expr:
    value = node.body if isinstance(node, ast.Lambda) else node.value
    return ast.copy_location(ast.Constant(None), node) if value is None else value
