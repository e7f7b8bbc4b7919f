"""Mistakes whose cause stands elsewhere: in a helper, a base class, a configuration, a Trainer's method."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

WRONG = {
    "the one pair of contexts that a method of a base hands out": (
        "CKPT309",
        """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

        class Saving:
            def prepare(self, policy):
                first, second = create_selective_checkpoint_contexts(policy)
                self.pair = (first, second)

            def contexts(self):
                return self.pair

            def saving(self, block, x):
                return checkpoint(block, x, use_reentrant=False, context_fn=self.contexts)

        class Net(nn.Module, Saving):
            def __init__(self, policy):
                super().__init__()
                self.prepare(policy)
                self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

            def forward(self, x):
                for block in self.blocks:
                    x = self.saving(block, x)
                return x
        """,
    ),
    "a loss that a Trainer computes with the plain kernel": (
        "CKPT311",
        """
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        class Exact(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
                with sdpa_kernel(SDPBackend.MATH):
                    return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)

        def main(rows):
            args = TrainingArguments(
                "out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}
            )
            model = AutoModelForCausalLM.from_pretrained("base")
            Exact(model=model, args=args, train_dataset=rows).train()
        """,
    ),
    "router logits that the configuration asks for": (
        "CKPT113",
        """
        from transformers import MixtralConfig, MixtralForCausalLM

        config = MixtralConfig(num_hidden_layers=2)
        config.output_router_logits = True
        model = MixtralForCausalLM(config)
        model.gradient_checkpointing_enable({"use_reentrant": True})
        model.train()
        for batch in []:
            model(**batch).loss.backward()
        """,
    ),
    "a helper that cuts off what it gives": (
        "CKPT121",
        """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        def recomputed(block, x):
            y = checkpoint(block, x, use_reentrant=False)
            return y.detach().requires_grad_(True)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4))

            def forward(self, x):
                for block in self.blocks:
                    x = recomputed(block, x)
                return x
        """,
    ),
    "a gradient that a helper asks for": (
        "CKPT132",
        """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inp, self.layer = nn.Linear(8, 8), nn.Linear(8, 8)

            def rounded(self, h):
                if h.requires_grad:
                    return torch.tanh(4 * h)
                return h.sign()

            def step(self, layer, h):
                return h + self.rounded(layer(h))

            def forward(self, x):
                return checkpoint(self.step, self.layer, self.inp(x), use_reentrant=True)
        """,
    ),
    "a wrapper that a function makes around layers that checkpoint themselves": (
        "CKPT402",
        """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
            CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper,
        )
        from transformers import BertForMaskedLM
        from transformers.models.bert.modeling_bert import BertLayer

        def wrapped(module):
            return checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.NO_REENTRANT)

        model = BertForMaskedLM.from_pretrained("base")
        model.gradient_checkpointing_enable({"use_reentrant": True})
        apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapped, check_fn=lambda m: isinstance(m, BertLayer))
        """,
    ),
    "parameters of adapters, chosen by their names": (
        "CKPT120",
        """
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained("base")
        model.gradient_checkpointing_enable({"use_reentrant": True})
        model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig())
        adapter = [p for n, p in model.named_parameters() if "lora_" in n]
        model.train()
        for batch in []:
            torch.autograd.backward(model(**batch).loss, inputs=adapter)
        """,
    ),
}
STEPS = """
    import torch
    import torch.nn as nn
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in []:
        {}
"""
#: Steps in front of the backward pass, and whether gradients are there for them.
ORDERS = {
    "loss = net(x).mean(); optimizer.step(); loss.backward(); optimizer.zero_grad()": False,
    "optimizer.zero_grad(); loss = net(x).mean(); optimizer.step(); loss.backward()": False,
    "loss = net(x).mean(); optimizer.step(); loss.backward(); optimizer.step(); optimizer.zero_grad()": False,
    "loss = net(x).mean(); optimizer.step(); optimizer.zero_grad(); loss.backward()": True,
    "loss = net(x).mean(); optimizer.step(); loss.backward()": True,
    "loss = net(x).mean(); optimizer.step(); loss.backward(); optimizer.zero_grad(set_to_none=False)": True,
    "loss = net(x).mean(); optimizer.step(); optimizer.zero_grad(); loss.backward(); optimizer.step()": True,
}
RIGHT = {
    "an object that is no dataclass of the program": """
        import dataclasses
        from torch.utils.checkpoint import checkpoint

        def decode(decoder, x, batch):
            y = checkpoint(decoder, x, batch, use_reentrant=False)
            return dataclasses.replace(y, history=None)
    """,
    "layers whose flag is set": """
        from transformers import BertModel

        model = BertModel.from_pretrained("base")
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.eval()
        for batch in []:
            for layer in model.encoder.layer:
                layer.training = True
            model(**batch).last_hidden_state.mean().backward()
    """,
    "gradients of what stands behind the checkpoint": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem, self.body, self.head = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.Linear(8, 2)

            def forward(self, x):
                return self.head(checkpoint(self.body, self.stem(x), use_reentrant=True))

        net = Net()
        for batch in []:
            torch.autograd.grad(net(batch).sum(), [*net.head.parameters()])
    """,
}


@pytest.mark.parametrize("cause", WRONG)
def test_it_is_found(cause):
    code, program = WRONG[cause]
    assert code in {found.code for found in check_source(dedent(program))}


@pytest.mark.parametrize("cause", RIGHT)
def test_it_is_left_alone(cause):
    assert check_source(dedent(RIGHT[cause])) == []


@pytest.mark.parametrize("order", ORDERS)
def test_a_step_that_finds_no_gradients_changes_nothing(order):
    found = check_source(dedent(STEPS.format(order)))
    assert ("CKPT114" in {finding.code for finding in found}) is ORDERS[order]
