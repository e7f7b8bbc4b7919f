"""CKPT114: a step of an optimizer that holds the weights of a part that runs again, told from one of another part."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

AGENT = """
import copy
import itertools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d)) for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.actor, self.critic = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.encoder(x)
        return self.actor(hidden), self.critic(hidden)

def main(batches):
    agent, other = Agent(), nn.Linear(8, 8)
    MORE
    optimizer = torch.optim.Adam(HELD, lr=1e-3)
    for x, act, ret in batches:
        logits, value = agent(x)
        actor_loss, critic_loss = nn.functional.cross_entropy(logits, act), (ret - value).pow(2).mean()
        optimizer.zero_grad()
        actor_loss.backward(retain_graph=True)
        BETWEEN
        critic_loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main([(torch.randn(4, 8), torch.randint(4, (4,)), torch.randn(4, 1))])
"""
_ENCODER, _HEAD = "agent.encoder.parameters()", "agent.actor.parameters()"
TRAINED = {
    "the part itself": _ENCODER,
    "the whole": "agent.parameters()",
    "chained": f"itertools.chain({_HEAD}, {_ENCODER})",
    "chained from a list": f"itertools.chain.from_iterable([{_HEAD}, {_ENCODER}])",
    "added": f"list({_HEAD}) + list({_ENCODER})",
    "spread": f"[*{_HEAD}, *{_ENCODER}]",
    "in groups": f'[{{"params": {_HEAD}}}, {{"params": {_ENCODER}, "lr": 1e-4}}]',
    "filtered": "filter(lambda p: p.requires_grad, agent.parameters())",
    "those that train": "[p for p in agent.parameters() if p.requires_grad]",
    "matrices": "[p for _, p in agent.named_parameters() if p.ndim > 1]",
    "of several modules": "[p for module in (agent.actor, agent.encoder) for p in module.parameters()]",
    "a list inside": "agent.encoder.blocks.parameters()",
}
SPARED = {
    "of the head": _HEAD,
    "of heads": f"[*{_HEAD}, *agent.critic.parameters()]",
    "by name": '[p for n, p in agent.named_parameters() if n.startswith("actor")]',
    "of another module": "other.parameters()",
    "with a rate of 0": f'[{{"params": {_HEAD}}}, {{"params": {_ENCODER}, "lr": 0.0}}]',
    "of some parameters": "list(agent.encoder.parameters())[:0]",
}
NOT_ALONE = {
    "of another object of the class": ("agents = [Agent(), Agent()]", "agents[0].encoder.parameters()"),
    "of one of several": ("first, second = (Encoder() for _ in range(2))", "second.parameters()"),
    "of an encoder beside it": ("target = Encoder()", "target.parameters()"),
    "of a copy": ("target = copy.deepcopy(agent)", "target.encoder.parameters()"),
    "frozen": ("agent.encoder.requires_grad_(False)", f"[*{_ENCODER}, *{_HEAD}]"),
}


def _codes(held: str, more: str = "pass", between: str = "optimizer.step()") -> list[str]:
    program = AGENT.replace("HELD", held).replace("MORE", more).replace("BETWEEN", between)
    return [finding.code for finding in check_source(program, "agent.py")]


@pytest.mark.parametrize("held", TRAINED.values(), ids=TRAINED.keys())
def test_a_step_of_the_part_that_runs_again_is_found(held):
    assert "CKPT114" in _codes(held)


@pytest.mark.parametrize("held", TRAINED.values(), ids=TRAINED.keys())
def test_a_step_behind_both_backward_passes_is_right(held):
    assert "CKPT114" not in _codes(held, between="pass")


@pytest.mark.parametrize("held", SPARED.values(), ids=SPARED.keys())
def test_a_step_of_other_weights_is_right(held):
    assert "CKPT114" not in _codes(held)


@pytest.mark.parametrize(("more", "held"), NOT_ALONE.values(), ids=NOT_ALONE.keys())
def test_a_step_of_what_the_same_expression_built_elsewhere_is_right(more, held):
    assert "CKPT114" not in _codes(held, more)


LIGHTNING = """
import lightning as L
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.decoder, self.score = nn.Linear(8, 8), nn.Linear(8, 1)

    def training_step(self, batch, index):
        FIRST
        hidden = checkpoint(self.encoder, batch, use_reentrant=False)
        rebuilt, scored = self.decoder(hidden).mean(), self.score(hidden).mean()
        self.manual_backward(rebuilt, retain_graph=True)
        first.step()
        self.manual_backward(scored)
        second.step()

    def configure_optimizers(self):
        both = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()])
        score = torch.optim.Adam(self.score.parameters())
        return RETURNED
"""
_PAIR = "first, second = self.optimizers()"
ENCODER_FIRST = {
    "a pair": (_PAIR, "both, score"),
    "a list": (_PAIR, "[both, score]"),
    "with schedulers": (_PAIR, "[both, score], []"),
    "dicts": (_PAIR, '({"optimizer": both}, {"optimizer": score})'),
    "by index": ("first, second = self.optimizers()[1], self.optimizers()[0]", "score, both"),
}
HEAD_FIRST = {
    "a pair": (_PAIR, "score, both"),
    "with schedulers": (_PAIR, "[score, both], []"),
    "not known which": (_PAIR, "(both, score) if self.training else (score, both)"),
    "not known how many": (_PAIR, "make_optimizers(self)"),
}


def _lightning(first: str, returned: str) -> list[str]:
    program = LIGHTNING.replace("FIRST", first).replace("RETURNED", returned)
    return [finding.code for finding in check_source(program, "net.py")]


@pytest.mark.parametrize(("first", "returned"), ENCODER_FIRST.values(), ids=ENCODER_FIRST.keys())
def test_optimizers_that_lightning_gives_back_are_those_that_it_got(first, returned):
    assert "CKPT114" in _lightning(first, returned)


@pytest.mark.parametrize(("first", "returned"), HEAD_FIRST.values(), ids=HEAD_FIRST.keys())
def test_another_optimizer_of_lightning_is_another_one(first, returned):
    assert "CKPT114" not in _lightning(first, returned)
