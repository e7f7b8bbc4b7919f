"""The same mistake in the spellings people use: what must be seen, and what must not be seen as one."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.finding import Severity

REPORTED = {
    "direct": """
        from torch.utils.checkpoint import checkpoint
        y = checkpoint(block, x)
    """,
    "module alias": """
        import torch.utils.checkpoint as cp
        y = cp.checkpoint(block, x)
    """,
    "import as": """
        from torch.utils.checkpoint import checkpoint as ck
        y = ck(block, x)
    """,
    "in try": """
        try:
            from torch.utils.checkpoint import checkpoint
        except ImportError:
            checkpoint = None
        y = checkpoint(block, x)
    """,
    "local rebinding": """
        from torch.utils.checkpoint import checkpoint
        ck = checkpoint
        y = ck(block, x)
    """,
    "partial without the keyword": """
        from functools import partial
        from torch.utils.checkpoint import checkpoint
        run = partial(checkpoint, preserve_rng_state=False)
    """,
    "double star without the key": """
        import torch
        KW = {"preserve_rng_state": False}
        y = torch.utils.checkpoint.checkpoint(block, x, **KW)
    """,
    "use_reentrant=None": """
        from torch.utils.checkpoint import checkpoint
        y = checkpoint(block, x, use_reentrant=None)
    """,
    "checkpoint_sequential": """
        from torch.utils.checkpoint import checkpoint_sequential
        y = checkpoint_sequential(blocks, 2, x)
    """,
    "enable with a dict without the key": """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        model.gradient_checkpointing_enable({"early_stop": False})
    """,
    "write after construction": """
        from transformers import TrainingArguments
        args = TrainingArguments("out", gradient_checkpointing=True)
        args.gradient_checkpointing_kwargs = {"use_reentrant": True}
    """,
    "trainer overrides the model": """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
        model = AutoModelForCausalLM.from_pretrained("m")
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        trainer = Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=True))
    """,
}
NOTED = """
    import torch.utils.checkpoint
    y = getattr(torch.utils.checkpoint, "checkpoint")(block, x)
"""
SILENT = {
    "partial with the keyword": """
        from functools import partial
        from torch.utils.checkpoint import checkpoint
        run = partial(checkpoint, use_reentrant=False)
        y = run(block, x)
    """,
    "double star with the key": """
        from torch.utils.checkpoint import checkpoint
        KW = {"use_reentrant": False}
        y = checkpoint(block, x, **KW)
    """,
    "shadowed by a later definition": """
        from torch.utils.checkpoint import checkpoint
        def checkpoint(function, *args):
            return function(*args)
        y = checkpoint(block, x)
    """,
    "explicit": """
        from torch.utils.checkpoint import checkpoint
        y = checkpoint(block, x, use_reentrant=False)
    """,
    "another library's": """
        from timm.models._manipulate import checkpoint
        from megatron.core.tensor_parallel import checkpoint as megatron_checkpoint
        from torch.distributed._composable import checkpoint as composable
        y = checkpoint(block, megatron_checkpoint(block, False, x))
        composable(block)
    """,
    "saving files": """
        from mylib import checkpoint
        self_made = checkpoint.checkpoint(model, "path")
        manager.checkpoint(step)
    """,
    "a wrapper that adds it": """
        from torch.utils.checkpoint import checkpoint
        def ckpt(function, *args, **kwargs):
            return checkpoint(function, *args, use_reentrant=False, **kwargs)
        y = ckpt(block, x)
    """,
    "a wrapper that passes it on": """
        from torch.utils.checkpoint import checkpoint
        def ckpt(function, *args, **kwargs):
            return checkpoint(function, *args, **kwargs)
        y = ckpt(block, x, use_reentrant=False)
    """,
    "unknown keywords": """
        from torch.utils.checkpoint import checkpoint
        def forward(block, x, **kwargs):
            return checkpoint(block, x, **kwargs)
    """,
    "keyword set on the way": """
        from torch.utils.checkpoint import checkpoint
        kw = {}
        if version > 2:
            kw["use_reentrant"] = False
        y = checkpoint(block, x, **kw)
    """,
    "attribute holding a partial": """
        from functools import partial
        from torch.utils.checkpoint import checkpoint
        class Net:
            def __init__(self):
                self.run = partial(checkpoint, use_reentrant=False)
            def forward(self, x):
                return self.run(self.block, x)
    """,
}


def findings(code: str):
    return check_source(textwrap.dedent(code))


#: Those that are not the call of torch's function itself.
CODES = {
    "enable with a dict without the key": "CKPT102",
    "write after construction": "CKPT201",
    "trainer overrides the model": "CKPT202",
}


@pytest.mark.parametrize("name", REPORTED)
def test_reported(name):
    (finding,) = findings(REPORTED[name])
    assert finding.code == CODES.get(name, "CKPT101")
    assert finding.severity is not Severity.NOTE


def test_getattr_is_a_note():
    (finding,) = findings(NOTED)
    assert (finding.code, finding.severity) == ("CKPT101", Severity.NOTE)


@pytest.mark.parametrize("code", SILENT.values(), ids=SILENT.keys())
def test_silent(code):
    assert findings(code) == []


def test_a_wrapper_names_the_caller_that_leaves_it_out():
    code = """
        from torch.utils.checkpoint import checkpoint
        def ckpt(function, *args, **kwargs):
            return checkpoint(function, *args, **kwargs)
        y = ckpt(block, x, use_reentrant=False)
        z = ckpt(block, x)
    """
    (finding,) = findings(code)
    assert finding.span.line == 4
    assert [note.span.line for note in finding.notes] == [6]
