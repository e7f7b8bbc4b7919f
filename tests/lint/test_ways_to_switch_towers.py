"""Models beside one another: one is switched by its method, and the other by a flag that nothing reads."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """import torch
from dataclasses import dataclass
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, CLIPVisionModel, VisionEncoderDecoderModel
"""
WAYS = {
    "a function": """
class VLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = CLIPVisionModel.from_pretrained("openai/clip-vit-large-patch14")
        self.lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
        self.project = nn.Linear(8, 8)
    def forward(self, pixels, ids):
        h = self.project(self.vision(pixel_values=pixels).last_hidden_state)
        return self.lm(inputs_embeds=torch.cat([h, self.lm.get_input_embeddings()(ids)], 1)).logits.mean()

def save(model):
    model.vision.config.gradient_checkpointing = True
    model.lm.gradient_checkpointing_enable({"use_reentrant": False})
vlm = VLM()
save(vlm)

for pixels, ids in torch.load("x.pt"):
    vlm(pixels, ids).backward()
""",
    "two variables": """
vision = CLIPVisionModel.from_pretrained("openai/clip-vit-large-patch14")
lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
lm.gradient_checkpointing_enable({"use_reentrant": False})
vision.gradient_checkpointing = True
vision.train()
""",
    "an object of settings": """
class VLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = CLIPVisionModel.from_pretrained("openai/clip-vit-large-patch14")
        self.lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
        self.project = nn.Linear(8, 8)
    def forward(self, pixels, ids):
        h = self.project(self.vision(pixel_values=pixels).last_hidden_state)
        return self.lm(inputs_embeds=torch.cat([h, self.lm.get_input_embeddings()(ids)], 1)).logits.mean()

@dataclass
class Memory:
    model: nn.Module
    def apply(self):
        self.model.lm.gradient_checkpointing_enable({"use_reentrant": False})
        setattr(self.model.vision.config, "gradient_checkpointing", True)
vlm = VLM()
Memory(vlm).apply()

for pixels, ids in torch.load("x.pt"):
    vlm(pixels, ids).backward()
""",
    "a loop": """
class VLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = CLIPVisionModel.from_pretrained("openai/clip-vit-large-patch14")
        self.lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
        self.project = nn.Linear(8, 8)
    def forward(self, pixels, ids):
        h = self.project(self.vision(pixel_values=pixels).last_hidden_state)
        return self.lm(inputs_embeds=torch.cat([h, self.lm.get_input_embeddings()(ids)], 1)).logits.mean()

vlm = VLM()
vlm.lm.gradient_checkpointing_enable({"use_reentrant": False})
for part in (vlm.vision,):
    part.config.gradient_checkpointing = True

for pixels, ids in torch.load("x.pt"):
    vlm(pixels, ids).backward()
""",
    "a dict": """
def load():
    return {"text": AutoModelForCausalLM.from_pretrained("a"), "image": CLIPVisionModel.from_pretrained("b")}
towers = load()
towers["text"].gradient_checkpointing_enable({"use_reentrant": False})
towers["image"].config.update({"gradient_checkpointing": True})
""",
    "both in a loop": """
class VLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = CLIPVisionModel.from_pretrained("openai/clip-vit-large-patch14")
        self.lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
        self.project = nn.Linear(8, 8)
    def forward(self, pixels, ids):
        h = self.project(self.vision(pixel_values=pixels).last_hidden_state)
        return self.lm(inputs_embeds=torch.cat([h, self.lm.get_input_embeddings()(ids)], 1)).logits.mean()

vlm = VLM()
vlm.lm.gradient_checkpointing_enable({"use_reentrant": False})
for part in (vlm.vision, vlm.lm):
    part.config.gradient_checkpointing = True

for pixels, ids in torch.load("x.pt"):
    vlm(pixels, ids).backward()
""",
}
RIGHT = {
    "a model of both": """
vision = CLIPVisionModel.from_pretrained("b")
lm = AutoModelForCausalLM.from_pretrained("a")
both = VisionEncoderDecoderModel(encoder=vision, decoder=lm)
both.gradient_checkpointing_enable({"use_reentrant": False})
vision.config.gradient_checkpointing = True
""",
    "the same by a function": """
def pick(model):
    return model
lm = AutoModelForCausalLM.from_pretrained("a")
same = pick(lm)
same.gradient_checkpointing_enable({"use_reentrant": False})
lm.config.gradient_checkpointing = True
""",
    "a function that is not shown": """
import helpers
lm = AutoModelForCausalLM.from_pretrained("a")
other = helpers.wrap(lm)
other.gradient_checkpointing_enable({"use_reentrant": False})
lm.config.gradient_checkpointing = True
""",
    "both": """
class VLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = CLIPVisionModel.from_pretrained("openai/clip-vit-large-patch14")
        self.lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
        self.project = nn.Linear(8, 8)
    def forward(self, pixels, ids):
        h = self.project(self.vision(pixel_values=pixels).last_hidden_state)
        return self.lm(inputs_embeds=torch.cat([h, self.lm.get_input_embeddings()(ids)], 1)).logits.mean()

vlm = VLM()
for part in (vlm.vision, vlm.lm):
    part.gradient_checkpointing_enable({"use_reentrant": False})
    part.config.gradient_checkpointing = True

for pixels, ids in torch.load("x.pt"):
    vlm(pixels, ids).backward()
""",
    "a list of parts": """
class Two(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)
two = Two([CLIPVisionModel.from_pretrained("b"), AutoModelForCausalLM.from_pretrained("a")])
for part in two.parts:
    part.gradient_checkpointing_enable({"use_reentrant": False})
two.parts[0].config.gradient_checkpointing = True
""",
}


def codes(program: str) -> set[str]:
    return {found.code for found in check_source(HEAD + program)}


@pytest.mark.parametrize("program", WAYS.values(), ids=WAYS)
def test_the_flag_of_the_other_model_is_found(program):
    assert "CKPT205" in codes(program)


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_a_flag_beside_the_method_does_no_harm(program):
    assert "CKPT205" not in codes(program)
