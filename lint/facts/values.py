"""The value domain: what an expression can be, as far as the source alone says it.

Three-valued throughout: a question about a value is answered True, False or None (not known), and rules stay silent on
None. Calls and places are here too, because they are one recursive type with the values: what a call returned knows the
call, a call its place, a place the function around it and the values of its conditions.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .exclusion import contradict
from .plain_values import ABSENT, UNKNOWN, Absent, Attr, Const, Element, Ref, Template, Unknown, Value

if TYPE_CHECKING:
    from .scopes import Scope

__all__ = [
    "ABSENT",
    "MAX_OPTIONS",
    "UNKNOWN",
    "Absent",
    "Attr",
    "Call",
    "Choice",
    "Class",
    "Const",
    "Dict",
    "Element",
    "Function",
    "FunctionNode",
    "Guard",
    "Instance",
    "Loop",
    "Method",
    "Module",
    "Param",
    "Partial",
    "Place",
    "Ref",
    "Result",
    "Seq",
    "Super",
    "Template",
    "Unknown",
    "Value",
    "conditional_options",
    "equals",
    "is_absent",
    "join",
    "join_under",
    "may_be_none",
    "options",
    "same",
    "truth",
]

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While | ast.comprehension

#: More alternatives than this tell a rule nothing, so they become ``Unknown``.
MAX_OPTIONS = 4


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


class Module(Value):
    """A module of the project that was read."""

    __slots__ = ("name", "scope")
    __match_args__ = ("name",)

    def __init__(self, name: str, scope: Scope, node: ast.AST | None = None) -> None:
        super().__init__(node)
        self.name = name
        self.scope = scope


class Param(Value):
    """A parameter of a function that is looked at without a caller."""

    __slots__ = ("annotation", "default", "function", "name")
    __match_args__ = ("name",)

    def __init__(self, name: str, function: Function, node: ast.arg) -> None:
        super().__init__(node)
        self.name = name
        self.function = function
        self.default: Value | None = None
        self.annotation: Value | None = None


class Call:
    """One call of ``func``. A call of a ``partial`` is the call of what the partial stands for.

    ``func`` is one alternative when several functions may be meant; each has its own ``Call`` with the same node.
    """

    __slots__ = (
        "args",
        "func",
        "kwargs",
        "mappings",
        "node",
        "open_args",
        "open_kwargs",
        "order",
        "place",
        "spread",
        "spread_count",
        "via",
    )
    __match_args__ = ("func",)

    def __init__(self, node: ast.Call, func: Value, place: Place, order: int) -> None:
        self.node = node
        self.func = func
        self.place = place
        self.order = order
        self.args: list[Value] = []
        self.kwargs: dict[str, Value] = {}
        #: What each `**` gives, where that is one of several dicts.
        self.mappings: list[Value] = []
        #: An unknown `*args` or `**kwargs` may give more.
        self.open_args = False
        self.open_kwargs = False
        #: What an unknown `*args` is known to hold, and what comes behind it.
        self.spread: list[Value] = []
        #: How many arguments those are; None when that is open.
        self.spread_count: int | None = 0
        #: The partials between the call and ``func``, outermost first.
        self.via: tuple[Partial, ...] = ()

    def __repr__(self) -> str:
        return f"Call({self.func!r} at {self.node.lineno})"

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

    def argument(self, position: int | None, name: str | None = None) -> Value:
        """The argument at ``position`` or called ``name``; ABSENT when certainly not given."""
        if position is not None and position < len(self.args):
            return self.args[position]
        if name is not None and name in self.kwargs:
            found = self.kwargs[name]
            return join(found, UNKNOWN) if self.open_args and position is not None else found
        if self.open_args and position is not None:
            return UNKNOWN
        return UNKNOWN if self.open_kwargs and name is not None else ABSENT

    def keyword(self, name: str) -> Value:
        """The keyword argument ``name``; ABSENT when certainly not given."""
        return self.kwargs.get(name) or (UNKNOWN if self.open_kwargs else ABSENT)

    def written(self, name: str) -> bool:
        """Whether the keyword stands literally in this call (not in a dict or partial)."""
        return any(keyword.arg == name for keyword in self.node.keywords)


class Result(Value):
    """What a call of something outside the file returned, an object of an imported class included."""

    __slots__ = ("call",)
    __match_args__ = ("call",)

    def __init__(self, call: Call) -> None:
        super().__init__(call.node)
        self.call = call


class Dict(Value):
    """A dict with string keys; ``open`` when it may hold more keys than ``items``."""

    __slots__ = ("count", "items", "open", "place")
    __match_args__ = ("items", "open")

    def __init__(self, items: dict[str, Value], open_: bool, node: ast.AST | None, place: Place | None = None) -> None:
        super().__init__(node)
        self.items = items
        self.open = open_
        self.place = place
        #: How long an open one is when it is made, where that is known.
        self.count: int | None = None

    @property
    def display(self) -> ast.Dict | None:
        """`{...}` as it is written; None for what a call made."""
        return self.node if isinstance(self.node, ast.Dict) else None

    def get(self, key: str) -> Value:
        """The value at ``key``; Absent when there is certainly none."""
        return self.items.get(key) or (Unknown(self.node) if self.open else Absent(self.node))


class Seq(Value):
    """A list, tuple or set; ``open`` when its elements are not listed one by one (``items`` are what it may hold)."""

    __slots__ = ("count", "items", "kind", "open", "place")
    __match_args__ = ("kind", "items", "open")

    def __init__(
        self, kind: str, items: list[Value], open_: bool, node: ast.AST | None, place: Place | None = None
    ) -> None:
        super().__init__(node)
        self.kind = kind
        self.items = items
        self.open = open_
        self.place = place
        #: How long an open one is when it is made, where that is known.
        self.count: int | None = None


class Function(Value):
    """A function or lambda of the file, with the scope it closes over."""

    __slots__ = ("decorators", "owner", "place", "scope", "walked")
    __match_args__ = ("node",)
    node: FunctionNode

    def __init__(self, node: FunctionNode, scope: Scope, place: Place) -> None:
        super().__init__(node)
        self.scope = scope
        self.place = place
        self.decorators: list[Value] = []
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

    __slots__ = ("bases", "body", "field_conditions", "fields", "instance", "place", "scope")
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
        #: ``self`` of its methods.
        self.instance = Instance(self, None)

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name


class Instance(Value):
    """An object of a class of the file; ``call`` made it, None for ``self``."""

    __slots__ = ("call", "cls")
    __match_args__ = ("cls", "call")

    def __init__(self, cls: Class, call: Call | None) -> None:
        super().__init__(call.node if call else cls.node)
        self.cls = cls
        self.call = call


class Method(Value):
    """A method of the file bound to its object."""

    __slots__ = ("function", "receiver")
    __match_args__ = ("receiver", "function")

    def __init__(self, receiver: Value, function: Function, node: ast.AST | None) -> None:
        super().__init__(node)
        self.receiver = receiver
        self.function = function


class Super(Value):
    """``super()`` for ``instance`` in a method that ``cls`` defines."""

    __slots__ = ("cls", "instance")

    def __init__(self, instance: Instance, cls: Class, node: ast.AST | None) -> None:
        super().__init__(node)
        self.instance = instance
        self.cls = cls


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


class Choice(Value):
    """One of ``options``: different branches bound the name, each under its ``conditions``."""

    __slots__ = ("conditions", "options")
    __match_args__ = ("options",)

    def __init__(
        self,
        options: tuple[Value, ...],
        node: ast.AST | None = None,
        conditions: tuple[tuple[Guard, ...], ...] | None = None,
    ) -> None:
        super().__init__(node)
        self.options = options
        self.conditions = conditions or ((),) * len(options)


def options(value: Value) -> tuple[Value, ...]:
    """The alternatives ``value`` stands for; itself when there is only one."""
    return value.options if isinstance(value, Choice) else (value,)


def conditional_options(value: Value) -> tuple[tuple[Value, tuple[Guard, ...]], ...]:
    """The alternatives ``value`` stands for, each with the conditions it is bound under."""
    return tuple(zip(value.options, value.conditions, strict=True)) if isinstance(value, Choice) else ((value, ()),)


def join(*values: Value) -> Value:
    """The value that is one of ``values``. Commutative, associative and idempotent up to the order of options."""
    return join_under(*((value, ()) for value in values))


def join_under(*values: tuple[Value, tuple[Guard, ...]]) -> Value:
    """The value that is one of ``values``, each bound under the conditions beside it."""
    if len(values) == 1 and type(values[0][0]) is not Choice:
        return values[0][0]
    found: list[Value] = []
    conditions: list[tuple[Guard, ...]] = []
    for value, outer in values:
        for option, inner in conditional_options(value):
            under = (*outer, *inner)
            for index, other in enumerate(found):
                if same(option, other):
                    conditions[index] = _either(conditions[index], under)
                    break
            else:
                found.append(option)
                conditions.append(under)
    if len(found) == 1:
        return found[0]
    if len(found) > MAX_OPTIONS:
        return UNKNOWN
    return Choice(tuple(found), found[0].node if found else None, tuple(conditions))


def _either(left: tuple[Guard, ...], right: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """What surely holds when ``left`` or ``right`` does."""
    return tuple(guard for guard in left if guard in right)


def same(left: Value, right: Value) -> bool:
    """Whether two values are certainly the same."""
    if left is right:
        return True
    match left, right:
        case Const(a), Const(b):
            return type(a) is type(b) and a == b
        case Ref(a), Ref(b):
            return a == b
        case (Unknown(), Unknown()) | (Absent(), Absent()):
            return True
        case Attr(base=a), Attr(base=b):
            return left.name == right.name and same(a, b)
        case Method(a, function), Method(b, other):
            return function is other and same(a, b)
        case Unknown() | Const() | Ref() | Param() | Choice(), _:
            return False
        case Result(a), Result(b) if _name(a.func) != _name(b.func):
            return False  # One expression calls one of several: `(BatchNorm1d if sync else LayerNorm)(dim)`.
    # The same expression, walked a second time from another caller.
    return type(left) is type(right) and left.node is right.node and left.node is not None


def _name(function: Value) -> str | None:
    return function.name if isinstance(function, Ref) else None


def truth(value: Value) -> bool | None:
    """``bool(value)`` where the source decides it."""
    answers = {_truth(option) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _truth(value: Value) -> bool | None:
    match value:
        case Const(constant):
            return bool(constant)
        case Dict(items, is_open):
            return _dict_truth(items, is_open)
        case Seq(_, items, False):
            return bool(items)
        case Function() | Class() | Partial() | Method():
            return True
        case Ref(name) if name.startswith("builtins."):
            return True
    # What is imported may be a flag: `torch.version.hip`, `from config import DEBUG`.
    return None


def _dict_truth(items: dict[str, Value], is_open: bool) -> bool | None:
    gone = {is_absent(item) for item in items.values()}
    if False in gone:
        return True
    return None if is_open or None in gone else False


def may_be_none(value: Value) -> bool | None:
    """Whether ``value`` is None (True), certainly some object (False), or may be either."""
    answers = {_is_none(option) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _is_none(value: Value) -> bool | None:
    match value:
        case Const(constant):
            return constant is None
        case Dict() | Seq() | Function() | Class() | Partial() | Method() | Instance() | Module():
            return False
        case Result(call) if call.name.rpartition(".")[2][:1].isupper():
            return False  # A class was called.
    return None


def equals(value: Value, *constants: object) -> bool | None:
    """Whether ``value`` is one of ``constants`` (by type and equality). Absent equals none of them."""
    answers = {_equals(option, constants) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _equals(value: Value, constants: tuple[object, ...]) -> bool | None:
    match value:
        case Const(found):
            return any(type(found) is type(constant) and found == constant for constant in constants)
        case Absent() | Dict() | Seq() | Function() | Class() | Partial() | Method():
            return False
    return None


def is_absent(value: Value) -> bool | None:
    """Whether the argument or key is certainly missing (True), certainly there (False), or neither."""
    answers = {None if isinstance(option, Unknown) else isinstance(option, Absent) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None
