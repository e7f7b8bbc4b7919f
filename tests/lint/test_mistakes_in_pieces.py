"""Mistakes whose two halves stand apart: in helpers, decorators, lists that are filled, arguments that are spread."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

WRAPPER = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

class Block(nn.Module):
    def __init__(self, d=8, rate=0.0):
        super().__init__()
        self.rate, self.lin, self.seen = rate, nn.Linear(d, d), []

    def forward(self, x):
        return x + torch.tanh(self.lin(x))

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(4)])
        self.body = nn.Sequential(*[nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(4)])

    def run(self, block, x):
        return checkpoint(block, x, use_reentrant=True)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = self.run(block, x)
        return x
"""
#: By the rule: a script, and one that comes close and is right.
PAIRS = {
    "CKPT406": (
        f"""{NET}
from functools import partial
from torch.utils.checkpoint import create_selective_checkpoint_contexts
{WRAPPER}checkpoint_wrapper

def faster(model):
    for i in range(len(model.blocks)):
        model.blocks[i] = torch.compile(model.blocks[i])

def smaller(model, policy):
    for i, block in enumerate(model.blocks):
        model.blocks[i] = checkpoint_wrapper(block, context_fn=partial(create_selective_checkpoint_contexts, policy))

net = Net()
FIRST
SECOND
""",
        ("faster(net)", "smaller(net, policy)"),
    ),
}
SCRIPTS = {
    "CKPT306": """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        return self.lin(x).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            run = block.forward
            x = checkpoint(run, x, use_reentrant=False)
        return x
""",
    "CKPT406": f"""{NET.replace("self.run(block, x)", "block(x)")}
from torch.distributed.fsdp import fully_shard
{WRAPPER}apply_activation_checkpointing

def setup(model):
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    apply_activation_checkpointing(model)
    return torch.compile(model)

net = setup(Net())
""",
    "CKPT302": f"""{NET}
from torch.distributed.fsdp import FullyShardedDataParallel
net = FullyShardedDataParallel(Net())
for x in torch.load("x.pt"):
    net(x).sum().backward()
""",
    "CKPT304": f"""{NET}
class Body(Net):
    def forward(self, x):
        return checkpoint_sequential(self.body, 2, self.stem(x), use_reentrant=True)

net = nn.parallel.DistributedDataParallel(Body(), find_unused_parameters=True)
""",
    "CKPT308": """
from trl import SFTConfig
memory = dict(gradient_checkpointing=True, use_reentrant=False)
args = SFTConfig("out", **memory)
""",
    "CKPT315": f"""{NET}
class Counted(Block):
    def forward(self, x):
        self.seen.append(x.shape)
        return super().forward(x)

block = Counted()

@torch.compile(fullgraph=True)
def loss_of(x):
    return checkpoint(block, x, use_reentrant=False).sum()
""",
    "CKPT124": f"""{NET}
from functools import partial
{WRAPPER}apply_activation_checkpointing, checkpoint_wrapper
wrap = partial(checkpoint_wrapper, determinism_check="none")
apply_activation_checkpointing(Net(), checkpoint_wrapper_fn=wrap, check_fn=lambda m: isinstance(m, Block))
""",
    "CKPT131": f"""{NET}
from peft import LoraConfig, get_peft_model
{WRAPPER}checkpoint_wrapper
net = Net()
for i, block in enumerate(net.blocks):
    net.blocks[i] = checkpoint_wrapper(block)
net = get_peft_model(net, LoraConfig(target_modules=r"blocks\\.\\d+\\.lin"))
""",
    "CKPT209": f"""{NET}
{WRAPPER}checkpoint_wrapper

def prepare(net):
    wrapped = [checkpoint_wrapper(block) for block in net.blocks]
    print(f"{{len(wrapped)}} blocks")
    return net
""",
    "CKPT108": """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate, self.lin = rate, nn.Linear(8, 8)

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x + self.lin(x)
        return x + self.lin(x) * (torch.rand(x.shape[0], 1) > self.rate)

class Net(nn.Module):
    def __init__(self, depth=4, rate=0.2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(rate * (i + 1) / depth) for i in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x

net = Net()
""",
    "CKPT403": f"""{NET}
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

class Fit:
    def __init__(self, model):
        self.model, self.opt = model, torch.optim.SGD(model.parameters(), 0.1)

    def scores(self, x):
        if self.model.training:
            return checkpoint(self.model, x, use_reentrant=False)
        return self.model(x)

    def step(self, x):
        self.scores(x).sum().backward()
        self.opt.step()

    @torch.no_grad()
    def evaluate(self, x):
        return self.scores(x)

fit = Fit(Plain())
for x in torch.load("x.pt"):
    fit.step(x)
fit.evaluate(x)
""",
    "CKPT104": """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.core, self.adapter = nn.Linear(d, d), nn.Linear(d, d)
        self.core.requires_grad_(False)

    def forward(self, x):
        return x + self.adapter(self.core(x))

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.tokens = nn.Embedding(10, d)
        self.tokens.requires_grad_(False)
        self.blocks = nn.ModuleList(Block(d) for _ in range(4))

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

net = Net()
for ids in torch.load("ids.pt"):
    net(ids).sum().backward()
""",
}
#: What makes one of them right.
RIGHT = {
    "CKPT306": ("run = block.forward", "run = block"),
    "CKPT406": ("fully_shard(block)", "pass"),
    "CKPT302": ("use_reentrant=True", "use_reentrant=False"),
    "CKPT304": ("find_unused_parameters=True", "find_unused_parameters=False"),
    "CKPT308": ("use_reentrant=False", "bf16=True"),
    "CKPT315": ("fullgraph=True", "dynamic=False"),
    "CKPT124": ('"none"', '"default"'),
    "CKPT131": (r'r"blocks\.\d+\.lin"', '["lin"]'),
    "CKPT209": ("len(wrapped)", "put_into(net, wrapped)"),
    "CKPT108": ("preserve_rng_state=False", "preserve_rng_state=True"),
    "CKPT403": ("self.opt.step()", "pass"),
    "CKPT104": ("self.tokens.requires_grad_(False)", "pass"),
}


def codes(script):
    return [finding.code for finding in check_source(script)]


@pytest.mark.parametrize("code", SCRIPTS)
def test_found(code):
    assert code in codes(SCRIPTS[code])


@pytest.mark.parametrize("code", RIGHT)
def test_the_same_without_the_cause_is_right(code):
    was, becomes = RIGHT[code]
    assert was in SCRIPTS[code]
    assert code not in codes(SCRIPTS[code].replace(was, becomes))


@pytest.mark.parametrize("code", PAIRS)
def test_the_order_decides(code):
    script, (first, second) = PAIRS[code]
    assert code in codes(script.replace("FIRST", first).replace("SECOND", second))
    assert code not in codes(script.replace("FIRST", second).replace("SECOND", first))
