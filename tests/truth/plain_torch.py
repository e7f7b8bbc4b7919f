"""Programs around ``torch.utils.checkpoint`` in a model of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent
from typing import TYPE_CHECKING

from .ingredients import Choice

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class Block:
    """What is checkpointed: a module of ``(batch, 8)`` to the same shape. ``arguments`` follow the hidden states."""

    name: str
    code: str
    arguments: str = ""
    #: How the hidden states come out of its result.
    unpack: str = "{result}"


BLOCKS = (
    Block("linear", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.norm = nn.LayerNorm(dim)
                self.up = nn.Linear(dim, 2 * dim)
                self.down = nn.Linear(2 * dim, dim)

            def forward(self, x):
                return x + self.down(F.gelu(self.up(self.norm(x))))
        """),
    Block("dropout", """
        class {B}(nn.Module):
            def __init__(self, dim, p=0.2):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.drop = nn.Dropout(p)

            def forward(self, x):
                return x + self.drop(torch.tanh(self.fc(x)))
        """),
    Block("functional dropout", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                return x + F.dropout(torch.tanh(self.fc(x)), 0.3, self.training)
        """),
    Block("batch norm", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.bn = nn.BatchNorm1d(dim)

            def forward(self, x):
                return x + torch.relu(self.bn(self.fc(x)))
        """),
    Block("batch norm in a Sequential", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                layers = [nn.Linear(dim, dim), nn.BatchNorm1d(dim), nn.ReLU()]
                self.body = nn.Sequential(*layers)

            def forward(self, x):
                return x + self.body(x)
        """),
    Block("norm by name", """
        def make_norm(kind, dim):
            if kind == "bn":
                return nn.BatchNorm1d(dim)
            return nn.LayerNorm(dim)

        class {B}(nn.Module):
            def __init__(self, dim, norm="{norm}"):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.norm = make_norm(norm, dim)

            def forward(self, x):
                return x + torch.relu(self.norm(self.fc(x)))
        """),
    Block("norm without statistics", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.bn = nn.BatchNorm1d(dim, track_running_stats=False)

            def forward(self, x):
                return x + torch.relu(self.bn(self.fc(x)))
        """),
    Block("in place on its input", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                y = torch.tanh(self.fc(x))
                x += y
                return x * 0.5
        """),
    Block("in place on a copy", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                y = x.clone()
                y += torch.tanh(self.fc(x))
                return y * 0.5
        """),
    Block("moving average", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.register_buffer("mean", torch.zeros(dim))

            def forward(self, x):
                if self.training:
                    with torch.no_grad():
                        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
                return x + torch.tanh(self.fc(x - self.mean))
        """),
    Block("call counter", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                return x + torch.tanh(self.fc(x)) / self.calls
        """),
    Block("numpy noise", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                scale = float(np.random.uniform(0.5, 1.5))
                return x + scale * torch.tanh(self.fc(x))
        """),
    Block("python random layer drop", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                keep = random.random()
                return x + keep * torch.tanh(self.fc(x))
        """),
    Block("generator of its own", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.rng = torch.Generator().manual_seed(3)

            def forward(self, x):
                noise = torch.randn(x.shape, generator=self.rng)
                return x + torch.tanh(self.fc(x)) * noise
        """),
    Block("grad mode branch", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                y = torch.tanh(self.fc(x))
                if torch.is_grad_enabled():
                    y = y * 2
                return x + y
        """),
    Block("fixed seed", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                torch.manual_seed(7)
                return x + torch.tanh(self.fc(x)) * torch.rand_like(x)
        """),
    Block("tuple result", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                h = torch.tanh(self.fc(x))
                return x + h, h
        """, unpack="{result}[0]"),
    Block("dict result", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                h = torch.tanh(self.fc(x))
                return {{"out": x + h, "hidden": h}}
        """, unpack='{result}["out"]'),
    Block("mask argument", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x, mask=None):
                y = torch.tanh(self.fc(x))
                if mask is not None:
                    y = y * mask
                return x + y
        """, arguments="mask"),
    Block("swallowed error", """
        class {B}(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.out = nn.Linear(dim, dim)

            def forward(self, x):
                h = torch.tanh(self.fc(x))
                try:
                    return x + self.out(h)
                except {error}:
                    return x
        """),
)  # fmt: skip

#: ``{B}`` is the block's class; each leaves ``self.blocks`` or the names that LOOPS read.
CONTAINERS = (
    Choice("list comprehension", "self.blocks = nn.ModuleList([{B}(dim) for _ in range(depth)])"),
    Choice("generator", "self.blocks = nn.ModuleList({B}(dim) for _ in range(depth))"),
    Choice(
        "appended",
        """
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append({B}(dim))
        """,
    ),
    Choice(
        "list handed over",
        """
        layers = []
        for i in range(depth):
            layers.append({B}(dim))
        self.blocks = nn.ModuleList(layers)
        """,
    ),
    Choice("star of a comprehension", "self.blocks = nn.Sequential(*[{B}(dim) for _ in range(depth)])"),
    Choice(
        "ordered dict",
        """
        self.blocks = nn.Sequential(OrderedDict((f"block{{i}}", {B}(dim)) for i in range(depth)))
        """,
    ),
    Choice(
        "add_module",
        """
        self.blocks = nn.Sequential()
        for i in range(depth):
            self.blocks.add_module(f"block{{i}}", {B}(dim))
        """,
    ),
    Choice("module dict", 'self.blocks = nn.ModuleDict({{f"block{{i}}": {B}(dim) for i in range(depth)}})'),
    Choice(
        "grown by extend",
        """
        self.blocks = nn.ModuleList([{B}(dim)])
        self.blocks.extend({B}(dim) for _ in range(depth - 1))
        """,
    ),
    Choice(
        "attributes of their own",
        """
        for i in range(depth):
            setattr(self, f"block{{i}}", {B}(dim))
        self.blocks = nn.ModuleList(getattr(self, f"block{{i}}") for i in range(depth))
        """,
    ),
    Choice(
        "built by a method",
        """
        self.blocks = self._make_layers(dim, depth)

    def _make_layers(self, dim, depth):
        return nn.ModuleList([{B}(dim) for _ in range(depth)])
        """,
    ),
)

#: ``{use}`` is replaced by the checkpointed call on ``{layer}``, indented.
LOOPS = (
    Choice("over the blocks", "for {layer} in self.blocks:\n    {use}"),
    Choice("enumerated", "for i, {layer} in enumerate(self.blocks):\n    {use}"),
    Choice("by index", "for i in range(len(self.blocks)):\n    {layer} = self.blocks[i]\n    {use}"),
    Choice("behind a switch", (
        "for {layer} in self.blocks:\n    if self.use_checkpoint and self.training:\n        {use}\n"
        "    else:\n        x = {plain}"
    )),
    Choice("behind an option", (
        "for {layer} in self.blocks:\n    if self.use_checkpoint:\n        {use}\n    else:\n        x = {plain}"
    )),
    Choice("behind a configuration", (
        "for {layer} in self.blocks:\n    if self.config.checkpointing:\n        {use}\n    else:\n        x = {plain}"
    )),
    Choice("behind a command line option", (
        "for {layer} in self.blocks:\n    if self.option:\n        {use}\n    else:\n        x = {plain}"
    )),
    Choice("behind a switch that a method sets", (
        "for {layer} in self.blocks:\n    if self.gradient_checkpointing and self.training:\n        {use}\n"
        "    else:\n        x = {plain}"
    )),
    Choice("after an early return", (
        "if not self.use_checkpoint:\n    for {layer} in self.blocks:\n        x = {plain}\n    return self.head(x)\n"
        "for {layer} in self.blocks:\n    {use}"
    )),
    Choice("every second one", (
        "for i, {layer} in enumerate(self.blocks):\n    if i % 2 == 0:\n        {use}\n    else:\n        x = {plain}"
    )),
    Choice("switch that is off", (
        "for {layer} in self.blocks:\n    if self.never:\n        {use}\n    else:\n        x = {plain}"
    )),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Switch:
    """What the switch of a loop needs elsewhere in the program."""

    #: Above the model.
    top: str = ""
    #: In the constructor.
    init: str = ""
    #: Among the arguments that the constructor gets, and takes.
    handed: str = ""
    taken: str = ""
    #: A method of the model.
    method: str = ""
    #: In `main`, before and after the model is built.
    before: str = ""
    after: str = ""


#: By the name of the loop: the ways its switch is set.
SWITCHES: dict[str, tuple[Switch, ...]] = {
    "behind a configuration": tuple(
        Switch(
            top=f"@dataclass\nclass Config:\n    dim: int = 8\n    checkpointing: bool = {default}",
            init="self.config = config",
            handed=f", config=Config({given})",
            taken=", config=None",
        )
        for default, given in (("True", ""), ("False", ""), ("False", "checkpointing=True"))
    ),
    "behind a command line option": (
        Switch(
            init="self.option = option",
            handed=", option=args.checkpoint",
            taken=", option=False",
            before=(
                "parser = argparse.ArgumentParser()\nparser.add_argument('--checkpoint', action='store_true')\n"
                "args = parser.parse_args()"
            ),
        ),
    ),
    "behind a switch that a method sets": tuple(
        Switch(
            init="self.gradient_checkpointing = False",
            method="def enable_checkpointing(self, enabled=True):\n    self.gradient_checkpointing = enabled",
            after=after,
        )
        for after in ("model.enable_checkpointing()", "model.enable_checkpointing(True)", "")
    ),
}

#: ``{ckpt}`` is the name of torch's checkpoint, ``{layer}`` the block, ``{variant}`` the keyword with its comma.
CALLS = (
    Choice("the block itself", "x = {unpack:{ckpt}({layer}, x{arguments}{variant})}"),
    Choice("the block itself ", "x = {unpack:{ckpt}({layer}, x{arguments}{variant})}"),
    Choice("the block itself  ", "out = {ckpt}({layer}, x{arguments}{variant})\nx = {unpack:out}"),
    Choice("keyword argument", "x = {unpack:{ckpt}({layer}, x{keywords}{variant})}"),
    Choice("lambda", "x = {unpack:{ckpt}(lambda h: {layer}(h{arguments}), x{variant})}"),
    Choice("lambda with default", "x = {unpack:{ckpt}(lambda h, m={layer}: m(h{arguments}), x{variant})}"),
    Choice("local function", """
def run(hidden):
    return {layer}(hidden{arguments})
x = {unpack:{ckpt}(run, x{variant})}
"""),
    Choice("factory", """
def create(module):
    def custom_forward(*inputs):
        return module(*inputs)
    return custom_forward
x = {unpack:{ckpt}(create({layer}), x{arguments}{variant})}
"""),
    Choice("partial", "x = {unpack:{ckpt}(partial({layer}{keywords}), x{variant})}"),
    Choice("forward method", "x = {unpack:{ckpt}({layer}.forward, x{arguments}{variant})}"),
    Choice("without random state", "x = {unpack:{ckpt}({layer}, x{arguments}{variant}, preserve_rng_state=False)}"),
    Choice("result dropped", "_ = {ckpt}({layer}, x{arguments}{variant})\nx = {plain}"),
    Choice("result under another name", "y = {ckpt}({layer}, x{arguments}{variant})\nx = x * 1.0"),
    Choice("without determinism check", (
        'x = {unpack:{ckpt}({layer}, x{arguments}{variant}, determinism_check="none")}'
    )),
    Choice("tensor in a list", "x = {unpack:{ckpt}(lambda hs, m={layer}: m(hs[0]{arguments}), [x]{variant})}"),
    Choice("detached input", "x = {unpack:{ckpt}({layer}, x.detach(){arguments}{variant})}"),
    Choice("partial of checkpoint", (
        "run_checkpointed = partial({ckpt}{variant})\nx = {unpack:run_checkpointed({layer}, x{arguments})}"
    )),
    Choice("method", (
        "x = {unpack:{ckpt}(self.run_block, {layer}, x{arguments}{variant})}"
    )),
    Choice("bound late in a method", (
        "self.current = {layer}\nx = {unpack:{ckpt}(lambda h: self.current(h{arguments}), x{variant})}"
    )),
    Choice("options in a dict", (
        'options = {{"use_reentrant": {flag}}}\nx = {unpack:{ckpt}({layer}, x{arguments}, **options)}'
    )),
)  # fmt: skip

#: Regions that are no loop over blocks: they stand for the whole body of ``forward``.
BODIES = (
    Choice("checkpoint_sequential", "x = checkpoint_sequential(self.blocks, {segments}, x{variant})"),
    Choice("checkpoint_sequential on a list", "x = checkpoint_sequential(list(self.blocks), {segments}, x{variant})"),
)

#: What is done to the finished model instead of calls in its ``forward``.
WRAPPERS = (
    Choice("apply_activation_checkpointing", (
        "apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, "
        "check_fn=lambda m: isinstance(m, {checked}))"
    )),
    Choice("apply_activation_checkpointing reentrant", (
        "apply_activation_checkpointing(model, checkpoint_wrapper_fn=partial(checkpoint_wrapper, "
        "checkpoint_impl=CheckpointImpl.REENTRANT), check_fn=lambda m: isinstance(m, {checked}))"
    )),
    Choice("apply_activation_checkpointing by a function", (
        "def wanted(module):\n    return isinstance(module, {checked})\n"
        "apply_activation_checkpointing(model, check_fn=wanted)"
    )),
    Choice("wrapped in place", "for i, block in enumerate(model.blocks):\n    model.blocks[i] = checkpoint_wrapper(block)"),
    Choice("wrapped and lost", "for block in model.blocks:\n    block = checkpoint_wrapper(block)"),
    Choice("wrapped in a list that is dropped", "[checkpoint_wrapper(block) for block in model.blocks]"),
    Choice("wrapped by setattr", (
        "for name, child in model.named_children():\n    if isinstance(child, {B}):\n"
        "        setattr(model, name, checkpoint_wrapper(child))\n"
        "model.blocks[0] = checkpoint_wrapper(model.blocks[0])"
    )),
)  # fmt: skip

IMPORTS = (
    ("checkpoint", "from torch.utils.checkpoint import checkpoint"),
    ("cp.checkpoint", "import torch.utils.checkpoint as cp"),
    ("checkpoint.checkpoint", "from torch.utils import checkpoint"),
    ("torch.utils.checkpoint.checkpoint", "import torch.utils.checkpoint"),
    ("ckpt", "from torch.utils.checkpoint import checkpoint as ckpt"),
)

STEMS = (
    Choice("trained stem", "self.stem = nn.Linear(8, dim)"),
    Choice("trained stem ", "self.stem = nn.Linear(8, dim)"),
    Choice("frozen stem", "self.stem = nn.Linear(8, dim)\nself.stem.requires_grad_(False)"),
    Choice("no stem", "self.stem = nn.Identity()"),
)

MODES = (
    Choice("train", "model.train()"),
    Choice("as built", ""),
    Choice("eval", "model.eval()"),
    Choice("train again", "model.eval()\nmodel.train()"),
    Choice("train(False)", "model.train(False)"),
    Choice("blocks in eval mode", "model.train()\nmodel.blocks.eval()"),
)

FREEZES = (
    Choice("all trains", ""),
    Choice("all trains ", ""),
    Choice("all trains  ", ""),
    Choice("first blocks frozen", "for block in list(model.blocks)[:1]:\n    block.requires_grad_(False)"),
    Choice("stem frozen by its parameters", "for p in model.stem.parameters():\n    p.requires_grad = False"),
)

STEPS = (
    Choice("plain", "loss = model(x).pow(2).mean()\nloss.backward()\noptimizer.step()\noptimizer.zero_grad()"),
    Choice("plain ", "optimizer.zero_grad()\nout = model(x)\nloss = F.mse_loss(out, x)\nloss.backward()\noptimizer.step()"),
    Choice("accumulated", (
        "loss = model(x).pow(2).mean() / 2\nloss.backward()\nif step % 2 == 1:\n    optimizer.step()\n"
        "    optimizer.zero_grad()"
    )),
    Choice("step before backward", (
        "loss = model(x).pow(2).mean()\nif step > 0:\n    optimizer.step()\nloss.backward()\noptimizer.step()\n"
        "optimizer.zero_grad()"
    )),
    Choice("loss made to need a gradient", (
        "loss = model(x).pow(2).mean()\nloss.requires_grad_()\nloss.backward()\noptimizer.step()\n"
        "optimizer.zero_grad()"
    )),
    Choice("input needs a gradient", (
        "x.requires_grad_(True)\nloss = model(x).pow(2).mean()\nloss.backward()\noptimizer.step()\n"
        "optimizer.zero_grad()"
    )),
    Choice("evaluated before backward", (
        "loss = model(x).pow(2).mean()\nmodel.eval()\nwith torch.no_grad():\n    model(x)\nloss.backward()\n"
        "model.train()\noptimizer.step()\noptimizer.zero_grad()"
    )),
    Choice("gradient penalty", (
        "x.requires_grad_(True)\nout = model(x)\n(grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)\n"
        "loss = out.pow(2).mean() + grad.pow(2).mean()\nloss.backward()\noptimizer.step()\noptimizer.zero_grad()"
    )),
)  # fmt: skip

#: The variant, as often as users write it.
VARIANTS = (", use_reentrant=False",) * 5 + (", use_reentrant=True",) * 3 + ("",)
_NAMES = ("layer", "block", "blk", "mod")


def write(choose: Random) -> tuple[str, tuple[str, ...]]:
    """A program and the names of its ingredients."""
    block = choose.choice(BLOCKS)
    container, stem, mode = choose.choice(CONTAINERS), choose.choice(STEMS), choose.choice(MODES)
    freeze, step = choose.choice(FREEZES), _mostly_first(choose, STEPS)
    kind = choose.choices(("loop", "body", "wrapper"), (8, 1, 2))[0]
    spelled, imported = choose.choice(IMPORTS)
    variant = choose.choice(VARIANTS)
    names = {"B": choose.choice(("Block", "Layer", "ResBlock")), "norm": choose.choice(("bn", "ln"))}
    names["error"] = choose.choice(("Exception", "ValueError"))
    call, loop, wrapper = choose.choice(CALLS), choose.choice(LOOPS), choose.choice(WRAPPERS)
    layer = choose.choice(_NAMES)
    plain = block.unpack.format(result=f"{layer}(x{_arguments(block, '{}')})")
    if kind == "loop":
        use = _call(call, block, spelled, layer, variant, plain)
        body = loop.code.replace("{layer}", layer).replace("{plain}", plain)
        body = _place(body, use)
        parts: tuple[str, ...] = (loop.name, call.name, variant)
    elif kind == "body":
        chosen = choose.choice(BODIES)
        segments = choose.choice((1, 2, 3, 7))
        body = chosen.code.format(segments=segments, variant=variant)
        parts = (chosen.name, f"{segments} segments", variant)
    else:
        body = f"for {layer} in self.blocks:\n    x = {plain}"
        parts = (wrapper.name,)
    if container.name == "module dict":
        body = body.replace("in self.blocks:", "in self.blocks.values():").replace(
            "(self.blocks)", "(self.blocks.values())"
        )
    switch = choose.choice(SWITCHES.get(loop.name, (Switch(),))) if kind == "loop" else Switch()
    mask = "mask = torch.ones(x.shape[0], 1)\n" if block.arguments else ""
    prepared = ""
    if kind == "wrapper":
        checked = choose.choice((names["B"], names["B"], "nn.MultiheadAttention"))
        prepared = wrapper.code.format(B=names["B"], checked=checked)
    text = _SKELETON.format(
        imported=imported,
        block=dedent(block.code).format(**names),
        stem=_into(stem.code, 8),
        container=_into(container.code.format(**names), 8),
        body=_into(mask + body, 8),
        top=switch.top,
        init=_into(switch.init, 8),
        taken=switch.taken,
        method=_into(_methods(block, call, switch), 4),
        before=_into(switch.before, 4),
        after=_into(switch.after, 4),
        prepared=_into("\n".join(filter(None, _shuffled(choose, prepared, freeze.code, mode.code))), 4),
        step=_into(step.code, 8),
        depth=choose.choice((2, 3, 4)),
        switch=choose.choice(("True", "True", "False")),
        handed=choose.choice(("", "", ", use_checkpoint=True", ", use_checkpoint=False")) + switch.handed,
    )
    return text, ("torch", block.name, container.name, stem.name, mode.name, freeze.name, step.name, *parts)


def _methods(block: Block, call: Choice, switch: Switch) -> str:
    """The methods of the model besides `forward`."""
    run = f"def run_block(self, module, x{_arguments(block, '{}')}):\n    return module(x{_arguments(block, '{}')})"
    return "\n\n".join(filter(None, (run if call.name == "method" else "", switch.method)))


def _shuffled(choose: Random, *parts: str) -> list[str]:
    return choose.sample(parts, len(parts))


def _mostly_first(choose: Random, choices: tuple[Choice, ...]) -> Choice:
    return choose.choices(choices, [4, 4] + [1] * (len(choices) - 2))[0]


def _arguments(block: Block, form: str) -> str:
    return f", {form.format(block.arguments)}" if block.arguments else ""


def _call(call: Choice, block: Block, spelled: str, layer: str, variant: str, plain: str) -> str:
    code = call.code.strip("\n")
    for name, value in (
        ("{ckpt}", spelled),
        ("{layer}", layer),
        ("{plain}", plain),
        ("{arguments}", _arguments(block, "{}")),
        ("{keywords}", _arguments(block, f"{block.arguments}={{}}")),
        ("{variant}", variant),
        ("{flag}", "False" if "False" in variant else "True"),
        ("{{", "{"),
        ("}}", "}"),
    ):
        code = code.replace(name, value)
    return _unpacked(code, block)


def _unpacked(code: str, block: Block) -> str:
    start = code.find("{unpack:")
    if start < 0:
        return code
    depth, end = 0, start
    for end in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        if not depth:
            break
    inner = code[start + len("{unpack:") : end]
    return code[:start] + block.unpack.format(result=inner) + code[end + 1 :]


def _place(body: str, use: str) -> str:
    lines = []
    for line in body.split("\n"):
        if line.strip() == "{use}":
            lines.append(indent(use, line[: line.index("{")]))
        else:
            lines.append(line)
    return "\n".join(lines)


def _into(code: str, columns: int) -> str:
    """``code`` for a place ``columns`` into a template that already has its first line there."""
    if "\n" in code and code.startswith("\n"):
        code = dedent(code)
    if "def " in code and columns == 8 and "_make_layers" in code:
        first, _, rest = code.strip().partition("\n")
        return f"{first}\n{indent(dedent(rest), '    ')}"
    return indent(code.strip("\n"), " " * columns).strip()


_SKELETON = """
import argparse
import random
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import checkpoint_sequential
{imported}

{top}

{block}

class Net(nn.Module):
    def __init__(self, dim=8, depth={depth}, use_checkpoint={switch}{taken}):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.never = False
        {init}
        {stem}
        self.head = nn.Linear(dim, 8)
        {container}

    def forward(self, x):
        x = self.stem(x)
        {body}
        return self.head(x)

    {method}


def main():
    torch.manual_seed(0)
    {before}
    model = Net(8{handed})
    {after}
    {prepared}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(2):
        x = torch.randn(4, 8)
        {step}


if __name__ == "__main__":
    main()
"""
