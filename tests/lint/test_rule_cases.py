"""Programs that a rule once got wrong, cut down from whole training scripts: `# error: CODE` is where it must speak."""

from __future__ import annotations

import re
import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_ERROR = re.compile(r"# error: (CKPT\d{3})$")
CASES = {
    "what a search finds before it breaks off": """
        from peft import prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM
        from trl import SFTConfig, SFTTrainer

        def train(text, names, rows):
            model = prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained("x", load_in_4bit=True))
            template = None
            for candidate in names:
                if candidate in text:
                    template = candidate
                    break
            if template is None:
                raise RuntimeError(text)
            last = None
            while last is None:
                if rows:
                    last = rows.pop()
                    continue
                break
            if last is None:
                raise RuntimeError(rows)
            SFTTrainer(model, SFTConfig("out", gradient_checkpointing=True), train_dataset=rows).train()
    """,
    "what follows `else: raise` of a search, and what other code may fill": """
        from peft import prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM

        def train(names, rows):
            for name in names:
                if name.exists():
                    break
            else:
                raise FileNotFoundError(names)
            found, best = [], None

            def keep(value):
                nonlocal best
                best = value

            visit(rows, found, keep)
            if not found or best is None:
                raise RuntimeError(rows)
            model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
            model = prepare_model_for_kbit_training(model)  # error: CKPT103
            for row in found:
                model(**row).loss.backward()
    """,
    "a loop by hand behind a search": """
        from peft import prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM

        def train(text, names, rows):
            name = None
            for candidate in names:
                if candidate in text:
                    name = candidate
                    break
            if name is None:
                raise RuntimeError(text)
            model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
            model = prepare_model_for_kbit_training(model)  # error: CKPT103
            for row in rows:
                model(**row).loss.backward()
    """,
    "what raises is told once": """
        from torch.utils.checkpoint import checkpoint_sequential

        class Net:
            def use_checkpointing(self):
                self.stem = checkpoint_sequential(self.stem, 1, use_reentrant=False)  # error: CKPT310

            def forward(self, x, mask):
                return checkpoint_sequential(self.stages, 2, x, True)
    """,
    "a module that Lightning gets by keyword": """
        import lightning as L
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Lit(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(8, 8)
                self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

            def training_step(self, batch, index):
                return checkpoint(self.block, self.embed(batch), use_reentrant=True).sum()  # error: CKPT304

        L.Trainer(strategy="ddp_find_unused_parameters_true").fit(model=Lit())
    """,
    "names that are bound anew where no gradient needs what they were": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def other_way(self, x, mask):
                if self.training:
                    x = checkpoint(lambda h: self.a(h) * mask, x, use_reentrant=False)
                    return self.b(x)
                mask = mask.roll(1)
                return self.b(x) * mask

            def one_case(self, kind, x, mask):
                match kind:
                    case "first":
                        x = checkpoint(lambda h: self.a(h) * mask, x, use_reentrant=False)
                        return self.b(x)
                mask = mask.roll(1)
                return self.b(x) * mask

            def form(self, x, mask):
                x, mask = checkpoint(lambda h: (self.a(h).type_as(x), mask), x, use_reentrant=False)
                return x * mask

            def learn(self, x, scale):
                x = checkpoint(lambda h: self.a(h) * scale, x, use_reentrant=False)
                backward_from(x)
                scale = scale + 1
                return scale

        def backward_from(x):
            x.sum().backward()
    """,
    "the forward of one module, found by a loop that ends there": """
        from torch.utils.checkpoint import checkpoint

        def enable(model):
            for name, module in model.named_children():
                if name == "encoder":
                    inner = module.forward
                    module.forward = lambda x: checkpoint(inner, x, use_reentrant=False)
                    break
    """,
    "a wrapper that is looked for before it is used": """
        import torch

        def wrap(block):
            if hasattr(torch.utils.checkpoint, "checkpoint_wrapper"):
                return torch.utils.checkpoint.checkpoint_wrapper(block)
            return block
    """,
    "the forward of a layer, replaced for one backward pass": """
        from torch.utils.checkpoint import checkpoint

        def measure(model, x):
            for layer in model.layers:
                inner = layer.forward
                layer.forward = lambda h: checkpoint(inner, h, use_reentrant=False)
                layer(x).sum().backward()
                layer.forward = inner
    """,
    "blocks that something else checkpoints, under DeepSpeed": """
        import deepspeed
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        from transformers import AutoModel

        def main(check):
            model = AutoModel.from_pretrained("base")
            apply_activation_checkpointing(model, check_fn=check)
            deepspeed.initialize(model=model, config={"activation_checkpointing": {"partition_activations": True}})
    """,
    "a frozen encoder in a module that DDP wraps": """
        import torch.nn as nn
        from torch.nn.parallel import DistributedDataParallel
        from transformers import AutoModel

        class Classifier(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.head = AutoModel.from_pretrained("base"), nn.Linear(768, 2)
                self.encoder.requires_grad_(False)
                self.encoder.gradient_checkpointing_enable({"use_reentrant": True})

            def forward(self, ids):
                return self.head(self.encoder(ids).last_hidden_state[:, 0])

        model = DistributedDataParallel(Classifier().train(), find_unused_parameters=True)
    """,
    "a region that measures its own time": """
        import time
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Timed(nn.Module):
            def region(self, x):
                begin = time.time()
                return self.fc(x), self.unit * (time.time() - begin)

            def forward(self, x):
                return checkpoint(self.region, x, use_reentrant=False)
    """,
    "a dict of modules that can be taken by number": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint_sequential

        class Blocks(nn.ModuleDict):
            def __getitem__(self, key):
                return list(self.values())[key]

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = Blocks({"a": nn.Linear(8, 8), "b": nn.Linear(8, 8)})

            def forward(self, x):
                return checkpoint_sequential(self.blocks, 2, x, use_reentrant=False)
    """,
    "hidden states beside numbers that are looked up": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.fc, self.kind = nn.Linear(8, 8), nn.Linear(8, 8), nn.Embedding(4, 8)

            def run(self, x, kinds=None):
                return self.fc(x) if kinds is None else self.fc(x + self.kind(kinds))

            def forward(self, x):
                return checkpoint(self.run, self.first(x), use_reentrant=True)
    """,
    "a dict comes out of a block that a lambda binds early": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)

            def forward(self, x):
                return {"out": self.fc(x)}

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block() for _ in range(4)])

            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(lambda h, m=block: m(h), x, use_reentrant=True)["out"]  # error: CKPT116
                return x
    """,
    "more segments than a list that was extended has": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint_sequential

        class Net(nn.Module):
            def __init__(self, depth=4):
                super().__init__()
                self.blocks = nn.ModuleList([nn.Linear(8, 8)])
                self.blocks.extend(nn.Linear(8, 8) for _ in range(depth - 1))

            def forward(self, x):
                x = checkpoint_sequential(self.blocks, 4, x, use_reentrant=False)
                return checkpoint_sequential(self.blocks, 7, x, use_reentrant=False)  # error: CKPT310

        Net()
    """,
    "a gradient of gradients through blocks wrapped from outside": """
        from functools import partial

        import torch
        import torch.nn as nn
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
            CheckpointImpl,
            apply_activation_checkpointing,
            checkpoint_wrapper,
        )

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)

            def forward(self, x):
                return torch.tanh(self.fc(x))

        def main(batches, optimizer):
            model = nn.Sequential(Block(), Block())
            wrap = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
            apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda m: isinstance(m, Block))
            for x in batches:
                x.requires_grad_(True)
                out = model(x)
                (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)  # error: CKPT305
                (out.pow(2).mean() + grad.pow(2).mean()).backward()
                optimizer.step()
    """,
    "what a launcher would set, by one call": """
        import os
        from transformers import TrainingArguments

        os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_ACTIVATION_CHECKPOINTING="true")
        args = TrainingArguments("out", gradient_checkpointing=True)  # error: CKPT303
    """,
    "a hook that steps in a function that it calls": """
        from torch import nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self, optimizers):
                super().__init__()
                self.block = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
                for weight in self.block.parameters():
                    weight.register_post_accumulate_grad_hook(lambda weight: update(optimizers, weight))

            def forward(self, x):
                for _ in range(4):
                    x = checkpoint(self.block, x, use_reentrant=True)  # error: CKPT135
                return x

        def update(optimizers, weight):
            optimizers[weight].step()
    """,
    "methods that are named and not called, in code that runs and behind a return": """
        from transformers import AutoModelForCausalLM

        def build(name):
            model = AutoModelForCausalLM.from_pretrained(name)
            model.gradient_checkpointing_enable  # error: CKPT205
            return model
            model.gradient_checkpointing_enable
    """,
    "a model built from a configuration generates in train mode": """
        from peft import get_peft_model
        from transformers import AutoModelForCausalLM, LlamaForCausalLM

        def main(config, adapter, ids):
            model = LlamaForCausalLM(config)
            model.gradient_checkpointing_enable()
            model = get_peft_model(model, adapter)
            model.generate(ids, max_new_tokens=8)  # error: CKPT112

        def other(config, ids):
            model = AutoModelForCausalLM.from_config(config)
            model.gradient_checkpointing_enable()
            model.generate(ids, max_new_tokens=8)  # error: CKPT112
    """,
    "a model that is loaded, or gets a trained adapter, generates in eval mode": """
        from peft import PeftModel
        from transformers import LlamaForCausalLM

        def main(config, folder, ids):
            model = PeftModel.from_pretrained(LlamaForCausalLM(config), folder)
            model.gradient_checkpointing_enable()
            model.generate(ids, max_new_tokens=8)

        def loaded(folder, ids):
            model = LlamaForCausalLM.from_pretrained(folder)
            model.gradient_checkpointing_enable()  # error: CKPT211
            model.generate(ids, max_new_tokens=8)
    """,
    "eval mode before the backward pass of blocks wrapped from outside": """
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

        class Block(nn.Module):
            def __init__(self, dim):
                super().__init__()
                self.fc = nn.Linear(dim, dim)

            def forward(self, x):
                return x + F.dropout(self.fc(x), 0.3, self.training)

        class Net(nn.Module):
            def __init__(self, dim=8, depth=2):
                super().__init__()
                self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])

            def forward(self, x):
                for layer in self.blocks:
                    x = layer(x)
                return x

        def main(batches, optimizer):
            model = Net()
            apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
            for x in batches:
                loss = model(x).sum()
                model.eval()  # error: CKPT114
                with torch.no_grad():
                    model(x)
                loss.backward()
                model.train()
                optimizer.step()
    """,
    "numbers in a model are no modules": """
        import torch
        import torch.nn as nn
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

        class Block(nn.Module):
            def __init__(self, dim, heads):
                super().__init__()
                self.fc = nn.Linear(dim, dim)
                self.size = dim // heads
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                return self.fc(x) / self.calls

        def main(heads):
            model = nn.Sequential(Block(8, heads), Block(8, heads))
            apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.GRU))  # error: CKPT208
            apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Linear))
    """,
    "a model that is loaded or built, left in eval mode by the first epoch": """
        import torch
        from accelerate import Accelerator
        from transformers import AutoConfig, AutoModelForCausalLM

        def main(args, loader, held_out):
            if args.model:
                model = AutoModelForCausalLM.from_pretrained(args.model)
            else:
                model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config))
            model.gradient_checkpointing_enable()  # error: CKPT203
            accelerator = Accelerator()
            model, loader = accelerator.prepare(model, loader)
            model.train()
            for epoch in range(3):
                for batch in loader:
                    accelerator.backward(model(**batch).loss)
                model.eval()
                with torch.no_grad():
                    model(**held_out)
    """,
    "eval mode without a condition, training under one": """
        from transformers import AutoModelForCausalLM

        def main(name, loader):
            model = AutoModelForCausalLM.from_pretrained(name)
            model.gradient_checkpointing_enable()  # error: CKPT203
            model.eval()
            for step, batch in enumerate(loader):
                if step > 10:
                    model(**batch).loss.backward()
    """,
    "a method that is called or checkpointed": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Block(nn.Module):
            def forward(self, x, mask):
                if not self.checkpointing:
                    return self._forward(x, mask)
                return checkpoint(self._forward, x, use_reentrant=False)  # error: CKPT128

            def _forward(self, x, mask=None):
                return x if mask is None else x * mask
    """,
    "a switch that is off until somebody sets it": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self, blocks):
                super().__init__()
                self.blocks, self.checkpointing = nn.ModuleList(blocks), False

            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(block, x) if self.checkpointing else block(x)  # error: CKPT101
                return x
    """,
    "a norm in both ways out of a forward": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

            def forward(self, x):
                if x.shape[-1] > 16:
                    return self._light(x)
                return self.norm(self.conv(x))

            def _light(self, x):
                return self.norm(x)

        class Other(Block):
            def forward(self, x):
                return self.norm(x) if x.shape[-1] > 16 else x

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block, self.other = Block(), Other()

            def forward(self, x):
                x = checkpoint(self.block, x, use_reentrant=False)  # error: CKPT106
                return checkpoint(self.other, x, use_reentrant=False)
    """,
    "the list of feature maps": """
        import timm
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Net(nn.Module):
            def __init__(self, name):
                super().__init__()
                self.stem = nn.Conv2d(3, 3, 1)
                self.maps = timm.create_model(name, features_only=True)
                self.logits = timm.create_model(name, features_only=False)

            def forward(self, x):
                x = self.stem(x)
                maps = checkpoint(self.maps, x, use_reentrant=True)  # error: CKPT116
                return maps[-1], checkpoint(self.logits, x, use_reentrant=True)
    """,
    "rates that rise along the blocks": """
        import random
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class DropPath(nn.Module):
            def __init__(self, rate=0.0):
                super().__init__()
                self.rate = rate

            def forward(self, x):
                if self.rate == 0.0 or not self.training:
                    return x
                return x * (random.random() > self.rate)

        class Block(nn.Module):
            def __init__(self, rate):
                super().__init__()
                self.fc, self.path = nn.Linear(8, 8), DropPath(rate)

            def forward(self, x):
                return x + self.path(self.fc(x))

        class Dropped(nn.Module):
            def __init__(self, rate):
                super().__init__()
                self.fc, self.drop = nn.Linear(8, 8), nn.Dropout(rate)

            def forward(self, x):
                return self.drop(self.fc(x))

        class Net(nn.Module):
            def __init__(self, depth=12):
                super().__init__()
                rates = [0.2 * i / max(1, depth - 1) for i in range(depth)]
                self.blocks = nn.ModuleList([Block(rate) for rate in rates])
                steps = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
                self.dropped = nn.ModuleList([Dropped(rate) for rate in steps])

            def forward(self, x):
                x = checkpoint(self.blocks[0], x, use_reentrant=False)
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False)  # error: CKPT115
                x = checkpoint(self.dropped[0], x, use_reentrant=False, preserve_rng_state=False)
                for i, block in enumerate(self.dropped):
                    if i == 0:
                        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
                for block in self.dropped:
                    x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)  # error: CKPT108
                return x
    """,
    "None for a mask that the function always takes": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint

        class Layer(nn.Module):
            def forward(self, x, mask):
                return x if mask is None else x * mask

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()
                self.checkpointing = True

            def forward(self, x, mask):
                if self.checkpointing and self.training:
                    return checkpoint(self.layer, x, None, use_reentrant=False)  # error: CKPT128
                return self.layer(x, mask)

        class Unmasked(Net):
            def forward(self, x, mask=None):
                if self.checkpointing and self.training:
                    return checkpoint(self.layer, x, None, use_reentrant=False)
                return self.layer(x, mask)
    """,
    "which of the modules that a loop or a slice takes": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential

        def listed(net):
            modules = []
            for module in net.children():
                modules.append(module)
            return modules

        def without_norms(net):
            modules = []
            for module in net.children():
                if isinstance(module, nn.BatchNorm2d):
                    continue
                modules.append(module)
            return modules

        class Net(nn.Module):
            def __init__(self, taken):
                super().__init__()
                self.taken = taken
                self.net = nn.Sequential(
                    nn.Conv2d(8, 8, 1), nn.PReLU(), nn.Tanh(), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.Hardswish()
                )
                self.few = nn.Sequential(nn.Conv2d(8, 8, 1), nn.PReLU(), nn.BatchNorm2d(8))

            def forward(self, x):
                x = checkpoint_sequential(listed(self.net), 2, x, use_reentrant=False)  # error: CKPT106
                by_name = [module for name, module in self.net._modules.items()]
                x = checkpoint_sequential(by_name, 2, x, use_reentrant=False)  # error: CKPT106
                x = checkpoint(self.net[3:], x, use_reentrant=False)  # error: CKPT106
                x = checkpoint(self.net[:4], x, use_reentrant=False)
                x = checkpoint(self.few[:-1], x, use_reentrant=False)
                x = checkpoint(self.few[: self.taken], x, use_reentrant=False)
                x = checkpoint_sequential(without_norms(self.net), 2, x, use_reentrant=False)
                x = checkpoint_sequential(without_norms(self.few), 2, x, use_reentrant=False)
                plain = [module for module in self.few if not isinstance(module, nn.BatchNorm2d)]
                x = checkpoint_sequential(plain, 2, x, use_reentrant=False)
                for layer in self.few:
                    if isinstance(layer, nn.BatchNorm2d):
                        x = layer(x)
                    else:
                        x = checkpoint(layer, x, use_reentrant=False)
                for layer in self.net:
                    x = checkpoint(layer, x, use_reentrant=False)  # error: CKPT106
                return x
    """,
    "arguments from one of two parsers": """
        import sys
        from transformers import HfArgumentParser, TrainingArguments

        parser = HfArgumentParser(TrainingArguments)
        if len(sys.argv) == 2:
            (args,) = parser.parse_json_file(sys.argv[1])
        else:
            (args,) = parser.parse_args_into_dataclasses()
        args.gradient_checkpointing = True  # error: CKPT201
    """,
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_a_program_that_was_once_judged_wrongly(code):
    code = textwrap.dedent(code)
    expected = [(n, m[1]) for n, line in enumerate(code.splitlines(), 1) if (m := _ERROR.search(line))]
    assert [(finding.span.line, finding.code) for finding in check_source(code)] == expected
