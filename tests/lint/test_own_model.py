"""A function that nobody calls gets the model of its file; a class that the file builds has what is given there."""

import textwrap

import pytest
from hf_ckpt.lint import check_source

NET = """
    import torch
    import torch.nn as nn
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self, d, p=0.2):
            super().__init__()
            self.fc, self.drop = nn.Linear(d, d), nn.Dropout(p)

        def forward(self, x):
            return x + self.drop(self.fc(x))

    class Net(nn.Module):
        def __init__(self, c=64, n=8):
            super().__init__()
            self.inp = nn.Linear(3, c)
            self.layers = nn.ModuleList(Block(c) for _ in range(n))

        def forward(self, x):
            h = self.inp(x)
            for m in self.layers:
                h = checkpoint(m, h, use_reentrant=False)
            return h
"""

TRAIN = """
    def train({name}, loader, criterion):
        for x, y in loader:
            {forward}
            {name}.eval()
            loss.backward()
            {name}.train()
"""


def codes(code: str) -> list[str]:
    return [finding.code for finding in check_source(textwrap.dedent(NET + code))]


def trained(name: str, forward: str, more: str = "") -> list[str]:
    return codes(more + TRAIN.format(name=name, forward=forward))


@pytest.mark.parametrize("name", ["model", "net", "network", "net: nn.Module"])
@pytest.mark.parametrize("forward", ["loss = criterion({}(x), y)", "loss = {}(x=x).mean()", "loss = {}(x)[0].sum()"])
def test_a_parameter_is_the_only_model(name, forward):
    code = TRAIN.format(name=name.partition(":")[0], forward=forward.format(name.partition(":")[0]))
    assert codes(code.replace("(" + name.partition(":")[0] + ", loader", f"({name}, loader")) == ["CKPT114"]


OTHER = "\n    class Other(nn.Module):\n        def forward(self, x):\n            return x\n"
LOSS = "\n    class MyLoss(nn.Module):\n        def forward(self, x):\n            return x.mean()\n"
EMA = "\n    class Ema(nn.Module):\n        def __init__(self, model):\n            super().__init__()\n"
EMA += "\n        def forward(self, x):\n            return x\n"


def test_a_loss_and_what_is_built_around_a_module_are_no_models():
    for more in (LOSS, EMA):
        assert trained("model", "loss = model(x).sum()", more) == ["CKPT114"]


def test_one_of_two_models_is_known_by_its_name():
    assert trained("net", "loss = net(x).sum()", OTHER) == ["CKPT114"]
    assert trained("model", "loss = model(x).sum()", OTHER) == []


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("teacher", "loss = teacher(x).sum()"),
        ("model", "loss = model(x).loss"),
        ("model", "loss = model(**x)['loss']"),
        ("model", "loss = model(x, y)"),
        ("model", "loss = model(pixel_values=x).sum()"),
        ("model", "model.config.use_cache = False; loss = model(x).sum()"),
        ("model", "loss = model.module(x).sum()"),
        ("model", "loss = model.encode(x).sum()"),
    ],
)
def test_a_parameter_that_may_be_another_model_is_not_known(name, forward):
    assert trained(name, forward) == []


def test_a_parameter_whose_class_is_written_is_of_that():
    code = TRAIN.format(name="model", forward="loss = model(x).sum()").replace("(model,", "(model: 'LlamaModel',")
    assert codes(code) == []


@pytest.mark.parametrize(
    "code",
    [
        """
    def wrap(model):
        for i, block in enumerate(model.layers):
            model.layers[i] = checkpoint_wrapper(block, preserve_rng_state=False)
""",
        """
    def wrap(model: nn.Module):
        for name, block in model.layers.named_children():
            model.layers.register_module(name, checkpoint_wrapper(block, preserve_rng_state=False))
""",
        """
    def wrap(model):
        apply_activation_checkpointing(
            model, lambda m: checkpoint_wrapper(m, preserve_rng_state=False), lambda m: type(m) is Block
        )
""",
        """
    def wrap(model):
        def faster(m):
            return checkpoint_wrapper(m, preserve_rng_state=False)
        apply_activation_checkpointing(model, faster, check_fn=lambda m: m.__class__ in (Block, Net))
""",
        """
    def wrap(model):
        apply_activation_checkpointing(
            model, lambda m: checkpoint_wrapper(m, preserve_rng_state=False), lambda m: type(m).__name__ == "Block"
        )
""",
    ],
)
def test_the_layers_of_the_model_are_those_of_the_file(code):
    assert codes(code) == ["CKPT108"]


@pytest.mark.parametrize(
    "code",
    [
        """
    def wrap(model):
        for i, block in enumerate(model.backbone.layers):
            model.backbone.layers[i] = checkpoint_wrapper(block, preserve_rng_state=False)
""",
        """
    def wrap(model):
        apply_activation_checkpointing(
            model, lambda m: checkpoint_wrapper(m, preserve_rng_state=False), lambda m: type(m) is nn.Linear
        )
""",
        """
    def wrap(model):
        apply_activation_checkpointing(model, lambda m: checkpoint_wrapper(m), lambda m: type(m) is Block)
""",
        """
    def wrap(model):
        apply_activation_checkpointing(
            model, lambda m: checkpoint_wrapper(m, preserve_rng_state=False), lambda m: type(m).__name__ == "Other"
        )
""",
    ],
)
def test_other_layers_are_not_those_of_the_file(code):
    assert codes(code) == []


BUILT = """
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self, width=64, p=0.1):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(width, width), nn.Dropout(p))

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)
"""


@pytest.mark.parametrize(
    "caller",
    [
        "def build(width):\n    return Net(width).train()\n",
        "def build(width):\n    net = Net(width=width)\n    return net.to('cuda')\n",
        "class Task(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n        self.net = Net(width)\n",
        "class Task:\n    def __init__(self):\n        self.net = None\n\n    def setup(self):\n        self.net = Net()\n",
    ],
)
def test_what_a_class_is_built_with_is_what_a_function_that_nobody_calls_gives(caller):
    code = textwrap.dedent(BUILT) + caller
    assert [finding.code for finding in check_source(code)] == ["CKPT108"]


@pytest.mark.parametrize(
    "caller",
    [
        "",
        "def build(width):\n    return Net(width, 0.0)\n",
        "def build(width, p):\n    return Net(width, p=p)\n",
        "def build(width, **more):\n    return Net(width, **more)\n",
        "def build(kinds, width):\n    return kinds['net'](width)\n",
    ],
)
def test_what_nobody_shows_a_class_is_built_with_stays_open(caller):
    assert check_source(textwrap.dedent(BUILT) + caller) == []


@pytest.mark.parametrize(
    ("parameters", "role"),
    [
        ("model, teacher, loader, criterion", "Net"),
        ("model, ref_model, loader, criterion", "Net"),
        ("model, loader, criterion", "Teacher"),
        ("model, loader, criterion", "NetDiscriminator"),
        ("model, loader, criterion", "ResNetBackbone"),
    ],
)
def test_one_of_several_models_may_be_from_elsewhere(parameters, role):
    code = (NET + TRAIN).format(name="model", forward="loss = model(x).sum()").replace("class Net(", f"class {role}(")
    assert [it.code for it in check_source(textwrap.dedent(code.replace("model, loader, criterion", parameters)))] == []


CRITIC = """
    import torch
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Critic(nn.Module):
        def __init__(self, checkpoints=False):
            super().__init__()
            self.block, self.checkpoints = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), checkpoints

        def forward(self, x):
            {forward}

    def slope(score, x):
        return torch.autograd.grad(score(x).sum(), x, create_graph=True)
"""
#: A method of an object that is no module.
METHOD = "class Penalty:\n        def __call__(self, {0}, x):\n            return {0}(x), slope({0}, x)"
ALWAYS = "return checkpoint(self.block, x, use_reentrant=True)"
CHOSEN = "return checkpoint(self.block, x, use_reentrant=True) if self.checkpoints else self.block(x)"


@pytest.mark.parametrize(
    ("forward", "caller", "expected"),
    [
        (ALWAYS, "def penalty(critic, x):\n        return critic(x), slope(critic, x)", ["CKPT305"]),
        (ALWAYS, "def penalty(critic: Critic, x):\n        return slope(critic, x)", ["CKPT305"]),
        (ALWAYS, METHOD.format("critic"), ["CKPT305"]),
        # The one model of the file may be another one here.
        (ALWAYS, METHOD.format("model"), []),
        (ALWAYS, METHOD.format("critic").replace("Penalty:", "Penalty(nn.Module):"), []),
        (ALWAYS, "def penalty(model, x):\n        return model(x), slope(model, x)", []),
        (ALWAYS, "def penalty(model, x):\n        critic = model\n        return model(x), slope(critic, x)", []),
        # Nothing shows how it was built.
        (CHOSEN, "def penalty(critic, x):\n        return critic(x), slope(critic, x)", []),
        (CHOSEN, "def penalty(critic: Critic, x):\n        return slope(critic, x)", []),
        (CHOSEN, "def penalty(x):\n        return slope(Critic(True), x)", ["CKPT305"]),
    ],
)
def test_a_guess_stays_one_in_the_functions_that_get_it(forward, caller, expected):
    assert codes_of(CRITIC.format(forward=forward) + f"\n    {caller}\n") == expected


def codes_of(code: str) -> list[str]:
    return [finding.code for finding in check_source(textwrap.dedent(code)) if finding.code != "CKPT501"]
