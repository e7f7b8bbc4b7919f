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

#: How many variables lead to one another.
_DEPTH = 4
#: How many texts one f-string stands for.
_TEXTS = 256
#: Functions that give the elements that they get.
_SAME = frozenset(("dict", "frozenset", "list", "set", "sorted", "tuple"))
#: Functions that only look at what they get.
_LOOK = _SAME | {"any", "all", "bool", "enumerate", "int", "len", "print", "max", "min", "range", "str", "sum"}
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
            counted: The texts of the variables that loops around it bind, as `counted_in` gives them.
            depth: How many variables are followed.
        """
        match value:
            case _ if is_text(value):
                yield from (WrittenText(value, text) for text in _written(value, counted))
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
                    yield from self.texts(item, {**counted, **counted_in(value.generators)}, depth)
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

    def _own(self, node: ast.Attribute) -> ast.expr | None:
        """What an attribute of the object stands for whose method this is."""
        return held_by_own(self._bodies[-1], self._bodies[0], node)

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


def counted_in(nodes: Iterable[ast.AST]) -> dict[str, tuple[str, ...]]:
    """What the loops among ``nodes`` put into a text, by variable: 0 for `i` of `range` or `enumerate`, or the texts.

    Those are the ones that a loop goes through: `for part in ("attn", "mlp")`. Nothing where two loops disagree.
    """
    found: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension):
            name, texts = _counted_by(node)
            found[name] = texts if found.get(name, texts) == texts else ()
    return found


def _counted_by(loop: ast.For | ast.comprehension) -> tuple[str, tuple[str, ...]]:
    """The variable that ``loop`` counts with or takes texts in, and the texts of it, nothing when unknown."""
    counter = next(iter(counters(loop)), None)
    if counter is not None:
        return counter, ("0",)
    match loop.target, loop.iter:
        case ast.Name(id=name), ast.Tuple(elts=items) | ast.List(elts=items) if not _binds_again(loop, name):
            texts = [text for item in items for text in _as_text(item)]
            return name, tuple(texts) if len(texts) == len(items) else ()
        case ast.Name(id=name), _:
            return name, ()
    return "", ()


def _as_text(item: ast.expr) -> Iterator[str]:
    """The text of a constant that stands in a name as it is written: a text, or a number."""
    match item:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield str(number)


def _binds_again(loop: ast.For | ast.comprehension, name: str) -> bool:
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


def _written(text: ast.expr, counted: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What ``text`` is, with the texts of the ``counted`` variables that an f-string puts in; nothing when unknown."""
    match text:
        case ast.Constant(value=str(plain)):
            return (plain,)
        case ast.FormattedValue(value=ast.Name(id=name), conversion=-1, format_spec=None):
            return counted.get(name, ())
        case ast.JoinedStr(values=values):
            parts = [_written(value, counted) for value in values]
            return tuple(map("".join, islice(product(*parts), _TEXTS)))
    formatted = as_f_string(text)
    return () if formatted is None else _written(formatted, counted)
