"""Names below checkpoint wrappers, searched with regular expressions: what finds nothing is found, and nothing else."""

import re
import textwrap

import pytest
from hf_ckpt.lint import check_source
from hf_ckpt.lint.model.texts.name_patterns import name_for

WRAPPED = "layers.0._checkpoint_wrapped_module."
LEAVES = ("self_attn.q_proj.weight", "mlp.gate_proj.weight", "mlp.up.bias", "norm.weight")


@pytest.mark.parametrize(
    "pattern",
    [
        r"layers\.(\d+)\.(norm|mlp)\.",
        r"layers\.\d+\.self_attn\.",
        r".*layers\.([0-9]+)\.mlp\..*",
        r"^layers\.\d{1,2}\.mlp\.(?:gate|up)_proj\.weight$",
        r"layers.\d+.self_attn",
        r"layers\.(?P<index>\d+)\.mlp\.(\w+)\.",
        r"(?:model\.)?layers\.\d+\.self_attn\.[qkv]_proj",
        r"layers[.](\d+)[.]norm",
        r"layers\.[0-3]\.mlp\.",
        r"layers\.[01]\.(self_attn|mlp)\.",
        r"layers\.(?:[0-9]|1[0-5])\.norm\.weight",
        r"layers\.(0|[1-4])\.mlp",
    ],
)
def test_a_pattern_that_asks_for_unwrapped_names_has_one(pattern):
    name = name_for(pattern, "search")
    assert name is not None
    assert any(re.search(pattern, f"layers.0.{leaf}") for leaf in LEAVES)
    assert not any(re.search(pattern, WRAPPED + leaf) for leaf in LEAVES)


@pytest.mark.parametrize(
    "pattern",
    [
        r"layers\.(\d+)\.",
        r"layers\.\d+\..*q_proj",
        r"layers\.\d+\.(?:_checkpoint_wrapped_module\.)?mlp",
        r"layers\.\d+\.(\w+\.)*mlp",
        r"layers\.\d+\.\w+\.weight",
        r"layers\.\d+\.(mlp|.*norm)",
        r"norm|bias",
        r"self_attn\.[qkv]_proj",
        r"layers\.(",
        r"layers\.[0-3]\.",
        r"layers\.[0-3]\..*mlp",
    ],
)
def test_a_pattern_that_finds_wrapped_names_too_has_none(pattern):
    assert name_for(pattern, "search") is None


NET = """
    import re
    import torch.nn as nn
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 8)
            self.blocks = nn.ModuleList([Block() for _ in range(4)])
            self.tail = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    PATTERN = re.compile(r"blocks\\.(\\d+)\\.(norm|fc)\\.")
    net = Net()
"""
ASK = '[p for n, p in net.named_parameters() if re.match(r"blocks\\.(\\d+)\\.norm", n)]\n'
FILLED = "for i, block in enumerate(net.blocks):\n    net.blocks[i] = checkpoint_wrapper(block)\n"


def codes(code: str) -> list[str]:
    return [finding.code for finding in check_source(textwrap.dedent(NET) + code, select=["CKPT131"])]


@pytest.mark.parametrize(
    "wrap",
    [
        FILLED,
        "for i in range(len(net.blocks)):\n    net.blocks[i] = checkpoint_wrapper(net.blocks[i])\n",
        "for i, block in enumerate(net.blocks):\n    block = checkpoint_wrapper(block)\n    net.blocks[i] = block\n",
        "for n, b in net.blocks.named_children():\n    net.blocks.register_module(n, checkpoint_wrapper(b))\n",
        "for n, b in net.blocks.named_children():\n    setattr(net.blocks, n, checkpoint_wrapper(b))\n",
        "def wrap(model):\n    for i, b in enumerate(model.blocks):\n        model.blocks[i] = checkpoint_wrapper(b)\n\n"
        "wrap(net)\n",
        "net.blocks = nn.ModuleList([checkpoint_wrapper(b) for b in net.blocks])\n",
        "apply_activation_checkpointing(net, check_fn=lambda m: isinstance(m, Block))\n",
    ],
)
@pytest.mark.parametrize(
    "ask",
    [
        ASK,
        "[p for n, p in net.named_parameters() if PATTERN.match(n)]\n",
        "for name, p in net.named_parameters():\n    m = PATTERN.search(name)\n    p.requires_grad = m is not None\n",
        "def rates(model):\n    for name, p in model.named_parameters():\n"
        '        if re.fullmatch(r"blocks\\.\\d+\\.fc\\.(weight|bias)", name):\n            yield p\n\nlist(rates(net))\n',
    ],
)
def test_a_search_below_wrapped_blocks_is_found(wrap, ask):
    assert codes(wrap + ask) == ["CKPT131"]


@pytest.mark.parametrize(
    "code",
    [
        ASK + FILLED,
        FILLED.replace("    net", "    if i % 2:\n        net") + ASK,
        FILLED + ASK.replace("blocks", "tail"),
        FILLED + ASK.replace("norm", "norm|inp"),
        FILLED + ASK.replace("net.named_parameters()", "clean(net.named_parameters())"),
        FILLED + ASK.replace(", n)", ', n.replace("_checkpoint_wrapped_module.", ""))'),
        FILLED + ASK.replace(".norm", ".(_checkpoint_wrapped_module.)?norm"),
        "blocks = []\n"
        + FILLED.replace("net.blocks[i] =", "blocks += ").replace("+= c", "+= [c").replace("k)", "k)]")
        + ASK,
        FILLED.replace("enumerate(net.blocks)", "enumerate(net.tail)").replace("net.blocks[i]", "net.tail[i]") + ASK,
    ],
)
def test_a_search_that_finds_its_names_is_right(code):
    if "norm|inp" in code:
        code = code.replace("blocks\\.(\\d+)\\.norm|inp", "blocks\\.(\\d+)\\..*norm")
    assert codes(code) == []
