"""Which values are certainly tensors, by what made them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ...facts.values import Computed, Element, Result, Test, options
from ..names import canonical
from .tensor_methods import COPIES, MOVES, NUMBERS, SHAPES

if TYPE_CHECKING:
    from ...facts.values import Call, Value

#: What makes tensors of one number.
_FILLED = frozenset(f"torch.{name}{like}" for name in ("zeros", "ones", "full", "empty") for like in ("", "_like"))
#: What makes a tensor of numbers, of other things than tensors.
MAKES_FROM_NUMBERS = _FILLED | frozenset(
    f"torch.{name}"
    for name in (
        "tensor",
        "arange",
        "linspace",
        "from_numpy",
        "as_tensor",
        "eye",
        "rand",
        "randn",
        "randint",
        "randperm",
    )
)
_FUNCTIONS = _FILLED | frozenset(
    f"torch.{name}"
    for name in (
        *("tensor", "arange", "linspace", "from_numpy", "as_tensor", "eye", "rand_like", "randn_like", "randint_like"),
        *("rand", "randn", "randint", "randperm", "tril", "triu", "where", "cat", "concat", "stack", "flatten"),
        *("tanh", "sigmoid", "relu", "exp", "softmax", "cumsum", "matmul", "bmm", "einsum", "outer"),
    )
)
_MODULES = frozenset(
    f"torch.nn.{kind}"
    for kind in (
        *("Linear", "Embedding", "LayerNorm", "RMSNorm", "Dropout", "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid"),
        *("Conv1d", "Conv2d", "Conv3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm"),
    )
)
#: Functions without weights give one tensor, but for those of pooling that may give indices besides, and attention.
_FUNCTIONAL = re.compile(r"torch\.nn\.functional\.(?!\w*(pool|attention_forward|with_indices))")
#: Modules that compute a loss.
_LOSSES = re.compile(r"torch\.nn\.\w+Loss\Z")
#: Methods that give a tensor where their object is one.
_METHODS = (
    MOVES
    | SHAPES
    | COPIES
    | NUMBERS
    | {"type_as", "long", "bool", "detach", "requires_grad_", "triu", "tril", "masked_fill", "matmul"}
)
#: Methods that give something: no other object has one of this name that gives None, as `add` of a set does.
_GIVING = (
    MOVES
    | SHAPES
    | COPIES
    | {"bool", "long", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_not", "masked_fill", "type_as", "detach"}
)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
#: More steps from value to value than this are not followed.
_DEPTH = 8


def is_tensor(value: Value, depth: int = _DEPTH) -> bool:
    """Whether ``value`` is certainly a tensor."""
    return depth > 0 and all(_is_tensor(option, depth - 1) for option in options(value))


def is_something(value: Value) -> bool:
    """Whether ``value`` is certainly not None: what an operator, or a method of tensors, gives whatever it gets."""
    if isinstance(value.node, ast.Compare):
        return True  # `scores > 0`
    if isinstance(value, Computed):
        return is_operation(value)
    is_method = isinstance(value, Result) and value.call.method in _GIVING
    return is_method or is_tensor(value)


def is_filled(value: Value) -> bool:
    """Whether ``value`` is a tensor of one number: `torch.zeros(8)`."""
    return isinstance(value, Result) and canonical(value.call.name) in _FILLED


def _is_tensor(value: Value, depth: int) -> bool:
    match value:
        case Computed(operands=operands) if is_operation(value):
            return any(is_tensor(operand, depth) for operand in operands)
        case Test(operands=operands, node=ast.Compare(ops=[operator])) if isinstance(operator, _COMPARISONS):
            return any(is_tensor(operand, depth) for operand in operands)
        case Result(call):
            return _gives_tensor(call, depth)
        case Element(of=held):  # `positions[None, :]`
            return is_tensor(held, depth)
    return False


def _gives_tensor(call: Call, depth: int) -> bool:
    if isinstance(call.func, Result):
        kind = canonical(call.func.call.name)
        return kind in _MODULES or _LOSSES.match(kind) is not None
    if call.method:
        return call.method in _METHODS and is_tensor(call.receiver, depth)
    name = canonical(call.name)
    return name in _FUNCTIONS or _FUNCTIONAL.match(name) is not None


def is_operation(value: Computed) -> bool:
    """Whether ``value`` is what an operator gave, and not one of several values that are unknown alike."""
    is_joined = any(operand.node is value.node for operand in value.operands)
    match value.node:
        case ast.BinOp(op=operator) if isinstance(operator, _OPERATORS):
            return not is_joined
        case ast.UnaryOp(op=ast.USub() | ast.Invert()):
            return not is_joined
    return False
