"""The program's own code: the places of its statements, its calls, functions, classes and their objects.

One recursive type, so they stand in one file: what a call returned knows the call, a call its place, a place the
function around it and the values of its conditions.
"""

from __future__ import annotations

import ast
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .arguments import Arguments
from .grad_mode import AT_START, GradMode
from .plain import ABSENT, Attr, Ref, Value

if TYPE_CHECKING:
    from collections.abc import Container

    from ..scopes import Scope
    from .guards import Guard

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While | ast.comprehension


class Place(NamedTuple):
    """The surroundings of a statement, outermost first; those of the callers come first when a call was followed."""

    #: The function whose body this is; None at module level.
    function: Function | None = None
    guards: tuple[Guard, ...] = ()
    loops: tuple[Loop, ...] = ()
    #: What the `with` blocks around it enter.
    contexts: tuple[Value, ...] = ()
    #: The `try` blocks around it that may hide an error: they have a handler that does not raise it again.
    tries: tuple[ast.Try, ...] = ()
    #: The calls that were followed to come here.
    stack: tuple[ast.Call, ...] = ()
    #: The functions that those calls led to.
    callees: tuple[FunctionNode, ...] = ()
    #: Those of the calls that run one function after the other: `for stage in (wrap, shard): model = stage(model)`.
    in_turn: tuple[ast.Call, ...] = ()
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
                return call is its_call and call not in self.in_turn
            if call in self.in_turn:
                return False  # What one step calls, another one may call otherwise.
        return False

    def deeper_than(self, other: Place) -> bool:
        """Whether this place is under a condition that ``other`` is not under."""
        return bool(self.beyond(other))

    def beyond(self, other: Place) -> tuple[Guard, ...]:
        """The conditions of this place that ``other`` is not under, and that a run may go on without."""
        if not self.guards:
            return ()
        around = {(guard.test, guard.taken) for guard in other.guards}
        return tuple(it for it in self.guards if not it.asserted and (it.test, it.taken) not in around)


class Call(Arguments):
    """One call of ``func``. A call of a ``partial`` is the call of what the partial stands for.

    ``func`` is one alternative when several functions may be meant; each has its own ``Call`` with the same node.
    """

    __slots__ = ("func", "grad", "handed", "node", "order", "place", "via")
    __match_args__ = ("func",)

    def __init__(self, node: ast.Call, func: Value, place: Place, order: int, given: Arguments | None = None) -> None:
        super().__init__(given)
        self.node = node
        self.func = func
        self.place = place
        self.order = order
        #: Whether autograd records what it does, and since when.
        self.grad = AT_START
        #: The partials between the call and ``func``, outermost first.
        self.via: tuple[Partial, ...] = ()
        #: The calls in functions of the file that do nothing but hand it on to ``func``, outermost first.
        self.handed: tuple[ast.Call, ...] = ()

    def __repr__(self) -> str:
        return f"Call({self.func!r} at {self.node.lineno})"

    @property
    def grad_mode(self) -> GradMode:
        """Whether autograd records what it does."""
        return self.grad.mode

    @property
    def name(self) -> str:
        """The full dotted name of what is called, empty when it is nothing imported."""
        return self.func.name if isinstance(self.func, Ref) else ""

    @property
    def method(self) -> str:
        """The name of the method when a method of an opaque object is called, else empty."""
        return self.func.name if isinstance(self.func, Attr) else ""

    @property
    def attribute(self) -> ast.Attribute | None:
        """`obj.method` as it is written in `obj.method(...)`; None for other calls."""
        return self.node.func if isinstance(self.node.func, ast.Attribute) else None

    @property
    def called(self) -> str:
        """The last name of what is called, whatever that is: `step` for `optimizer.step()`; empty for a lambda."""
        match self.node.func:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name
        return ""

    @property
    def receiver(self) -> Value:
        """The object whose method is called; ABSENT for a plain function."""
        return self.func.base if isinstance(self.func, Attr) else ABSENT

    @property
    def naming(self) -> ast.Call:
        """The call that names ``func``, in the last of the functions that hand this one on."""
        return self.handed[-1] if self.handed else self.node

    def is_given_elsewhere(self, own: Container[str] = ()) -> bool:
        """Whether a partial gives it something that does not stand in it, keywords of these names left out."""
        return any(
            partial.args or partial.open_args or partial.open_kwargs or any(name not in own for name in partial.kwargs)
            for partial in self.via
        )

    def is_repeated_by(self, other: Call) -> bool:
        """Whether ``other`` came about like this call, or in another walk, which looks at the same code again."""
        return self.place.walk != other.place.walk or self.place.stack == other.place.stack

    def written_arguments(self, names: list[str]) -> dict[str, ast.expr]:
        """By name of the parameter the expressions that stand in this call; a `*rest` for the one at its place.

        Args:
            names: The parameters that can be filled by position, in order.
        """
        taken = sum(len(partial.args) for partial in self.via)
        found = dict(zip(names[taken:], self.node.args, strict=False))
        found.update((keyword.arg, keyword.value) for keyword in self.node.keywords if keyword.arg is not None)
        return found

    def written(self, name: str) -> bool:
        """Whether the keyword stands literally in this call (not in a dict or partial)."""
        return any(keyword.arg == name for keyword in self.node.keywords)


class Result(Value):
    """What a call of something outside the file returned, an object of an imported class included."""

    __slots__ = ("call", "copied_by")
    __match_args__ = ("call",)

    def __init__(self, call: Call, copied_by: Call | None = None) -> None:
        super().__init__(call.node)
        self.call = call
        #: The `copy.deepcopy` that gave it, where it is a copy of what ``call`` returned.
        self.copied_by = copied_by

    def is_same(self, other: Value) -> bool:
        """Whether the same expression returned it, of the same function: `(BatchNorm1d if sync else LayerNorm)(8)`."""
        return super().is_same(other) and isinstance(other, Result) and self.call.name == other.call.name

    def is_one_with(self, other: Value) -> bool:
        """Whether the same way through the program led to that expression, and to the copy where it is one."""
        return (
            isinstance(other, Result)
            and self.is_same(other)
            and self.call.is_repeated_by(other.call)
            and _is_one_copy(self.copied_by, other.copied_by)
        )


def _is_one_copy(left: Call | None, right: Call | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.node is right.node and left.is_repeated_by(right)


class Partial(Value):
    """``functools.partial``: ``call`` made it, ``func`` with ``args`` and ``kwargs`` is what it stands for."""

    __slots__ = ("args", "call", "func", "kwargs", "open_args", "open_kwargs")
    __match_args__ = ("func", "args", "kwargs")

    def __init__(self, func: Value, call: Call) -> None:
        super().__init__(call.node)
        self.func = func
        self.args = call.args[1:]
        self.kwargs = call.kwargs
        self.open_args = call.open_args
        self.open_kwargs = call.open_kwargs
        self.call = call


class Function(Value):
    """A function or lambda of the file, with the scope it closes over."""

    __slots__ = ("around", "decorators", "is_bare", "owner", "place", "scope", "walked")
    __match_args__ = ("node",)
    node: FunctionNode

    def __init__(self, node: FunctionNode, scope: Scope, place: Place) -> None:
        super().__init__(node)
        self.scope = scope
        self.place = place
        self.decorators: list[Value] = []
        #: What decorators of the file make of it that call it themselves: whoever calls it runs them, too.
        self.around: list[Function] = []
        #: Whether its decorators were followed, and whoever has the function itself calls its body alone.
        self.is_bare = False
        self.owner: Class | None = None
        #: Whether its body was walked with the scope that it closes over.
        self.walked = False

    @property
    def name(self) -> str:
        """Its name as Python shows it."""
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def is_lambda(self) -> bool:
        """Whether it is an expression: it has no name."""
        return isinstance(self.node, ast.Lambda)

    @property
    def is_async(self) -> bool:
        """Whether calling it gives a coroutine."""
        return isinstance(self.node, ast.AsyncFunctionDef)


class Class(Value):
    """A class of the file."""

    __slots__ = ("bases", "body", "field_conditions", "fields", "instance", "place", "scope", "stored")
    __match_args__ = ("name",)
    node: ast.ClassDef

    def __init__(self, node: ast.ClassDef, bases: list[Value], place: Place, scope: Scope) -> None:
        super().__init__(node)
        self.bases = bases
        self.place = place
        #: The scope around it, for the names in its annotations.
        self.scope = scope
        #: Names bound in the class body: methods, defaults.
        self.body: dict[str, Value] = {}
        #: What its methods store in ``self``.
        self.fields: dict[str, Value] = {}
        #: The conditions that each of ``fields`` was stored under first.
        self.field_conditions: dict[str, tuple[Guard, ...]] = {}
        #: Each of the writes that make up ``fields``, with where it is: one constructor may build different objects.
        self.stored: list[tuple[str, Value, Place]] = []
        #: ``self`` of its methods.
        self.instance = Instance(self, None)

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name


class Guess(Enum):
    """Why a parameter that says no class is taken for an object of one."""

    NAMED = "it has the name of the class"
    ONLY = "the file has no other model"


class Instance(Value):
    """An object of a class of the file; ``call`` made it, None for ``self`` and for a parameter."""

    __slots__ = ("call", "cls", "copied_by", "guess")
    __match_args__ = ("cls", "call")

    def __init__(
        self, cls: Class, call: Call | None, copied_by: Call | None = None, guess: Guess | None = None
    ) -> None:
        super().__init__(call.node if call else cls.node)
        self.cls = cls
        self.call = call
        #: Why it is taken for an object of the class, where nothing says so; None where that is certain.
        self.guess = guess
        #: The `copy.deepcopy` that gave it, where it is a copy of what ``call`` made.
        self.copied_by = copied_by

    def is_same(self, other: Value) -> bool:
        """Whether the same expression made it of the same class: `KINDS[kind](d)` builds one of several."""
        return super().is_same(other) and isinstance(other, Instance) and self.cls is other.cls

    def is_one_with(self, other: Value) -> bool:
        """Whether the same expression made it, and the same copy where it is one."""
        return isinstance(other, Instance) and self.is_same(other) and _is_one_copy(self.copied_by, other.copied_by)


def copied(value: Value, call: Call) -> Value:
    """Another object, of the same class and content, which ``call`` gave; ``value`` itself where that is not known."""
    match value:
        case Result(made):
            other = Result(made, call)
            known = (value.attributes or {}).items()
            # Its methods are its own: `copy.deepcopy(model).eval()` leaves the model in train mode.
            other.attributes = {
                name: held for name, held in known if not (isinstance(held, Attr) and held.base is value)
            }
            return other
        case Instance(cls, made):
            return Instance(cls, made, call, value.guess)
    return value
