"""Hooks that keep the outputs of modules in a list of their object, which a method of it gives to a loss."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.out = nn.Embedding(40, 8), nn.Linear(8, 2)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3))

    def forward(self, ids):
        h = self.tokens(ids)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant={reentrant})
        return self.out(h.mean(1))

class Taps:
    def __init__(self, modules):
        self.outputs = []
        for module in modules:
            module.register_forward_hook(self.keep)

    def keep(self, module, args, output):
        self.outputs.append(output)

    def drain(self):
        {drain}
{more}
def train(loader, optimizer):
    student = Encoder()
    taps = Taps(block[0] for block in student.blocks)
    for ids, labels, wanted in loader:
        logits = student(ids)
        {used}
        loss = F.cross_entropy(logits, labels) + features
        loss.backward()
        optimizer.step()
"""
GIVEN = (
    "out, self.outputs = self.outputs, []; return out",
    "out = self.outputs; self.outputs = []; return out",
    "return list(self.outputs)",
    "return self.outputs",
)
ADDED = "features = sum(F.mse_loss(mine, its) for mine, its in zip(taps.drain(), wanted))"
OTHER = "\nclass Queue:\n    def drain(self):\n        return [self.first]\n"


def _codes(drain: str = GIVEN[0], used: str = ADDED, more: str = "", reentrant: bool = True) -> list[str]:
    text = SCRIPT.format(drain=drain, used=used, more=more, reentrant=reentrant)
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize("drain", GIVEN)
def test_a_loss_of_what_a_method_gives(drain: str) -> None:
    assert _codes(drain) == ["CKPT113"]
    assert _codes(drain, reentrant=False) == []


def test_what_else_a_method_gives_or_a_program_does_with_it() -> None:
    assert _codes("return [output.detach() for output in self.outputs]") == []
    assert _codes(used="print(len(taps.drain())); features = 0.0") == []
    assert _codes(more=OTHER) == []


def test_a_method_that_is_called_as_those_of_containers() -> None:
    popped = SCRIPT.replace("drain(self)", "pop(self)").replace("{used}", ADDED.replace("drain", "pop"))
    text = popped.format(drain=GIVEN[0], more="", reentrant=True)
    assert [finding.code for finding in check_source(text, "train.py")] == ["CKPT113"]
    other = text.replace("    for ids,", "    queue = load()\n    queue.pop()\n    for ids,")
    assert [finding.code for finding in check_source(other, "train.py")] == []


@pytest.mark.parametrize(
    ("teacher", "tapped", "called", "codes"),
    [
        ("Encoder()", "teacher", "with torch.no_grad(): teacher(ids)", []),
        ("Encoder()", "student", "with torch.no_grad(): teacher(ids)", ["CKPT113"]),
        ("copy.deepcopy(student)", "teacher", "with torch.no_grad(): teacher(ids)", []),
        ("Encoder()", "teacher", "teacher(ids)", ["CKPT113"]),
    ],
)
def test_hooks_on_a_teacher_of_the_same_class(teacher: str, tapped: str, called: str, codes: list[str]) -> None:
    text = SCRIPT.format(drain=GIVEN[0], used=f"{called}\n        {ADDED}", more="", reentrant=True)
    text = text.replace("    taps =", f"    teacher = {teacher}\n    taps =").replace(
        "in student.blocks", f"in {tapped}.blocks"
    )
    assert [finding.code for finding in check_source(f"import copy\nimport torch\n{text}", "train.py")] == codes
