"""What an expression over one text comes out as: comparisons, the methods of texts, `re`, and what variables hold."""

from __future__ import annotations

import ast
import operator
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard

from .formatted_texts import as_f_string

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_TEXT_METHODS = frozenset(
    (
        *("split", "rsplit", "partition", "rpartition", "startswith", "endswith", "find", "rfind", "index", "count"),
        *("join", "lower", "upper", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "isdigit"),
        *("isnumeric", "isdecimal"),
    )
)
#: How many numbers of a `range` are looked at.
_MOST = 1_000
_PATTERN_FUNCTIONS = frozenset(("match", "search", "fullmatch", "sub", "split", "findall"))
_MATCH_METHODS = frozenset(("group", "groups", "start", "end", "span"))


def _numbers(*bounds: int) -> list[int]:
    """`range(8)`, as far as anybody counts layers."""
    return list(islice(range(*bounds), _MOST))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for function in (len, int, str, bool, any, all, list, tuple, set, sorted, min, max, sum, enumerate, zip)
    if (name := function.__name__)
} | {"range": _numbers}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Sub: operator.sub}
#: What Python raises where an expression has no value for this name.
_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, re.error)


class OpenValueError(Exception):
    """The expression has no value that the program shows."""


class TextValues:
    """Evaluates expressions over a text that is known, as a name of a parameter or of a class.

    Args:
        known: The variables whose value is given.
        meant: Gives the expression that another variable, an attribute or a call stands for; None for itself.
    """

    def __init__(self, known: Mapping[str, Any], meant: Callable[[ast.expr], ast.expr | None]) -> None:
        self._known = dict(known)
        self._meant = meant
        #: The variables that hold what is not known, and those whose value is being looked for.
        self._open: frozenset[str] = frozenset()
        self._evaluating: set[str] = set()

    def copy(self) -> TextValues:
        """The same, for another way that goes on from here."""
        other = TextValues(self._known, self._meant)
        other._open = self._open
        return other

    def assign(self, name: str, value: ast.expr) -> None:
        """From here on the variable ``name`` holds ``value``."""
        try:
            self._known[name] = self.of(value)
        except OpenValueError:
            self._known.pop(name, None)
            self._open |= {name}
        else:
            self._open -= {name}

    def of(self, node: ast.expr) -> Any:
        """The value of ``node``.

        Raises:
            OpenValueError: It is not known, or there is none.
        """
        handler = _HANDLERS.get(type(node))
        meant = self._meant(node) if isinstance(node, ast.Attribute | ast.Call) else None
        if meant is not None:
            return self.of(meant)
        if handler is None:
            raise OpenValueError
        try:
            return handler(self, node)
        except _ERRORS as error:
            raise OpenValueError from error

    def finds(self, table: ast.expr, key: ast.expr) -> bool:
        """Whether ``table`` is a dict that surely has ``key``."""
        try:
            held = self.of(table)
            return isinstance(held, dict) and self.of(key) in held
        except (OpenValueError, TypeError):
            return False

    def _name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self._known:
            return self._known[name]
        meant = self._meant(node) if name not in self._open else None
        if meant is None or name in self._evaluating:
            raise OpenValueError
        self._evaluating.add(name)
        try:
            value = self._known[name] = self.of(meant)
        finally:
            self._evaluating.discard(name)
        return value

    def _display(self, node: ast.List | ast.Tuple | ast.Set) -> Any:
        return [self.of(element) for element in node.elts]

    def _dict(self, node: ast.Dict) -> Any:
        if None in node.keys:
            raise OpenValueError
        # The keys alone are asked for.
        return dict.fromkeys(self.of(key) for key in node.keys if key is not None)

    def _joined(self, node: ast.JoinedStr) -> str:
        return "".join(
            str(self.of(part.value if isinstance(part, ast.FormattedValue) else part)) for part in node.values
        )

    def _binary(self, node: ast.BinOp) -> Any:
        formatted = as_f_string(node) if isinstance(node.op, ast.Mod) else None
        if formatted is not None:
            return self._joined(formatted)
        if type(node.op) not in _OPERATORS:
            raise OpenValueError
        return _OPERATORS[type(node.op)](self.of(node.left), self.of(node.right))

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.of(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub):
            return -value
        raise OpenValueError

    def _boolean(self, node: ast.BoolOp) -> Any:
        stops, is_open = isinstance(node.op, ast.Or), False
        value = None
        for part in node.values:
            try:
                value = self.of(part)
            except OpenValueError:
                is_open = True  # Another part may decide.
                continue
            if bool(value) is stops:
                return value
        if is_open:
            raise OpenValueError
        return value

    def _compare(self, node: ast.Compare) -> bool:
        values = [self.of(part) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values, values[1:], strict=False)
        return all(_COMPARISONS[type(op)](left, right) for op, left, right in pairs)

    def _subscript(self, node: ast.Subscript) -> Any:
        held = self.of(node.value)
        if isinstance(held, dict):
            raise OpenValueError
        return held[self.of(node.slice)]

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self.of(part) for part in (node.lower, node.upper, node.step)))

    def _conditional(self, node: ast.IfExp) -> Any:
        return self.of(node.body if self.of(node.test) else node.orelse)

    def _call(self, node: ast.Call) -> Any:
        if node.keywords:
            raise OpenValueError
        match node.func:
            case ast.Name(id=name) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(self.of, node.args))
            case ast.Attribute(value=ast.Name(id="re"), attr="compile"):
                return re.compile(*map(self.of, node.args))
            case ast.Attribute(value=ast.Name(id="re"), attr=method) if method in _PATTERN_FUNCTIONS:
                return getattr(re, method)(*map(self.of, node.args))
            case ast.Attribute(attr="format") if (formatted := as_f_string(node)) is not None:
                return self._joined(formatted)
            case ast.Attribute(value=inner, attr=method):
                return _call_method(self.of(inner), method, [*map(self.of, node.args)])
        raise OpenValueError

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp) -> list[Any]:
        match node.generators:
            case [ast.comprehension(target=ast.Name(id=name)) as generator]:
                return list(self._elements(node.elt, generator, name))
        raise OpenValueError

    def _elements(self, element: ast.expr, generator: ast.comprehension, name: str) -> Iterator[Any]:
        for item in self.of(generator.iter):
            inner = TextValues({**self._known, name: item}, self._meant)
            if all(inner.of(condition) for condition in generator.ifs):
                yield inner.of(element)


def bound_in(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """By variable what the one statement among ``nodes`` that binds it says; parts of a tuple as elements of it."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
                for name, given in _bind(target, value):
                    found.setdefault(name, []).append(given)
            case ast.AugAssign(target=ast.Name(id=name)) | ast.For(target=ast.Name(id=name)):
                found.setdefault(name, []).append(None)
    return {name: given[0] for name, given in found.items() if len(given) == 1 and given[0] is not None}


def _bind(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            stars = [at for at, element in enumerate(elements) if isinstance(element, ast.Starred)]
            for at, element in enumerate(elements):
                behind = bool(stars) and at > stars[0]
                if at not in stars:
                    index = ast.Constant(at - len(elements) if behind else at)
                    yield from _bind(element, ast.Subscript(value, index, ast.Load()))


def is_test(node: ast.AST) -> TypeGuard[ast.expr]:
    """Whether ``node`` asks something of a text: a comparison, `startswith`, `any(...)`, a look-up in a table."""
    match node:
        case ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "get")):
            return True
        case ast.Call(func=ast.Name(id="any" | "all")):
            return True
        case ast.Subscript(value=ast.Name(), ctx=ast.Load()):
            return True
    return False


def comes_out(test: ast.expr, values: TextValues) -> bool:
    """Whether ``test`` surely holds, `!=` taken for the equality that it asks for; a look-up where it finds a key."""
    match test:
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            asked: ast.expr = ast.Compare(left, [ast.Eq()], [right])
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[right]):
            asked = ast.Compare(left, [ast.In()], [right])
        case (
            ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_])
            | ast.Subscript(value=table, slice=key)
        ):
            return values.finds(table, key)
        case _:
            asked = test
    try:
        return bool(values.of(asked))
    except OpenValueError:
        return False


def _call_method(held: Any, method: str, args: list[Any]) -> Any:
    if isinstance(held, dict):
        if method in ("keys", "items", "copy") and not args:
            return held if method != "items" else [*held.items()]
        raise OpenValueError
    allowed = {str: _TEXT_METHODS, re.Pattern: _PATTERN_FUNCTIONS, re.Match: _MATCH_METHODS}.get(type(held), ())
    if method not in allowed:
        raise OpenValueError
    # A method of texts takes several prefixes as a tuple.
    return getattr(held, method)(*(tuple(it) if isinstance(it, list) and method != "join" else it for it in args))


_HANDLERS: dict[type, Callable[[TextValues, Any], Any]] = {
    ast.Constant: lambda _, node: node.value,
    ast.Name: TextValues._name,
    ast.List: TextValues._display,
    ast.Tuple: TextValues._display,
    ast.Set: TextValues._display,
    ast.Dict: TextValues._dict,
    ast.JoinedStr: TextValues._joined,
    ast.BinOp: TextValues._binary,
    ast.UnaryOp: TextValues._unary,
    ast.BoolOp: TextValues._boolean,
    ast.Compare: TextValues._compare,
    ast.Subscript: TextValues._subscript,
    ast.Slice: TextValues._slice,
    ast.IfExp: TextValues._conditional,
    ast.Call: TextValues._call,
    ast.GeneratorExp: TextValues._comprehension,
    ast.ListComp: TextValues._comprehension,
    ast.SetComp: TextValues._comprehension,
}
