"""Adapters of models of pictures without a head, whose reentrant layers begin with what needs no gradient.

Each kind of model was run with transformers 5.23: the backward pass of the reentrant variant fails.
"""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

LOADED = """
model = Dinov2Model.from_pretrained("facebook/dinov2-base")
"""
SCRIPT = """
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, CLIPVisionModel, Dinov2Model, ViTConfig, ViTModel
{loaded}
{before}
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", {targets}]))
{after}
model.train()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for pixels, y in torch.utils.data.DataLoader(torch.load("data.pt"), 4):
    {step}
    loss = F.cross_entropy(model(pixel_values=pixels).last_hidden_state[:, 0], y)
    {marked}
    loss.backward()
    opt.step()
"""
ON = 'model.gradient_checkpointing_enable({"use_reentrant": True})'
LOST = {
    "the adapted model": {"after": ON},
    "the model below": {"after": ON.replace("model.", "model.base_model.model.", 1)},
    "the base model by its method": {"after": ON.replace("model.", "model.get_base_model().", 1)},
    "an Auto class": {"loaded": 'model = AutoModel.from_pretrained("facebook/dinov2-small").cuda()', "after": ON},
    "a configuration": {"loaded": "model = ViTModel(ViTConfig())", "after": ON},
    "the tower of CLIP": {
        "loaded": 'model = CLIPVisionModel.from_pretrained("openai/clip-vit-base-patch32")',
        "after": ON,
    },
    "a loss that is marked": {"after": ON, "marked": "loss.requires_grad_()"},
}
KEPT = {
    "the other variant": {"after": ON.replace("True", "False")},
    "before the adapter": {"before": ON},
    "pictures that need a gradient": {"after": ON, "step": "pixels.requires_grad_(True)"},
    "moved ones that do": {"after": ON, "step": "pixels = torch.as_tensor(pixels).cuda().requires_grad_()"},
    "embeddings that train too": {"after": ON, "targets": '], modules_to_save=["embeddings"'},
    "an adapter on the patches": {"after": ON, "targets": '"projection"'},
    "embeddings switched on": {"after": f"model.base_model.model.embeddings.requires_grad_(True)\n{ON}"},
    "embeddings switched on by name": {
        "after": 'for n, p in model.named_parameters():\n    if "emb" in n:\n        p.requires_grad = True\n' + ON
    },
    "a hook": {"after": f"model.enable_input_require_grads()\n{ON}"},
    "a model of texts": {"loaded": 'model = AutoModel.from_pretrained("bert-base-uncased")', "after": ON},
    "both towers of CLIP": {
        "loaded": 'model = AutoModel.from_pretrained("openai/clip-vit-base-patch32")',
        "after": ON,
    },
}


def codes(parts):
    parts = {"loaded": LOADED, "before": "", "targets": "", "after": "", "step": "pass", "marked": "pass", **parts}
    return [finding.code for finding in check_source(SCRIPT.format(**parts)) if finding.code != "CKPT130"]


@pytest.mark.parametrize("parts", LOST.values(), ids=LOST)
def test_an_adapter_behind_frozen_patches_gets_no_gradient(parts):
    assert codes(parts) == ["CKPT104"]


@pytest.mark.parametrize("parts", KEPT.values(), ids=KEPT)
def test_an_adapter_that_gets_one_is_right(parts):
    assert codes(parts) == []
