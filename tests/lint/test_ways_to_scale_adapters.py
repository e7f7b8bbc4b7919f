"""Ways to set how much the adapters in the layers of a model count, between its forward and its backward pass."""

from textwrap import indent

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
#: How a loop goes through the layers with adapters, and sets something of each.
LAYERS = """\
for module in model.modules():
    if isinstance(module, LoraLayer):
        {sets}
"""
NAMED = """\
for name, module in model.named_modules():
    if "lora" in name and hasattr(module, "set_scale"):
        {sets}
"""
SKIPPED = """\
for module in model.modules():
    if not isinstance(module, LoraLayer):
        continue
    {sets}
"""
LISTED = """\
layers = [m for m in model.modules() if isinstance(m, LoraLayer)]
for layer in layers:
    {sets}
"""
SCALE = 'module.set_scale("default", strength)'


def each(sets: str) -> str:
    return LAYERS.format(sets=sets)


def policy(call: str = "sequence_logps(model, batch)") -> str:
    return f"chosen, rejected = {call}\n"


def reference(call: str = "sequence_logps(model, batch)") -> str:
    return f"with torch.no_grad():\n    ref_chosen, ref_rejected = {call}\n"


def loss_of(*steps: str) -> str:
    """The loss, of these ``steps``."""
    margin = "margin = (chosen - ref_chosen) - (rejected - ref_rejected)\nreturn -F.logsigmoid(beta * margin).mean()\n"
    return "def dpo_loss(model, batch, beta):\n" + indent("".join((*steps, margin)), " " * 4) + "\n"


def helper(loop: str = LAYERS, sets: str = SCALE) -> str:
    """A function that sets the strength of the layers and runs the model."""
    body = indent(loop.format(sets=sets), " " * 4)
    return f"def at_strength(model, strength, batch):\n{body}    return sequence_logps(model, batch)\n\n"


def by_helper(loop: str = LAYERS, sets: str = SCALE) -> str:
    return helper(loop, sets) + loss_of(policy(AT_ONE), reference(AT_ZERO))


def by_setter(loop: str, sets: str) -> str:
    """The same with a function that only sets it."""
    setter = f"def scale_to(model, strength):\n{indent(loop.format(sets=sets), ' ' * 4)}\n"
    return setter + loss_of("scale_to(model, 1)\n", policy(), "scale_to(model, 0)\n", reference())


AT_ONE, AT_ZERO = "at_strength(model, 1.0, batch)", "at_strength(model, 0.0, batch)"
#: What takes the adapters out, and what takes that back.
IN_PLACE = {
    "set_scale": ('module.set_scale("default", 0.0)', 'module.set_scale("default", 1.0)'),
    "scaling": ('module.scaling["default"] = 0.0', 'module.scaling["default"] = 2.0'),
    "enable_adapters": ("module.enable_adapters(False)", "module.enable_adapters(True)"),
    "_disable_adapters": ("module._disable_adapters = True", "module._disable_adapters = False"),
}
BACK = """\
def back(model):
    for m in model.modules():
        if hasattr(m, "set_scale"):
            m.set_scale("default", 1.0)

"""
KEEP = 'module.kept = module.scaling["default"]\n        module.scaling["default"] = 0.0'
CHANGED = {
    "a helper": by_helper(),
    "a helper, scaling": by_helper(sets='module.scaling["default"] = strength'),
    "a helper, by names": by_helper(NAMED),
    "a helper that skips": by_helper(SKIPPED),
    **{way: loss_of(policy(), each(out), reference()) for way, (out, _) in IN_PLACE.items()},
    "a setter": by_setter(LAYERS, SCALE),
    "a setter, a list": by_setter(LISTED, 'layer.set_scale("default", strength)'),
}
RIGHT = {
    **{way: loss_of(policy(), each(out), reference(), each(back)) for way, (out, back) in IN_PLACE.items()},
    "the same strength": helper() + loss_of(policy(AT_ONE), reference(AT_ONE)),
    "the reference first": helper() + loss_of(reference(AT_ZERO), policy(AT_ONE)),
    "taken back by a function": helper() + BACK + loss_of(policy(AT_ONE), reference(AT_ZERO), "back(model)\n"),
    "taken back by the helper": helper()
    + loss_of(policy(AT_ONE), reference(AT_ZERO), f"with torch.no_grad():\n    {AT_ONE}\n"),
    "a kept strength": loss_of(policy(), each(KEEP), reference(), each('module.scaling["default"] = module.kept')),
    "scale_layer": loss_of(policy(), each("module.scale_layer(0.0)"), reference(), each("module.unscale_layer()")),
    "one that is not known": helper()
    + loss_of(policy(AT_ONE), reference('at_strength(model, batch["strength"], batch)')),
}


def codes(steps):
    return [finding.code for finding in check_source(SCRIPT.replace("STEPS", steps))]


@pytest.mark.parametrize("way", CHANGED)
def test_layers_run_again_with_another_strength(way):
    assert codes(CHANGED[way]) == ["CKPT114"]


@pytest.mark.parametrize("way", RIGHT)
def test_the_strength_of_the_forward_pass_is_right(way):
    assert codes(RIGHT[way]) == []
