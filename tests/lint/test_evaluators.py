"""Checkpointing that is switched on for a model which a class, or a script, only evaluates."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
from transformers import AutoModelForCausalLM
"""

WRONG = {
    "evaluator": """
class Evaluator:
    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path)
        self.model.gradient_checkpointing_enable()
        self.model.eval()
    @torch.no_grad()
    def evaluate(self, batches):
        return [self.model(**b).loss.item() for b in batches]
""",
    "evaluator with": """
class Evaluator:
    def __init__(self, path, ckpt=True):
        self.model = AutoModelForCausalLM.from_pretrained(path).cuda()
        if ckpt:
            self.model.gradient_checkpointing_enable()
        self.model.eval()
    def score(self, b):
        with torch.inference_mode():
            return self.model(**b).logits
    def sample(self, ids):
        return self.model.generate(ids, max_new_tokens=5)
""",
    "eval in method": """
class Evaluator:
    def __init__(self, path):
        model = AutoModelForCausalLM.from_pretrained(path)
        model.gradient_checkpointing_enable()
        self.model = model
    def score(self, b):
        self.model.eval()
        with torch.no_grad():
            return self.model(**b).logits
""",
    "no eval call": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.gradient_checkpointing_enable()
with torch.no_grad():
    print(model.generate(max_new_tokens=3))
""",
    "no eval call forward": """
def ppl(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    total = 0
    with torch.inference_mode():
        for b in batches:
            total += model(**b).loss.item()
    return total
""",
    "loads and returns": """
class Judge:
    def __init__(self, path):
        self.model = self._load(path)
    def _load(self, path):
        model = AutoModelForCausalLM.from_pretrained(path)
        model.gradient_checkpointing_enable()
        model.eval()
        return model
    def score(self, b):
        with torch.no_grad():
            return self.model(**b).logits
""",
}

RIGHT = {
    "holder only": """
class Holder:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
""",
    "method returns loss": """
class Holder:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
    def loss(self, b):
        return self.model(**b).loss
""",
    "trains too": """
class Holder:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
    def train_step(self, b):
        self.model.train()
        self.model(**b).loss.backward()
    def evaluate(self, b):
        self.model.eval()
        with torch.no_grad():
            return self.model(**b).loss
""",
    "nn module holder": """
class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
    @torch.no_grad()
    def score(self, b):
        return self.model(**b).logits
""",
    "unknown base": """
from base import BaseRunner
class Scorer(BaseRunner):
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
    @torch.no_grad()
    def score(self, b):
        return self.model(**b).logits
""",
    "getter": """
class Scorer:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
    def get_model(self):
        return self.model
    @torch.no_grad()
    def score(self, b):
        return self.model(**b).logits
""",
    "handed to trainer": """
from mine import fit
class Scorer:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
        fit(self.model)
    @torch.no_grad()
    def score(self, b):
        return self.model(**b).logits
""",
    "parameters escape": """
class Scorer:
    def __init__(self):
        self.model = AutoModelForCausalLM.from_pretrained("base")
        self.model.gradient_checkpointing_enable()
        self.model.eval()
    def parameters(self):
        return self.model.parameters()
    @torch.no_grad()
    def score(self, b):
        return self.model(**b).logits
""",
    "from config no eval": """
from transformers import AutoConfig, AutoModelForCausalLM
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("x"))
model.gradient_checkpointing_enable()
with torch.no_grad():
    model(input_ids=torch.ones(1, 3))
""",
    "forward with grad no eval": """
def f(name, b):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    return model(**b).loss
""",
    "module global only generate": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.gradient_checkpointing_enable()
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT211" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT211" not in codes(case)
