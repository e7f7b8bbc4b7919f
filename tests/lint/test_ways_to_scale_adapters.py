"""Ways to set how much the adapters in the layers of a model count, between its forward and its backward pass."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn.functional as F
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from transformers import AutoModelForCausalLM

def load():
    base = AutoModelForCausalLM.from_pretrained("base", device_map={"": 0})
    model = PeftModel.from_pretrained(base, "start", is_trainable=True)
    model.base_model.model.activation_checkpointing_enable({"use_reentrant": False})
    return model

def sequence_logps(model, batch):
    logits = model(**batch, use_cache=False).logits[:, :-1].float()
    return logits.log_softmax(-1).sum((-1, -2)).chunk(2)

STEPS
def main(beta=0.1):
    model = load().train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6)
    for batch in torch.load("preferences.pt"):
        loss = dpo_loss(model, batch.to("cuda"), beta)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

main()
"""
CHANGED = {
    "a helper": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "h_scaling": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = strength
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "h_named": """\
def at_strength(model, strength, batch):
    for name, module in model.named_modules():
        if "lora" in name and hasattr(module, "set_scale"):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "h_continue": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if not isinstance(module, LoraLayer):
            continue
        module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_scale": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", 0.0)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_scaling": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = 0.0
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_enable": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.enable_adapters(False)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_dis": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module._disable_adapters = True
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "h_split": """\
def scale_to(model, strength):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)

def dpo_loss(model, batch, beta):
    scale_to(model, 1)
    chosen, rejected = sequence_logps(model, batch)
    scale_to(model, 0)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "h_list": """\
def scale_to(model, strength):
    layers = [m for m in model.modules() if isinstance(m, LoraLayer)]
    for layer in layers:
        layer.set_scale("default", strength)

def dpo_loss(model, batch, beta):
    scale_to(model, 1)
    chosen, rejected = sequence_logps(model, batch)
    scale_to(model, 0)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
}
RIGHT = {
    "i_scale": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", 0.0)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", 1.0)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_scaling": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = 0.0
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = 2.0
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_enable": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.enable_adapters(False)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.enable_adapters(True)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "i_dis": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module._disable_adapters = True
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module._disable_adapters = False
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "h_same": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 1.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "order": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    chosen, rejected = at_strength(model, 1.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "back": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def back(model):
    for m in model.modules():
        if hasattr(m, "set_scale"):
            m.set_scale("default", 1.0)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    back(model)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "back2": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, 0.0, batch)
    with torch.no_grad():
        at_strength(model, 1.0, batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "saved": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.kept = module.scaling["default"]
            module.scaling["default"] = 0.0
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scaling["default"] = module.kept
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "saved2": """\
def dpo_loss(model, batch, beta):
    chosen, rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.scale_layer(0.0)
    with torch.no_grad():
        ref_chosen, ref_rejected = sequence_logps(model, batch)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.unscale_layer()
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
    "one that is not known": """\
def at_strength(model, strength, batch):
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.set_scale("default", strength)
    return sequence_logps(model, batch)

def dpo_loss(model, batch, beta):
    chosen, rejected = at_strength(model, 1.0, batch)
    with torch.no_grad():
        ref_chosen, ref_rejected = at_strength(model, batch["strength"], batch)
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -F.logsigmoid(beta * margin).mean()

""",
}


def codes(steps):
    return [finding.code for finding in check_source(SCRIPT.replace("STEPS", steps))]


@pytest.mark.parametrize("way", CHANGED)
def test_layers_run_again_with_another_strength(way):
    assert codes(CHANGED[way]) == ["CKPT114"]


@pytest.mark.parametrize("way", RIGHT)
def test_the_strength_of_the_forward_pass_is_right(way):
    assert codes(RIGHT[way]) == []
