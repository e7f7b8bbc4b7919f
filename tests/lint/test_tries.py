"""A `try` block excuses a call that raises only where a handler goes on after the error."""

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
