"""Checkpoints that free nothing: wrappers around single layers, and whole models in steps that Lightning trains with."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

WRAPPED = """
import torch
from functools import partial
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Decoder(nn.Module):
    def __init__(self, d, contexts):
        super().__init__()
        self.inner, self.out = {0}, nn.Linear(d, d)

    def forward(self, x):
        return self.out(self.inner(x).tanh())
"""
HELPER = """
def smaller(module):
    return checkpoint_wrapper(module)
"""
LIGHT = {
    "layer": "checkpoint_wrapper(nn.Linear(d, d))",
    "list": "nn.Sequential(*[checkpoint_wrapper(nn.GELU()) for _ in range(2)])",
    "helper": "smaller(nn.Linear(d, d))",
    "keywords": "checkpoint_wrapper(nn.Linear(d, d), preserve_rng_state=False)",
    "partial": "partial(checkpoint_wrapper, preserve_rng_state=False)(nn.SiLU())",
}
HEAVY = {
    "block": "checkpoint_wrapper(nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)))",
    "policy": "checkpoint_wrapper(nn.Linear(d, d), context_fn=contexts)",
    "open": "checkpoint_wrapper(nn.Linear(d, d), **contexts)",
    "both": "nn.Sequential(smaller(nn.Linear(d, d)), smaller(nn.Sequential(nn.Linear(d, d), nn.GELU())))",
    "layer of torch": "checkpoint_wrapper(nn.TransformerEncoderLayer(d, 4))",
}
STEP = """
import lightning as L
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Base(L.LightningModule):
    def training_step(self, batch, index):
        loss = self.loss_of(batch)
        self.log("loss", loss)
        return loss

class Lit(L.LightningModule):
    def __init__(self, given=None):
        super().__init__()
        self.net, self.other, self.given = Net(), Net(), given
        self.criterion = nn.MSELoss()

    {0}
"""
WHOLE = {
    "step": """
    def training_step(self, batch, index):
        x, y = batch
        return self.criterion(checkpoint(self.net, x, use_reentrant=False), y)
""",
    "helper": """
    def run(self, x):
        return checkpoint(self.net, x, use_reentrant=False)

    def training_step(self, batch, index):
        loss = self.criterion(self.run(batch[0]), batch[1])
        self.log("loss", loss)
        return {"loss": loss}
""",
    "lambda": """
    def training_step(self, batch, index):
        return nn.functional.mse_loss(checkpoint(lambda x: self.net(x), batch[0], use_reentrant=False), batch[1])
""",
}
PART = {
    "head": """
    def training_step(self, batch, index):
        return self.other(checkpoint(self.net, batch, use_reentrant=False)).mean()
""",
    "given head": """
    def training_step(self, batch, index):
        return self.given(checkpoint(self.net, batch, use_reentrant=False)).mean()
""",
    "chunks": """
    def training_step(self, batch, index):
        return torch.cat([checkpoint(self.net, part, use_reentrant=False) for part in batch.chunk(4)]).mean()
""",
    "decoder in a method": """
    def encode(self, x):
        return checkpoint(self.net, x, use_reentrant=False)

    def decode(self, z):
        return self.other(z)

    def training_step(self, batch, index):
        return self.decode(self.encode(batch)).mean()
""",
    "by hand": """
    automatic_optimization = False

    def training_step(self, batch, index):
        self.manual_backward(checkpoint(self.net, batch, use_reentrant=False).mean())
""",
    "validation": """
    def validation_step(self, batch, index):
        return checkpoint(self.net, batch, use_reentrant=False).mean()
""",
}


def codes(script, part):
    script += HELPER if "smaller" in part else ""
    return {finding.code for finding in check_source(script.replace("{0}", part.strip()))}


@pytest.mark.parametrize("made", LIGHT.values(), ids=LIGHT)
def test_wrappers_around_a_light_layer_free_nothing(made):
    assert codes(WRAPPED, made) == {"CKPT403"}


@pytest.mark.parametrize("made", HEAVY.values(), ids=HEAVY)
def test_wrappers_around_more_are_right(made):
    assert codes(WRAPPED, made) == set()


BOUND = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)
        self.block = nn.Sequential(nn.Linear(4 * d, d), nn.GELU(), nn.Linear(d, 4 * d))

    def forward(self, x):
        return self.down(checkpoint({0}, self.up(x), use_reentrant=False))
"""


@pytest.mark.parametrize(("function", "found"), [("self.act", {"CKPT403"}), ("self.block", set())])
def test_a_layer_that_a_function_is_bound_to_early(function, found):
    assert codes(BOUND, f"lambda y, run={function}: run(y)") == found


@pytest.mark.parametrize("step", WHOLE.values(), ids=WHOLE)
def test_the_whole_model_in_a_step_of_lightning(step):
    assert codes(STEP, step) == {"CKPT403"}


@pytest.mark.parametrize("step", PART.values(), ids=PART)
def test_a_part_in_a_step_of_lightning_is_right(step):
    assert codes(STEP, step) == set()
