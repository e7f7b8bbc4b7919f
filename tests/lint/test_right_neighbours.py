"""Right programs next to what a rule reports: one line, a condition or an unseen function makes the difference."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAMS = {
    ("CKPT112", "a function of the file passes use_cache on"): """
        from transformers import AutoModelForCausalLM, GenerationConfig

        def make_gen(**over):
            return GenerationConfig(max_new_tokens=32, **over)

        def train(name, batches, optimizer, tok):
            model = AutoModelForCausalLM.from_pretrained(name)
            model.gradient_checkpointing_enable()
            model.train()
            gen = make_gen(use_cache=False)
            for batch in batches:
                model(**batch).loss.backward()
                optimizer.step()
                model.generate(**tok("The", return_tensors="pt"), generation_config=gen)
    """,
    ("CKPT112", "a setting is replaced"): """
        import dataclasses
        from transformers import AutoModelForCausalLM, GenerationConfig

        @dataclasses.dataclass
        class Gen:
            max_new_tokens: int = 20
            use_cache: bool = True

        def train(name, batches, optimizer, tok):
            model = AutoModelForCausalLM.from_pretrained(name)
            model.gradient_checkpointing_enable()
            model.train()
            gen = dataclasses.replace(Gen(), use_cache=False)
            for batch in batches:
                model(**batch).loss.backward()
                optimizer.step()
                model.generate(**tok("The", return_tensors="pt"), **dataclasses.asdict(gen))
    """,
    ("CKPT112", "a function of the file sets flags"): """
        from transformers import AutoModelForCausalLM

        def set_flags(obj, **flags):
            for key, value in flags.items():
                setattr(obj, key, value)

        def train(name, batches, optimizer, tok):
            model = AutoModelForCausalLM.from_pretrained(name)
            set_flags(model.generation_config, use_cache=False, max_new_tokens=20)
            model.gradient_checkpointing_enable()
            model.train()
            for batch in batches:
                model(**batch).loss.backward()
                optimizer.step()
                model.generate(**tok("The", return_tensors="pt"))
    """,
    ("CKPT112", "a part of a configuration is passed on"): """
        import hydra
        from transformers import AutoModelForCausalLM

        @hydra.main(config_path="conf")
        def main(cfg):
            model = AutoModelForCausalLM.from_pretrained(cfg.name)
            model.gradient_checkpointing_enable()
            model.train()
            for batch in hydra.utils.instantiate(cfg.data):
                model(**batch).loss.backward()
                model.generate(**batch["prompt"], **cfg.generate_kwargs)
    """,
    ("CKPT304", "the layers are switched off by hand"): """
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from torch.nn.parallel import DistributedDataParallel
        from transformers import AutoModelForCausalLM

        def build(name, rank, batches):
            model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
            model = prepare_model_for_kbit_training(model)
            for m in model.modules():
                if hasattr(m, "gradient_checkpointing"):
                    m.gradient_checkpointing = False
            model = get_peft_model(model, LoraConfig())
            model = DistributedDataParallel(model, device_ids=[rank], find_unused_parameters=True)
            for batch in batches:
                model(**batch).loss.backward()
    """,
    ("CKPT304", "the layers get the other variant by hand"): """
        import functools
        import torch
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from torch.nn.parallel import DistributedDataParallel
        from transformers import AutoModelForCausalLM

        def build(name, rank, batches):
            model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
            model = prepare_model_for_kbit_training(model)
            for m in model.modules():
                if hasattr(m, "_gradient_checkpointing_func"):
                    m._gradient_checkpointing_func = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
            model = get_peft_model(model, LoraConfig())
            model = DistributedDataParallel(model, device_ids=[rank], find_unused_parameters=True)
            for batch in batches:
                model(**batch).loss.backward()
    """,
    ("CKPT110", "only the tokenizer and the configuration are saved"): """
        from accelerate import Accelerator, FullyShardedDataParallelPlugin
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM, AutoTokenizer
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", activation_checkpointing=True)
        accelerator = Accelerator(fsdp_plugin=plugin)
        tok = AutoTokenizer.from_pretrained("base")
        model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
        model = accelerator.prepare(model)
        tok.save_pretrained("adapter")
        model.config.save_pretrained("adapter")
    """,
    ("CKPT110", "a switch of the run saves"): """
        import argparse
        from accelerate import Accelerator, FullyShardedDataParallelPlugin
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM
        ap = argparse.ArgumentParser()
        ap.add_argument("--save", action="store_true")
        args = ap.parse_args()
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", activation_checkpointing=True)
        accelerator = Accelerator(fsdp_plugin=plugin)
        model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
        model = accelerator.prepare(model)
        if args.save:
            accelerator.unwrap_model(model).save_pretrained("adapter", state_dict=accelerator.get_state_dict(model))
    """,
    ("CKPT131", "a function cleans the name"): """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        from naming import clean
        def groups(model, is_block):
            apply_activation_checkpointing(model, check_fn=is_block)
            wanted = {"layers.0.mlp.weight", "layers.1.mlp.weight"}
            return [p for n, p in model.named_parameters() if n in wanted or clean(n) in wanted]
    """,
    ("CKPT131", "a table is completed by another name of it"): """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        def groups(model, is_block, depth):
            apply_activation_checkpointing(model, check_fn=is_block)
            rates = {f"layers.{i}.mlp.weight": 0.1 * i for i in range(depth)}
            table = rates
            for i in range(depth):
                table[f"layers.{i}._checkpoint_wrapped_module.mlp.weight"] = 0.1 * i
            return [{"params": [p], "lr": rates.get(n, 0.1)} for n, p in model.named_parameters()]
    """,
    ("CKPT131", "both names are looked for"): """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        def groups(model, is_block, depth):
            apply_activation_checkpointing(model, check_fn=is_block)
            plain = {f"layers.{i}.mlp.weight" for i in range(depth)}
            wrapped = {f"layers.{i}._checkpoint_wrapped_module.mlp.weight" for i in range(depth)}
            return [p for n, p in model.named_parameters() if n in plain or n in wrapped]
    """,
    ("CKPT131", "a table is imported in the function"): """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        rates = {"layers.0.mlp.weight": 0.1}
        def groups(model, is_block):
            from conf import rates
            apply_activation_checkpointing(model, check_fn=is_block)
            return [{"params": [p], "lr": rates.get(n, 0.1)} for n, p in model.named_parameters()]
    """,
    ("CKPT131", "a table is imported where there is one"): """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        try:
            from conf import rates
        except ImportError:
            rates = {"layers.0.mlp.weight": 0.1}
        def groups(model, is_block):
            apply_activation_checkpointing(model, check_fn=is_block)
            return [{"params": [p], "lr": rates.get(n, 0.1)} for n, p in model.named_parameters()]
    """,
    ("CKPT130", "a batch without a loss is handled"): """
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.utils.checkpoint import checkpoint
        def step(net, batches, opt):
            loss = torch.zeros(())
            for x, y in batches:
                if (y >= 0).any():
                    loss = loss + F.cross_entropy(checkpoint(net, x, use_reentrant=False), y)
            if not loss.requires_grad:
                loss.requires_grad_(True)
            loss.backward()
            opt.step()
    """,
    ("CKPT130", "the loss is one of cut tensors"): """
        import torch
        import torch.nn.functional as F
        from torch.utils.checkpoint import checkpoint
        def step(net, x, y):
            out = checkpoint(net, x, use_reentrant=False)
            aux_loss = F.mse_loss(out.detach(), y) * 0.5
            aux_loss.requires_grad_()
            aux_loss.backward()
            out.sum().backward(aux_loss.grad)
    """,
    ("CKPT130", "the loss is computed without gradients"): """
        import torch
        import torch.nn.functional as F
        from torch.utils.checkpoint import checkpoint
        def step(net, x, y, scaler):
            out = checkpoint(net, x, use_reentrant=False)
            with torch.no_grad():
                loss = F.mse_loss(out, y) + 0.1 * F.l1_loss(out, y)
            loss.requires_grad_()
            g = torch.autograd.grad(scaler(loss), loss)
            loss.backward()
            out.backward(g[0].expand_as(out))
    """,
    ("CKPT106", "another model was trained before the eval()"): """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        from mylib import saliency
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 8, 3, padding=1)
                self.bn = nn.BatchNorm2d(8)
                self.head = nn.Linear(8, 2)
            def part(self, x):
                return self.bn(self.conv(x))
            def forward(self, x):
                x = checkpoint(self.part, x, use_reentrant=False)
                return self.head(x.mean((2, 3)))
        probe = nn.Linear(8, 2)
        opt = torch.optim.SGD(probe.parameters(), 0.1)
        for _ in range(10):
            probe(torch.randn(2, 8)).sum().backward()
            opt.step()
        net = Net()
        net.load_state_dict(torch.load("net.pt"))
        net.eval()
        saliency(net, probe)
    """,
    ("CKPT106", "a second stage with checkpoints trains elsewhere"): """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        from stages import refine
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 8, 3, padding=1)
                self.bn = nn.BatchNorm2d(8)
                self.head = nn.Linear(8, 2)
                self.use_ckpt = False
            def part(self, x):
                return self.bn(self.conv(x))
            def forward(self, x):
                x = checkpoint(self.part, x, use_reentrant=False) if self.use_ckpt else self.part(x)
                return self.head(x.mean((2, 3)))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for x in [torch.randn(2, 3, 8, 8)]:
            net(x).sum().backward()
            opt.step()
        net.use_ckpt = True
        net.bn.eval()
        refine(net, opt)
    """,
    ("CKPT104", "a module switches gradients on itself"): """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Enc(nn.Module):
            def __init__(self):
                super().__init__()
                self.base = nn.Linear(64, 64)
                self.adapter = nn.Linear(64, 64)
            def forward(self, x):
                with torch.no_grad():
                    h = self.base(x)
                with torch.enable_grad():
                    return self.adapter(h)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.enc = Enc()
                self.block = nn.Linear(64, 64)
            @torch.no_grad()
            def features(self, x):
                return self.enc(x)
            def forward(self, x):
                with torch.no_grad():
                    f = self.enc(x)
                return checkpoint(self.block, f, use_reentrant=True)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            net(torch.randn(2, 64)).sum().backward()
            opt.step()
    """,
    ("CKPT104", "a module gives its parameter"): """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Prompt(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Parameter(torch.zeros(4, 64))
            def forward(self):
                return self.tokens
        prompt = Prompt()
        block = nn.Linear(64, 64)
        opt = torch.optim.SGD([*block.parameters(), *prompt.parameters()], 0.1)
        for _ in range(3):
            with torch.no_grad():
                p = prompt()
            checkpoint(block, p, use_reentrant=True).sum().backward()
            opt.step()
    """,
    ("CKPT405", "a projector trains below the frozen layers"): """
        import torch
        import torch.nn as nn
        from transformers import AutoModelForCausalLM

        class VisionLM(nn.Module):
            def __init__(self, name):
                super().__init__()
                self.llm = AutoModelForCausalLM.from_pretrained(name)
                self.proj = nn.Linear(1024, self.llm.config.hidden_size)
                self.llm.model.embed_tokens.requires_grad_(False)
                for layer in self.llm.model.layers[:16]:
                    layer.requires_grad_(False)
                self.llm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

            def forward(self, feats, ids, labels):
                embeds = torch.cat([self.proj(feats), self.llm.get_input_embeddings()(ids)], dim=1)
                return self.llm(inputs_embeds=embeds, labels=labels).loss
    """,
    ("CKPT405", "a prompt trains below the frozen backbone"): """
        import torch
        import torch.nn as nn
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained("base")
        for p in model.model.parameters():
            p.requires_grad = False
        soft = nn.Parameter(torch.randn(20, model.config.hidden_size))
        model.gradient_checkpointing_enable()
        model.train()
        def step(ids, labels, opt):
            emb = model.model.embed_tokens(ids)
            emb = torch.cat([soft.expand(ids.size(0), -1, -1), emb], 1)
            loss = model(inputs_embeds=emb, labels=labels).loss
            loss.backward()
            opt.step()
    """,
    ("CKPT405", "frozen layers get adapters of the file"): """
        import torch.nn as nn
        from transformers import AutoModelForCausalLM

        class LoRALinear(nn.Module):
            def __init__(self, base, r=8):
                super().__init__()
                self.base = base
                self.a = nn.Linear(base.in_features, r, bias=False)
                self.b = nn.Linear(r, base.out_features, bias=False)
            def forward(self, x):
                return self.base(x) + self.b(self.a(x))

        model = AutoModelForCausalLM.from_pretrained("base")
        model.model.embed_tokens.requires_grad_(False)
        for layer in model.model.layers[:8]:
            layer.requires_grad_(False)
        for layer in model.model.layers:
            layer.self_attn.q_proj = LoRALinear(layer.self_attn.q_proj)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    """,
    ("CKPT405", "an unseen function may thaw"): """
        from transformers import AutoModelForCausalLM
        from mylib.tuning import train_only_biases

        model = AutoModelForCausalLM.from_pretrained("base")
        model.model.embed_tokens.requires_grad_(False)
        for layer in model.model.layers[:8]:
            layer.requires_grad_(False)
        train_only_biases(model)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    """,
    ("CKPT131", "a copy keeps the names"): """
        import copy
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        def build(model, is_block):
            ema = copy.deepcopy(model)
            apply_activation_checkpointing(model, check_fn=is_block)
            for n, p in ema.named_parameters():
                if n in ("layers.0.mlp.weight", "layers.1.mlp.weight"):
                    p.requires_grad_(False)
    """,
    ("CKPT208", "a model of text and pictures"): """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("NousResearch/Llama-3.2-11B-Vision-Instruct")
        apply_activation_checkpointing(model, check_fn=lambda m: type(m).__name__ == "MllamaSelfAttentionDecoderLayer")
    """,
}


@pytest.mark.parametrize(
    ("code", "text"), [(key[0], text) for key, text in PROGRAMS.items()], ids=map(" ".join, PROGRAMS)
)
def test_a_right_neighbour_is_not_reported(code, text):
    found = check_source(textwrap.dedent(text))
    assert [(it.span.line, it.message) for it in found if it.code == code] == []
