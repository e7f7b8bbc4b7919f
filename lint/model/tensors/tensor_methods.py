"""Names of tensor methods, by what they do; each of them keeps the graph of its object."""

from __future__ import annotations

#: Methods that give the tensor on another device or in another type.
MOVES = frozenset(("to", "cuda", "cpu", "float", "half", "bfloat16", "double", "contiguous"))
#: Methods that give it in another shape.
SHAPES = frozenset(
    ("view", "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "expand", "movedim", "swapaxes")
)
#: Methods that give several parts of it.
SPLITS = frozenset(("chunk", "split", "unbind"))
#: Methods that give its numbers in a new tensor, in another order or more than once.
COPIES = frozenset(("clone", "repeat", "repeat_interleave", "tile", "flip", "roll"))
#: Methods that compute from its numbers.
NUMBERS = frozenset(
    (
        *("add", "sub", "mul", "div", "pow", "square", "mean", "sum", "prod", "cumsum", "cumprod", "abs", "neg"),
        *("exp", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "softmax", "sigmoid", "tanh", "relu"),
        *("std", "var", "amax", "amin", "quantile", "nanmean", "clip", "floor", "ceil", "sign", "nan_to_num"),
        *("exp2", "expm1", "log2", "log10", "true_divide", "fmod", "remainder"),
    )
)
