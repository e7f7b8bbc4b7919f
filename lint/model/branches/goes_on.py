"""Whether an expression certainly gives another value than a part of it: `self.scale * block(x)` than `block(x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import is_own_attribute
from ...facts.objects.attributes import get_attribute
from ...facts.objects.containers import held_by
from ...facts.values import (
    UNKNOWN,
    Attr,
    Choice,
    Const,
    Function,
    Instance,
    Ref,
    Result,
    Value,
    equals,
    is_absent,
    options,
)
from ..names import canonical
from ..texts.written_texts import bound_once
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from typing import TypeAlias

    #: What a call in one of the branches calls.
    Called: TypeAlias = Callable[[ast.Call], Value]

#: Functions of torch, tensor methods and modules that change what they are given. What may leave it as it is has no
#: place here: `relu` of what is positive, `mean` of one number, `normalize` of what is normalized.
_FUNCTIONS = frozenset(
    (
        *("gelu", "silu", "tanh", "sigmoid", "softplus", "mish", "linear", "matmul", "bmm"),
        *("exp", "log", "sqrt", "square", "neg", "sin", "cos", "cumsum", "var", "std"),
    )
)
_MODULES = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Linear", "Bilinear", "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        *("GELU", "SiLU", "Tanh", "Sigmoid", "Mish", "Softplus"),
        *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "MultiheadAttention"),
    )
)
_GATES = frozenset(("sigmoid", "tanh", "softmax"))
_DROPOUTS = frozenset(f"torch.nn.{name}" for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"))
_NEUTRAL = {ast.Add: 0, ast.Sub: 0, ast.Mult: 1, ast.Div: 1, ast.MatMult: None, ast.Pow: 1}


def goes_on_from(whole: ast.expr, part: ast.expr, function: Function, called: Called) -> bool:
    """Whether ``whole`` does something to ``part`` that certainly changes its value, and nothing that is not known.

    Args:
        whole: The expression that may have the other in it.
        part: The other.
        function: The function that both are written in.
        called: Says what a call in them calls.
    """
    steps = _steps(whole, ast.dump(part))
    if not steps:
        return False
    # Whatever scales or drops a part of what the block gives: with the block's input added it is something else.
    is_residual = any(_adds_input(step, inner, part, function, called) for step, inner in steps)
    return is_residual or all(_changes(step, inner, part, function, called) for step, inner in steps)


def adds_input_to(whole: ast.expr, part: ast.expr, function: Function, called: Called) -> bool:
    """Whether ``whole`` is ``part``, the result of a block, with the block's input added: `block(x) + skip(x)`."""
    steps = _steps(whole, ast.dump(part)) or []
    return any(_adds_input(step, inner, part, function, called) for step, inner in steps)


def _adds_input(step: ast.expr, inner: ast.expr, part: ast.expr, function: Function, called: Called) -> bool:
    """Whether ``step`` adds what the block gets to what it gives: `x + gamma * block(x)`, or a module's view of it."""
    match step:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right) if isinstance(part, ast.Call):
            other = right if inner is left else left
            return _comes_of_input(other, _inputs_of(part), function, called)
    return False


def _comes_of_input(node: ast.expr, given: Container[str], function: Function, called: Called) -> bool:
    """Whether ``node`` is one of the variables ``given``, or what a module makes of it, by another name too."""
    kept = bound_once((function.node,), node.id) if isinstance(node, ast.Name) and node.id not in given else node
    match kept:
        case ast.Name(id=name):
            return name in given
        case ast.Call(args=[ast.Name(id=name), *_]):
            return name in given and _is_module(called(kept))
    return False


def _inputs_of(block: ast.Call) -> set[str]:
    """The variable that a block gets first."""
    return {given.id for given in block.args[:1] if isinstance(given, ast.Name)}


def _is_module(called: Value) -> bool:
    """Whether ``called`` is certainly a module, of torch or of the file, but for one that may give nothing."""
    return all(
        (isinstance(it, Result) and canonical(it.call.name).startswith("torch.nn."))
        or (isinstance(it, Instance) and any(base.endswith("nn.Module") for base in bases(it.cls)))
        for it in options(called)
    )


def _steps(whole: ast.expr, part: str) -> list[tuple[ast.expr, ast.expr]] | None:
    """The operations on the way from ``whole`` to the one place of ``part`` in it, each with what it is applied to."""
    if ast.dump(whole) == part:
        return []
    ways = [(inner, found) for inner in _inputs(whole) if (found := _steps(inner, part)) is not None]
    return [(whole, ways[0][0]), *ways[0][1]] if len(ways) == 1 else None


def _inputs(node: ast.expr) -> Iterator[ast.expr]:
    """What an operation works on."""
    match node:
        case ast.BinOp(left=left, right=right):
            yield from (left, right)
        case ast.Call(func=ast.Attribute(value=receiver), args=args):
            yield from (receiver, *args[:1])
        case ast.Call(args=[first, *_]):
            yield first


def _changes(step: ast.expr, inner: ast.expr, part: ast.expr, function: Function, called: Called) -> bool:
    """Whether ``step``, an operation on ``inner``, certainly changes the value."""
    match step:
        case ast.BinOp(left=left, op=op, right=right):
            other = right if inner is left else left
            return type(op) in _NEUTRAL and (
                _is_other_than(other, _NEUTRAL[type(op)], part, function) or _is_learned(other, called)
            )
        case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if receiver is inner:
            return name in _FUNCTIONS
        case ast.Call():
            values = list(options(called(step)))
            return all(map(_is_changing, values)) or (_drops(step) and all(map(_is_dropout, values)))
    return False


def _is_learned(operand: ast.expr, called: Called) -> bool:
    """Whether ``operand`` is what a layer with weights gives, through a function that never gives a number alone."""
    match operand:
        case ast.Call(args=[ast.Call() as inner]) if isinstance(of := called(operand), Ref):
            return of.name.rpartition(".")[2] in _GATES and _is_learned(inner, called)
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr=method), args=[]) if method in _GATES:
            return _is_learned(inner, called)
        case ast.Call():
            values = list(options(called(operand)))
            return all(isinstance(it, Result) and canonical(it.call.name) in _MODULES for it in values)
    return False


def _is_dropout(called: Value) -> bool:
    return isinstance(called, Ref) and canonical(called.name).startswith("torch.nn.functional.dropout")


def _drops(call: ast.Call) -> bool:
    """Whether a call of `dropout` drops something in training: `F.dropout(x, 0.1, self.training)`."""
    given = dict(zip(("input", "p", "training"), call.args, strict=False)) | {it.arg: it.value for it in call.keywords}
    chance, training = given.get("p"), given.get("training")
    is_off = isinstance(training, ast.Constant) and not training.value
    return not is_off and (chance is None or (isinstance(chance, ast.Constant) and bool(chance.value)))


def _is_other_than(operand: ast.expr, neutral: int | None, part: ast.expr, function: Function) -> bool:
    """Whether ``operand`` is certainly not the number ``neutral``: another number, or a tensor."""
    match operand:
        case ast.Constant(value=int() | float() as number):
            return number != neutral
        case ast.Name(id=name) if isinstance(part, ast.Call):
            # What the block gets, too: `x + block(x)`.
            return any(isinstance(given, ast.Name) and given.id == name for given in part.args)
    match value_of(operand, function) if is_own_attribute(operand) else None:
        case Const(int() | float() as number):
            return number != neutral
        case Result(call):
            return canonical(call.name) == "torch.nn.Parameter"
    return False


def _is_changing(called: Value) -> bool:
    """Whether a call of ``called`` certainly gives another value than its first argument."""
    match called:
        case Ref(name):
            return name.startswith(("torch.", "torch.nn.functional.")) and name.rpartition(".")[2] in _FUNCTIONS
        case Result(call) if canonical(call.name) in _DROPOUTS:
            chance = call.argument(0, "p")
            return is_absent(chance) is True or (isinstance(chance, Const) and equals(chance, 0, 0.0) is False)
        case Result(call):
            return canonical(call.name) in _MODULES
    return False


def value_of(node: ast.expr, function: Function) -> Value:
    """What a name or an attribute in ``function`` means."""
    match node:
        case ast.Attribute(value=ast.Name("self"), attr=name) if function.owner is not None:
            return get_attribute(Instance(function.owner, None), name, node)
        case ast.Attribute(value=base, attr=name):
            return get_attribute(value_of(base, function), name, node)
        case ast.Subscript(value=base, slice=number) if not isinstance(number, ast.Slice):
            held = held_by(value_of(base, function))
            return Choice(tuple(held)) if held else UNKNOWN
        case ast.Name(id=name):
            return function.scope.look_up(name)
    return Attr(Const(None), "", node)
