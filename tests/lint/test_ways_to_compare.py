"""How a policy looks an operator up in what the program made: packets never match, overloads do."""

from __future__ import annotations

import re

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
NAMES = ("mm", "bmm")
SAVE, AGAIN = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE

{0}

def forward(block, x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
"""
FUNCTION = """
def policy(ctx, op, *args, **kwargs):
    return TABLE.get(op, AGAIN)
"""
WAYS = {
    "comprehension": f"TABLE = {{getattr(aten, name): SAVE for name in NAMES}}{FUNCTION}",
    "condition": f"TABLE = {{getattr(aten, name): SAVE for name in NAMES if hasattr(aten, name)}}{FUNCTION}",
    "list": f"OPS = [aten.mm, aten.bmm]\nTABLE = {{op: SAVE for op in OPS}}{FUNCTION}",
    "fromkeys": f"TABLE = dict.fromkeys((aten.mm, aten.bmm), SAVE){FUNCTION}",
    "zip": f"TABLE = dict(zip([aten.mm, aten.bmm], [SAVE, SAVE])){FUNCTION}",
    "copy": f"BASE = {{aten.mm: SAVE}}\nTABLE = BASE.copy(){FUNCTION}",
    "or": f"BASE = {{aten.mm: SAVE}}\nTABLE = BASE | {{aten.bmm.default: SAVE}}{FUNCTION}",
    "spread": f"BASE = {{aten.mm: SAVE}}\nTABLE = {{**BASE, aten.bmm.default: SAVE}}{FUNCTION}",
    "loop": f"TABLE = {{}}\nfor name in NAMES:\n    TABLE[getattr(aten, name)] = SAVE{FUNCTION}",
    "function": f"def table(*ops):\n    return {{op: SAVE for op in ops}}\n\nTABLE = table(aten.mm, aten.bmm){FUNCTION}",
    "object": """\
class Policy:
    names = NAMES
    def __init__(self):
        self.table = {getattr(aten, name): SAVE for name in self.names}
    def __call__(self, ctx, func, *args, **kwargs):
        return self.table.get(func, AGAIN)

policy = Policy()
""",
    "base class": """\
class Base:
    ops = ()
    def __init__(self):
        self.table = dict.fromkeys(self.ops, SAVE)
    def __call__(self, ctx, op, *args, **kwargs):
        return self.table.get(op, AGAIN)

class Policy(Base):
    ops = (aten.mm,)

policy = Policy()
""",
}
#: An operator without its overload, but for the one that is asked whether it is there.
PACKET = re.compile(r"(aten\.b?mm\b(?!\.default)|(?<!has)(?<=getattr)\(aten, name\))")
RIGHT = {
    **{way: PACKET.sub(r"\1.default", script) for way, script in WAYS.items()},
    "overloads alone": f"""\
OPS = [aten.mm, aten.bmm.default]
TABLE = {{op: SAVE for op in OPS if isinstance(op, torch._ops.OpOverload)}}{FUNCTION}""",
    "cleared": f"TABLE = {{aten.mm: SAVE}}\nTABLE.clear()\nTABLE[aten.mm.default] = SAVE{FUNCTION}",
}


def codes(policy: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", policy))}


@pytest.mark.parametrize("way", WAYS)
def test_a_packet_never_matches(way):
    assert "CKPT213" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_an_overload_does(way):
    assert "CKPT213" not in codes(RIGHT[way])
