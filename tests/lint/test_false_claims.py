"""What is often said to be wrong with checkpointing and is not, measured: no rule that is on by default repeats it."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HARMLESS = {
    "wrappers and transformers >= 5 are non-reentrant when nothing is said": """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from transformers import AutoModelForCausalLM

        def build(name, block):
            model = AutoModelForCausalLM.from_pretrained(name)
            model.gradient_checkpointing_enable()
            return model, checkpoint_wrapper(block)
    """,
    "checkpoint wrappers before FSDP1 do not make the model one unit": """
        import functools
        import torch.nn as nn
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 8)

            def forward(self, x):
                return x + self.linear(x)

        def shard(model):
            apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            return FSDP(model, auto_wrap_policy=policy)
    """,
    "FSDP2 takes either order": """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from torch.distributed.fsdp import fully_shard

        def first(model):
            for i, block in enumerate(model.blocks):
                model.blocks[i] = checkpoint_wrapper(block)
                fully_shard(model.blocks[i])
            return fully_shard(model)

        def last(model):
            for i, block in enumerate(model.blocks):
                fully_shard(block)
                model.blocks[i] = checkpoint_wrapper(block)
            return fully_shard(model)
    """,
    "checkpointing under FSDP gathers the weights no more often": """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        args = TrainingArguments(
            "out",
            fsdp="full_shard auto_wrap",
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
        )
        Trainer(AutoModelForCausalLM.from_pretrained("m"), args).train()
    """,
    "one reentrant segment inside each FSDP1 unit does not hang": """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def shard(model):
            for i, block in enumerate(model.blocks):
                model.blocks[i] = FSDP(checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.REENTRANT))
            return FSDP(model)
    """,
    "the recomputation has the arguments of its own call": """
        from torch.utils.checkpoint import checkpoint

        def forward(blocks, x, scale, flag, names):
            for i, block in enumerate(blocks):
                x = checkpoint(block, x, i, scale, flag, names, use_reentrant=True)
                scale, flag = scale * 0.5, not flag
            return x
    """,
    "dropout needs no seed": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.dropout = nn.Linear(8, 8), nn.Dropout(0.1)

            def forward(self, x):
                return self.dropout(self.linear(x))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=False)
    """,
    "every second layer is a choice": """
        from torch.utils.checkpoint import checkpoint

        def forward(layers, x):
            for i, layer in enumerate(layers):
                if i % 2 == 0:
                    x = checkpoint(layer, x, use_reentrant=False)
                else:
                    x = layer(x)
            return x
    """,
    "norms without running statistics, and frozen ones, are updated by nothing": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.stage = nn.Sequential(
                    nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU()
                )

            def forward(self, x):
                return checkpoint(self.stage, x, use_reentrant=False)
    """,
    "a hook that counts or logs": """
        from transformers import AutoModelForCausalLM

        def watch(name, batches, log):
            model = AutoModelForCausalLM.from_pretrained(name).train()
            model.gradient_checkpointing_enable()
            for layer in model.model.layers:
                layer.mlp.register_forward_hook(lambda module, args, output: log(output.detach().norm()))
            for batch in batches:
                model(**batch).loss.backward()
    """,
    "autocast around, inside and between": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 8)

            def forward(self, x):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    return self.linear(x)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()

            def forward(self, x):
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    x = checkpoint(self.block, x, use_reentrant=False)
                return checkpoint(self.block, x, use_reentrant=False)

        def step(batches):
            model = Net()
            for batch in batches:
                with torch.autocast("cuda"):
                    loss = model(batch).mean()
                loss.backward()
    """,
    "gradients that are never set to zero keep their memory": """
        from transformers import AutoModelForCausalLM

        def accumulate(name, batches):
            model = AutoModelForCausalLM.from_pretrained(name).train()
            model.gradient_checkpointing_enable()
            for batch in batches:
                model(**batch).loss.backward()
    """,
    "no_sync of FSDP1 with checkpoints": """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def accumulate(model, batches):
            for i, block in enumerate(model.blocks):
                model.blocks[i] = FSDP(checkpoint_wrapper(block))
            model = FSDP(model)
            with model.no_sync():
                for batch in batches:
                    model(batch).sum().backward()
    """,
    "keyword arguments reach a reentrant checkpoint through a partial or a wrapper": """
        from functools import partial
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
        from torch.utils.checkpoint import checkpoint

        def forward(block, x, mask):
            x = checkpoint(partial(block, mask=mask), x, use_reentrant=True)
            return checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.REENTRANT)(x, mask=mask)
    """,
    "two non-reentrant checkpoints around the same block are as fast as one": """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from transformers import AutoModelForCausalLM

        def build(name):
            model = AutoModelForCausalLM.from_pretrained(name, use_cache=False).train()
            model.gradient_checkpointing_enable()
            for i, layer in enumerate(model.model.layers):
                model.model.layers[i] = checkpoint_wrapper(layer)
            return model
    """,
    "`__call__` and the module itself are the same": """
        from torch.utils.checkpoint import checkpoint

        def forward(layers, x):
            for layer in layers:
                x = checkpoint(layer.__call__, x, use_reentrant=False)
            return x
    """,
    "detach and no_grad inside a reentrant segment": """
        import torch
        from torch.utils.checkpoint import checkpoint

        def segment(x, block, teacher):
            with torch.no_grad():
                target = teacher(x)
            return block(x) + target.detach()

        def forward(x, block, teacher):
            return checkpoint(segment, x, block, teacher, use_reentrant=True)
    """,
    "a tensor in a list under reentrant, used by that segment only": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self, block):
                super().__init__()
                self.block, self.context = block, nn.Linear(8, 8)

            def forward(self, x, condition):
                return checkpoint(self.block, x, [self.context(condition)], use_reentrant=True)
    """,
    "PEFT with ZeRO-3 and the non-reentrant variant": """
        from peft import LoraConfig
        from transformers import AutoModelForCausalLM
        from trl import SFTConfig, SFTTrainer

        args = SFTConfig(
            "out",
            deepspeed="zero3.json",
            activation_checkpointing=True,
            activation_checkpointing_kwargs={"use_reentrant": False},
        )
        SFTTrainer("m", args=args, train_dataset=rows, peft_config=LoraConfig(lora_dropout=0.1)).train()
    """,
    "asking for the reentrant variant, with inputs that need a gradient": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(100, 8)
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(4))

            def forward(self, ids):
                x = self.embed(ids)
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=True)
                return x
    """,
    "a checkpoint where no gradient is computed": """
        import torch
        from torch.utils.checkpoint import checkpoint

        @torch.no_grad()
        def evaluate(block, batches):
            return [checkpoint(block, batch, use_reentrant=False) for batch in batches]
    """,
}


@pytest.mark.parametrize("code", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_is_harmless_is_not_reported(code):
    found = check_source(textwrap.dedent(code), select=None)
    assert [(finding.span.line, finding.code, finding.message) for finding in found] == []
