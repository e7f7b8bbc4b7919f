"""The texts that a display or a comprehension writes, under the name of a variable too."""

from __future__ import annotations

import ast
from functools import lru_cache
from itertools import islice, product
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.parameters import defaults
from ..conditions.loop_counters import counters
from .formatted_texts import as_f_string
from .own_texts import held_by_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TypeAlias

    _Loop: TypeAlias = ast.For | ast.comprehension

#: How many variables lead to one another.
_DEPTH = 4
#: How many texts one f-string stands for.
_TEXTS = 256
#: Functions that give the elements that they get.
_SAME = frozenset(("dict", "frozenset", "list", "set", "sorted", "tuple"))
#: Those that a loop goes through alike.
_SAME_ELEMENTS = _SAME | {"reversed"}
#: Functions that only look at what they get.
_LOOK = _SAME | {
    "any",
    "all",
    "bool",
    "enumerate",
    "int",
    "len",
    "print",
    "max",
    "min",
    "range",
    "reversed",
    "str",
    "sum",
    "zip",
}
#: Methods that leave a container as it is, a text, a regular expression, and what it finds.
_KEEP = frozenset(
    (
        *("copy", "count", "get", "index", "items", "keys", "values", "format", "join", "match", "fullmatch", "search"),
        *("startswith", "endswith", "find", "rfind", "isdigit", "isnumeric", "isdecimal", "group", "groups", "span"),
        *("split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "replace", "lower", "strip"),
    )
)


class WrittenText(NamedTuple):
    """A text, 0 for each number in it, and where it stands."""

    node: ast.expr
    text: str
    #: Whether a variable stands there that holds it.
    is_held: bool = False
    #: Whether a regular expression stands there that asks for it.
    is_pattern: bool = False


class WrittenTexts:
    """Finds the texts that expressions of one function are, or hold.

    Args:
        tree: The module of the function.
        body: The function, or the module for what stands in none.
        given: By name of a parameter the expression that the call of the function gives for it.
        outside: Finds the texts of these expressions.
    """

    __slots__ = ("_bodies", "_given", "_outside")

    def __init__(
        self,
        tree: ast.AST,
        body: ast.AST,
        given: Mapping[str, ast.expr] = MappingProxyType({}),
        outside: WrittenTexts | None = None,
    ) -> None:
        #: What may bind a variable: the function, then the module.
        self._bodies = (body, tree) if body is not tree else (tree,)
        self._given = given
        self._outside = outside

    def texts(
        self, value: ast.expr, counted: Mapping[str, tuple[str, ...]], depth: int = _DEPTH
    ) -> Iterator[WrittenText]:
        """The texts that ``value`` is or holds, as keys or as elements.

        Args:
            value: The expression.
            counted: The texts of the variables that loops around it bind, as :meth:`counted_in` gives them.
            depth: How many variables are followed.
        """
        match value:
            case _ if is_text(value):
                yield from (WrittenText(value, text) for text in self._written(value, counted))
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                for item in items:
                    if is_text(item):
                        yield from self.texts(item, counted, depth)
            case ast.Dict(keys=keys):
                for key in keys:
                    if key is not None and is_text(key):
                        yield from self.texts(key, counted, depth)
            case ast.DictComp(key=item) | ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                if is_text(item):
                    yield from self.texts(item, {**counted, **self.counted_in(value.generators)}, depth)
            case ast.Call(func=ast.Name(id=function), args=[inner], keywords=[]) if function in _SAME:
                yield from self.texts(inner, counted, depth)
            case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Dict() as inner, attr="items" | "keys"), args=[]):
                yield from self.texts(inner, counted, depth)
            case ast.Attribute() if depth and (held := self._own(value)) is not None:
                yield from self.texts(held, counted, depth - 1)
            case ast.Name(id=name) if depth:
                bound = bound_once(self._bodies, name)
                if bound is not None:
                    yield from self.texts(bound, counted, depth - 1)
                elif name in self._given and self._outside is not None and _bindings_in(self._bodies[0]).is_kept(name):
                    yield from self._outside.texts(self._given[name], {}, depth - 1)

    def _written(self, text: ast.expr, counted: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """What ``text`` is, with the texts of what an f-string puts in; nothing when one is unknown."""
        match text:
            case ast.Constant(value=str(plain)):
                return (plain,)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self._put_in(value, counted)
            case ast.JoinedStr(values=values):
                parts = [self._written(value, counted) for value in values]
                return tuple(map("".join, islice(product(*parts), _TEXTS)))
        formatted = as_f_string(text)
        return () if formatted is None else self._written(formatted, counted)

    def _put_in(self, value: ast.expr, counted: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The texts that an f-string shows for ``value``."""
        match value:
            case ast.Name(id=name) if name in counted:
                return counted[name]
            case ast.Name(id=name):
                return _shown(self.value_of(name))
            case ast.Attribute():
                return _shown(self._own(value))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                known = [*self._put_in(left, counted), *self._put_in(right, counted)]
                is_number = isinstance(value.op, ast.Sub) or _adds_number(value)
                return ("0",) if is_number and known and all(map(str.isdigit, known)) else ()
        return tuple(_as_text(value))

    def _own(self, node: ast.Attribute) -> ast.expr | None:
        """What an attribute of the object stands for whose method this is."""
        return held_by_own(self._bodies[-1], self._bodies[0], node)

    def counted_in(self, nodes: Iterable[ast.AST]) -> dict[str, tuple[str, ...]]:
        """What the loops among ``nodes`` put into a text, by variable: 0 for what counts, or the texts.

        Those are the ones that a loop goes through: `for part in ("attn", "mlp")`, `for i in TOP`. Nothing where two
        loops disagree.
        """
        found: dict[str, tuple[str, ...]] = {}
        for node in nodes:
            if isinstance(node, ast.For | ast.comprehension):
                for name, texts in self._counted_by(node):
                    found[name] = texts if found.get(name, texts) == texts else ()
        return found

    def _counted_by(self, loop: _Loop) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The variables that ``loop`` counts with or takes texts in, and the texts of each, nothing when unknown."""
        counted = counters(loop)
        yield from ((name, ("0",)) for name in counted)
        for name, values in _elements(loop.target, loop.iter):
            if name not in counted:
                yield name, () if _binds_again(loop, name) else tuple(self._looped_through(values, _DEPTH))

    def _looped_through(self, values: ast.expr | None, depth: int) -> list[str]:
        """The texts that ``values`` has as its elements, or a dict as its keys; nothing where one is not known."""
        match values:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                texts = [text for item in items for text in _as_text(item)]
                return texts if len(texts) == len(items) else []
            case ast.Dict(keys=keys):
                texts = [text for key in keys if key is not None for text in _as_text(key)]
                return texts if len(texts) == len(keys) else []
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(words)), attr="split"), args=[]):
                return words.split()
            case ast.Call(func=ast.Name("range")):
                return ["0"]
            case ast.Subscript(value=inner, slice=ast.Slice()):
                texts = self._looped_through(inner, depth)
                return texts if all(map(str.isdigit, texts)) else []
            case ast.Call(func=ast.Name(id=function), args=[inner]) if function in _SAME_ELEMENTS:
                return self._looped_through(inner, depth)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                one, other = self._looped_through(left, depth), self._looped_through(right, depth)
                return [*one, *other] if one and other else []
            case ast.Attribute() if depth and (held := self._own(values)) is not None:
                return self._looped_through(held, depth - 1)
            case ast.Name(id=name) if depth:
                bound = bound_once(self._bodies, name)
                if bound is not None:
                    return self._looped_through(bound, depth - 1)
                if name in self._given and self._outside is not None and _bindings_in(self._bodies[0]).is_kept(name):
                    return self._outside._looped_through(self._given[name], depth - 1)
        return []

    def value_of(self, name: str) -> ast.expr | None:
        """What the variable ``name`` is bound to, by one statement."""
        return bound_once(self._bodies, name)


def bound_once(bodies: Iterable[ast.AST], name: str) -> ast.expr | None:
    """What the variable ``name`` is bound to by the one statement that does, in the first of ``bodies`` that does."""
    return next((known.of(name) for known in map(_bindings_in, bodies) if known.binds(name)), None)


@lru_cache(maxsize=64)
def _bindings_in(body: ast.AST) -> _Bindings:
    return _Bindings(body)


class _Bindings:
    """What the variables of a function, or of a module, are bound to."""

    __slots__ = ("_changed", "_count", "_elements", "_given", "_values")

    def __init__(self, body: ast.AST) -> None:
        self._values: dict[str, ast.expr] = {}
        self._count: dict[str, int] = {}
        self._changed: set[str] = set()
        #: Those that functions get, which may change what is no text and no number.
        self._given: set[str] = set()
        #: Those that a loop binds to the elements of something: who gets one does not change the others.
        self._elements: set[str] = set()
        for node in _inside(body):
            self._note(node)
        self._note_aliases()

    def binds(self, name: str) -> bool:
        """Whether the variable is one of the function."""
        return name in self._count

    def of(self, name: str) -> ast.expr | None:
        """What the variable holds, or holds the elements of; None when that is not known."""
        value = self._values.get(name)
        known = self._count.get(name) == 1 and name not in self._changed
        fixed = name not in self._given or name in self._elements or isinstance(value, ast.Constant)
        return value if known and fixed else None

    def is_kept(self, name: str) -> bool:
        """Whether the variable, a parameter, stays what the call of the function gives."""
        return self._count.get(name) == 1 and name not in self._changed and name not in self._given

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                self._count[name] = self._count.get(name, 0) + 1
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                self._values[name] = value
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._note_loop(target, value)
            case (
                ast.AugAssign(target=ast.Name(id=name))
                | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
            ):
                self._changed.add(name)
            case ast.Attribute(value=ast.Name(id=name), attr=method) if method not in _KEEP:
                self._changed.add(name)
            case ast.Call(func=function, args=args, keywords=keywords):
                if not (isinstance(function, ast.Name) and function.id in _LOOK):
                    self._give([*args, *(keyword.value for keyword in keywords)], function)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self._changed.update(names)
            case ast.Lambda() as function:
                # `lambda name=name: ...` keeps what the variable is.
                for name, default in defaults(function).items():
                    is_same = isinstance(default, ast.Name) and default.id == name
                    self._count[name] = self._count.get(name, 0) - is_same
            case ast.alias(name=name, asname=given):
                name = given or name.partition(".")[0]
                self._count[name] = self._count.get(name, 0) + 1

    def _note_aliases(self) -> None:
        """What changes a container by another name of it changes it; more than a chain of a few names is not made."""
        aliases = [(name, value.id) for name, value in self._values.items() if isinstance(value, ast.Name)]
        for _ in range(_DEPTH):
            self._changed.update(held for name, held in aliases if name in self._changed)
            self._given.update(held for name, held in aliases if name in self._given - self._elements)

    def _note_loop(self, target: ast.expr, value: ast.expr) -> None:
        is_items = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "items"
        match target:
            case ast.Name(id=name) if not is_items:
                self._values[name] = value
                self._elements.add(name)
            case ast.Tuple(elts=[ast.Name(id=name), _]) if is_items:
                self._values[name] = value

    def _give(self, given: list[ast.expr], function: ast.expr) -> None:
        """Methods of a text, of `re` and of containers change nothing that they get."""
        if isinstance(function, ast.Attribute):
            return
        self._given.update(part.id for part in given if isinstance(part, ast.Name))


def _elements(target: ast.expr, values: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """The variables of a loop over ``values``, each with what its values are the elements of; None when unknown."""
    match target, values:
        case ast.Name(id=name), ast.Call(func=ast.Attribute(value=table, attr="keys"), args=[]):
            yield name, table
        case ast.Name(id=name), _:
            yield name, values
        case ast.Tuple(elts=[key, value]), ast.Call(func=ast.Attribute(value=table, attr="items"), args=[]):
            yield from _elements(key, table)
            yield from ((part.id, None) for part in ast.walk(value) if isinstance(part, ast.Name))
        case ast.Tuple(elts=[_, value]), ast.Call(func=ast.Name("enumerate"), args=[counted, *_]):
            yield from _elements(value, counted)
        case ast.Tuple(elts=parts), ast.Call(func=ast.Name("zip"), args=given) if len(parts) == len(given):
            for part, column in zip(parts, given, strict=True):
                yield from _elements(part, column)
        case _:
            yield from ((part.id, None) for part in ast.walk(target) if isinstance(part, ast.Name))


def _as_text(item: ast.expr) -> Iterator[str]:
    """The text of a constant that stands in a name as it is written: a text, or a number."""
    match item:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield str(number)


def _binds_again(loop: _Loop, name: str) -> bool:
    inside = (part for statement in getattr(loop, "body", ()) for part in all_nodes(statement))
    return any(isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store) for part in inside)


def _inside(body: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function; of a module those outside of its functions, and their `global` statements."""
    if not isinstance(body, ast.Module):
        yield from all_nodes(body)
        return
    waiting: list[ast.AST] = [*body.body]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from (part for part in all_nodes(node) if isinstance(part, ast.Global) or _changes(part))
        else:
            waiting += ast.iter_child_nodes(node)


def _changes(node: ast.AST) -> bool:
    """Whether ``node``, of a function, may change what a variable of the module holds."""
    match node:
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute():
            return True
    return False


def is_text(node: ast.expr) -> bool:
    """Whether ``node`` is a constant, or puts a text together."""
    return isinstance(node, ast.Constant) or as_f_string(node) is not None


def _shown(value: ast.expr | None) -> tuple[str, ...]:
    """The text of a constant in an f-string."""
    return () if value is None else tuple(_as_text(value))


def _adds_number(value: ast.expr) -> bool:
    """Whether ``value`` adds a whole number to something, so that it is a number."""
    match value:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            ends = [part.value for part in (left, right) if isinstance(part, ast.Constant)]
            return any(isinstance(end, int) for end in ends)
    return False
