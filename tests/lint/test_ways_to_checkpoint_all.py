"""How a checkpoint comes to be around the whole model: whichever way, it is said; one around a part is left alone."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))

class Net(nn.Module):
    def __init__(self, d=8, n=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))
        self.head = nn.Linear(d, 2)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

{0}
"""
WAYS = {
    "patched by partial": """\
from functools import partial
model = Net()
model.forward = partial(checkpoint, model.forward, use_reentrant=False)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "patched by a lambda": """\
model = Net()
inner = model.forward
model.forward = lambda x: checkpoint(inner, x, use_reentrant=False)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "patched by a helper": """\
def remat(module):
    plain = module.forward
    def forward(*args):
        return checkpoint(plain, *args, use_reentrant=False)
    module.forward = forward
    return module
model = remat(Net())
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "wrapper module": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "cuda": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(Net().cuda()).cuda()
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "own net": """\
class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped()
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "base": """\
class Base(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)

class Wrapped(Base):
    pass

def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "inherits": """\
class Wrapped(Net):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)

def train(batches):
    model = Wrapped()
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "_forward": """\
class Wrapped(nn.Module):
    def __init__(self, d=8, n=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))
        self.head = nn.Linear(d, 2)
    def _forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
    def forward(self, x):
        return checkpoint(self._forward, x, use_reentrant=False)

def train(batches):
    model = Wrapped()
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "training": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        if self.training:
            return checkpoint(self.net, x, use_reentrant=False)
        return self.net(x)


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "ddp": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = nn.parallel.DistributedDataParallel(Wrapped(Net()).cuda())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "step": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def step(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])
def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for batch in batches:
        step(model, batch).backward()
        opt.step()
""",
    "class": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


class Trainer:
    def __init__(self):
        self.model = Wrapped(Net())
        self.opt = torch.optim.AdamW(self.model.parameters())
    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.opt.step()
trainer = Trainer()
for x, y in torch.load("data.pt"):
    trainer.step(x, y)
""",
    "partial": """\
import functools
def train(batches):
    model = Net()
    forward = functools.partial(checkpoint, use_reentrant=False)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(forward(model, x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "lambda": """\
def train(batches):
    model = Net()
    run = lambda x: checkpoint(model, x, use_reentrant=False)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(run(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "wrapper": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

def train(batches):
    model = checkpoint_wrapper(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "hf": """\
from transformers import AutoModelForCausalLM
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, **x):
        return checkpoint(self.net, x['input_ids'], use_reentrant=False)


def train(batches):
    model = Wrapped(AutoModelForCausalLM.from_pretrained('gpt2'))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "tv": """\
import torchvision
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(torchvision.models.resnet50())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "seq": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(nn.Sequential(*[Block(8) for _ in range(8)]))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "reassigned": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = Net().cuda()
    model = checkpoint_wrapper(model, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "below DDP": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = nn.parallel.DistributedDataParallel(checkpoint_wrapper(Net()))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "by a helper": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl
def low_memory(m):
    return checkpoint_wrapper(m)

def train(batches):
    model = low_memory(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
}
#: What runs more than one such region, or something beside it.
RIGHT = {
    "patched blocks": """\
from functools import partial
model = Net()
for block in model.blocks:
    block.forward = partial(checkpoint, block.forward, use_reentrant=False)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "patched under a flag": """\
import sys
from functools import partial
model = Net()
if len(sys.argv) > 1:
    model.forward = partial(checkpoint, model.forward, use_reentrant=False)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a patched encoder": """\
from functools import partial
encoder, head = Net(), nn.Linear(2, 2)
encoder.forward = partial(checkpoint, encoder.forward, use_reentrant=False)
model = nn.ModuleList([encoder, head])
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.load("batches.pt"):
    loss = nn.functional.mse_loss(head(encoder(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "blocks": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = nn.Sequential(*[Wrapped(Block(8)) for _ in range(4)])
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "two": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = nn.Sequential(Wrapped(Net()), Wrapped(Net()))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "head": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(Net())
    head = nn.Linear(2, 2)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(head(model(x)), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "seq": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = nn.Sequential(Wrapped(Net()), nn.Linear(2, 2))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "own head": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.head = net, nn.Linear(2, 2)
    def forward(self, x):
        return self.head(checkpoint(self.net, x, use_reentrant=False))


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "timesteps": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = sum(nn.functional.mse_loss(model(x[i]), y[i]) for i in range(8))
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "unroll": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        for _ in range(4):
            x = model(x)
        loss = nn.functional.mse_loss(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "twice": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), model(y))
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "inner": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = Net(), Wrapped(Net())
    def forward(self, x):
        return self.body(self.stem(x))

def train(batches):
    model = Outer()
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "chunks": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return torch.cat([checkpoint(self.net, part, use_reentrant=False) for part in x.chunk(4)])


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "siamese": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        a, b = x
        return checkpoint(self.net, a, use_reentrant=False) - checkpoint(self.net, b, use_reentrant=False)


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "loop inside": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        for _ in range(4):
            x = checkpoint(self.net, x, use_reentrant=False)
        return x


def train(batches):
    model = Wrapped(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "lazily": """\
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return checkpoint(self.net, x, use_reentrant=False)

def build():
    return Wrapped(Net())

def train(batches):
    model = nn.ModuleList(build() for _ in range(3))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model[0](x) + model[1](x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "wrapper beside a head": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = nn.Sequential(checkpoint_wrapper(Net()), nn.Linear(2, 2))
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "wrapped blocks": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = nn.Sequential(*[checkpoint_wrapper(Block(8)) for _ in range(4)])
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "wrapped part": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = Net(), checkpoint_wrapper(Net())
    def forward(self, x):
        return self.body(self.stem(x))

def train(batches):
    model = Outer()
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "selective": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = checkpoint_wrapper(Net(), context_fn=contexts)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "head called": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = Net()
    body = checkpoint_wrapper(model)
    head = nn.Linear(2, 2)
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        loss = nn.functional.mse_loss(head(body(x)), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
    "wrapped and unrolled": """\
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

def train(batches):
    model = checkpoint_wrapper(Net())
    opt = torch.optim.AdamW(model.parameters())
    for x, y in batches:
        for _ in range(4):
            x = model(x)
        loss = nn.functional.mse_loss(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
""",
}


def codes(program: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", program))}


@pytest.mark.parametrize("way", WAYS)
def test_one_region_runs_the_whole_model(way):
    assert "CKPT403" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_a_region_runs_a_part(way):
    assert "CKPT403" not in codes(RIGHT[way])
