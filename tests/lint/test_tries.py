"""A `try` block excuses a call that raises only where a handler goes on after the error, and is a way for older torch."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

CALL = """
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
try:
    model.gradient_checkpointing_enable(use_reentrant=False)
"""
ENDS = {
    "finally": "finally:\n    print('done')",
    "raised again": "except Exception:\n    print('failed')\n    raise",
    "another one": "except TypeError as error:\n    raise SystemExit(1) from error",
    "an interrupt": "except KeyboardInterrupt:\n    model.save_pretrained('out')",
    "interrupts": "except (KeyboardInterrupt, SystemExit):\n    model.save_pretrained('out')",
}
GOES_ON = {
    "logged": "except Exception as error:\n    print(error)",
    "nothing": "except:\n    pass",
    "raised sometimes": "except TypeError:\n    if model is None:\n        raise",
    "one of two": "except KeyboardInterrupt:\n    raise\nexcept Exception:\n    model.gradient_checkpointing_enable()",
}


def codes(end: str) -> set[str]:
    return {finding.code for finding in check_source(textwrap.dedent(CALL) + end + "\n", "train.py")}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_error_ends_the_program(end):
    assert codes(end) == {"CKPT308"}


@pytest.mark.parametrize("end", GOES_ON.values(), ids=GOES_ON)
def test_the_program_goes_on(end):
    assert codes(end) == {"CKPT214"}


def test_keywords_in_a_dict_are_swallowed_as_well():
    text = CALL.replace("use_reentrant=False", '**{"use_reentrant": False}') + GOES_ON["logged"]
    assert {finding.code for finding in check_source(text, "train.py")} == {"CKPT214"}


_FALLBACK = """
import inspect
from torch.utils.checkpoint import checkpoint

def run(block, x):
BODY
    return checkpoint(block, x)
"""
FOR_OLDER = {
    "passed over": "try:\n    return checkpoint(block, x, use_reentrant=False)\nexcept TypeError:\n    pass",
    "said": "try:\n    return checkpoint(block, x, use_reentrant=False)\nexcept TypeError as error:\n    print(error)",
    "in else": "try:\n    keys = {'use_reentrant': False}\nexcept TypeError:\n    pass\nelse:\n    return checkpoint(block, x, **keys)",
    "others raised": (
        "try:\n    return checkpoint(block, x, use_reentrant=False)\nexcept ValueError:\n    raise\nexcept (TypeError, KeyError):\n    x = x * 1"
    ),
    "parameters held": (
        "parameters = inspect.signature(checkpoint).parameters\nif 'use_reentrant' in parameters:\n"
        "    return checkpoint(block, x, use_reentrant=False)"
    ),
    "a name for the version": (
        "TORCH = tuple(int(part) for part in inspect.torch.__version__.split('.')[:2])\nif TORCH >= (1, 11):\n"
        "    return checkpoint(block, x, use_reentrant=False)"
    ),
    "a spec": (
        "spec = inspect.getfullargspec(checkpoint).args\nif not 'use_reentrant' not in spec:\n"
        "    return checkpoint(block, x, use_reentrant=False)"
    ),
}
FOR_ALL = {
    "another error": "try:\n    return checkpoint(block, x, use_reentrant=False)\nexcept RuntimeError:\n    pass",
    "no return": "try:\n    x = checkpoint(block, x, use_reentrant=False)\nexcept TypeError:\n    pass",
    "keywords of the call": "if 'use_reentrant' in block:\n    return checkpoint(block, x, use_reentrant=False)",
}


def _fallback(body: str) -> list[str]:
    program = _FALLBACK.replace("BODY", textwrap.indent(body, "    "))
    return [finding.code for finding in check_source(program, "train.py")]


@pytest.mark.parametrize("body", FOR_OLDER.values(), ids=FOR_OLDER)
def test_what_follows_is_for_torch_without_the_argument(body):
    assert _fallback(body) == []


@pytest.mark.parametrize("body", FOR_ALL.values(), ids=FOR_ALL)
def test_what_follows_is_for_every_torch(body):
    assert _fallback(body) == ["CKPT101"]
