"""Values that a program takes a detour for: names put together, modules by name, enums, `match`, methods bound early."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

REFUSED = {
    "a key from an f-string of constants": """
        from torch.utils.checkpoint import checkpoint

        def forward(block, x, mask):
            kind = "attention"
            return checkpoint(block, x, use_reentrant=True, **{f"{kind}_mask": mask})
    """,
    "importlib": """
        import importlib

        ck = importlib.import_module("torch.utils.checkpoint").checkpoint

        def forward(block, x, mask):
            return ck(block, x, mask=mask, use_reentrant=True)
    """,
    "a member of an enum": """
        from enum import Enum
        from torch.utils.checkpoint import checkpoint

        class Variant(Enum):
            REENTRANT = True
            PLAIN = False

        def forward(block, x, mask):
            return checkpoint(block, x, mask=mask, use_reentrant=Variant.REENTRANT.value)
    """,
    "a match on a constant": """
        from torch.utils.checkpoint import checkpoint

        MODE = "full"
        match MODE:
            case "none":
                options = {"use_reentrant": False}
            case "full" | "all":
                options = {"use_reentrant": True}
            case _:
                options = {"use_reentrant": False}

        def forward(block, x, mask):
            return checkpoint(block, x, mask=mask, **options)
    """,
    "bound early under its own name": """
        from torch.utils.checkpoint import checkpoint

        def forward(block, x, mask, *, checkpoint=checkpoint):
            return checkpoint(block, x, mask=mask, use_reentrant=True)
    """,
    "everything of a library": """
        from torch.nn import *
        from torch.utils.checkpoint import *

        def forward(block, x, mask):
            return checkpoint(block, x, mask=mask, use_reentrant=True)
    """,
    "partialmethod": """
        import functools
        from torch.utils.checkpoint import checkpoint

        class Net:
            def _run(self, block, x, mask, reentrant):
                return checkpoint(block, x, mask=mask, use_reentrant=reentrant)

            run_reentrant = functools.partialmethod(_run, reentrant=True)

            def forward(self, x, mask):
                return self.run_reentrant(self.block, x, mask)
    """,
}
OPEN = {
    "a key that is not known": """
        from torch.utils.checkpoint import checkpoint

        def forward(block, x, name, value):
            return checkpoint(block, x, use_reentrant=True, **{f"use_{name}": value})
    """,
    "another member": """
        import enum
        from torch.utils.checkpoint import checkpoint

        class Variant(enum.Enum):
            REENTRANT = True
            PLAIN = False

        def forward(block, x, mask):
            return checkpoint(block, x, mask=mask, use_reentrant=Variant.PLAIN.value)
    """,
    "a member that is chosen elsewhere": """
        import enum
        from torch.utils.checkpoint import checkpoint

        class Variant(enum.Enum):
            REENTRANT = True
            PLAIN = False

        def forward(block, x, mask, variant: Variant):
            return checkpoint(block, x, mask=mask, use_reentrant=variant.value)
    """,
    "a match on something open": """
        from torch.utils.checkpoint import checkpoint

        def forward(block, x, mask, mode):
            match mode:
                case "full":
                    options = {"use_reentrant": True}
                case _:
                    options = {"use_reentrant": False}
            return checkpoint(block, x, mask=mask, **options)
    """,
    "everything of two libraries that may both have it": """
        from fairscale.nn import *
        from megatron.core import *

        def forward(block, x, mask):
            return checkpoint(block, x, mask=mask, use_reentrant=True)  # torch.utils.checkpoint
    """,
    "another function of that name": """
        from torch.utils.checkpoint import checkpoint

        def forward(block, x, mask, checkpoint=print):
            return checkpoint(block, x, mask=mask, use_reentrant=True)
    """,
}


def codes(program: str) -> list[str]:
    return [finding.code for finding in check_source(textwrap.dedent(program), "train.py")]


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_a_detour_changes_nothing(program):
    assert codes(program) == ["CKPT301"]


@pytest.mark.parametrize("program", OPEN.values(), ids=OPEN)
def test_what_is_open_stays_open(program):
    assert codes(program) == []
