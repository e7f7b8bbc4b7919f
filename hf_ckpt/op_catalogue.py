"""What every op is, once for all who ask: the engines, the planner, the first-use check. Plain data, no torch.

An op is looked up by namespace and packet (``aten.mm``), whatever its overload, and whether or not it writes in place.
The default is an op that maps or moves memory and whose backward reads what it was given and what it returned: never
too little. It is what an op has that nobody listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Cost(StrEnum):
    """What limits an op besides its FLOPs; each has a measured rate in bytes per second."""

    #: Reads and writes memory in order.
    STREAM = "stream"
    #: Exponentials and roots: on a CPU the arithmetic takes longer than the traffic.
    SPECIAL = "special"
    #: Puts its result together from pieces.
    GATHER = "gather"
    #: Draws random numbers.
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class OpTraits:
    """What an op is.

    ``product``: a matrix product, a convolution or an attention kernel (JAX's ``dots``); ``weight_product``: one
    without batch dimensions; ``attention``: an attention kernel. ``reads_input`` and ``reads_output``: whether its
    backward reads what it was given, and what it returned. ``chooses``: returns indices found by comparing values.
    ``workspace``: tensors as large as its result that its backward has beside gradients; ``summed``: of those as large
    as its first input, in float32, and ``grouped`` in its own type where the second input is smaller.
    """

    product: bool = False
    weight_product: bool = False
    attention: bool = False
    cost: Cost = Cost.STREAM
    reads_input: bool = True
    reads_output: bool = True
    chooses: bool = False
    workspace: int = 0
    summed: int = 0
    grouped: int = 0


_DEFAULT = OpTraits()
_WEIGHT_PRODUCT = OpTraits(product=True, weight_product=True, reads_output=False)
_PRODUCT = OpTraits(product=True, reads_output=False)
_ATTENTION = OpTraits(product=True, attention=True)
#: The gradient of queries is summed in float32; those of keys and values are made for all heads, then added up by group
#: (mha_bwd in torch/aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, and so in the package flash_attn).
_FLASH_ATTENTION = OpTraits(product=True, attention=True, summed=1, grouped=2)
_SUM = OpTraits(reads_input=False, reads_output=False)
_FACTOR = OpTraits(reads_output=False)
_READS_OUTPUT = OpTraits(reads_input=False)
_ACTIVATION = OpTraits(cost=Cost.SPECIAL, reads_output=False)
_READS_OUTPUT_SPECIAL = OpTraits(cost=Cost.SPECIAL, reads_input=False)
_SPECIAL = OpTraits(cost=Cost.SPECIAL)
_GATHER = OpTraits(cost=Cost.GATHER)
_RANDOM = OpTraits(cost=Cost.RANDOM)
_CHOICE = OpTraits(chooses=True)

_CATALOGUE: dict[str, OpTraits] = {
    **dict.fromkeys(
        (
            "mm", "addmm", "linear", "mv", "addmv", "_scaled_mm", "_int_mm", "_grouped_mm", "_scaled_grouped_mm",
            "convolution",
        ),
        _WEIGHT_PRODUCT,
    ),
    **dict.fromkeys(("bmm", "baddbmm", "addbmm", "matmul"), _PRODUCT),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
            "_scaled_dot_product_attention_math", "_efficient_attention_forward", "_cudnn_attention_forward",
        ),
        _ATTENTION,
    ),
    **dict.fromkeys(("_scaled_dot_product_flash_attention", "_flash_attention_forward"), _FLASH_ATTENTION),
    # `grad * (exponent * self.pow(exponent - 1))` is one expression (FunctionsManual.cpp, pow_backward).
    "pow": OpTraits(workspace=2),
    **dict.fromkeys(("add", "sub", "clone", "_to_copy"), _SUM),
    "cat": OpTraits(cost=Cost.GATHER, reads_input=False, reads_output=False),
    "mul": _FACTOR,
    **dict.fromkeys(("neg", "expand", "rsqrt"), _READS_OUTPUT),
    **dict.fromkeys(("silu", "gelu"), _ACTIVATION),
    **dict.fromkeys(("tanh", "sigmoid"), _READS_OUTPUT_SPECIAL),
    **dict.fromkeys(
        (
            "exp", "exp2", "expm1", "_softmax", "_log_softmax", "_safe_softmax", "log", "log1p", "log2", "logsumexp",
            "log_sigmoid_forward", "softplus", "sin", "cos", "erf", "mish", "elu", "hardsigmoid", "logit",
        ),
        _SPECIAL,
    ),
    **dict.fromkeys(
        (
            "stack", "index", "index_put", "_unsafe_index_put", "index_select", "index_add", "index_copy", "gather",
            "scatter", "scatter_add", "repeat", "repeat_interleave", "roll", "embedding", "masked_select",
        ),
        _GATHER,
    ),
    **dict.fromkeys(
        (
            "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "native_dropout", "normal", "poisson",
            "binomial", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm",
            "rrelu_with_noise", "uniform", "_standard_gamma", "_sample_dirichlet",
        ),
        _RANDOM,
    ),
    **dict.fromkeys(
        (
            "abs", "addcdiv", "addcmul", "all", "amax", "amin", "any", "arange", "bitwise_and", "bitwise_not",
            "bitwise_or", "bitwise_xor", "ceil", "clamp", "clamp_max", "clamp_min", "complex", "constant_pad_nd",
            "copy", "cumprod", "cumsum", "div", "empty", "empty_like", "eq", "fill", "flip", "floor", "floor_divide",
            "fmod", "full", "full_like", "ge", "gt", "hardswish", "hardtanh", "histc", "isinf", "isnan", "le",
            "leaky_relu", "lerp", "lift_fresh", "lift_fresh_copy", "linalg_vector_norm", "logical_and", "logical_not",
            "logical_or", "lt", "masked_fill", "maximum", "mean", "minimum", "native_batch_norm", "native_group_norm",
            "native_layer_norm", "_fused_rms_norm", "ne", "new_empty", "new_full", "new_ones", "new_zeros", "ones",
            "ones_like", "polar", "reciprocal", "relu", "remainder", "round", "rsub", "scalar_tensor", "sign",
            "sqrt", "sum", "threshold", "tril", "triu", "_unsafe_view", "var", "var_mean", "where", "zero", "zeros",
            "zeros_like",
        ),
        _DEFAULT,
    ),
    "multinomial": OpTraits(cost=Cost.RANDOM, chooses=True),
    **dict.fromkeys(
        (
            "topk", "sort", "argsort", "argmax", "argmin", "max", "min", "kthvalue", "median", "nanmedian", "mode",
            "searchsorted", "bucketize",
        ),
        _CHOICE,
    ),
}  # fmt: skip
#: Ops of other namespaces, by their full names; ``hf_ckpt`` are second halves of ops (engine/tracing/split_ops.py).
_FOREIGN: dict[str, OpTraits] = {
    "transformers.grouped_mm_fallback": _WEIGHT_PRODUCT,
    "hf_ckpt.apply_dropout": _DEFAULT,
    "hf_ckpt.take_along": _GATHER,
    "hf_ckpt.take_one": _GATHER,
}


def traits_of(name: str) -> OpTraits:
    """What the op of this name is; ``aten.mm.default``, ``aten.mm``, ``aten::mm`` and ``mm`` are one."""
    return _entry(name) or _DEFAULT


def is_listed(name: str) -> bool:
    """Whether the catalogue has an entry for this op."""
    return _entry(name) is not None


@cache
def _entry(name: str) -> OpTraits | None:
    parts = name.replace("::", ".").split(".")
    namespace, packet = parts[:2] if len(parts) > 1 else ("aten", name)
    if namespace != "aten":
        return _FOREIGN.get(f"{namespace}.{packet}")
    return _CATALOGUE.get(packet) or _CATALOGUE.get(packet.removesuffix("_"))
