"""How programs get and train on batches: whichever way, what a reentrant checkpoint gets of them needs no gradient."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
{1}

class Net(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3), nn.GroupNorm(4, c), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(c, c, 3), nn.ReLU())
        self.head = nn.Linear(c, 10)

    def forward(self, x):
        x = checkpoint(self.stem, x, use_reentrant=True)
        x = self.body(x)
        return self.head(x.mean((2, 3)))

{0}
"""
WAYS = {
    "a file": """\
net = Net()
for batch in torch.load("batches.pt"):
    F.cross_entropy(net(batch["x"]), batch["y"]).backward()
""",
    "a file, moved": """\
def main():
    net, saved = Net(), torch.load("batches.pt")
    for step, (x, y) in enumerate(saved):
        F.cross_entropy(net(x.cuda()), y.cuda()).backward()
""",
    "parts of a file": """\
images, votes = torch.load("galaxies.pt")
net = Net()
for epoch in range(2):
    for chosen in torch.randperm(len(images)).split(64):
        F.cross_entropy(net(images[chosen]), votes[chosen]).backward()
""",
    "entries of a file": """\
def main():
    net, saved = Net(), torch.load("images.pt", map_location="cuda")
    for step in range(100):
        chosen = torch.randint(len(saved["x"]), (64,))
        F.cross_entropy(net(saved["x"][chosen]), saved["y"][chosen]).backward()
""",
    "slices of a file": """\
net, images = Net(), torch.load("images.pt")
for start in range(0, len(images), 64):
    net(images[start : start + 64]).sum().backward()
""",
    "a file of arrays": """\
import numpy as np
net = Net()
for x in np.load("images.npy"):
    net(torch.from_numpy(x)).sum().backward()
""",
    "tuple": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "nested tuple": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "to": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x.to(device)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "to2": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "cuda": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        x = x.cuda(non_blocking=True)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "float": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x.float() / 255), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "dict": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for batch in loader:
        y = batch['label']
        loss = F.cross_entropy(net(batch['image']), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "dict comp": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        y = batch['label']
        loss = F.cross_entropy(net(batch['image']), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "index": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for batch in loader:
        y = batch[1]
        loss = F.cross_entropy(net(batch[0]), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "attr": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for batch in loader:
        y = batch.y
        loss = F.cross_entropy(net(batch.x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "attr call": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for batch in loader:
        y = batch.labels
        loss = F.cross_entropy(net(batch.pixel_values.to(device)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "tqdm": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in tqdm(loader):
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "epoch": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for epoch in range(3):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
""",
    "iter next": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    it = iter(loader)
    for step in range(100):
        x, y = next(it)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
""",
    "while": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    it = iter(loader)
    step = 0
    while step < 100:
        try:
            x, y = next(it)
        except StopIteration:
            it = iter(loader)
            x, y = next(it)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        step += 1
""",
    "randn": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for step in range(100):
        x = torch.randn(2, 3, 32, 32, device=device)
        loss = net(x).mean()
        loss.backward()
        opt.step()
""",
    "scaler": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
""",
    "helper step": """\
def step(net, batch, opt):
    x, y = batch
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss.item()

def main(loader):
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in loader:
        step(net, batch, opt)
""",
    "loss fn": """\
def compute_loss(net, batch):
    out = net(batch["image"])
    return F.cross_entropy(out, batch["label"])

def main(loader):
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in loader:
        opt.zero_grad()
        compute_loss(net, batch).backward()
        opt.step()
""",
    "trainer class": """\
class Trainer:
    def __init__(self, loader):
        self.net = Net()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.loader = loader

    def fit(self):
        for x, y in self.loader:
            loss = F.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
""",
    "trainer model given": """\
class Engine:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train_step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()

    def run(self):
        for x, y in self.loader:
            self.train_step(x, y)

Engine(Net(), DataLoader(TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4).long()))).run()
""",
    "ddp": """\
def main(loader):
    net = nn.parallel.DistributedDataParallel(Net().cuda())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
""",
    "dp": """\
def main(loader):
    net = nn.DataParallel(Net())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
""",
    "compile off": """\
def main(loader):
    net = Net()
    ema = torch.optim.swa_utils.AveragedModel(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        ema.update_parameters(net)
""",
    "accelerate": """\
from accelerate import Accelerator
def main(loader):
    acc = Accelerator()
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net, opt, loader = acc.prepare(net, opt, loader)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        acc.backward(loss)
        opt.step()
""",
    "accelerate accumulate": """\
from accelerate import Accelerator
accelerator = Accelerator()
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.zeros(4, 3, 8, 8), torch.zeros(4).long()))
net, opt, loader = accelerator.prepare(net, opt, loader)
for batch in loader:
    with accelerator.accumulate(net):
        logits = net(batch[0])
        loss = F.cross_entropy(logits, batch[1])
        accelerator.backward(loss)
        opt.step()
        opt.zero_grad()
""",
    "fabric": """\
from lightning.fabric import Fabric
def main(loader):
    fabric = Fabric()
    fabric.launch()
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net, opt = fabric.setup(net, opt)
    loader = fabric.setup_dataloaders(loader)
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        fabric.backward(loss)
        opt.step()
""",
    "lightning": """\
import lightning as L
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
""",
    "lightning self": """\
import pytorch_lightning as pl
class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, idx):
        loss = F.cross_entropy(self(batch["image"]), batch["label"])
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
""",
    "lightning shared": """\
import pytorch_lightning as pl
class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def shared_step(self, batch):
        x, y = batch
        return F.cross_entropy(self.net(x), y)
    def training_step(self, batch, idx):
        return self.shared_step(batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
""",
    "deepspeed": """\
import deepspeed
def main(loader):
    net = Net()
    engine, opt, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds.json")
    for x, y in loader:
        loss = F.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
""",
    "hf trainer": """\
from transformers import Trainer, TrainingArguments
class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def forward(self, pixel_values, labels=None):
        logits = self.net(pixel_values)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}
Trainer(model=Wrapped(), args=TrainingArguments("out"), train_dataset=[]).train()
""",
    "list losses": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    losses = []
    for x, y in loader:
        losses.append(F.cross_entropy(net(x), y))
    torch.stack(losses).mean().backward()
    opt.step()
""",
    "closure": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    opt = torch.optim.LBFGS(net.parameters())
    for x, y in loader:
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss
        opt.step(closure)
""",
    "grad api": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        grads = torch.autograd.grad(loss, net.body.parameters())
        opt.step()
        loss2 = net(x).sum()
        loss2.backward()
""",
    "autograd.backward": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        torch.autograd.backward(loss)
        opt.step()
""",
    "div": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(net(x), y) / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            opt.step()
            opt.zero_grad()
""",
    "normalize": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        x = (x - x.mean()) / x.std()
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "augment": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        x = torch.flip(x, dims=[3])
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "interp": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(F.interpolate(x, scale_factor=2)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "permute": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x.permute(0, 3, 1, 2).contiguous()), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "half": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x.half()), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "cat views": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for (a, b), y in loader:
        loss = F.cross_entropy(net(torch.cat([a, b])), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "noise": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x + 0.1 * torch.randn_like(x)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "mixup": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        lam = 0.3
        x = lam * x + (1 - lam) * x[torch.randperm(x.size(0))]
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "prefetch": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    batches = list(loader)
    for x, y in batches:
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
""",
    "module level": """\
net = Net()
opt = torch.optim.Adam(net.parameters())
x = torch.randn(2, 3, 16, 16)
y = torch.randint(0, 10, (2,))
loss = F.cross_entropy(net(x), y)
loss.backward()
opt.step()
""",
    "from_numpy": """\
import numpy as np
net = Net()
x = torch.from_numpy(np.random.rand(2, 3, 16, 16)).float()
net(x).sum().backward()
""",
    "forward kw": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        loss = F.cross_entropy(net(x=x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
""",
    "sampler": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    data = torch.randn(100, 3, 16, 16)
    for i in range(0, 100, 10):
        x = data[i:i + 10]
        loss = net(x).mean()
        loss.backward()
        opt.step()
""",
    "get_batch": """\
def get_batch(data):
    ix = torch.randint(len(data), (4,))
    return torch.stack([data[i] for i in ix])
def main():
    data = torch.randn(100, 3, 16, 16)
    net = Net()
    opt = torch.optim.Adam(net.parameters())
    for _ in range(10):
        loss = net(get_batch(data)).mean()
        loss.backward()
        opt.step()
""",
    "zip loaders": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for (x, y), _ in zip(loader, loader):
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
""",
    "timed": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        opt.zero_grad(set_to_none=True)
        out = net(x)
        loss = F.cross_entropy(out, y, label_smoothing=0.1)
        loss = loss + 1e-4 * sum(p.pow(2).sum() for p in net.parameters())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
""",
    "sum of dict": """\
def train(loader, device="cpu"):
    net = Net().to(device)
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        out = net(x)
        losses = {"ce": F.cross_entropy(out, y), "reg": out.pow(2).mean()}
        sum(losses.values()).backward()
        opt.step()
""",
}


#: Ways in which what the model gets may need a gradient, or in which it does not train.
OTHER = {
    "a file of what is made to need one": """\
net = Net()
for x in torch.load("latents.pt"):
    x.requires_grad_()
    net(x).sum().backward()
""",
    "a file of what is optimized": """\
net, latents = Net(), torch.load("latents.pt")
opt = torch.optim.Adam(latents)
for x in latents:
    net(x).sum().backward()
    opt.step()
""",
    "entries of a file, optimized": """\
net, saved = Net(), torch.load("latents.pt")
opt = torch.optim.Adam([saved["x"], *net.parameters()])
for step in range(100):
    net(saved["x"][torch.randint(100, (8,))]).sum().backward()
    opt.step()
""",
    "entries of a file that are made to need one": """\
net, saved = Net(), torch.load("latents.pt")
saved["x"].requires_grad_()
for step in range(100):
    net(saved["x"][torch.randint(100, (8,))]).sum().backward()
""",
    "parts of a file, asked alone": """\
net, images = Net(), torch.load("images.pt")
with torch.no_grad():
    for start in range(0, len(images), 64):
        print(net(images[start : start + 64]).sum())
""",
    "a generator in front": """\
def main(loader):
    front, net = nn.Conv2d(3, 3, 1), Net()
    for x, y in loader:
        F.cross_entropy(net(front(x)), y).backward()
""",
    "it needs one": """\
def main(loader):
    net = Net()
    for x, y in loader:
        x = x.clone().requires_grad_()
        F.cross_entropy(net(x), y).backward()
""",
    "only asked": """\
def main(loader):
    net = Net()
    with torch.no_grad():
        for x, y in loader:
            print(F.cross_entropy(net(x), y))
""",
    "two of one": """\
def main(loader):
    first, net = Net(), Net()
    front = nn.Conv2d(3, 3, 1)
    for batch in loader:
        batch = {k: front(v) for k, v in batch.items()}
        net(batch["image"]).sum().backward()
""",
    "Trainer and others": """\
from transformers import Trainer, TrainingArguments
class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.front, self.net = nn.Conv2d(3, 3, 1), Net()
    def forward(self, pixel_values, labels=None):
        return {"loss": F.cross_entropy(self.net(self.front(pixel_values)), labels)}
Trainer(model=Wrapped(), args=TrainingArguments("out"), train_dataset=[]).train()
""",
}


def codes(body: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", body).replace("{1}", "from tqdm import tqdm"))}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_stage_gets_no_gradient(way):
    assert "CKPT104" in codes(WAYS[way])


@pytest.mark.parametrize("way", OTHER)
def test_what_may_need_a_gradient(way):
    assert "CKPT104" not in codes(OTHER[way])
