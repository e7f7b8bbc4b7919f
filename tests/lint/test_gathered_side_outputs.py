"""Losses that a reentrant region keeps on its modules, and how training code puts them together."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import lightning as L
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.balance = None

    def forward(self, x):
        gates = self.gate(x).softmax(-1)
        self.balance = gates.square().mean()
        return x * gates.sum(-1, keepdim=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Experts() for _ in range(3)])

    @property
    def balance_loss(self):
        return torch.stack([block.balance for block in self.blocks]).mean()

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

"""
_LIGHTNING = """
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        loss = self.net(batch[0]).mean()
        RETURN
"""
_TRAINER = """
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        out = model(inputs["ids"])
        loss = out.mean() + 0.1 * GATHERED
        return (loss, out) if return_outputs else loss

Own(Net()).train()
"""
_STACK = "torch.stack([block.balance for block in NET.blocks]).mean()"
WRONG = {
    "a property": "net = Net()\nloss = net(ids).mean() + net.balance_loss\nloss.backward()\n",
    "a property that Lightning gets": _LIGHTNING.replace("RETURN", "return loss + 0.1 * self.net.balance_loss"),
    "Lightning": _LIGHTNING.replace("RETURN", f"return loss + {_STACK.replace('NET', 'self.net')}"),
    "a Trainer": _TRAINER.replace("GATHERED", _STACK.replace("NET", "model")),
}
RIGHT = {
    "a property that is shown": "net = Net()\nloss = net(ids).mean()\nprint(net.balance_loss)\nloss.backward()\n",
    "a property that is logged": _LIGHTNING.replace(
        "RETURN", 'self.log("balance", self.net.balance_loss)\n        return loss'
    ),
    "gathered and logged": _LIGHTNING.replace(
        "RETURN", f'self.log("balance", {_STACK.replace("NET", "self.net")})\n        return loss'
    ),
    "no gradient": _TRAINER.replace("GATHERED", f"{_STACK.replace('NET', 'model')}.detach()"),
}


def _found(text: str) -> list[str]:
    return [found.code for found in check_source(text, "train.py")]


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_loss_that_a_framework_or_a_property_gathers(text):
    assert _found(NET + text) == ["CKPT113"]
    assert _found((NET + text).replace("use_reentrant=True", "use_reentrant=False")) == []


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_reaches_no_loss(text):
    assert _found(NET + text) == []


def test_a_minus_keeps_the_gradient():
    text = (NET + WRONG["a property"]).replace("gates.square().mean()", "-gates.log().mean()")
    assert _found(text) == ["CKPT113"]
    assert _found(text.replace("-gates.log().mean()", "-gates.log().mean().item()")) == []


LISTED = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.balances = []

    def forward(self, x):
        gates = self.gate(x).softmax(-1)
        self.balances.append(gates.square().mean())
        return x * gates.sum(-1, keepdim=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Experts() for _ in range(3)])

    def forward(self, ids):
        x, total, count = self.emb(ids), 0.0, 0
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
            EACH
        return x.mean() + total, count

def train(loader, optimizer):
    net = Net()
    for ids in loader:
        loss, _ = net(ids)
        loss = loss + LATER
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("each", "later"),
    [
        ("total = total + block.balances[-1]", "0"),
        ("total = 0.1 * block.balances[-1] + total", "0"),
        ("pass", "sum(balance for block in net.blocks for balance in block.balances)"),
        ("pass", "sum(block.balances[-1] for block in net.blocks)"),
    ],
)
def test_what_modules_append_to_their_own_lists(each: str, later: str) -> None:
    text = LISTED.replace("EACH", each).replace("LATER", later)
    assert [it.code for it in check_source(text, "net.py")] == ["CKPT113"]


@pytest.mark.parametrize(
    ("each", "later"),
    [
        ("count = count + len(block.balances)", "0"),
        ("total = total + block.balances[-1].detach()", "0"),
        ("print(total + block.balances[-1])", "0"),
        ("pass", "sum(len(block.balances) for block in net.blocks)"),
        ("pass", "sum(balance.item() for block in net.blocks for balance in block.balances)"),
    ],
)
def test_what_only_is_counted_or_shown(each: str, later: str) -> None:
    text = LISTED.replace("EACH", each).replace("LATER", later)
    assert [it.code for it in check_source(text, "net.py")] == []


ROUTED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
class Gate(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Linear(d, 4)
    def forward(self, x):
        p = self.w(x).softmax(-1)
        self.balance = (p.mean(0) ** 2).sum()
        return p.max(-1, keepdim=True).values
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate, self.lin = Gate(d), nn.Linear(d, d)
    def forward(self, x):
        return x + self.gate(x) * self.lin(x)
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))
    def body(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=True)
        return x
"""
HANDED_OUT = {
    "in the returned tuple": """
    def forward(self, x):
        x = self.body(x)
        return x, torch.stack([b.gate.balance for b in self.blocks]).mean()
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = F.mse_loss(out, y) + 0.01 * aux
    loss.backward()
""",
    "by variables": """
    def forward(self, x):
        x = self.body(x)
        balances = [b.gate.balance for b in self.blocks]
        aux = torch.stack(balances).mean()
        return x, aux
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = F.mse_loss(out, y)
    loss += 0.01 * aux
    loss.backward()
""",
    "in a dict": """
    def forward(self, x):
        x = self.body(x)
        aux = torch.stack([b.gate.balance for b in self.blocks]).mean()
        return {"out": x, "aux": aux}
net = Net()
for x, y in torch.load("b.pt"):
    res = net(x)
    loss = F.mse_loss(res["out"], y) + 0.01 * res["aux"]
    loss.backward()
""",
    "by a method": """
    def forward(self, x):
        return self.body(x), self.aux()
    def aux(self):
        return torch.stack([b.gate.balance for b in self.blocks]).mean()
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = F.mse_loss(out, y) + 0.01 * aux
    loss.backward()
""",
    "a step adds it": """
    def forward(self, x, y):
        x = self.body(x)
        aux = torch.cat([b.gate.balance.view(1) for b in self.blocks]).sum()
        loss = F.mse_loss(x, y)
        return loss, aux
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
def step(batch):
    task, aux = net(*batch)
    return task + aux
for batch in torch.load("b.pt"):
    loss = step(batch)
    loss.backward()
    opt.step()
""",
    "by position": """
    def forward(self, x):
        x = self.body(x)
        return x, torch.stack([m.balance for m in self.modules() if isinstance(m, Gate)]).mean()
net = Net()
for x, y in torch.load("b.pt"):
    out = net(x)
    loss = F.mse_loss(out[0], y) + 0.01 * out[1]
    loss.backward()
""",
    "a criterion adds it": """
    def forward(self, x):
        x = self.body(x)
        aux = torch.stack([b.gate.balance for b in self.blocks]).mean()
        return x, aux
def criterion(pred, target, aux):
    return F.mse_loss(pred, target) + 0.01 * aux
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = criterion(out, y, aux)
    loss.backward()
""",
}
NOT_USED = {
    "only printed": """
    def forward(self, x):
        x = self.body(x)
        aux = torch.stack([b.gate.balance for b in self.blocks]).mean()
        return x, aux
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    print(aux.item())
""",
    "detached": """
    def forward(self, x):
        x = self.body(x)
        aux = torch.stack([b.gate.balance for b in self.blocks]).detach().mean()
        return x, aux
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    print(loss + aux)
""",
    "without gradients": """
    def forward(self, x):
        x = self.body(x)
        with torch.no_grad():
            aux = torch.stack([b.gate.balance for b in self.blocks]).mean()
        return x, aux
net = Net()
for x, y in torch.load("b.pt"):
    out, aux = net(x)
    loss = F.mse_loss(out, y) + aux
    loss.backward()
""",
    "another part of the tuple": """
    def forward(self, x):
        x = self.body(x)
        aux = torch.stack([b.gate.balance for b in self.blocks]).mean()
        return x, self.stem.weight.square().mean(), aux
net = Net()
for x, y in torch.load("b.pt"):
    out, reg, aux = net(x)
    loss = F.mse_loss(out, y) + reg
    loss.backward()
""",
}


@pytest.mark.parametrize("script", HANDED_OUT.values(), ids=HANDED_OUT)
def test_a_forward_that_hands_out_what_it_gathers(script: str) -> None:
    assert "CKPT113" in _found(ROUTED + script)


@pytest.mark.parametrize("script", NOT_USED.values(), ids=NOT_USED)
def test_a_forward_whose_gathered_losses_are_for_nothing(script: str) -> None:
    assert "CKPT113" not in _found(ROUTED + script)
