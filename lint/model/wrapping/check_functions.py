"""Check functions of `apply_activation_checkpointing`: what they ask of each module."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import source_text
from ...facts.objects.kinds import is_of_kind
from ...facts.origin import stands_for
from ...facts.straight import is_docstring, only_value
from ...facts.values import UNKNOWN, Attr, Class, Const, Function, Instance, Method, Partial, Ref, Result, Seq
from .meanings import meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Value


class ComparedWith(NamedTuple):
    """A check that compares the module itself: `module is Block`."""

    name: str
    value: Value
    node: ast.expr
    #: What else it is compared with: `module in (Block, Head)`.
    others: tuple[Value, ...] = ()


def compared_with(check: Value) -> ComparedWith | None:
    """What ``check`` compares the module itself with; None when it asks something else."""
    listed = _asked_for_membership(check)
    if isinstance(listed, Seq) and not listed.open and listed.items and isinstance(listed.node, ast.expr):
        first, *others = listed.items
        return ComparedWith(source_text(listed.node), first, listed.node, tuple(others))
    match question_of(check), check:
        case (
            ast.Compare(left=ast.Name(left), ops=[ast.Is() | ast.Eq()], comparators=[right]) as test,
            Function() as function,
        ) if left in _parameters(function) and _is_named(right):
            return ComparedWith(source_text(right), meaning(right, function), test)
        case (
            ast.Compare(left=ast.Name(left), ops=[ast.In()], comparators=[held]) as test,
            Function() as function,
        ) if left in _parameters(function):
            found = _held(held, function)
            return ComparedWith(ast.unparse(held), found[0], test, tuple(found[1:])) if found else None
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(str(text))]) as test, _ if (
            _is_class(asked)
        ):
            return ComparedWith(repr(text), Const(text, test), test)
    return None


def compared_with_container(check: Value) -> ast.expr | None:
    """`type(module) == BLOCKS` for a tuple or a set of classes, which a class never is; None for other checks."""
    match asks_by_type(check), check:
        case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[right]) as test, Function() as function:
            is_given = isinstance(right, ast.Name) and right.id in _parameters(function)
            return test if not is_given and isinstance(meaning(right, function), Seq) else None
    return None


def _asked_for_membership(check: Value) -> Value | None:
    """What ``check`` looks for a module in: `BLOCKS.__contains__`, `partial(operator.contains, BLOCKS)`."""
    match check:
        case Attr(base=held, name="__contains__"):
            return held
        case Partial(func=Ref("operator.contains"), args=[held]):
            return held
    return None


def _held(node: ast.expr, function: Function) -> list[Value]:
    """What a display of names, or a name of one, holds."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    held = meaning(node, function) if all(map(_is_named, parts)) else None
    return [*held.items] if isinstance(held, Seq) and not held.open else []


def _is_named(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def classes_compared(check: Function) -> list[Value]:
    """The classes that ``check`` compares the class of a module with: `type(module) is Block`, `in (Block, Head)`."""
    match asks_by_type(check):
        case ast.Compare(ops=[ast.In()], comparators=[ast.Tuple() | ast.List() | ast.Set() as right]):
            kinds = right.elts
        case ast.Compare(ops=[ast.In()], comparators=[held]):
            listed = meaning(held, check)
            return [*listed.items] if isinstance(listed, Seq) and not listed.open else []
        case ast.Compare(comparators=[right]):
            kinds = [right]
        case _:
            return []
    found = (meaning(kind, check) for kind in kinds if isinstance(kind, ast.Name | ast.Attribute))
    return [value for value in found if isinstance(value, Class | Ref) or _is_class_of_part(value)]


def _is_class_of_part(value: Value) -> bool:
    """Whether it is the class of something: `type(model.layers[0])`."""
    return isinstance(value, Result) and value.call.name == "builtins.type"


def policy_classes(policy: Value) -> list[Value] | None:
    """The classes that a policy of FSDP takes; None for other values, and where they are not all known.

    A set of classes is a policy for Lightning.
    """
    held: Value = policy
    match policy:
        case Seq():
            pass
        case Partial() as partial if "transformer_layer_cls" in partial.kwargs:
            held = partial.kwargs["transformer_layer_cls"]
        case Partial() as partial if "lambda_fn" in partial.kwargs:
            return _classes_by_function(partial.kwargs["lambda_fn"])
        case Result(call) if call.name.endswith(".ModuleWrapPolicy"):
            held = call.argument(0, "module_classes")
        case Result(call) if call.name.endswith(".CustomPolicy"):
            return _classes_by_function(call.argument(0, "lambda_fn"))
        case _:
            return None
    held = _collected(held)
    return [*held.items] if isinstance(held, Seq) and not held.open else None


def _collected(held: Value) -> Value:
    """What `set([Block])` is made of."""
    match held:
        case Result(call) if call.name in ("builtins.set", "builtins.frozenset") and len(call.args) == 1:
            return call.args[0]
    return held


def _classes_by_function(check: Value) -> list[Value] | None:
    """The classes that a function asks for and for nothing else; None where it is not known what it asks for."""
    return ([*classes_asked(check), *classes_compared(check)] or None) if isinstance(check, Function) else None


def classes_asked(check: Function) -> list[Value]:
    """The classes that the one `isinstance(module, ...)` of ``check`` names; empty when it is something else."""
    match asks_by_isinstance(check):
        case ast.Call(args=[_, kinds]):
            value = meaning(kinds, check)
            return [*value.items] if isinstance(value, Seq) else [value]
    return []


def accepted_parts(check: Value, parts: Iterable[Value]) -> Iterator[Value]:
    """Those of ``parts``, modules that a library built, which ``check`` certainly accepts by their class alone."""
    kinds = [*classes_asked(check), *classes_compared(check)] if isinstance(check, Function) else policy_classes(check)
    for part in parts if kinds else ():
        if isinstance(part, Result) and any(is_of_kind(part, kind) for kind in kinds or ()):
            yield part


def asks_for_kinds_alone(check: Value) -> bool:
    """Whether ``check`` accepts every module of the classes it names: no other condition, and no `not`, beside them."""
    question = question_of(check)
    if question is None:
        return policy_classes(check) is not None
    ways = question.values if isinstance(question, ast.BoolOp) and isinstance(question.op, ast.Or) else [question]
    return all(map(_names_kinds, map(_as_one_question, ways)))


def _names_kinds(test: ast.expr) -> bool:
    match test:
        case ast.Call(func=ast.Name("isinstance" | "issubclass")):
            return True
        case ast.Compare(left=ast.Attribute(value=asked, attr="__name__"), ops=[ast.Is() | ast.Eq() | ast.In()]):
            return _is_class(asked)
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq() | ast.In()]):
            return _is_class(asked)
    return False


def asks_by_isinstance(check: Value) -> ast.expr | None:
    """The one `isinstance(module, ...)` that ``check`` consists of; None when it is something else."""
    match question_of(check):
        case ast.Call(func=ast.Name("isinstance")) as test:
            return test
    return None


def asks_by_type(check: Value) -> ast.Compare | None:
    """The comparison of the class of a module that ``check`` consists of; None when it is something else."""
    match question_of(check):
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq() | ast.In()]) as test if _is_class(asked):
            return test
    return None


def question_of(check: Value) -> ast.expr | None:
    """The expression that a check function consists of."""
    match check:
        case Partial(func=function):
            return question_of(function)
        case Function(node=node):
            value = only_value(node) or _by_branches(node) or _by_loop(node)
            return None if value is None else _as_one_question(value)
        case Instance(cls):
            return question_of(cls.body.get("__call__", UNKNOWN))
        case Method(_, function):
            return question_of(function)
    return None


def _by_branches(node: ast.AST) -> ast.expr | None:
    """The test of a function that answers it by two branches: `if ...: return True`, and behind it `return False`."""
    body = [it for it in getattr(node, "body", ()) if not is_docstring(it)]
    match body:
        case [ast.If(test=test, body=[ast.Return(value=ast.Constant(True))], orelse=[]), ast.Return(value=other)]:
            pass
        case [ast.If(test=test, body=[ast.Return(value=ast.Constant(True))], orelse=[ast.Return(value=other)])]:
            pass
        case _:
            return None
    return test if _is_no(other) and isinstance(test, ast.expr) else None


def _is_no(value: ast.AST | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and not value.value)


def _by_loop(node: ast.AST) -> ast.expr | None:
    """`for kind in KINDS: if isinstance(module, kind): return True`, and behind it `return False`, as one question."""
    match [it for it in getattr(node, "body", ()) if not is_docstring(it)]:
        case [
            ast.For(
                target=ast.Name(id=each),
                iter=kinds,
                body=[ast.If(test=asked, body=[ast.Return(value=ast.Constant(True))], orelse=[])],
                orelse=[],
            ),
            ast.Return(value=other),
        ] if _is_no(other):
            return _asked_of_each(asked, each, kinds, asked)
    return None


def _asked_of_each(asked: ast.expr, each: str, kinds: ast.expr, written: ast.expr) -> ast.Call | None:
    """`isinstance(module, kinds)` for `isinstance(module, each)`, where each of ``kinds`` is asked for in turn.

    In the text ``written`` says it.
    """
    match asked:
        case ast.Call(func=ast.Name("isinstance") as asks, args=[module, ast.Name(id=kind)]) if kind == each:
            plain = ast.Call(asks, [module, kinds], [])
            stands_for(plain, written)
            return plain
    return None


def _as_one_question(test: ast.expr) -> ast.expr:
    """`any(isinstance(module, kind) for kind in kinds)` as `isinstance(module, kinds)`."""
    match test:
        case ast.Call(
            func=ast.Name("any"),
            args=[
                ast.GeneratorExp(
                    elt=asked,
                    generators=[ast.comprehension(target=ast.Name(id=each), iter=kinds, ifs=[])],
                )
            ],
        ):
            return _asked_of_each(asked, each, kinds, test) or test
    return test


def conjuncts_of(check: Value) -> list[Value]:
    """The checks that ``check`` is the conjunction of: a module passes it only where it passes each of them."""
    match check, question_of(check):
        case Function() as function, ast.BoolOp(op=ast.And(), values=parts):
            return [Function(_lambda(function, part), function.scope, function.place) for part in parts]
    return [check]


@lru_cache(maxsize=64)
def _lambda(function: Function, body: ast.expr) -> ast.Lambda:
    made = ast.Lambda(function.node.args, body)
    stands_for(made, body)
    return made


def _parameters(function: Function) -> list[str]:
    return [argument.arg for argument in function.node.args.args]


def _is_class(node: ast.expr) -> bool:
    """`type(module)` or `module.__class__`."""
    match node:
        case ast.Call(func=ast.Name("type")) | ast.Attribute(attr="__class__"):
            return True
    return False
