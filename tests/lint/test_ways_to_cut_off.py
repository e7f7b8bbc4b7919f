"""Results of checkpoints that whole programs cut off from their loss, through helpers, launchers and Lightning."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

IMPORTS = """import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from accelerate import Accelerator
from torch.utils.checkpoint import checkpoint
"""
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.dec = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
    def encode(self, x):
        return checkpoint(self.enc, x, use_reentrant=False)
"""
LIT = NET.replace("class Net(nn.Module)", "class Lit(L.LightningModule)")
FLAGGED = NET.replace("(self):", "(self, stop=False):").replace(
    "    def encode", "        self.stop = stop\n    def encode"
)
FIT = """    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
"""
LOOP = """net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
"""
CUT_OFF = {
    "a step gives a dict": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x).detach()
        loss = F.mse_loss(self.dec(z), y)
        return {"loss": loss}
"""
    + FIT,
    "in a step": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = checkpoint(self.enc, x, use_reentrant=False)
        z = z.detach()
        out = self.head(z)
        loss = F.mse_loss(out, y)
        self.log("train_loss", loss)
        return loss
"""
    + FIT,
    "a step by another method": LIT
    + """    def forward(self, x):
        return self.head(self.encode(x).detach())
    def shared(self, batch):
        x, y = batch
        return F.mse_loss(self(x), y)
    def training_step(self, batch, i):
        return self.shared(batch)
    def validation_step(self, batch, i):
        self.log("val", self.shared(batch))
"""
    + FIT,
    "a method that cuts": NET
    + """    def cut(self, t):
        return t.detach().requires_grad_()
    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
            x = self.cut(x)
        return x
"""
    + LOOP,
    "a lambda that cuts": """cut = lambda t: t.detach()
"""
    + NET
    + """    def forward(self, x):
        for b in self.blocks:
            x = cut(checkpoint(b, x, use_reentrant=False))
        return x
"""
    + LOOP,
    "a static method that cuts": NET
    + """    @staticmethod
    def cut(t):
        out = t.detach()
        return out
    def forward(self, x):
        h = checkpoint(self.enc, x, use_reentrant=False)
        return checkpoint(self.dec, self.cut(h), use_reentrant=False)
"""
    + LOOP,
    "a model that a function builds": NET
    + """    def forward(self, x):
        return self.head(self.encode(x).detach())
def build():
    model = Net()
    return model
net = build()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    F.mse_loss(net(x), y).backward()
    opt.step()
""",
    "a launcher in a helper": NET
    + """    def forward(self, x):
        return self.head(self.encode(x).detach())
def train(accelerator, model, optimizer, loader):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
def main(loader):
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    train(accelerator, model, optimizer, loader)
""",
    "one of two results": NET
    + """    def forward(self, x):
        z = self.encode(x).detach()
        return self.head(z), z
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    out, _ = net(x)
    F.mse_loss(out, y).backward()
    opt.step()
""",
    "a segment by keyword": NET
    + """    def segment(self, h, block):
        return checkpoint(block, h, use_reentrant=False).detach()
    def forward(self, x):
        for b in self.blocks:
            x = self.segment(x, block=b)
        return x
"""
    + LOOP,
}
LEARNS = {
    "a generator beside its opponent": """class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.D = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.og = torch.optim.Adam(self.G.parameters())
        self.od = torch.optim.Adam(self.D.parameters())
    def generate(self, z):
        return checkpoint(self.G, z, use_reentrant=False)
    def d_step(self, z):
        fake = self.generate(z).detach()
        self.D(fake).mean().backward()
        self.od.step()
    def g_step(self, z):
        (-self.D(self.generate(z)).mean()).backward()
        self.og.step()
gan = GAN()
for z in loader:
    gan.d_step(z)
    gan.g_step(z)
""",
    "a target beside a prediction": LIT
    + """    def training_step(self, batch, i):
        a, b = batch
        p = self.head(self.encode(a))
        t = self.encode(b).detach()
        return F.mse_loss(p, t)
"""
    + FIT,
    "a probe": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        return F.mse_loss(self.head(self.encode(x).detach()), y)
    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters())
""",
    "a probe of a frozen trunk": """class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.dec = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
        self.enc.requires_grad_(False)
    def encode(self, x):
        return checkpoint(self.enc, x, use_reentrant=False)

    def training_step(self, batch, i):
        x, y = batch
        return F.mse_loss(self.head(self.encode(x).detach()), y)
"""
    + FIT,
    "straight through": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        q = z + (torch.round(z) - z).detach()
        return F.mse_loss(self.dec(q), x)
"""
    + FIT,
    "kept beside the loss": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        loss = F.mse_loss(self.dec(z), x)
        return {"loss": loss, "z": z.detach()}
"""
    + FIT,
    "a recurrent cell": NET
    + """    def step(self, x, state):
        return checkpoint(self.enc, x + state, use_reentrant=False).detach()
    def forward(self, xs):
        state = xs[0]
        for x in xs:
            state = self.step(x, state)
        return self.head(state)

net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    opt.zero_grad()
    pass
    opt.step()
""",
    "a head beside": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        probe = self.head(z.detach())
        return F.mse_loss(self.dec(z), x) + F.mse_loss(probe, y)
"""
    + FIT,
    "a loss of each": """def cut(t):
    return t.detach()
"""
    + NET
    + """    def forward(self, x, y):
        total = 0
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
            total = total + F.mse_loss(x, y)
            x = cut(x)
        return total
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    net(x, y).backward()
    opt.step()
""",
    "kept for a look": """def cut(t):
    return t.detach()
"""
    + NET
    + """    def forward(self, x):
        self.seen = []
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
            self.seen.append(cut(x))
        return x
"""
    + LOOP,
    "by hand": """class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.dec = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
        self.automatic_optimization = False
    def encode(self, x):
        return checkpoint(self.enc, x, use_reentrant=False)

    def training_step(self, batch, i):
        x, y = batch
        opt = self.optimizers()
        z = self.encode(x)
        self.manual_backward(F.mse_loss(self.dec(z), x))
        opt.step()
        return F.mse_loss(self.head(z.detach()), y)
"""
    + FIT,
    "a critic beside": NET
    + """    def forward(self, x):
        z = self.encode(x)
        return self.dec(z), self.head(z.detach())
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    p, v = net(x)
    (F.mse_loss(p, y) + F.mse_loss(v, y)).backward()
    opt.step()
""",
    "a critic apart": NET
    + """    def value(self, x):
        return self.head(self.encode(x).detach())
    def policy(self, x):
        return self.dec(self.encode(x))
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    F.mse_loss(net.value(x), y).backward()
    F.mse_loss(net.policy(x), y).backward()
    opt.step()
""",
    "in turn": LIT
    + """    def training_step(self, batch, i, optimizer_idx=0):
        x, y = batch
        if optimizer_idx == 0:
            return F.mse_loss(self.dec(self.encode(x)), x)
        return F.mse_loss(self.head(self.encode(x).detach()), y)
"""
    + FIT,
    "every other batch": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        if i % 2:
            z = self.encode(x).detach()
        else:
            z = self.encode(x)
        return F.mse_loss(self.head(z), y)
"""
    + FIT,
    "by a flag in a step": """class Lit(L.LightningModule):
    def __init__(self, stop=False):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.dec = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
        self.stop = stop
    def encode(self, x):
        return checkpoint(self.enc, x, use_reentrant=False)

    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        if self.stop:
            z = z.detach()
        return F.mse_loss(self.head(z), y)
"""
    + FIT,
    "by a flag": FLAGGED
    + """    def forward(self, x):
        z = self.encode(x)
        if self.stop:
            z = z.detach()
        return self.head(z)
"""
    + LOOP,
    "by a flag, at once": FLAGGED
    + """    def forward(self, x):
        z = checkpoint(self.enc, x, use_reentrant=False)
        if self.stop:
            z = z.detach()
        return self.head(z)
"""
    + LOOP,
    "a helper with a flag": """def cut(t, stop):
    return t.detach() if stop else t
"""
    + NET
    + """    def forward(self, x, stop=False):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
            x = cut(x, stop)
        return x
"""
    + LOOP,
    "looked at under a launcher": NET
    + """    def forward(self, x):
        return self.head(self.encode(x))
def main(loader):
    accelerator = Accelerator()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        out = model(x)
        loss = F.mse_loss(out, y)
        accelerator.backward(loss)
        print(loss.detach(), out.detach().mean())
""",
    "the other result": NET
    + """    def forward(self, x):
        z = self.encode(x)
        return self.head(z), z.detach()
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    out, _ = net(x)
    F.mse_loss(out, y).backward()
    opt.step()
""",
    "another model learns": NET
    + """    def forward(self, x):
        return self.head(self.encode(x).detach())
class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    def forward(self, x):
        return self.f(x)
net, other = Net(), Other()
opt = torch.optim.SGD(other.parameters(), 0.1)
for x, y in loader:
    F.mse_loss(other(x), net(x)).backward()
    opt.step()
""",
    "a student learns": NET
    + """    def forward(self, x):
        return self.encode(x).detach()
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = Net(), nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    def training_step(self, batch, i):
        x, y = batch
        return F.mse_loss(self.student(x), self.teacher(x))
"""
    + FIT,
    "a loss that is added": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        loss = F.mse_loss(self.head(z.detach()), y)
        loss += F.mse_loss(self.dec(z), x)
        return loss
"""
    + FIT,
    "a loss of a method": LIT
    + """    def aux(self, z, x):
        return F.mse_loss(self.dec(z), x)
    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        loss = F.mse_loss(self.head(z.detach()), y)
        return loss + 0.1 * self.aux(z, x)
"""
    + FIT,
    "losses in a dict": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        losses = {}
        z = self.encode(x)
        losses["a"] = F.mse_loss(self.head(z.detach()), y)
        losses["b"] = F.mse_loss(self.dec(z), x)
        return sum(losses.values())
"""
    + FIT,
    "losses in a list": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        losses = []
        z = self.encode(x)
        losses.append(F.mse_loss(self.head(z.detach()), y))
        losses.append(F.mse_loss(self.dec(z), x))
        return torch.stack(losses).sum()
"""
    + FIT,
    "a loss in an attribute": LIT
    + """    def training_step(self, batch, i):
        x, y = batch
        z = self.encode(x)
        self.extra = F.mse_loss(self.dec(z), x)
        return F.mse_loss(self.head(z.detach()), y) + self.extra
"""
    + FIT,
}


def codes(program: str) -> list[str]:
    return [found.code for found in check_source(IMPORTS + program) if found.code == "CKPT121"]


@pytest.mark.parametrize("program", CUT_OFF.values(), ids=CUT_OFF)
def test_the_segment_does_not_learn(program):
    assert codes(program) == ["CKPT121"]


@pytest.mark.parametrize("program", LEARNS.values(), ids=LEARNS)
def test_it_learns_or_is_not_meant_to(program):
    assert codes(program) == []
