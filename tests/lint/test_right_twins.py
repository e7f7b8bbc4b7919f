"""Right programs that look like mistakes: nothing is reported on them."""

import textwrap

import pytest
from hf_ckpt.lint import check_source

NET = """
    import torch
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Critic(nn.Module):
        def __init__(self, ckpt=False):
            super().__init__()
            self.ckpt = ckpt
            self.embed, self.block = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())

        def forward(self, x, ckpt=True):
            h = self.embed(x)
            if {condition}:
                return checkpoint(self.block, h, use_reentrant=True)
            return self.block(h)
"""


def codes(code: str) -> list[str]:
    return [finding.code for finding in check_source(textwrap.dedent(code))]


SWITCHED_OFF = {
    "eval mode": (
        "self.training",
        """
    def slopes(loader):
        net = Critic()
        for x in loader:
            net(x).sum().backward()
        net.eval()
        return torch.autograd.functional.jacobian(net, x)
    """,
    ),
    "the attribute is written": (
        "self.ckpt",
        """
    def slopes(x):
        net = Critic(True)
        net.ckpt = False
        return torch.autograd.functional.jacobian(lambda y: net(y), x)
    """,
    ),
    "an argument": (
        "ckpt",
        """
    def step(loss, create_graph=False):
        loss.backward(create_graph=create_graph)

    def train(x):
        net = Critic()
        step(net(x).mean())
        step(net(x, ckpt=False).mean(), create_graph=True)
    """,
    ),
    "nothing shows how the parameter was built": (
        "self.ckpt",
        """
    def penalty(critic, x):
        return torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    """,
    ),
    "no gradients in the generator": (
        "True",
        """
    def train(loader):
        net, other = Critic(), nn.Linear(8, 1)
        for x in loader:
            with torch.no_grad():
                fake = net(x)
            other(fake).mean().backward(create_graph=True)
    """,
    ),
}


@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_a_checkpoint_that_is_switched_off_is_differentiated_again(name):
    condition, rest = SWITCHED_OFF[name]
    assert codes(NET.format(condition=condition) + rest) == []


def test_a_checkpoint_that_is_on_is_not():
    rest = """
    def slopes(x):
        net = Critic()
        net.train()
        return torch.autograd.functional.jacobian(net, x)
    """
    assert codes(NET.format(condition="self.training") + rest) == ["CKPT305"]


DERIVED = """
    class PlainCritic(Critic):
        def forward(self, x):
            return self.block(self.embed(x))

    def penalty(critic, x):
        return torch.autograd.grad(critic(x).sum(), x, create_graph=True)
"""


def test_a_parameter_may_be_of_a_derived_class():
    assert codes(NET.format(condition="True") + DERIVED) == []


ENCODER = """
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Encoder(nn.Module):
        def __init__(self, ckpt=False):
            super().__init__()
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2) for _ in range(4))
            self.use_checkpoint = ckpt

        def forward(self, x, src_mask=None):
            for layer in self.layers:
                {before}
                if self.use_checkpoint and self.training:
                    x = checkpoint(layer, x, use_reentrant=False)
                else:
                    x = layer(x, src_mask)
            return x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = Encoder(True)

        def forward(self, x, src_mask=None):
            return self.encoder(x, {mask})

    def train(loader):
        model = Model()
        for x, mask in loader:
            model({given}).sum().backward()
"""


@pytest.mark.parametrize(
    ("given", "mask", "before", "expected"),
    [
        ("x, mask", "src_mask", "pass", ["CKPT128"]),
        ("x", "src_mask", "pass", []),
        ("x, None", "src_mask", "pass", []),
        ("x, mask", "None", "pass", []),
        ("x, mask", "src_mask", "layer.mask = src_mask", []),
    ],
)
def test_a_mask_that_some_caller_leaves_out(given, mask, before, expected):
    assert codes(ENCODER.format(given=given, mask=mask, before=before)) == expected


SAVES = """
    import torch
    from torch.utils.checkpoint import checkpoint

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward({saved})
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            assert len(ctx.saved_tensors) < 2
            return grad * 2 if ctx.saved_tensors else grad

    def run(linear, x):
        return checkpoint(lambda h: Double.apply(linear(h)), x, use_reentrant=False)
"""


def test_what_is_empty_may_be_read_twice():
    assert codes(SAVES.format(saved="x")) == ["CKPT317"]
    assert codes(SAVES.format(saved="")) == []


LOOPED = """
    import torch.nn as nn
    from transformers import LlamaModel

    class Looped(nn.Module):
        def __init__(self):
            super().__init__()
            self.core = LlamaModel.from_pretrained("base")
            self.core.gradient_checkpointing_enable({{"use_reentrant": True}})
            {then}

        def forward(self, ids):
            return self.core(ids).last_hidden_state

        def probe(self, h, positions):
            {first}
            for layer in self.core.layers:
                h = layer(hidden_states=h, position_embeddings=positions)
            return h

    def train(batches, h):
        model = Looped().train()
        for batch in batches:
            model(batch).mean().backward()
        return model.probe(h, None)
"""


@pytest.mark.parametrize(
    ("then", "first", "expected"),
    [
        ("pass", "pass", ["CKPT118"]),
        ("pass", "self.eval()", []),
        ("self.core.requires_grad_(False)", "pass", []),
    ],
)
def test_layers_that_are_not_trained_may_get_keywords(then, first, expected):
    assert [code for code in codes(LOOPED.format(then=then, first=first)) if code == "CKPT118"] == expected


WARM = """
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x):
            return self.down(self.up(x).relu())

    def warm(x):
        blocks = nn.ModuleList(Block() for _ in range(3))
        for block in blocks:
            checkpoint(block, x, use_reentrant=False)
        return x{end}
"""


def test_a_benchmark_may_drop_what_the_blocks_compute():
    assert codes(WARM.format(end="")) == ["CKPT209"]
    assert codes(WARM.format(end=".shape")) == []


TRAINER = """
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

    def main(rows):
        model = AutoModelForCausalLM.from_pretrained("gpt2")
        args = TrainingArguments(
            "out", gradient_checkpointing=True, gradient_checkpointing_kwargs={{"use_reentrant": False}}
        )
        {lines}
"""
ENABLE = 'model.gradient_checkpointing_enable({"use_reentrant": True})'
BUILD = "trainer = Trainer(model=model, args=args, train_dataset=rows)"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((ENABLE, BUILD, "trainer.train()"), ["CKPT202"]),
        ((ENABLE, BUILD, "return trainer"), ["CKPT202"]),
        ((ENABLE, BUILD, "trainer.evaluate()"), ["CKPT211"]),
        ((BUILD, "trainer.train()", ENABLE), []),
    ],
)
def test_a_trainer_replaces_settings_when_it_trains(lines, expected):
    assert codes(TRAINER.format(lines="\n        ".join(lines))) == expected


def test_a_base_class_is_derived_from_elsewhere():
    code = """
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class {name}(nn.Module):
        def forward(self, x, mask):
            return checkpoint(self.inner, x, mask, use_reentrant=False)

        def inner(self, x):
            return x.relu()
    """
    assert codes(code.format(name="Block")) == ["CKPT308"]
    assert codes(code.format(name="BaseBlock")) == []


LEAVING = """
    from torch.utils.checkpoint import checkpoint

    def run(block, x):
        try:
            x = checkpoint(lambda z: block(z), x, x, use_reentrant=False)
        finally:
            {last}
        return x
"""


def test_a_finally_that_leaves_takes_the_error_along():
    assert codes(LEAVING.format(last="block.eval()")) == ["CKPT308"]
    assert codes(LEAVING.format(last="return block(x)")) == []
