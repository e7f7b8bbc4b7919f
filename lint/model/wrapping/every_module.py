"""Check functions and policies that accept every module there is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.parameters import defaults, positional_names
from ...facts.values import Function, Instance, Method, Partial, Ref, Seq, Unknown
from ..names import canonical
from .check_functions import policy_classes, question_of
from .meanings import meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Value

#: Classes of which every module is an object.
_ALL = frozenset(("torch.nn.Module", "builtins.object"))
#: What every module has.
_HAVE = frozenset(("forward", "training", "parameters", "children", "modules", "__call__", "state_dict"))
_ALWAYS = "torch.distributed.fsdp.always_wrap_policy"


def accepts_every_module(check: Value) -> bool:
    """Whether ``check``, a function that is asked of each module or a policy of FSDP, certainly says yes to each."""
    match check:
        case Ref(name):
            return name == "builtins.callable" or canonical(name) == _ALWAYS
        case Partial(func=Ref(name)) if "lambda_fn" in check.kwargs and name.endswith("lambda_auto_wrap_policy"):
            return accepts_every_module(check.kwargs["lambda_fn"])
    if any(map(_is_of_all, policy_classes(check) or ())):
        return True
    asked = _asked(check)
    return asked is not None and asked.holds(question_of(check))


def _asked(check: Value) -> _Asked | None:
    """The function that ``check`` comes to, with the parameter that gets the module and what the others are."""
    match check:
        case Function(node=node):
            names = positional_names(node)
            return _Asked(check, names[0], {}) if names else None
        case Method(_, function):
            names = positional_names(function.node)[1:]
            return _Asked(function, names[0], {}) if names else None
        case Instance(cls):
            method = cls.body.get("__call__")
            return _asked(Method(check, method, None)) if isinstance(method, Function) else None
        case Partial(func=Function() as function, args=args):
            names = positional_names(function.node)
            given = {**dict(zip(names, args, strict=False)), **check.kwargs}
            left = [name for name in names if name not in given]
            is_whole = not (check.open_args or check.open_kwargs)
            return _Asked(function, left[0], given) if left and is_whole else None
    return None


class _Asked(NamedTuple):
    """A function that is asked of each module."""

    function: Function
    #: The parameter that gets the module.
    module: str
    #: What a partial gives for others.
    given: Mapping[str, Value]

    def holds(self, test: ast.expr | None) -> bool:
        """Whether ``test`` is certainly true of every module."""
        match test:
            case ast.Constant(value=value):
                return bool(value)
            case ast.BoolOp(op=ast.Or(), values=parts):
                return any(map(self.holds, parts))
            case ast.BoolOp(values=parts):
                return all(map(self.holds, parts))
            case ast.UnaryOp(op=ast.Not(), operand=ast.Constant(value=value)):
                return not value
            case ast.Compare(left=asked, ops=[ast.IsNot() | ast.NotEq()], comparators=[ast.Constant(value=None)]):
                return self._is_module(asked)
            case ast.Call(func=ast.Name(id=function), args=[asked, *others], keywords=[]):
                return self._is_so(function, asked, others)
        return False

    def _is_so(self, function: str, asked: ast.expr, others: list[ast.expr]) -> bool:
        """Whether the builtin ``function`` says yes of every module."""
        match function, others:
            case "bool", []:
                return self.holds(asked)
            case "callable", []:
                return self._is_module(asked)
            case "hasattr", [ast.Constant(value=name)]:
                return self._is_module(asked) and name in _HAVE
            case "isinstance", [kinds]:
                return self._is_module(asked) and _is_of_all(self._meaning(kinds))
            case "issubclass", [kinds]:
                return self._is_class(asked) and _is_of_all(self._meaning(kinds))
        return False

    def _is_module(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.module

    def _is_class(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="type"), args=[asked]) | ast.Attribute(value=asked, attr="__class__"):
                return self._is_module(asked)
        return False

    def _meaning(self, node: ast.expr) -> Value:
        """What ``node`` names: a parameter by what is given for it, else what the scope around the function has."""
        if isinstance(node, ast.Name) and node.id in positional_names(self.function.node):
            default = defaults(self.function.node).get(node.id)
            outside = Unknown(node) if default is None else meaning(default, self.function)
            return self.given.get(node.id, outside)
        return meaning(node, self.function)


def _is_of_all(kinds: Value) -> bool:
    """Whether every module is of one of the ``kinds``, a class or several."""
    match kinds:
        case Ref(name):
            return canonical(name) in _ALL
        case Seq(items=items):
            return any(map(_is_of_all, items))
    return False
