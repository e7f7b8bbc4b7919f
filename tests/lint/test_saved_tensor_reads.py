"""CKPT317 finds the functions that raise when they run in a checkpoint, and no others."""

import textwrap

import pytest
import torch
from hf_ckpt.lint import check_source

CODE = """
import torch
from torch.utils.checkpoint import checkpoint

class Product(torch.autograd.Function):
    scale = 1.0

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
{body}

linear = torch.nn.Linear(4, 4)

def body(x):
    return {call}

def run(x):
    return {checkpoint}
"""
CALL = "linear(Product.apply(linear(x), x)).tanh()"
CHECKPOINT = "checkpoint(body, x, use_reentrant=False)"
ONCE = "a, b = ctx.saved_tensors\nreturn grad * b, grad * a"
TWICE = "a = ctx.saved_tensors[0]\nreturn grad * ctx.saved_tensors[1], grad * a"


def run(body: str, call: str = CALL, around: str = CHECKPOINT) -> tuple[bool, bool]:
    """Whether the linter finds the mistake, and whether the backward pass raises."""
    code = CODE.format(body=textwrap.indent(body, " " * 8), call=call, checkpoint=around)
    names = {}
    exec(compile(code, "product.py", "exec"), names)
    try:
        names["run"](torch.randn(2, 4, requires_grad=True)).sum().backward()
        raises = False
    except torch.utils.checkpoint.CheckpointError:
        raises = True
    return "CKPT317" in [finding.code for finding in check_source(code)], raises


@pytest.mark.parametrize(
    "body",
    [
        TWICE,
        "return grad * ctx.saved_tensors[1], grad * ctx.saved_tensors[0]",
        "(a, b), n = ctx.saved_tensors, len(ctx.saved_tensors)\nreturn grad * b, grad * a",
        "if ctx.needs_input_grad[0]:\n    a, b = ctx.saved_tensors\nelse:\n    a, b = ctx.saved_tensors\n"
        "return grad * ctx.saved_tensors[1], grad * a",
        "if ctx.needs_input_grad[0]:\n    a, b = ctx.saved_tensors\n    return grad * ctx.saved_tensors[1], grad * a\n"
        "return None, None",
        "with torch.no_grad():\n    a, _ = ctx.saved_tensors\n_, b = ctx.saved_tensors\nreturn grad * b, grad * a",
        "a = ctx.saved_tensors[0]\nfor b in ctx.saved_tensors[1:]:\n    pass\nreturn grad * b, grad * a",
        "if not ctx.saved_tensors:\n    return None, None\na, b = ctx.saved_tensors\nreturn grad * b, grad * a",
        "a, b = (t * 1 for t in ctx.saved_tensors)\nb = ctx.saved_tensors[1]\nreturn grad * b, grad * a",
    ],
)
def test_a_second_read_raises_and_is_found(body):
    assert run(body) == (True, True)


@pytest.mark.parametrize(
    "body",
    [
        ONCE,
        "saved = ctx.saved_tensors\nreturn grad * saved[1], grad * saved[0]",
        "if not ctx.needs_input_grad[0]:\n    a = ctx.saved_tensors[0]\n    return None, grad * a\n" + ONCE,
        "a, b = ctx.saved_tensors if grad is not None else ctx.saved_tensors[::-1]\nreturn grad * b, grad * a",
        "def saved():\n    return ctx.saved_tensors\na, b = ctx.saved_tensors\nreturn grad * b, grad * a",
        "if grad is None:\n    raise ValueError(len(ctx.saved_tensors))\n" + ONCE,
    ],
)
def test_one_read_on_every_way_is_right(body):
    assert run(body) == (False, False)


@pytest.mark.parametrize(
    "around",
    [
        "checkpoint(body, x, use_reentrant=True)",
        "body(x)",
        "checkpoint(linear, body(x), use_reentrant=False)",
    ],
)
def test_a_second_read_elsewhere_is_right(around):
    assert run(TWICE, around=around) == (False, False)


@pytest.mark.parametrize(
    ("call", "around"),
    [
        ("(lambda f: f(linear(x), x))(Product.apply)", CHECKPOINT),
        (CALL, "checkpoint(lambda h: body(h).exp(), x, use_reentrant=False, determinism_check='none')"),
        (
            CALL,
            "checkpoint(torch.nn.Sequential(linear), checkpoint(body, x, use_reentrant=False), use_reentrant=False)",
        ),
    ],
)
def test_other_ways_into_the_function_raise_and_are_found(call, around):
    assert run(TWICE, call, around) == (True, True)


BRANCHES = """\
grad_a = grad_b = None
if ctx.needs_input_grad[0]:
    grad_a = grad * ctx.saved_tensors[1]
if ctx.needs_input_grad[1]:
    grad_b = grad * ctx.saved_tensors[0]
return grad_a, grad_b"""
ASKED = {
    "each": BRANCHES,
    "each, by an expression": (
        "grad_a = grad * ctx.saved_tensors[1] if ctx.needs_input_grad[0] else None\n"
        "grad_b = grad * ctx.saved_tensors[0] if ctx.needs_input_grad[1] else None\nreturn grad_a, grad_b"
    ),
    "returned early": f"if not ctx.needs_input_grad[0]:\n    return None, grad * ctx.saved_tensors[0]\n{TWICE}",
    "any": f"if not any(ctx.needs_input_grad):\n    return None, None\n{TWICE}",
    "both": f"if ctx.needs_input_grad[0] and ctx.needs_input_grad[1]:\n    a, b = ctx.saved_tensors\n{BRANCHES}",
}
BOTH_NEED_IT = "linear(Product.apply(linear(x), torch.nn.Parameter(torch.ones(4)))).tanh()"
ONE_NEEDS_IT = "linear(Product.apply(linear(x), torch.ones(4))).tanh()"


@pytest.mark.parametrize("way", ASKED)
def test_branches_for_inputs_that_need_gradients_are_taken(way):
    assert run(ASKED[way], BOTH_NEED_IT) == (True, True)


@pytest.mark.parametrize("way", ["each", "each, by an expression"])
def test_branches_for_inputs_that_need_none_may_not_be_taken(way):
    assert run(ASKED[way], ONE_NEEDS_IT) == (False, False)


def test_a_branch_that_is_surely_taken_leaves_the_rest_out():
    once = f"if ctx.needs_input_grad[0]:\n    a, b = ctx.saved_tensors\n    return grad * b, grad * a\n{TWICE}"
    assert run(once, BOTH_NEED_IT) == (False, False)
