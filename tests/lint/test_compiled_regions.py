"""`torch.compile` takes checkpoints over without a look at `use_reentrant`: what only that variant does is no mistake."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from rule_pages import Example, examples

RULES = frozenset(f"CKPT{number}" for number in (104, 113, 116, 127, 129, 132, 135, 301, 302, 304, 307))
BAD = [
    example
    for example in examples("Bad")
    if example.rule.code in RULES and example.filename.endswith(".py") and "deepspeed" not in example.code
]
COMPILED = {
    "a model": "\nimport torch\nfrom models import net_of_this_run\ntorch.compile(net_of_this_run)\n",
    "by the Trainer": (
        "\nfrom transformers import Trainer, TrainingArguments\nfrom models import net_of_this_run\n"
        'Trainer(net_of_this_run, TrainingArguments("out", torch_compile=True)).train()\n'
    ),
}


def codes(example: Example, more: str) -> list[str]:
    return [it.code for it in check_source(example.code + more, example.filename) if it.code == example.rule.code]


@pytest.mark.parametrize("more", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("example", BAD, ids=lambda example: example.id)
def test_what_the_reentrant_variant_does_is_not_said_of_compiled_models(example: Example, more: str) -> None:
    assert codes(example, "")
    assert codes(example, more) == []
