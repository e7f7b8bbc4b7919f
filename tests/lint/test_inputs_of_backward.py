"""What `backward(inputs=...)` is given, in the ways that scripts gather parameters, with a reentrant checkpoint."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.emb = nn.Embedding(10, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(4)])
        self.head = nn.Linear(d, d)
    def forward(self, x):
        h = self.emb(x)
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=True)
        return self.head(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in torch.utils.data.DataLoader(data):
    loss = nn.functional.mse_loss(net(x), y)
{0}
    opt.step()
"""
INSIDE = {
    "list": """
    loss.backward(inputs=list(net.parameters()))
""",
    "comp": """
    loss.backward(inputs=[p for p in net.parameters() if p.requires_grad])
""",
    "var": """
    params = list(net.blocks.parameters())
    loss.backward(inputs=params)
""",
    "append": """
    params = []
    for p in net.parameters():
        params.append(p)
    loss.backward(inputs=params)
""",
    "groups": """
    loss.backward(inputs=[p for g in opt.param_groups for p in g["params"]])
""",
    "groups0": """
    loss.backward(inputs=opt.param_groups[0]["params"])
""",
    "tuple": """
    loss.backward(inputs=tuple(net.parameters()))
""",
    "filter": """
    loss.backward(inputs=list(filter(lambda p: p.requires_grad, net.parameters())))
""",
    "torch.autograd": """
    torch.autograd.backward(loss, inputs=list(net.parameters()))
""",
    "kwargs": """
    kw = dict(inputs=list(net.parameters()))
    loss.backward(**kw)
""",
}
#: Parameters behind the last checkpoint alone.
BEHIND = {
    "plus": """
    params = []
    params += list(net.head.parameters())
    loss.backward(inputs=params)
""",
    "named": """
    loss.backward(inputs=[p for n, p in net.named_parameters() if "head" in n])
""",
    "single": """
    loss.backward(inputs=[net.head.weight])
""",
    "single2": """
    loss.backward(inputs=net.head.weight)
""",
}


def codes(step):
    return [finding.code for finding in check_source(SCRIPT.format(step.strip("\n")))]


@pytest.mark.parametrize("step", INSIDE.values(), ids=INSIDE)
def test_parameters_inside_get_no_gradient(step):
    assert codes(step) == ["CKPT120"]


@pytest.mark.parametrize("step", BEHIND.values(), ids=BEHIND)
def test_parameters_behind_the_last_checkpoint_are_fine(step):
    assert codes(step) == []
