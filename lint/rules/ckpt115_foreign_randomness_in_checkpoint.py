"""Random numbers in a checkpointed region that do not come from torch's own generator.

## What it does
Flags a checkpointed region in which this file draws from `random`, `numpy.random`, `secrets` or a generator object of
its own (`torch.rand(..., generator=g)`), or scales its result by a clock. Draws from torch's default generator, regions
that seed what they draw from, and draws outside of the region are fine.

## Why is this bad?
A checkpoint restores torch's generators for the recomputation and no others. The second run draws other numbers:
gradients are 15 to 62 % off, or belong to a layer that the forward pass skipped. Where the second run happens to do
less work, the step fails; where it does more, nothing is noticed.

## Bad
```python
import random
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        if self.training and random.random() < 0.1:  # stochastic depth
            return x
        return x + self.down(self.up(x).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x
```
```python
import numpy as np
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

noise = torch.Generator().manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

def noisy(x):
    return net(x + torch.randn(x.shape, generator=noise))

def scaled(x):
    return net(x) * np.random.uniform(0.9, 1.1)

def forward(x):
    x = checkpoint(noisy, x, use_reentrant=False)  # error
    return checkpoint(scaled, x, use_reentrant=False)  # error
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        noise = torch.empty_like(x).normal_(generator=self.generator)
        return self.linear(x + noise)

def run(block: Noisy, x):
    return checkpoint(block, x, use_reentrant=False)  # error
```

```python
import numpy as np
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class StochasticDepth(nn.Module):
    def __init__(self, fn, rate):
        super().__init__()
        self.fn, self.rate = fn, rate

    def forward(self, x):
        if not self.training:
            return x + self.fn(x)
        keep = (np.random.rand(x.shape[0]) >= self.rate).astype(np.float32)
        return x + self.fn(x) * torch.from_numpy(keep).to(x.device)[:, None]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential()
        for i in range(4):
            self.blocks.add_module(f"block{i}", StochasticDepth(nn.Linear(8, 8), 0.2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x
```

```python
import time
from torch.utils.checkpoint import checkpoint

def region(x):
    return x * (time.time() % 1)

def forward(x):
    return checkpoint(region, x, use_reentrant=False)  # error
```

## Good
```python
import time
from torch.utils.checkpoint import checkpoint

def region(x):
    begin = time.perf_counter()
    y = x * 2
    print(time.perf_counter() - begin)
    return y

def forward(x):
    return checkpoint(region, x, use_reentrant=False)
```
```python
import random
import numpy as np
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

random.seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

def noisy(x):
    return net(x + torch.randn_like(x))

def skipping(x):
    return x if torch.rand(()) < 0.1 else x + net(x)

def repeatable(x):
    own = torch.Generator().manual_seed(0)
    return net(x + torch.randn(x.shape, generator=own))

def scaled(x, factor):
    return net(x) * factor

def forward(x):
    x = checkpoint(noisy, x, use_reentrant=False)
    x = checkpoint(skipping, x, use_reentrant=False)
    x = checkpoint(repeatable, x, use_reentrant=False)
    if random.random() < 0.1:
        return x
    return checkpoint(scaled, x, np.random.uniform(0.9, 1.1), use_reentrant=False)

def batches(data):
    random.shuffle(data)
    yield from data
```
```python
import numpy as np
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class TestTimeNoise(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        if self.training:
            return self.linear(x)
        return self.linear(x) * np.random.uniform(0.9, 1.1)

class Optional(nn.Module):
    def __init__(self, noisy):
        super().__init__()
        self.linear, self.noisy = nn.Linear(8, 8), noisy

    def forward(self, x):
        if not self.training or not self.noisy:
            return self.linear(x)
        return self.linear(x) * np.random.uniform(0.9, 1.1)

def forward(x, noisy):
    x = checkpoint(TestTimeNoise(), x, use_reentrant=False)
    return checkpoint(Optional(noisy), x, use_reentrant=False)
```

## Evidence
```python
import random
import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
own = torch.Generator()
SCALES = {
    "random": lambda: random.random(),
    "numpy": lambda: np.random.uniform(),
    "generator": lambda: torch.rand((), generator=own),
    "torch": lambda: torch.rand(()),
}

def gradient(scale, reentrant):
    random.seed(0), np.random.seed(0), torch.manual_seed(0), own.manual_seed(0)
    net.zero_grad()
    x = torch.ones(2, 8, requires_grad=True)
    def run(h):
        return net(h * scale()).square() * scale()
    y = run(x) if reentrant is None else checkpoint(run, x, use_reentrant=reentrant)
    y.sum().backward()
    return y.detach(), net[0].weight.grad.clone()

for name, scale in SCALES.items():
    y, wanted = gradient(scale, None)
    for reentrant in (True, False):
        same_y, found = gradient(scale, reentrant)
        assert torch.equal(y, same_y)
        assert torch.allclose(found, wanted) == (name == "torch"), name
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`get_device_states`, `fork_rng` in `recompute_fn`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent
from ..finding import Severity
from ..model.conditions.ramps import may_be_first_of_ramp
from ..model.events import Checkpointing, TorchCheckpoint
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.randomness import foreign_draws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT115", "foreign-randomness-in-checkpoint", Severity.ERROR
NEEDS = together(("random", "secrets", "generator=", "import time"), Checkpointing)


def check(run: Run) -> Iterator[Report]:
    """Report regions that draw other numbers when they are recomputed, whatever torch restores."""
    for event, region in run.regions():
        if isinstance(event, TorchCheckpoint) and not isinstance(event.call.keyword("context_fn"), Absent):
            continue
        for draw in foreign_draws(region):
            if draw.conditions and may_be_first_of_ramp(run, event):
                continue
            yield Report(
                event.node,
                f"the recomputation draws another number from `{draw.what}` than the forward pass did, which torch "
                "does not restore; draw before the checkpoint and pass the value in, or use `torch.rand(())`",
                notes=(Remark(draw.node, "drawn again in the backward pass", draw.conditions),),
            )
