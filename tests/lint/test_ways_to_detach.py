"""Tensors between segments, detached in the ways that scripts detach; runs show that nothing before them learns."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """import torch
import numpy as np
from torch import nn
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(4)])
        self.head = nn.Linear(d, d)
    def forward(self, x):
        h = self.stem(x)
{0}
        return self.head(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in torch.utils.data.DataLoader(data):
    nn.functional.mse_loss(net(x), y).backward()
    opt.step()
"""
CUT = {
    "from the second on": """
        for k, b in enumerate(self.blocks):
            if k:
                h = h.detach()
            h = checkpoint(b, h, use_reentrant=False)
""",
    "from the second on, in one expression": """
        for k, b in enumerate(self.blocks, 1):
            h = checkpoint(b, h.detach() if 1 < k else h, use_reentrant=False)
""",
    "from the second on, under another name": """
        for k in range(4):
            if k == 0:
                given = h
            else:
                given = h.detach().requires_grad_()
            h = checkpoint(self.blocks[k], given, use_reentrant=False)
""",
    "the first by itself": """
        for k, b in enumerate(self.blocks):
            if k == 0:
                h = checkpoint(b, h, use_reentrant=False)
                continue
            h = checkpoint(b, h.detach(), use_reentrant=False)
""",
    "but the first block": """
        for b in self.blocks:
            if b is not self.blocks[0]:
                h = h.detach()
                h.requires_grad_(True)
            h = checkpoint(b, h, use_reentrant=False)
""",
    "after a flag": """
        first = True
        for b in self.blocks:
            if not first:
                h = h.detach()
            first = False
            h = checkpoint(b, h, use_reentrant=False)
""",
    "counted by hand": """
        i = 0
        while i < len(self.blocks):
            if i > 0:
                h = h.detach()
            h = checkpoint(self.blocks[i], h, use_reentrant=False)
            i += 1
""",
    "entries of a dict": """
        kept, last = {"stem": h}, "stem"
        for name, b in enumerate(self.blocks):
            kept[name] = checkpoint(b, kept[last].detach(), use_reentrant=False)
            last = name
        h = kept[last]
""",
    "entries but the last": """
        kept = {0: h}
        for i, b in enumerate(self.blocks):
            y = checkpoint(b, kept[i], use_reentrant=False)
            kept[i + 1] = y if i == 3 else y.detach()
        h = kept[4]
""",
    "detach": """
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False)
            h = h.detach()
""",
    "chained": """
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False).detach()
""",
    "input": """
        for b in self.blocks:
            h = checkpoint(b, h.detach(), use_reentrant=False)
""",
    "requires": """
        for b in self.blocks:
            h = checkpoint(b, h.detach().requires_grad_(True), use_reentrant=False)
""",
    "data": """
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False).data
""",
    "data in": """
        for b in self.blocks:
            h = checkpoint(b, h.data, use_reentrant=False)
""",
    "tensor": """
        for b in self.blocks:
            h = checkpoint(b, torch.tensor(h), use_reentrant=False)
""",
    "as_tensor numpy": """
        for b in self.blocks:
            h = torch.from_numpy(checkpoint(b, h, use_reentrant=False).detach().numpy())
""",
    "numpy": """
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False)
            h = torch.as_tensor(h.detach().cpu().numpy())
""",
    "detach_": """
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False)
            h.detach_()
""",
    "torch.detach": """
        for b in self.blocks:
            h = torch.detach(checkpoint(b, h, use_reentrant=False))
""",
    "tolist": """
        for b in self.blocks:
            h = torch.tensor(checkpoint(b, h, use_reentrant=False).tolist())
""",
    "two": """
        h = checkpoint(self.blocks[0], h, use_reentrant=False)
        h = checkpoint(self.blocks[1], h.detach(), use_reentrant=False)
""",
    "two tensor": """
        h = checkpoint(self.blocks[0], h, use_reentrant=False)
        h = checkpoint(self.blocks[1], torch.tensor(h), use_reentrant=False)
""",
    "leaves in a list": """
        kept = [h]
        for b in self.blocks:
            h = checkpoint(b, kept[-1], use_reentrant=False)
            kept.append(h.detach().requires_grad_())
""",
    "leaves in a dict": """
        kept = {0: h}
        for i, b in enumerate(self.blocks):
            h = checkpoint(b, kept[i], use_reentrant=False)
            kept[i + 1] = h.detach().requires_grad_()
""",
    "a leaf under one key": """
        kept = {"last": h}
        for b in self.blocks:
            h = checkpoint(b, kept["last"], use_reentrant=False)
            kept["last"] = h.detach().requires_grad_()
""",
    "leaves with a name": """
        kept = [h]
        for i, b in enumerate(self.blocks):
            h = checkpoint(b, kept[i], use_reentrant=False)
            leaf = h.detach().requires_grad_()
            kept.append(leaf)
""",
    "leaves on a stack": """
        kept = [h]
        for b in self.blocks:
            h = checkpoint(b, kept.pop(), use_reentrant=False)
            kept.append(h.detach().requires_grad_())
""",
    "a list of the model": """
        self.kept = [h]
        for b in self.blocks:
            h = checkpoint(b, self.kept[-1], use_reentrant=False)
            self.kept.append(h.detach())
""",
}
RIGHT = {
    "some of them": """
        for k, b in enumerate(self.blocks):
            if k % 2:
                h = h.detach()
            h = checkpoint(b, h, use_reentrant=False)
""",
    "from the third on": """
        for k, b in enumerate(self.blocks):
            if k > 1:
                h = h.detach()
            h = checkpoint(b, h, use_reentrant=False)
""",
    "a memory beside": """
        for k, b in enumerate(self.blocks):
            memory = h.detach() if k else h
            h = checkpoint(b, h + memory, use_reentrant=False)
""",
    "a residual beside": """
        for k, b in enumerate(self.blocks):
            given = h.detach() if k else h
            h = checkpoint(b, given, use_reentrant=False) + h
""",
    "a flag set before": """
        first = True
        for k, b in enumerate(self.blocks):
            first = k == 2
            if not first:
                h = h * 1.0
            h = checkpoint(b, h.detach() if first else h, use_reentrant=False)
""",
    "a list with gradients": """
        self.kept, self.seen = [h], []
        for b in self.blocks:
            h = checkpoint(b, self.kept[-1], use_reentrant=False)
            self.kept.append(h)
            self.seen.append(h.detach())
""",
    "leaves for a pass by hand": """
        kept = [h]
        for b in self.blocks:
            h = checkpoint(b, kept[-1], use_reentrant=False)
            kept.append(h.detach().requires_grad_())
        self.kept = kept
""",
    "leaves with a loss each": """
        kept, loss = [h], 0
        for b in self.blocks:
            y = checkpoint(b, kept[-1], use_reentrant=False)
            loss = loss + y
            kept.append(y.detach().requires_grad_())
        h = loss
""",
    "a memory of each layer": """
        memory = [torch.zeros(8)] * 4
        for i, b in enumerate(self.blocks):
            h = checkpoint(b, h + memory[i], use_reentrant=False)
            memory[i] = h.detach()
""",
    "a memory under a name": """
        memory = torch.zeros(8)
        for b in self.blocks:
            h = checkpoint(lambda a, m, b=b: b(a + m), h, memory, use_reentrant=False)
            memory = h.detach()
""",
    "a memory beside another name": """
        memory = {i: torch.zeros(8) for i in range(4)}
        for i, b in enumerate(self.blocks):
            y = checkpoint(lambda a, m, b=b: b(a + m), h, memory[i], use_reentrant=False)
            memory[i] = y.detach()
            h = y
""",
    "a memory that grows": """
        memory = [torch.zeros(8)]
        for b in self.blocks:
            h = checkpoint(lambda a, m, b=b: b(a + m), h, memory[-1], use_reentrant=False)
            memory.append(h.detach())
""",
    "entries that are only kept": """
        kept = {}
        for i, b in enumerate(self.blocks):
            h = checkpoint(b, h, use_reentrant=False)
            kept[i] = h.detach()
        self.last = kept
""",
    "only looked at": """
        norms = []
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False)
            norms.append(h.data.norm())
""",
    "a copy beside": """
        for b in self.blocks:
            kept = h.detach()
            h = checkpoint(b, h, use_reentrant=False)
        self.last = torch.tensor(kept.tolist())
""",
    "a number": """
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False) * torch.tensor(0.5)
""",
    "a mask as an argument": """
        scale = torch.tensor([1.0])
        for b in self.blocks:
            h = checkpoint(b, h * scale.data, use_reentrant=False)
""",
}


def test_a_call_that_gets_a_copy_is_still_the_call_in_the_text():
    script = """
from torch.utils.checkpoint import checkpoint
for i, layer in enumerate(layers):
    h = checkpoint(layer, h, torch.tensor(i), past.data)
"""
    assert "CKPT101" in [finding.code for finding in check_source(script)]


def codes(forward):
    return [finding.code for finding in check_source(SCRIPT.replace("{0}", forward.strip("\n")))]


@pytest.mark.parametrize("forward", CUT.values(), ids=CUT)
def test_segments_that_are_cut_off(forward):
    assert "CKPT121" in codes(forward)


@pytest.mark.parametrize("forward", RIGHT.values(), ids=RIGHT)
def test_segments_that_are_not(forward):
    assert codes(forward) == []
