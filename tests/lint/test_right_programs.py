"""Whole programs as users write them, right as they are: nothing is reported, whatever their flags may turn on."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAMS = {
    "timm resnet bn act": """
        from functools import partial
        import torch.nn as nn
        from timm.layers import create_act_layer, get_norm_act_layer
        from timm.models import checkpoint_seq
        class Bottleneck(nn.Module):
            def __init__(self, inplanes, planes, act_layer=nn.ReLU, norm_layer=nn.BatchNorm2d):
                super().__init__()
                self.conv1 = nn.Conv2d(inplanes, planes, 1)
                self.bn1 = norm_layer(planes)
                self.act1 = act_layer(inplace=True)
            def forward(self, x):
                return self.act1(self.bn1(self.conv1(x)))
        class ResNet(nn.Module):
            def __init__(self, norm_layer=nn.BatchNorm2d):
                super().__init__()
                self.grad_checkpointing = False
                self.layer1 = nn.Sequential(Bottleneck(64, 64, norm_layer=norm_layer))
            def set_grad_checkpointing(self, enable=True):
                self.grad_checkpointing = enable
            def forward(self, x):
                if self.grad_checkpointing and not torch.jit.is_scripting():
                    x = checkpoint_seq([self.layer1], x, flatten=True)
                else:
                    x = self.layer1(x)
                return x
    """,
    "functions that pass everything on": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Encoder(nn.Module):
            def __init__(self, blocks, tail):
                super().__init__()
                self.blocks, self.tail, self.gradient_checkpointing = blocks, tail, False
            def factory(self, x, mask, rope, past_key_values=None):
                for block in self.blocks:
                    if self.gradient_checkpointing and self.training:
                        def create_custom_forward(module, scale):
                            def custom_forward(*inputs, **kwargs):
                                return module(*inputs, scale, **kwargs)
                            return custom_forward
                        x = checkpoint(create_custom_forward(block, rope), x, mask, use_reentrant=False)
                    else:
                        x = block(x, mask, rope, past_key_values=past_key_values)
                return x
            def bound(self, x, mask, rope):
                for block in self.blocks:
                    if self.gradient_checkpointing:
                        x, kept = checkpoint(lambda h, b=block: b(h, mask, rope=rope), x, use_reentrant=False)
                    else:
                        x, kept = block(x, mask, rope)
                return x
            def loops(self, x, mask):
                if self.gradient_checkpointing:
                    for block in self.blocks[:2]:
                        x = checkpoint(block, x, use_reentrant=False)
                    for index, block in enumerate(self.blocks):
                        x = checkpoint(block, x, mask, use_reentrant=False)
                else:
                    for layer in self.blocks:
                        x = layer(x, mask)
                return x
            def by_mode(self, x):
                if self.training and torch.is_grad_enabled():
                    x = checkpoint(self.tail, x, use_reentrant=False)
                else:
                    x, weights = self.tail(x)
                return x
    """,
    "ways that the data chooses": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Encoder(nn.Module):
            def __init__(self, blocks, attn, head):
                super().__init__()
                self.blocks, self.attn, self.head, self.gradient_checkpointing = blocks, attn, head, False
            def zipped(self, x, masks=None):
                if masks is None:
                    for block in self.blocks:
                        x = checkpoint(block, x, use_reentrant=False)
                else:
                    for block, mask in zip(self.blocks, masks):
                        x = block(x, mask)
                return x
            def zipped_mirror(self, x, skips=None):
                if skips is not None:
                    for block, skip in zip(self.blocks, skips):
                        x = checkpoint(block, x, skip, use_reentrant=False)
                else:
                    for block in self.blocks:
                        x = block(x)
                return x
            def beside_the_switch(self, x, skips=None):
                if self.gradient_checkpointing and skips is None:
                    for block in self.blocks:
                        x = checkpoint(block, x, use_reentrant=False)
                else:
                    for block, skip in zip(self.blocks, skips):
                        x = block(x, skip)
                return x
            def inside_the_switch(self, x, masks=None):
                mask = self.attn(masks)
                if self.gradient_checkpointing:
                    if masks is None:
                        x = checkpoint(self.head, x, use_reentrant=False)
                    else:
                        x = checkpoint(self.head, x, mask, use_reentrant=False)
                elif masks is None:
                    x = self.head(x)
                else:
                    x = self.head(x, mask)
                return x
            def computed(self, x, c=None):
                if c is None:
                    return checkpoint(lambda h: self.head(h), x, use_reentrant=False)
                context = self.attn(c)
                return self.head(x, context)
            def direct(self, x, c=None):
                if c is None:
                    return checkpoint(self.head, x, use_reentrant=False)
                context = self.attn(c)
                return self.head(x, context)
            def phases(self, x, mask, mode):
                if mode == "encode":
                    for block in self.blocks:
                        x = checkpoint(block, x, use_reentrant=False)
                elif mode == "decode":
                    for block in self.blocks:
                        x = block(x, mask)
                return x
            def phase(self, x, mask, mode):
                if mode == "encode":
                    x = checkpoint(self.attn, x, use_reentrant=False)
                elif mode == "decode":
                    x = self.attn(x, mask)
                return x
            def kinds(self, x, mask):
                for block in self.blocks:
                    if isinstance(block, nn.Linear):
                        x = checkpoint(block, x, use_reentrant=False)
                    else:
                        x = block(x, mask)
                return x
            def counted(self, x):
                for block_idx, block in enumerate(self.blocks):
                    if self.gradient_checkpointing and self.training:
                        x = checkpoint(block, x, use_reentrant=False)
                    else:
                        x = block(x, block_idx)
                return x
    """,
    "what training has only, and results of either kind": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        from diffusers.utils import is_torch_version
        class Encoder(nn.Module):
            def __init__(self, blocks, attn, head):
                super().__init__()
                self.blocks, self.attn, self.head, self.gradient_checkpointing = blocks, attn, head, False
            def labelled(self, h, labels):
                if self.training:
                    return checkpoint(lambda h: self.head(h, labels), h, use_reentrant=False)
                return self.head(h)
            def labelled_direct(self, h, labels):
                if self.training:
                    return checkpoint(self.head, h, labels, use_reentrant=False)
                return self.head(h)
            def targets(self, x, mask, targets):
                if self.training:
                    for block in self.blocks:
                        x = checkpoint(block, x, mask, targets, use_reentrant=False)
                else:
                    for block in self.blocks:
                        x = block(x, mask)
                return x
            def conditioned(self, x, mask, cond):
                if self.training:
                    for block in self.blocks:
                        x = checkpoint(block, x, mask, use_reentrant=False)
                else:
                    for block in self.blocks:
                        x = block(x, mask, cond)
                return x
            def behind_versions(self, x):
                for block in self.blocks:
                    if self.gradient_checkpointing and self.training:
                        if is_torch_version(">=", "1.11.0"):
                            x = checkpoint(block, x, use_reentrant=False)
                        else:
                            x = checkpoint(block, x)
                        x = x[0]
                    else:
                        x = block(x)[0]
                return x
            def unpacked_behind_versions(self, x, m):
                if self.gradient_checkpointing and self.training:
                    options = {"use_reentrant": False}
                    if torch.__version__ >= "2.0":
                        out = checkpoint(self.attn, x, m, use_reentrant=False)
                    else:
                        out = checkpoint(self.attn, x, m)
                    out, _ = out
                else:
                    out, _ = self.attn(x, m)
                return out
            def asked_behind(self, x, m):
                for block in self.blocks:
                    if self.gradient_checkpointing:
                        x = checkpoint(lambda h, b=block: b(h, m), x, use_reentrant=False)
                    else:
                        x, _ = block(x, m)
                    x = x[0] if isinstance(x, tuple) else x
                return x
            def asked_inside(self, x, m):
                for block in self.blocks:
                    if self.gradient_checkpointing:
                        x = checkpoint(block, x, m, use_reentrant=False)
                        if isinstance(x, tuple):
                            x = x[0]
                    else:
                        x, _ = block(x, m)
                return x
            def own_names(self, x, mask):
                def make(block):
                    mask = None
                    def run(h):
                        return block(h, mask)
                    return run
                if self.gradient_checkpointing:
                    x = checkpoint(make(self.attn), x, use_reentrant=False)
                else:
                    x = self.attn(mask, x)
                return x
    """,
    "mm builder": """
        import torch.utils.checkpoint as cp
        from mmcv.cnn import build_conv_layer, build_norm_layer
        from mmengine.model import BaseModule
        class BasicBlock(BaseModule):
            def __init__(self, inplanes, planes, with_cp=False, conv_cfg=None, norm_cfg=dict(type='BN'), init_cfg=None):
                super().__init__(init_cfg)
                self.norm1_name, norm1 = build_norm_layer(norm_cfg, planes, postfix=1)
                self.conv1 = build_conv_layer(conv_cfg, inplanes, planes, 3, padding=1, bias=False)
                self.add_module(self.norm1_name, norm1)
                self.with_cp = with_cp
            @property
            def norm1(self):
                return getattr(self, self.norm1_name)
            def forward(self, x):
                def _inner_forward(x):
                    return self.norm1(self.conv1(x))
                if self.with_cp and x.requires_grad:
                    out = cp.checkpoint(_inner_forward, x, use_reentrant=False)
                else:
                    out = _inner_forward(x)
                return out
    """,
    "norm registry dict": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        NORMS = {"bn": nn.BatchNorm2d, "gn": lambda c: nn.GroupNorm(8, c), "ln": nn.LayerNorm}
        class Stage(nn.Module):
            def __init__(self, dim, cfg):
                super().__init__()
                self.norm = NORMS[cfg.norm](dim)
                self.conv = nn.Conv2d(dim, dim, 3, padding=1)
            def forward(self, x):
                return self.conv(self.norm(x))
        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.stages = nn.ModuleList([Stage(64, cfg) for _ in range(4)])
            def forward(self, x):
                for s in self.stages:
                    x = checkpoint(s, x, use_reentrant=False)
                return x
    """,
    "get norm function": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        def get_norm(name, c):
            if name in ("", "none", None):
                return nn.Identity()
            norm = {"BN": nn.BatchNorm2d, "SyncBN": nn.SyncBatchNorm, "GN": lambda c: nn.GroupNorm(32, c)}[name]
            return norm(c)
        class Block(nn.Module):
            def __init__(self, c, norm="BN"):
                super().__init__()
                self.norm = get_norm(norm, c)
                self.conv = nn.Conv2d(c, c, 1)
            def forward(self, x):
                return self.conv(self.norm(x))
        class Backbone(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.blocks = nn.ModuleList([Block(8, cfg.MODEL.NORM) for _ in range(3)])
                self.use_act_checkpoint = cfg.MODEL.USE_ACT_CHECKPOINT
            def forward(self, x):
                for b in self.blocks:
                    x = checkpoint(b, x, use_reentrant=False) if self.use_act_checkpoint else b(x)
                return x
    """,
    "detectron frozen": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class FrozenBatchNorm2d(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.register_buffer("weight", torch.ones(n))
            def forward(self, x):
                return x * self.weight.reshape(1, -1, 1, 1)
        class Res(nn.Module):
            def __init__(self, c, norm_func=FrozenBatchNorm2d):
                super().__init__()
                self.bn = norm_func(c)
            def forward(self, x):
                return self.bn(x)
        class Body(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.stages = nn.ModuleList(Res(8) for _ in range(2))
            def forward(self, x):
                for s in self.stages:
                    x = checkpoint(s, x, use_reentrant=False)
                return x
    """,
    "flag drop path": """
        import torch, torch.nn as nn, random
        from torch.utils.checkpoint import checkpoint
        class Layer(nn.Module):
            def __init__(self, args):
                super().__init__()
                self.layerdrop = args.layerdrop
                self.fc = nn.Linear(8, 8)
            def forward(self, x):
                if self.training and self.layerdrop > 0 and random.random() < self.layerdrop:
                    return x
                return self.fc(x)
        class Enc(nn.Module):
            def __init__(self, args):
                super().__init__()
                self.layers = nn.ModuleList([Layer(args) for _ in range(3)])
                self.ckpt = args.ckpt
            def forward(self, x):
                for l in self.layers:
                    if self.ckpt:
                        x = checkpoint(l, x, use_reentrant=False)
                    else:
                        x = l(x)
                return x
    """,
    "layerdrop outside": """
        import torch, torch.nn as nn, numpy as np
        from torch.utils.checkpoint import checkpoint
        class Enc(nn.Module):
            def __init__(self, layers, p):
                super().__init__()
                self.layers = layers
                self.p = p
            def forward(self, x):
                for l in self.layers:
                    if self.training and np.random.uniform() < self.p:
                        continue
                    x = checkpoint(l, x, use_reentrant=False)
                return x
    """,
    "qlora maybe": """
        import argparse, torch
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
        def main():
            p = argparse.ArgumentParser()
            p.add_argument("--model")
            p.add_argument("--load_in_4bit", action="store_true")
            p.add_argument("--gc", action="store_true")
            args = p.parse_args()
            model = AutoModelForCausalLM.from_pretrained(args.model, load_in_4bit=args.load_in_4bit)
            if args.load_in_4bit:
                model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=args.gc)
            model = get_peft_model(model, LoraConfig(r=8))
            if args.gc:
                model.enable_input_require_grads()
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            opt = torch.optim.AdamW(model.parameters())
            for batch in []:
                model(**batch).loss.backward()
                opt.step()
        main()
    """,
    "qlora bf16 helper": """
        import torch
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM
        def get_model(cfg):
            kwargs = {}
            if cfg.quant:
                kwargs["load_in_8bit"] = True
            model = AutoModelForCausalLM.from_pretrained(cfg.name, **kwargs)
            model = prepare_model_for_kbit_training(model)
            return get_peft_model(model, LoraConfig())
        def train(cfg, dl):
            model = get_model(cfg)
            for b in dl:
                model(**b).loss.backward()
    """,
    "sft plain args": """
        from transformers import TrainingArguments
        from trl import SFTTrainer
        training_args = TrainingArguments(output_dir="o", per_device_train_batch_size=1)
        training_args.gradient_checkpointing = True
        training_args.gradient_checkpointing_kwargs = {"use_reentrant": False}
        trainer = SFTTrainer("m", args=training_args, train_dataset=None)
        trainer.train()
    """,
    "hf eval then train": """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
        def main(a):
            model = AutoModelForCausalLM.from_pretrained("m")
            if a.gc:
                model.gradient_checkpointing_enable()
                model.config.use_cache = False
            if a.eval_only:
                model.eval()
                return evaluate(model)
            Trainer(model, TrainingArguments("o"), train_dataset=load()).train()
    """,
    "sample generate cb": """
        from transformers import AutoModelForCausalLM
        def train(dl, opt):
            model = AutoModelForCausalLM.from_pretrained("m").train()
            model.gradient_checkpointing_enable()
            for step, b in enumerate(dl):
                model(**b).loss.backward()
                opt.step()
                if step % 100 == 0:
                    model.eval()
                    print(model.generate(b["input_ids"], max_new_tokens=8))
                    model.train()
    """,
    "ppo rollout disable": """
        from transformers import AutoModelForCausalLM
        def train(dl, opt):
            model = AutoModelForCausalLM.from_pretrained("m")
            model.gradient_checkpointing_enable()
            model.train()
            for b in dl:
                model.gradient_checkpointing_disable()
                out = model.generate(b["ids"], max_new_tokens=8)
                model.gradient_checkpointing_enable()
                model(out, labels=out).loss.backward()
                opt.step()
    """,
    "lightning module": """
        import lightning as L, torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self, d, use_bn=False):
                super().__init__()
                self.lin = nn.Linear(d, d)
                self.bn = nn.BatchNorm1d(d) if use_bn else None
            def forward(self, x):
                x = self.lin(x)
                if self.bn is not None:
                    x = self.bn(x)
                return x
        class Lit(L.LightningModule):
            def __init__(self, hparams):
                super().__init__()
                self.blocks = nn.ModuleList([Block(8, hparams.use_bn) for _ in range(4)])
            def forward(self, x):
                for b in self.blocks:
                    x = checkpoint(b, x, use_reentrant=False)
                return x
            def training_step(self, batch, i):
                return self(batch["x"]).pow(2).mean()
    """,
    "version kwargs": """
        import torch
        from packaging import version
        from torch.utils.checkpoint import checkpoint as _ckpt
        def checkpoint(fn, *args, **kw):
            if version.parse(torch.__version__) >= version.parse("1.11.0"):
                kw.setdefault("use_reentrant", False)
            return _ckpt(fn, *args, **kw)
        class M(torch.nn.Module):
            def forward(self, x):
                return checkpoint(self.block, x)
    """,
    "version try import": """
        try:
            from torch.utils.checkpoint import checkpoint
            import inspect
            HAS_REENTRANT = "use_reentrant" in inspect.getfullargspec(checkpoint).kwonlyargs
        except ImportError:
            checkpoint = None
            HAS_REENTRANT = False
        def run(f, x):
            if HAS_REENTRANT:
                return checkpoint(f, x, use_reentrant=False)
            return checkpoint(f, x)
    """,
    "diffusers style": """
        import torch
        from diffusers.utils import is_torch_version
        class Unet(torch.nn.Module):
            def forward(self, hidden_states, temb=None):
                for resnet in self.resnets:
                    if self.training and self.gradient_checkpointing:
                        def create_custom_forward(module):
                            def custom_forward(*inputs):
                                return module(*inputs)
                            return custom_forward
                        if is_torch_version(">=", "1.11.0"):
                            hidden_states = torch.utils.checkpoint.checkpoint(create_custom_forward(resnet), hidden_states, temb, use_reentrant=False)
                        else:
                            hidden_states = torch.utils.checkpoint.checkpoint(create_custom_forward(resnet), hidden_states, temb)
                    else:
                        hidden_states = resnet(hidden_states, temb)
                return hidden_states
    """,
    "diffusers kwargs": """
        import torch
        from diffusers.utils import is_torch_version
        class T(torch.nn.Module):
            def forward(self, hidden_states, encoder_hidden_states=None, timestep=None, class_labels=None, cross_attention_kwargs=None):
                for block in self.transformer_blocks:
                    if self.training and self.gradient_checkpointing:
                        ckpt_kwargs = {"use_reentrant": False} if is_torch_version(">=", "1.11.0") else {}
                        hidden_states = torch.utils.checkpoint.checkpoint(block, hidden_states, encoder_hidden_states, timestep, **ckpt_kwargs)
                    else:
                        hidden_states = block(hidden_states, encoder_hidden_states, timestep, cross_attention_kwargs=cross_attention_kwargs, class_labels=class_labels)
                return hidden_states
    """,
    "branch inference cache": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Dec(nn.Module):
            def forward(self, x, freqs, mask=None, kv_caches=None, start_pos=0):
                for i, layer in enumerate(self.layers):
                    if self.training and self.grad_ckpt:
                        x = checkpoint(layer, x, freqs, mask, use_reentrant=False)
                    else:
                        x = layer(x, freqs, mask, None if kv_caches is None else kv_caches[i], start_pos)
                return x
    """,
    "branch reordered kw": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def forward(self, x, context=None, mask=None):
                return x if context is None else x + context
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block() for _ in range(2)])
            def forward(self, x, context, mask):
                for b in self.blocks:
                    if self.training:
                        x = checkpoint(b, x, context, use_reentrant=False)
                    else:
                        x = b(x, context=context, mask=None)
                return x
    """,
    "branch attn weights": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Enc(nn.Module):
            def forward(self, x, pad, need_weights=False, attn_bias=None):
                for l in self.layers:
                    if self.ckpt and not need_weights:
                        x, _ = checkpoint(l, x, pad, use_reentrant=False)
                    else:
                        x, attn = l(x, pad, need_weights, attn_bias)
                return x
    """,
    "grad mode lazy": """
        import torch
        from torch.utils.checkpoint import checkpoint
        class Rev(torch.nn.Module):
            def _f(self, x):
                if torch.is_grad_enabled():
                    self.saved = x
                return self.block(x)
            def forward(self, x):
                return checkpoint(self._f, x, use_reentrant=True)
    """,
    "grad mode offload": """
        import torch
        from torch.utils.checkpoint import checkpoint
        class L(torch.nn.Module):
            def run(self, x):
                grad = torch.is_grad_enabled()
                if not grad:
                    self.prefetcher.prefetch(self.next_layer)
                with torch.set_grad_enabled(grad):
                    return self.layer(x)
            def forward(self, x):
                return checkpoint(self.run, x, use_reentrant=True)
    """,
    "fsdp recursive": """
        import torch.nn as nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)
            def forward(self, x):
                return self.fc(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([FSDP(Block()) for _ in range(3)])
            def forward(self, x):
                for l in self.layers:
                    x = checkpoint(l, x, use_reentrant=False)
                return x
        model = FSDP(Net())
    """,
    "rng flag": """
        import torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self, p=0.0):
                super().__init__()
                self.drop = nn.Dropout(p)
                self.fc = nn.Linear(8, 8)
            def forward(self, x):
                return self.drop(self.fc(x))
        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.blocks = nn.ModuleList([Block(cfg.drop) for _ in range(2)])
            def forward(self, x):
                for b in self.blocks:
                    x = checkpoint(b, x, use_reentrant=False, preserve_rng_state=False)
                return x
    """,
    "rng default zero": """
        import torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self, dropout=0.1):
                super().__init__()
                self.drop = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
                self.fc = nn.Linear(8, 8)
            def forward(self, x):
                return self.drop(self.fc(x))
        class Net(nn.Module):
            def __init__(self, dropout=0.0):
                super().__init__()
                self.blocks = nn.ModuleList([Block(dropout) for _ in range(2)])
            def forward(self, x):
                for b in self.blocks:
                    x = checkpoint(b, x, use_reentrant=False, preserve_rng_state=False)
                return x
    """,
    "bn sync convert eval": """
        import torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self, norm_eval=True):
                super().__init__()
                self.norm_eval = norm_eval
                self.stage = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
            def train(self, mode=True):
                super().train(mode)
                if mode and self.norm_eval:
                    for m in self.modules():
                        if isinstance(m, nn.modules.batchnorm._BatchNorm):
                            m.eval()
            def forward(self, x):
                return checkpoint(self.stage, x, use_reentrant=False)
    """,
    "loader pretrained dict": """
        from transformers import AutoModelForCausalLM
        class Policy:
            def load(self, name):
                model = AutoModelForCausalLM.from_pretrained(name)
                model.gradient_checkpointing_enable()
                model.eval()
                return {"model": model, "name": name}
    """,
    "yacs solver": """
        import torch, torch.nn as nn
        from yacs.config import CfgNode as CN
        from torch.utils.checkpoint import checkpoint
        _C = CN()
        _C.MODEL = CN()
        _C.MODEL.NORM = "BN"
        _C.MODEL.CKPT = False
        def norm(cfg, c):
            if cfg.MODEL.NORM == "BN":
                return nn.BatchNorm2d(c)
            return nn.GroupNorm(8, c)
        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(8, 8, 1), norm(cfg, 8)) for _ in range(2)])
                self.ckpt = cfg.MODEL.CKPT
            def forward(self, x):
                for b in self.blocks:
                    x = checkpoint(b, x, use_reentrant=False) if self.ckpt else b(x)
                return x
    """,
    "enum norm match": """
        import enum, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Norm(enum.Enum):
            BATCH = "batch"
            LAYER = "layer"
        def make(kind: Norm, d):
            match kind:
                case Norm.BATCH:
                    return nn.BatchNorm1d(d)
                case Norm.LAYER:
                    return nn.LayerNorm(d)
        class B(nn.Module):
            def __init__(self, kind: Norm = Norm.LAYER):
                super().__init__()
                self.n = make(kind, 8)
            def forward(self, x):
                return checkpoint(self._f, x, use_reentrant=False)
            def _f(self, x):
                return self.n(x)
    """,
    "dataclass config": """
        from dataclasses import dataclass
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        @dataclass
        class Config:
            norm: str = "bn"
            depth: int = 4
        class Block(nn.Module):
            def __init__(self, cfg: Config):
                super().__init__()
                self.norm = nn.BatchNorm1d(8) if cfg.norm == "bn" else nn.LayerNorm(8)
            def forward(self, x):
                return self.norm(x)
        class Net(nn.Module):
            def __init__(self, cfg: Config):
                super().__init__()
                self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.depth))
            def forward(self, x):
                for b in self.blocks:
                    x = checkpoint(b, x, use_reentrant=False)
                return x
    """,
    "detach cond": """
        import torch
        from torch.utils.checkpoint import checkpoint
        class N(torch.nn.Module):
            def forward(self, x, mem, truncate=False):
                x = checkpoint(self.cell, x, mem, use_reentrant=False)
                if truncate:
                    x = x.detach()
                return checkpoint(self.head, x, use_reentrant=False)
    """,
    "inplace optional": """
        import torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self, inplace=False):
                super().__init__()
                self.act = nn.ReLU(inplace=inplace)
                self.fc = nn.Linear(8, 8)
            def forward(self, x):
                return self.fc(self.act(x))
        class Net(nn.Module):
            def __init__(self, cfg):
                super().__init__()
                self.b = Block(cfg.inplace)
            def forward(self, x):
                return checkpoint(self.b, x, use_reentrant=False)
    """,
    "counter debug": """
        import torch, torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)
                self.register_buffer("steps", torch.zeros(()))
            def forward(self, x, debug=False):
                if debug:
                    self.steps += 1
                return self.fc(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.b = Block()
            def forward(self, x):
                return checkpoint(self.b, x, use_reentrant=False)
    """,
    "trainer fsdp flags": """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
        def main(a):
            args = TrainingArguments("o", fsdp="full_shard auto_wrap" if a.fsdp else "", gradient_checkpointing=not a.fsdp, fsdp_config={"activation_checkpointing": a.fsdp})
            Trainer(AutoModelForCausalLM.from_pretrained("m"), args).train()
    """,
    "wrapper early exit": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class BN(nn.Module):
            def __init__(self, d, track):
                super().__init__()
                self.bn = nn.BatchNorm1d(d, track_running_stats=track)
            def forward(self, x):
                return self.bn(x)
        class Net(nn.Module):
            def __init__(self, d, track=False):
                super().__init__()
                self.b = BN(d, track)
            def forward(self, x):
                return checkpoint(self.b, x, use_reentrant=False)
    """,
    "keyword arguments of the caller, sorted out by name": """
        from peft import prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM
        def sorted_out(kwargs):
            known = {}
            for key, value in kwargs.items():
                if key in prepare_model_for_kbit_training.__code__.co_varnames:
                    known[key] = value
            return known
        def train(name, batches, **kwargs):
            length = kwargs.pop("length", None)
            model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
            model = prepare_model_for_kbit_training(model, **sorted_out(kwargs))
            for batch in batches:
                model(**batch).loss.backward()
    """,
    "a method that takes another block each time": """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self, blocks, optimizers):
                super().__init__()
                self.blocks = nn.ModuleDict(blocks)
                for weight in self.parameters():
                    weight.register_post_accumulate_grad_hook(lambda weight: optimizers[weight].step())
            def run_one(self, x, name):
                return self.blocks[name](x)
            def forward(self, x):
                for name in self.blocks:
                    x = checkpoint(self.run_one, x, name, use_reentrant=True)
                return x
    """,
    "zeros that a module fills": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class MLP(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(4, 4))
            def forward(self, x):
                return checkpoint(self.net, x, use_reentrant=True)
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.first, self.second = nn.LayerNorm(4), MLP(), MLP()
            def forward(self, x):
                padded = torch.zeros_like(x)
                padded[..., :4] = self.norm(x[..., :4])
                summed = torch.zeros(8, 4)
                summed.copy_(padded)
                return self.first(padded) + self.second(summed)
        def train(x):
            Block()(x).sum().backward()
    """,
    "a policy and a reference of one helper": """
        import copy
        import torch
        from transformers import AutoModelForCausalLM
        from data import batches
        def load(name, checkpointing=False):
            model = AutoModelForCausalLM.from_pretrained(name)
            if checkpointing:
                model.gradient_checkpointing_enable()
            return model
        class Wrapped:
            def __init__(self, name):
                self.net = AutoModelForCausalLM.from_pretrained(name)
                self.net.gradient_checkpointing_enable()
        policy, reference = load("a", checkpointing=True), load("a")
        policy.train()
        reference.eval()
        average = copy.deepcopy(policy)
        average.eval()
        actor, critic = Wrapped("a"), Wrapped("b")
        actor.net.train()
        critic.net.eval()
        for batch in batches:
            policy(**batch).loss.backward()
            actor.net(**batch).loss.backward()
    """,
    "a generator that hands the model on": """
        from transformers import AutoModelForCausalLM
        def ready(model):
            model.eval()
            yield model
        def models(name):
            model = AutoModelForCausalLM.from_pretrained(name)
            model.gradient_checkpointing_enable()
            yield from ready(model)
    """,
    "evaluation that gives the mode back": """
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        from data import batches
        from utils import keeps_mode
        @keeps_mode
        def measure(model):
            model.eval()
            return sum(model(**batch).loss for batch in batches)
        def evaluate(model):
            model.eval()
            with torch.no_grad():
                return sum(model(**batch).loss for batch in batches)
        def cross_validate():
            for fold in range(5):
                model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("a"))
                model.gradient_checkpointing_enable()
                for batch in batches:
                    model(**batch).loss.backward()
                evaluate(model)
        model = AutoModelForCausalLM.from_pretrained("a")
        model.gradient_checkpointing_enable()
        model.train()
        for epoch in range(3):
            for batch in batches:
                model(**batch).loss.backward()
            measure(model)
    """,
    "generation that is switched around it": """
        from accelerate import Accelerator
        from transformers import AutoModelForCausalLM
        from data import batches
        def fit(inside):
            accelerator = Accelerator()
            model = AutoModelForCausalLM.from_pretrained("base")
            model.gradient_checkpointing_enable({"use_reentrant": False})
            class Sampler:
                def __enter__(self):
                    model.eval()
                def __exit__(self, *error):
                    model.train()
            model.train()
            for batch in batches:
                accelerator.backward(model(**batch).loss)
                with Sampler():
                    model.generate(batch["input_ids"])
        def fit_layers():
            accelerator = Accelerator()
            model = AutoModelForCausalLM.from_pretrained("base")
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.train()
            for batch in batches:
                accelerator.backward(model(**batch).loss)
                model.model.eval()
                model.generate(batch["input_ids"])
                model.model.train()
    """,
    "models of timm that train nothing with a BatchNorm": """
        import timm
        import torch
        import torch.nn.functional as F
        from timm.utils import freeze
        from data import loader
        def probe():
            model = timm.create_model("resnet50", pretrained=True)
            model.set_grad_checkpointing()
            model.requires_grad_(False)
            model.fc.requires_grad_(True)
            for images, labels in loader:
                F.cross_entropy(model(images), labels).backward()
    """,
    "a model of timm frozen by its own function": """
        import timm
        import torch.nn.functional as F
        from timm.utils import freeze
        from data import loader
        model = timm.create_model("resnet50", pretrained=True)
        freeze(model)
        model.set_grad_checkpointing()
        for images, labels in loader:
            F.cross_entropy(model(images), labels).backward()
    """,
    "a model of timm that gives features only": """
        import timm
        import torch
        from data import loader
        model = timm.create_model("resnet50", pretrained=True)
        model.set_grad_checkpointing()
        with torch.no_grad():
            features = [model(images) for images, _ in loader]
    """,
    "the children of a resnet kept in eval mode": """
        import torch.nn as nn
        import torchvision
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                resnet = torchvision.models.resnet50(weights="DEFAULT")
                self.stem = nn.Conv2d(3, 3, 1)
                self.backbone = nn.Sequential(*list(resnet.children())[:-2])
                self.head = nn.Linear(2048, 2)
            def train(self, mode=True):
                super().train(mode)
                self.backbone.eval()
                return self
            def forward(self, x):
                return self.head(checkpoint(self.backbone, self.stem(x), use_reentrant=False).mean((2, 3)))
    """,
    "a side output that is printed": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
            def forward(self, x):
                self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
                self.ratio = x.numel() / len(x)
                return self.linear(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(8, 8)
                self.layers = nn.ModuleList(Experts() for _ in range(3))
            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=True)
                print(sum(layer.balance for layer in self.layers))
                return x
    """,
    "a side output that is logged": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
            def forward(self, x):
                self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
                self.ratio = x.numel() / len(x)
                return self.linear(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(8, 8)
                self.layers = nn.ModuleList(Experts() for _ in range(3))
            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=True)
                balance = sum(layer.balance for layer in self.layers)
                self.log("balance", balance)
                return x
    """,
    "a side output that is a statistic": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
            def forward(self, x):
                self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
                self.ratio = x.numel() / len(x)
                return self.linear(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(8, 8)
                self.layers = nn.ModuleList(Experts() for _ in range(3))
            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=True)
                return {"logits": x, "stats": {"balance": sum(layer.balance for layer in self.layers)}}
    """,
    "a side output that is summed without gradients": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
            def forward(self, x):
                self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
                self.ratio = x.numel() / len(x)
                return self.linear(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(8, 8)
                self.layers = nn.ModuleList(Experts() for _ in range(3))
            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=True)
                with torch.no_grad():
                    total = sum(layer.balance for layer in self.layers)
                return x, total
    """,
    "a side output that is a number": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
            def forward(self, x):
                self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
                self.ratio = x.numel() / len(x)
                return self.linear(x)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Linear(8, 8)
                self.layers = nn.ModuleList(Experts() for _ in range(3))
            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = checkpoint(layer, x, use_reentrant=True)
                return x, sum(layer.ratio for layer in self.layers)
    """,
    "arguments of a Trainer that are written twice": """
        from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
        model = AutoModelForCausalLM.from_pretrained("base", attn_pdrop=0.1)
        (first,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        first.activation_checkpointing_kwargs = {"preserve_rng_state": False}
        first.activation_checkpointing_kwargs = {"use_reentrant": False}
        Trainer(model=model, args=first, train_dataset=[]).train()
    """,
    "arguments of a Trainer that are switched off": """
        from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
        model = AutoModelForCausalLM.from_pretrained("base", attn_pdrop=0.1)
        (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        args.activation_checkpointing = False
        args.activation_checkpointing_kwargs = {"preserve_rng_state": False}
        Trainer(model=model, args=args, train_dataset=[]).train()
    """,
    "a block that a partial puts into a checkpoint": """
        from functools import partial
        import torch.utils.checkpoint
        from torch import nn
        class Net(nn.Module):
            def __init__(self, blocks, use_checkpoint=True):
                super().__init__()
                self.blocks, self.use_checkpoint = blocks, use_checkpoint
            def forward(self, x, context):
                for block in self.blocks:
                    if self.use_checkpoint and self.training:
                        block = partial(torch.utils.checkpoint.checkpoint, block, use_reentrant=False)
                    x = block(x, context)
                return x
    """,
    "a model registered in timm": """
        import timm
        from timm.models import register_model
        from models import Wrapper
        @register_model
        def my_vit(**kwargs):
            return Wrapper(kwargs)
        timm.create_model("my_vit").gradient_checkpointing_enable()
    """,
    "an input that is changed behind the backward pass of a helper": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential
        class Net(nn.Module):
            def __init__(self, flag=True):
                super().__init__()
                self.stem = nn.Linear(8, 8)
                self.f = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
                self.flag = flag
            def step_it(self, x, loss_scaler, optimizer):
                y = checkpoint(self.f, x, use_reentrant=False)
                loss_scaler(y.mean(), optimizer, parameters=self.parameters())
                x.zero_()
    """,
    "an input that is changed on the way without a checkpoint": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential
        class Net(nn.Module):
            def __init__(self, flag=True):
                super().__init__()
                self.stem = nn.Linear(8, 8)
                self.f = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
                self.flag = flag
            def forward(self, x, twice):
                h = self.stem(x)
                if self.flag:
                    y = checkpoint(self.f, h, use_reentrant=False)
                    if twice:
                        return y * 2
                    else:
                        return y
                h += 1
                return self.f(h)
    """,
    "an input that is changed behind a gradient of it": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential
        class Net(nn.Module):
            def __init__(self, flag=True):
                super().__init__()
                self.stem = nn.Linear(8, 8)
                self.f = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
                self.flag = flag
            def attack(self, x):
                from torch.autograd import grad
                x.requires_grad_(True)
                for _ in range(3):
                    y = checkpoint(self.f, x, use_reentrant=False)
                    g = grad(y.sum(), x)[0]
                    with torch.no_grad():
                        x += 0.1 * g.sign()
                return x
    """,
    "classes that get other names": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(8, 8)
            def forward(self, x):
                return self.l(x)
        net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), nn.GELU())
        apply_activation_checkpointing(net, check_fn=lambda m: "Parametrized" in type(m).__name__)
        net2 = nn.Sequential(nn.MultiheadAttention(8, 2), nn.GELU())
        apply_activation_checkpointing(net2, check_fn=lambda m: "Linear" in type(m).__name__)
        net3 = nn.Sequential(nn.LazyLinear(8), nn.GELU())
        net3(torch.ones(2, 8))
        apply_activation_checkpointing(net3, check_fn=lambda m: type(m).__name__ == "Linear")
        net4 = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(8), nn.GELU()))
        apply_activation_checkpointing(net4, check_fn=lambda m: "Sync" in type(m).__name__)
    """,
    "names that mean something else on every way": """
        import torch
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential
        def make(kind):
            if kind == "a":
                wrap = checkpoint
                def run(f, x):
                    return wrap(f, x, use_reentrant=True)
                return run
            if kind == "b":
                wrap = lambda f, x: f(x)
                def other(f, x):
                    return wrap(f, x)
                return other
            raise ValueError(kind)
        def make3(kind):
            if kind == "b":
                wrap = lambda f, x: f(x)
                def other(f, x):
                    return wrap(f, x)
                return other
            if kind == "a":
                from torch.utils.checkpoint import checkpoint as wrap
                def run(f, x):
                    return wrap(f, x, use_reentrant=True)
                return run
            raise ValueError(kind)
    """,
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_right_program_is_not_reported(code):
    found = check_source(textwrap.dedent(code))
    assert [(finding.span.line, finding.code, finding.message) for finding in found] == []
