"""Fixes touch only what they must."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.sources.edits import apply_edits


def fixed(code: str) -> str:
    code = textwrap.dedent(code)
    edits = [edit for finding in check_source(code) if finding.fix for edit in finding.fix.edits]
    return apply_edits(code, edits)


IMPORT = "from torch.utils.checkpoint import checkpoint\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("checkpoint(f, x)", "checkpoint(f, x, use_reentrant=False)"),
        ("checkpoint(f, x,)", "checkpoint(f, x, use_reentrant=False,)"),
        ("checkpoint(f)", "checkpoint(f, use_reentrant=False)"),
        ("checkpoint(f, x, use_reentrant=None)", "checkpoint(f, x, use_reentrant=False)"),
        ("checkpoint(\n    f,\n    x,\n)", "checkpoint(\n    f,\n    x,\n    use_reentrant=False,\n)"),
        ("checkpoint(\n    f,\n    x\n)", "checkpoint(\n    f,\n    x,\n    use_reentrant=False\n)"),
        ("checkpoint(\n    f,\n    x,  # in\n)", "checkpoint(\n    f,\n    x,  # in\n    use_reentrant=False,\n)"),
        ("checkpoint(\n    f,\n    x  # in\n)", "checkpoint(\n    f,\n    x,  # in\n    use_reentrant=False\n)"),
        ("checkpoint(\n    f, x\n)", "checkpoint(\n    f, x, use_reentrant=False\n)"),
        ("(checkpoint)(f, (x))", "(checkpoint)(f, (x), use_reentrant=False)"),
        ("y = (checkpoint(f, x))", "y = (checkpoint(f, x, use_reentrant=False))"),
        ("s = 'ä'; checkpoint(f, x)", "s = 'ä'; checkpoint(f, x, use_reentrant=False)"),
        (
            "checkpoint(f, checkpoint(g, x))",
            "checkpoint(f, checkpoint(g, x, use_reentrant=False), use_reentrant=False)",
        ),
        (
            "y = checkpoint(f, x); z = checkpoint(\n\tg,\n\tcheckpoint(f, y),\n)",
            "y = checkpoint(f, x, use_reentrant=False); "
            "z = checkpoint(\n\tg,\n\tcheckpoint(f, y, use_reentrant=False),\n\tuse_reentrant=False,\n)",
        ),
        ("checkpoint(f, *xs)", "checkpoint(f, *xs, use_reentrant=False)"),
        ("checkpoint(f, x)(y)[0]", "checkpoint(f, x, use_reentrant=False)(y)[0]"),
        ("if a: checkpoint(f, x)", "if a: checkpoint(f, x, use_reentrant=False)"),
    ],
)
def test_keyword_is_added_in_the_style_of_the_call(before, after):
    assert fixed(IMPORT + before + "\n") == IMPORT + after + "\n"


def test_no_keyword_is_added_beside_an_unpacked_dict():
    code = IMPORT + 'KW = {"debug": True}\ncheckpoint(f, x, **KW)\n'
    (finding,) = check_source(code)
    assert finding.fix is None
    assert fixed(code) == code


TORCH = "from torch.utils.checkpoint import checkpoint"
DEEPSPEED = "from deepspeed.runtime.activation_checkpointing.checkpointing import checkpoint"


@pytest.mark.parametrize(("other", "is_fixed"), [(DEEPSPEED, False), (TORCH, True), ("checkpoint = None", True)])
def test_no_keyword_is_added_where_another_library_may_be_called(other, is_fixed):
    code = f"if FAST:\n    {other}\nelse:\n    {TORCH}\ny = checkpoint(f, x)\n"
    (finding,) = check_source(code)
    assert finding.code == "CKPT101"
    assert (finding.fix is not None) == is_fixed


@pytest.mark.parametrize("rest", ["**options", "activation_checkpointing=x"])
def test_no_keyword_is_renamed_to_one_that_may_be_there(rest):
    code = f"from transformers import TrainingArguments\nTrainingArguments('o', gradient_checkpointing=True, {rest})\n"
    found = check_source(code, select={"CKPT501"}.__contains__, versions={"transformers": ">=5.23,<6"})
    assert [finding.fix for finding in found] == [None] * len(found)


@pytest.mark.parametrize(
    ("head", "fixed_head"),
    [
        ("def run(h):", "def run(h, layer=layer):"),
        ("def run(h, *rest, k=1) -> int:  # why", "def run(h, *rest, k=1, layer=layer) -> int:  # why"),
        ("def run(\n    h,  # in\n):", "def run(\n    h,  # in\n    layer=layer,\n):"),
        ("def run(\n    h\n):", "def run(\n    h,\n    layer=layer\n):"),
    ],
)
def test_a_local_function_binds_what_it_reads(head, fixed_head):
    body = "    y = layer(h)  # twice\n\n    return y\nx = checkpoint(run, x, use_reentrant=False)\n"
    loop = "for layer in layers:\n"
    code, wanted = (IMPORT + loop + textwrap.indent(f"{text}\n{body}", "    ") for text in (head, fixed_head))
    assert fixed(code) == wanted


@pytest.mark.parametrize(
    ("extra", "applicability"), [("", "safe"), ("    y = run(x)\n", "unsafe"), ("    layer = other\n", None)]
)
def test_binding_is_safe_for_what_is_only_checkpointed(extra, applicability):
    code = (
        f"{IMPORT}for layer in layers:\n    def run(h):\n        return layer(h)\n{extra}"
        "    x = checkpoint(run, x, use_reentrant=False)\n"
    )
    (finding,) = check_source(code)
    assert (finding.fix.applicability if finding.fix else None) == applicability


def test_partial_gets_the_keyword_where_it_is_made():
    code = """
        from functools import partial
        from torch.utils.checkpoint import checkpoint
        run = partial(checkpoint, preserve_rng_state=False)
        run(f, x)
    """
    assert "partial(checkpoint, preserve_rng_state=False, use_reentrant=False)\nrun(f, x)" in fixed(code)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{"use_reentrant": False}'),
        ('{"early_stop": True}', '{"early_stop": True, "use_reentrant": False}'),
        ('{\n    "early_stop": True,  # why\n}', '{\n    "early_stop": True,  # why\n    "use_reentrant": False,\n}'),
    ],
)
def test_key_is_added_in_the_style_of_the_dict(before, after):
    head = "from transformers import AutoModel\nmodel = AutoModel.from_pretrained('m')\n"
    assert fixed(f"{head}model.gradient_checkpointing_enable({before})\n") == (
        f"{head}model.gradient_checkpointing_enable({after})\n"
    )


def test_lambda_binds_what_it_reads():
    code = """
        from torch.utils.checkpoint import checkpoint
        def forward(layers, x):
            for i, layer in enumerate(layers):
                x = checkpoint(lambda h, *rest: layer(h, i), x, use_reentrant=False)
            return x
    """
    assert "lambda h, *rest, i=i, layer=layer: layer(h, i)" in fixed(code)


@pytest.mark.parametrize("between", ["    mask = mask.roll(1)\n    if True:\n", "    for mask in self.masks:\n"])
def test_nothing_is_bound_whose_value_changes_before_the_checkpoint(between):
    code = IMPORT + (
        f"def forward(self, x, mask):\n    def first(h):\n        return self.a(h) * mask\n{between}"
        "        x = checkpoint(first, x, use_reentrant=False)\n    mask = mask.roll(1)\n    return self.b(x) * mask\n"
    )
    (finding,) = check_source(code)
    assert (finding.code, finding.fix) == ("CKPT105", None)
