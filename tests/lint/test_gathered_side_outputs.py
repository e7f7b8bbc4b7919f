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
