"""Ways to give modules a `spectral_norm` after they were made, and modules beside them that no checkpoint runs again."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

HELPER
class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.norm = nn.GroupNorm(2, cout)
        INBLOCK

    def forward(self, x):
        return self.norm(self.conv2(nn.functional.leaky_relu(self.conv1(x), 0.2)))

class Critic(nn.Module):
    def __init__(self, width=32, levels=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 1)
        self.blocks = nn.ModuleList(Down(width, width) for _ in range(levels))
        self.score = nn.Linear(width, 1)
        INCRITIC

    def forward(self, image):
        h = self.stem(image)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)
        return self.score(h.mean((2, 3))).squeeze(-1)

critic = Critic()
AFTER
critic.train()
opt = torch.optim.Adam(critic.parameters())
for image in torch.load("faces.pt"):
    opt.zero_grad()
    critic(image).mean().backward()
    opt.step()
"""
#: By the way: a helper, what the block and the model do at the end of their constructors, and what the script does.
INSIDE = {
    "parents": (
        "def norm(root):\n    for parent in list(root.modules()):\n        for name, child in list(parent.named_children()):\n            if isinstance(child, nn.Conv2d):\n                setattr(parent, name, spectral_norm(child))\n    return root\n",
        "pass",
        "norm(self)",
        "pass",
    ),
    "inplace": (
        "def norm(root):\n    for module in root.modules():\n        if isinstance(module, nn.Conv2d):\n            spectral_norm(module)\n",
        "pass",
        "norm(self)",
        "pass",
    ),
    "inplace_model": (
        "",
        "pass",
        "pass",
        "for module in critic.modules():\n    if isinstance(module, (nn.Conv2d, nn.Linear)):\n        spectral_norm(module)",
    ),
    "list": (
        "",
        "pass",
        "pass",
        "for module in list(critic.modules()):\n    if isinstance(module, nn.Conv2d):\n        spectral_norm(module, n_power_iterations=1)",
    ),
    "named": (
        "",
        "pass",
        "pass",
        "for name, module in critic.named_modules():\n    if isinstance(module, nn.Conv2d):\n        torch.nn.utils.spectral_norm(module)",
    ),
    "apply": (
        "def add_sn(m):\n    if isinstance(m, (nn.Conv2d, nn.Linear)):\n        spectral_norm(m)\n",
        "pass",
        "pass",
        "critic.apply(add_sn)",
    ),
    "apply_self": (
        "def add_sn(m):\n    if isinstance(m, nn.Conv2d):\n        return spectral_norm(m)\n    return m\n",
        "pass",
        "self.apply(add_sn)",
        "pass",
    ),
    "recursive": (
        "def norm(module):\n    for name, child in module.named_children():\n        if isinstance(child, nn.Conv2d):\n            setattr(module, name, spectral_norm(child))\n        else:\n            norm(child)\n",
        "pass",
        "pass",
        "norm(critic)",
    ),
    "own": ("", "spectral_norm(self.conv1)", "pass", "pass"),
    "own_set": ("", "self.conv1 = spectral_norm(self.conv1)", "pass", "pass"),
    "own_loop": ("", "for conv in (self.conv1, self.conv2):\n            spectral_norm(conv)", "pass", "pass"),
    "own_names": (
        "",
        'for name in ("conv1", "conv2"):\n            setattr(self, name, spectral_norm(getattr(self, name)))',
        "pass",
        "pass",
    ),
    "blocks": ("", "pass", "for block in self.blocks:\n            spectral_norm(block.conv1)", "pass"),
    "block_conv": (
        "",
        "pass",
        "for block in self.blocks:\n            block.conv1 = spectral_norm(block.conv1)",
        "pass",
    ),
    "children": (
        "",
        "for child in self.children():\n            if isinstance(child, nn.Conv2d):\n                spectral_norm(child)",
        "pass",
        "pass",
    ),
    "hasattr": (
        "",
        "pass",
        "pass",
        'for module in critic.modules():\n    if isinstance(module, nn.Conv2d) and hasattr(module, "weight"):\n        spectral_norm(module)',
    ),
    "continue": (
        "",
        "pass",
        "pass",
        "for module in critic.modules():\n    if not isinstance(module, nn.Conv2d):\n        continue\n    spectral_norm(module)",
    ),
    "comp": ("", "pass", "pass", "[spectral_norm(m) for m in critic.modules() if isinstance(m, nn.Conv2d)]"),
}
OUTSIDE = {
    "stem": ("", "pass", "spectral_norm(self.stem)", "pass"),
    "stem_set": ("", "pass", "self.stem = spectral_norm(self.stem)", "pass"),
    "linear": (
        "",
        "pass",
        "pass",
        "for module in critic.modules():\n    if isinstance(module, nn.Linear):\n        spectral_norm(module)",
    ),
    "direct": (
        "",
        "pass",
        "pass",
        "for module in critic.children():\n    if isinstance(module, nn.Conv2d):\n        spectral_norm(module)",
    ),
    "named_stem": (
        "",
        "pass",
        "pass",
        'for name, module in critic.named_modules():\n    if isinstance(module, nn.Conv2d) and name.startswith("stem"):\n        spectral_norm(module)',
    ),
    "not_recursive": (
        "def norm(module):\n    for name, child in module.named_children():\n        if isinstance(child, nn.Conv2d):\n            setattr(module, name, spectral_norm(child))\n",
        "pass",
        "pass",
        "norm(critic)",
    ),
    "weight": (
        "",
        "pass",
        "pass",
        "for module in critic.modules():\n    if isinstance(module, nn.Conv2d):\n        weight_norm(module)",
    ),
    "apply_linear": (
        "def add_sn(m):\n    if isinstance(m, nn.Linear):\n        spectral_norm(m)\n",
        "pass",
        "pass",
        "critic.apply(add_sn)",
    ),
    "other": (
        "",
        "pass",
        "pass",
        "other = Critic()\nfor module in other.stem.modules():\n    if isinstance(module, nn.Conv2d):\n        spectral_norm(module)",
    ),
    "none": (
        "def norm(root):\n    for module in root.modules():\n        if isinstance(module, nn.Conv2d):\n            spectral_norm(module)\n",
        "pass",
        "pass",
        "pass",
    ),
    "score": (
        "def norm(root):\n    for module in root.modules():\n        spectral_norm(module)\n",
        "pass",
        "norm(self.score)",
        "pass",
    ),
    "removed": (
        "from torch.nn.utils import remove_spectral_norm\n",
        "pass",
        "pass",
        "for module in critic.modules():\n    if isinstance(module, nn.Conv2d):\n        torch.nn.utils.spectral_norm(module)\nfor module in critic.modules():\n    if isinstance(module, nn.Conv2d):\n        remove_spectral_norm(module)",
    ),
    "convs_linear": (
        "",
        "pass",
        "pass",
        "convs = [m for m in critic.modules() if isinstance(m, nn.Linear)]\nfor conv in convs:\n    spectral_norm(conv)",
    ),
    "children_linear": (
        "",
        "parts = [m for m in self.children() if isinstance(m, nn.Linear)]\n        for part in parts:\n            spectral_norm(part)",
        "pass",
        "pass",
    ),
    "children_linear2": (
        "",
        "for part in self.children():\n            if isinstance(part, nn.Linear):\n                spectral_norm(part)",
        "pass",
        "pass",
    ),
    "helper_filter": (
        "def sn(m):\n    spectral_norm(m)\n",
        "pass",
        "pass",
        "for m in critic.modules():\n    if isinstance(m, nn.Linear):\n        sn(m)",
    ),
    "filter_fn": (
        "",
        "pass",
        "pass",
        "for m in filter(lambda m: isinstance(m, nn.Linear), critic.modules()):\n    spectral_norm(m)",
    ),
    "maker": (
        "def conv(a, b):\n    return nn.Conv2d(a, b, 3, padding=1)\n",
        "self.conv1 = conv(cin, cout)",
        "self.stem = conv(3, width)\n        spectral_norm(self.stem)",
        "pass",
    ),
    "which": ("import sys\n", "spectral_norm(self.conv1 if len(sys.argv) > 1 else nn.Linear(3, 3))", "pass", "pass"),
    "flag": (
        "import sys\n",
        "pass",
        "pass",
        "if len(sys.argv) > 2:\n    for module in critic.modules():\n        if isinstance(module, nn.Conv2d):\n            spectral_norm(module)",
    ),
}


def codes(helper, in_block, in_model, after):
    script = SCRIPT.replace("HELPER", helper).replace("INBLOCK", in_block).replace("INCRITIC", in_model)
    return [finding.code for finding in check_source(script.replace("AFTER", after))]


@pytest.mark.parametrize("way", INSIDE)
def test_the_power_iteration_runs_twice(way):
    assert codes(*INSIDE[way]) == ["CKPT107"]


@pytest.mark.parametrize("way", OUTSIDE)
def test_other_modules_are_right(way):
    assert codes(*OUTSIDE[way]) == []
