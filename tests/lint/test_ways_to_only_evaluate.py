"""Checkpointing for models that are only evaluated, prepared, wrapped or kept by modules; some are handed on."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
from accelerate import Accelerator
from peft import PeftModel
from transformers import AutoModelForCausalLM

def load(name="base"):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    return model

"""
EVALUATED = {
    "prepared": """
def main(loader):
    accelerator = Accelerator()
    model, loader = accelerator.prepare(load(), loader)
    model.eval()
    for batch in loader:
        with torch.no_grad():
            print(model(**batch).logits)

main([])
""",
    "data parallel": """
def main(batches):
    model = torch.nn.DataParallel(load()).eval()
    with torch.inference_mode():
        print([model(batch).logits for batch in batches])

main([])
""",
    "adapter": """
def main(ids):
    model = PeftModel.from_pretrained(load(), "adapter")
    model.eval()
    print(model.generate(ids))

main(torch.ones(1, 4))
""",
    "kept by a module": """
class Extractor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    @torch.no_grad()
    def forward(self, ids):
        return self.model(ids).logits

torch.save(Extractor()(torch.ones(1, 4)), "features.pt")
""",
    "compiled": """
def main(ids):
    model = torch.compile(load().cuda())
    model.eval()
    with torch.no_grad():
        print(model(ids).logits)

main(torch.ones(1, 4))
""",
}
HANDED_ON = {
    "prepared and returned": """
def main(loader):
    model = load()
    model.eval()
    return Accelerator().prepare(model, loader)
""",
    "prepared for a function": """
def main(loader, fit):
    model, loader = Accelerator().prepare(load(), loader)
    model.eval()
    fit(model)
""",
    "adapter that is returned": """
def main():
    model = PeftModel.from_pretrained(load(), "adapter")
    model.eval()
    return model
""",
    "module with another way": """
class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    @torch.no_grad()
    def embed(self, ids):
        return self.model(ids).logits

    def forward(self, ids):
        return self.model(ids).logits

encoder = Encoder()
""",
    "gradients by the mode": """
class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = load()

    def forward(self, ids):
        with torch.set_grad_enabled(self.training):
            return self.model(ids).logits

encoder = Encoder()
""",
}


def codes(script):
    return [finding.code for finding in check_source(HEAD + script)]


@pytest.mark.parametrize("script", EVALUATED.values(), ids=EVALUATED)
def test_checkpointing_has_no_effect(script):
    assert codes(script) == ["CKPT211"]


@pytest.mark.parametrize("script", HANDED_ON.values(), ids=HANDED_ON)
def test_who_gets_the_model_may_train_it(script):
    assert codes(script) == []
