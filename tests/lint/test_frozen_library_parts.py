"""A frozen module that libraries made of constants holds none of the program's modules."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from multimolecule import RiNALMoModel
from transformers import T5EncoderModel, T5Tokenizer

class Words(nn.Module):
    def __init__(self{given}):
        super().__init__()
        self.register_buffer("dummy", torch.tensor(0), persistent=False)
        self.tokenizer = T5Tokenizer.from_pretrained("Rostlab/ProstT5", do_lower_case=False)
        self.model = {inner}
        self.width = self.model.config.hidden_size

    @torch.no_grad()
    def forward(self, ids):
        return self.model(ids).last_hidden_state

class Fold(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.words = {words}
        for p in self.words.parameters():
            p.requires_grad = False

    def forward(self, x, ids):
        x = x + self.words(ids)
        for block in self.blocks:
            x, _ = checkpoint(lambda pair, block=block: (block(pair[0]), pair[1]), (x, ids), use_reentrant=True)
        return x

def train(loader):
    model = Fold().train()
    for x, ids, target in loader:
        nn.functional.mse_loss(model(x, ids), target).backward()
"""


def codes(inner: str, words: str = "Words()", given: str = "") -> set[str]:
    return {finding.code for finding in check_source(SCRIPT.format(inner=inner, words=words, given=given))}


@pytest.mark.parametrize("library", ['T5EncoderModel.from_pretrained("t5")', 'RiNALMoModel.from_pretrained("rinalmo")'])
def test_what_comes_from_a_library_is_no_block_of_ours(library):
    assert codes(library) == {"CKPT104"}


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("inner", "Words(self.blocks)"),
        ("nn.ModuleList([T5EncoderModel.from_pretrained('t5'), inner])", "Words(self.blocks[0])"),
    ],
)
def test_a_frozen_module_that_is_given_the_blocks_holds_them(inner, words):
    assert codes(inner, words, ", inner") == set()
