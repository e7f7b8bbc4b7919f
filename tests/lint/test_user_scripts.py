"""Mistakes, and right code, in the forms that training scripts of users have: what is found in them, and where."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_QLORA = """\
import argparse
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
"""
_TRAIN = "Trainer(model=model, args=TrainingArguments('out'), train_dataset=rows).train()\n"

#: Scripts whose line with `# error: CODE` is reported, and no other one.
CASES = {
    "a layer class is wrapped for a script that checkpoints": """\
import collections
import functools
import time
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer
from data import rows

_seconds = collections.defaultdict(float)

def timed(old):
    @functools.wraps(old)
    def forward(self, *args, **kwargs):
        start = time.perf_counter()
        out = old(self, *args, **kwargs)
        _seconds[id(self)] += time.perf_counter() - start
        return out
    return forward

def patch():
    modeling_llama.LlamaDecoderLayer.forward = timed(LlamaDecoderLayer.forward)  # error: CKPT204

class Patched:
    def __enter__(self):
        self.old = MistralDecoderLayer.forward
        MistralDecoderLayer.forward = timed(self.old)

    def __exit__(self, *_):
        MistralDecoderLayer.forward = self.old

def main():
    patch()
    old = Qwen2DecoderLayer.forward
    Qwen2DecoderLayer.forward = lambda self, *args, old=old, **kwargs: old(self, *args, **kwargs)  # error: CKPT204
    model = AutoModelForCausalLM.from_pretrained("base")
    arguments = TrainingArguments("out", gradient_checkpointing=True)
    Trainer(model=model, args=arguments, train_dataset=rows).train()

main()
""",
    "a layer class is wrapped under an Accelerator, which may use FSDP2": """\
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

old = LlamaDecoderLayer.forward
LlamaDecoderLayer.forward = lambda self, *args, old=old, **kwargs: old(self, *args, **kwargs)
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
model = LlamaForCausalLM.from_pretrained("base").train()
model.gradient_checkpointing_enable()
model = accelerator.prepare(model)
""",
    "a layer class is wrapped, and a model of another family checkpoints": """\
from transformers import LlamaForCausalLM, Qwen2ForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

old = LlamaDecoderLayer.forward
LlamaDecoderLayer.forward = lambda self, *args, old=old, **kwargs: old(self, *args, **kwargs)
teacher = LlamaForCausalLM.from_pretrained("teacher").eval()
student = Qwen2ForCausalLM.from_pretrained("student").train()
student.gradient_checkpointing_enable()
""",
    "a layer class is wrapped under FSDP1": """\
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

old = LlamaDecoderLayer.forward
LlamaDecoderLayer.forward = lambda self, *args, old=old, **kwargs: old(self, *args, **kwargs)  # error: CKPT204
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1))
model = LlamaForCausalLM.from_pretrained("base").train()
model.gradient_checkpointing_enable()
model = accelerator.prepare(model)
""",
    "a layer class is wrapped for a script that does not checkpoint": """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from data import rows

old = LlamaDecoderLayer.forward
LlamaDecoderLayer.forward = lambda self, *args, old=old, **kwargs: old(self, *args, **kwargs)
model = AutoModelForCausalLM.from_pretrained("base")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
""",
    "a method that users may call switches to train mode": """\
from transformers import AutoModelForCausalLM

class Library:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()

    def set_train(self):
        self.model.train()

    def step(self, batch):
        self.model(**batch).loss.backward()

class Chained:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name).train()
        self.model.gradient_checkpointing_enable()

    def step(self, batch):
        self.model(**batch).loss.backward()

class Built:
    def __init__(self, name):
        self.model = self.build(name)

    def build(self, name):
        model = AutoModelForCausalLM.from_pretrained(name)
        model.gradient_checkpointing_enable()
        model.train()
        return model

    def fit(self, loader):
        for batch in loader:
            self.model(**batch).loss.backward()

class Base:
    def start(self):
        self.model = self.model.train()

class Inherits(Base):
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.start()

    def fit(self, loader):
        for batch in loader:
            self.model(**batch).loss.backward()

class NeverInTrainMode:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()  # error: CKPT203

    def fit(self, loader):
        for batch in loader:
            self.model(**batch).loss.backward()

def train(data):
    library = Built("base")
    library.fit(data)
""",
    "an accelerator's model in train mode since it was built": """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

class Run:
    def __init__(self, name, loader):
        self.accelerator = Accelerator()
        model = AutoModelForCausalLM.from_pretrained(name)
        model.gradient_checkpointing_enable()
        optimizer = torch.optim.AdamW(model.parameters())
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.model.train()

    def __call__(self):
        for batch in self.loader:
            self.accelerator.backward(self.model(**batch).loss)
            self.optimizer.step()
""",
    "an evaluation every so many steps leaves the model in eval mode": """\
import torch
from transformers import AutoModelForCausalLM

class Loop:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()  # error: CKPT203
        self.model.train()
        self.steps = 0

    def evaluate(self, loader):
        self.model.eval()
        with torch.no_grad():
            return [self.model(**batch).loss for batch in loader]

    def fit(self, loader, valid):
        for batch in loader:
            self.model(**batch).loss.backward()
            self.steps += 1
            if self.steps % 100 == 0:
                self.evaluate(valid)

@torch.no_grad()
def score(model, loader):
    model.eval()
    return [model(**batch).loss for batch in loader]

def until(name, train, valid):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    model.train()
    for step, batch in enumerate(train):
        model(**batch).loss.backward()
        if step > 1000:
            score(model, valid)
            break
""",
    "one of two models is put in train mode": """\
import torch
from diffusers import UNet2DConditionModel
from transformers import CLIPTextModel
from data import loader

unet = UNet2DConditionModel.from_pretrained("base", subfolder="unet")
encoder = CLIPTextModel.from_pretrained("base", subfolder="text_encoder")
unet.enable_gradient_checkpointing()
encoder.gradient_checkpointing_enable()  # error: CKPT203
optimizer = torch.optim.AdamW([*unet.parameters(), *encoder.parameters()])
unet.train()
for batch in loader:
    noise = unet(batch["x"], batch["t"], encoder(batch["ids"])[0]).sample
    (noise - batch["noise"]).pow(2).mean().backward()
    optimizer.step()
""",
    "what a checkpointed function passes on is compared with the plain call": """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from diffusers.utils import is_torch_version

class Encoder(nn.Module):
    def __init__(self, blocks, head):
        super().__init__()
        self.blocks, self.head, self.gradient_checkpointing = blocks, head, False

    def factory(self, x, mask, rope):
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                def create_custom_forward(module):
                    def custom_forward(*inputs):
                        return module(*inputs)
                    return custom_forward
                x = checkpoint(create_custom_forward(block), x, mask, use_reentrant=False)  # error: CKPT128
            else:
                x = block(x, mask, rope)
        return x

    def bound(self, x, mask, rope):
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(lambda h, b=block: b(h, mask), x, use_reentrant=False)  # error: CKPT128
            else:
                x = block(x, mask, rope)
        return x

    def indexed(self, x, mask, rope):
        def head(*inputs):
            return self.head(inputs[0], mask=inputs[1])
        if self.gradient_checkpointing:
            return checkpoint(head, x, mask, use_reentrant=False)  # error: CKPT128
        return self.head(x, mask=mask, rope=rope)

    def loops(self, x):
        skips = []
        if self.training and self.gradient_checkpointing:
            if is_torch_version(">=", "1.11.0"):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False)  # error: CKPT128
            else:
                for block in self.blocks:
                    x = checkpoint(block, x)
        else:
            for block in self.blocks:
                x, skip = block(x)
                skips.append(skip)
        return x, skips
""",
    "what a block gets by the number of its layer is missed": """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, blocks, attn):
        super().__init__()
        self.blocks, self.attn, self.gradient_checkpointing = blocks, attn, False

    def indexed(self, x, masks):
        for i, block in enumerate(self.blocks):
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)  # error: CKPT128
            else:
                x = block(x, masks[i])
        return x

    def not_counted(self, x, index):
        if self.gradient_checkpointing:
            x = checkpoint(self.attn, x, use_reentrant=False)  # error: CKPT128
        else:
            x = self.attn(x, index)
        return x
""",
    "arguments for torch's checkpoint that are spread into the enabling call": """\
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM

@dataclass
class Settings:
    checkpointing: dict = field(default_factory=lambda: {"use_reentrant": False})

def build(settings):
    model = AutoModelForCausalLM.from_pretrained("base").train()
    model.gradient_checkpointing_enable(**settings.checkpointing)  # error: CKPT308
    return model

def by_hand(given, careful):
    model = AutoModelForCausalLM.from_pretrained("base").train()
    options = {"use_reentrant": False}
    model.gradient_checkpointing_enable(**options)  # error: CKPT308
    model.gradient_checkpointing_enable(**{"gradient_checkpointing_kwargs": options})
    model.gradient_checkpointing_enable(**given)
    more = {}
    if careful:
        more["use_reentrant"] = False
    model.gradient_checkpointing_enable(**more)
    return model

build(Settings())
""",
    "arguments of a parser that get their dict afterwards": """\
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("base")
model = get_peft_model(model, LoraConfig(r=8, lora_dropout=0.1))
args.activation_checkpointing = True
if args.bf16:
    args.activation_checkpointing_kwargs = {"use_reentrant": False, "preserve_rng_state": False}  # error: CKPT108
else:
    args.activation_checkpointing_kwargs = {"early_stop": False}  # error: CKPT102
Trainer(model=model, args=args, train_dataset=[]).train()
""",
    "an option that is a text by its type": """\
import argparse
from transformers import TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--use_reentrant", type=str, default="False")  # error: CKPT133
parser.add_argument("--early_stop", type=bool, default="False")
options = parser.parse_args()
how = {"use_reentrant": options.use_reentrant, "early_stop": options.early_stop}
TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs=how)
""",
    "a model loaded with a dropout, in eval mode before its backward pass": """\
import torch
from transformers import AutoModelForCausalLM
from data import batches

model = AutoModelForCausalLM.from_pretrained("base", attn_pdrop=0.1)
model.gradient_checkpointing_enable()
model.train()
for batch in batches:
    loss = model(**batch).loss
    model.eval()  # error: CKPT114
    loss.backward()
    model.train()
""",
    "a model of torchvision gets the pictures of a loop": """\
import torch
import torchvision
from torch.utils.checkpoint import checkpoint_sequential
from data import train_loader

model = torchvision.models.vgg16(weights=None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, labels in train_loader:
    features = checkpoint_sequential(model.features, 4, images.cuda(), use_reentrant=True)  # error: CKPT104
    torch.nn.functional.cross_entropy(model.classifier(features.flatten(1)), labels).backward()
    optimizer.step()
""",
    "the batch of a LightningModule": """\
import lightning as L
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        features = checkpoint(self.encoder, images / 255.0, use_reentrant=True)  # error: CKPT104
        return nn.functional.cross_entropy(self.head(features.mean((2, 3))), labels)
""",
    "the batches of a loader that another module makes": """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from data import codes, latents, train_loader

encoder, head = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for step, batch in enumerate(train_loader):
    images = batch["image"].cuda(non_blocking=True)
    hidden = checkpoint(encoder, images, use_reentrant=True)  # error: CKPT104
    head(hidden).mean().backward()
    optimizer.step()
for latent in latents:
    latent.requires_grad_()
    head(checkpoint(encoder, latent, use_reentrant=True)).mean().backward()
optimizer = torch.optim.SGD(codes, lr=0.1)
for code in codes:
    head(checkpoint(encoder, code, use_reentrant=True)).mean().backward()
""",
    "an evaluation in a function, after which nothing trains the model again": """\
import torch
from transformers import AutoModelForSequenceClassification

def evaluate(model, rows):
    model.eval()
    with torch.no_grad():
        return sum(model(**row).loss for row in rows)

def step(model, batch):
    model(**batch).loss.backward()

def train(model, optimizer, batches, rows):
    model.train()
    for epoch in range(3):
        for batch in batches:
            step(model, batch)
            optimizer.step()
        evaluate(model, rows)

def main(name, batches, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.gradient_checkpointing_enable()  # error: CKPT203
    train(model, torch.optim.AdamW(model.parameters()), batches, rows)

def switched_back(name, batches, rows):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.gradient_checkpointing_enable()
    for epoch in range(3):
        model.train()
        for batch in batches:
            step(model, batch)
        evaluate(model, rows)
""",
    "samples of the model that accelerate prepared": """\
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM
from data import batches

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), batches)
model.train()
for batch in batches:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
    print(accelerator.unwrap_model(model).generate(batch["input_ids"], max_new_tokens=9))  # error: CKPT112
""",
    "a method that a decorator of the file checkpoints": """\
import functools
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def checkpointed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return checkpoint(function, *args, use_reentrant=True, **kwargs)  # error: CKPT301

    return wrapper

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    @checkpointed
    def run(self, x, mask=None):
        return self.linear(x) * mask

    def forward(self, x, mask):
        return self.run(self.linear(x), mask=mask)
""",
    "a loss of an expert that is more than one call": """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
        self.balance = None

    def forward(self, x):
        chosen = self.gate(x).softmax(-1)
        self.balance = 4 * (chosen.mean(0) ** 2).sum()
        return self.linear(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Experts() for _ in range(3))

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # error: CKPT113
        return x, sum(layer.balance for layer in self.layers)
""",
    "blocks of a model that was moved to a GPU get data": """\
import torch
from torch.utils.checkpoint import checkpoint_sequential

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(5)])

def probe(device):
    net = Net().to(device)
    rows = torch.randn(4, 8, device=device)
    checkpoint_sequential(net.layers, 2, rows, use_reentrant=True).mean().backward()  # error: CKPT104

probe("cuda")
""",
    "the first of the blocks of a classifier gets a batch": """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        for index, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=True)  # error: CKPT104
        return self.head(x)

model = Classifier().cuda()
model.train()
for x, y in DataLoader(rows, batch_size=4):
    nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
""",
    "the first checkpoint of a language model looks the tokens up": """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up = nn.Embedding(100, 16), nn.Linear(16, 16)

    def forward(self, ids):
        return self.up(self.embed(ids))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = Stem(), nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 16), nn.GELU())
        self.place = nn.Embedding(9, 16)
        self.head = nn.Linear(16, 100)

    def block(self, x):
        return self.head(x + self.place.weight[0])

    def forward(self, ids, x):
        y = checkpoint(self.stem, ids, use_reentrant=True)  # error: CKPT104
        y = y + checkpoint(self.body, ids, use_reentrant=True)  # error: CKPT104
        return checkpoint(self.block, x + y, use_reentrant=True)
""",
    "one flag decides about the quantization and its preparation": _QLORA
    + """\
def load(options):
    config = None
    if options.in_4bit:
        config = BitsAndBytesConfig(load_in_4bit=True)
    model = AutoModelForCausalLM.from_pretrained(options.name, quantization_config=config)
    if options.in_4bit:
        model = prepare_model_for_kbit_training(model)  # error: CKPT103
    return get_peft_model(model, LoraConfig())

def main(options, rows):
    model = load(options)
    Trainer(model=model, args=TrainingArguments("out", bf16=True), train_dataset=rows).train()
""",
    "a parsed flag switches the quantization on": _QLORA
    + """\
parser = argparse.ArgumentParser()
parser.add_argument("--qlora", action="store_true")
args = parser.parse_args()
config = BitsAndBytesConfig(load_in_4bit=args.qlora)
model = AutoModelForCausalLM.from_pretrained("base", quantization_config=config if args.qlora else None)
if args.qlora:
    model = prepare_model_for_kbit_training(model)  # error: CKPT103
model = get_peft_model(model, LoraConfig())
"""
    + _TRAIN,
    "the model is loaded in two ways, of which one is prepared": _QLORA
    + """\
def main(args, rows):
    if args.qlora:
        model = AutoModelForCausalLM.from_pretrained("base", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
    else:
        model = AutoModelForCausalLM.from_pretrained("base")
    if args.qlora:
        model = prepare_model_for_kbit_training(model)  # error: CKPT103
    model = get_peft_model(model, LoraConfig())
    Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
""",
    "an object keeps the model that its own method trains": _QLORA
    + """\
class Tuner:
    def __init__(self, name):
        self.config = BitsAndBytesConfig(load_in_4bit=True)
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=self.config)
        self.model = prepare_model_for_kbit_training(self.model)  # error: CKPT103
        self.model = get_peft_model(self.model, LoraConfig())

    def train(self, rows):
        Trainer(model=self.model, args=TrainingArguments("out"), train_dataset=rows).train()
""",
    "a model that is loaded in two ways goes to a trainer of another file": _QLORA
    + """\
from training import OwnTrainer

def load(config):
    if config.fast:
        from unsloth import FastLanguageModel
        return FastLanguageModel.from_pretrained(config.name)
    model = AutoModelForCausalLM.from_pretrained(config.name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))
    return get_peft_model(prepare_model_for_kbit_training(model), LoraConfig()), None

def main(config):
    model, tokenizer = load(config)
    OwnTrainer(model=model, tokenizer=tokenizer).train()

main(argparse.Namespace(fast=False, name="base"))
""",
    "a wrapper gives a tuple of tensors": """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Checkpointed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, states, mask, **kwargs):
        def run(*inputs):
            output = self.module(*inputs, **kwargs)
            return tuple(part if part is not None else states.new_empty(0) for part in output)

        return checkpoint(run, states, mask, use_reentrant=True)

class Listing(nn.Module):
    def forward(self, states):
        def run(x):
            return [self.first(x), self.second(x)]

        return checkpoint(run, states, use_reentrant=True)  # error: CKPT116
""",
    "the function that a layer is checkpointed with is replaced by whoever enables it": """\
import torch
from transformers import PreTrainedModel

class Tower(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gradient_checkpointing = False
        self._gradient_checkpointing_func = torch.utils.checkpoint.checkpoint

    def forward(self, x):
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = self._gradient_checkpointing_func(block.__call__, x)
            else:
                x = block(x)
        return x
""",
    "a function takes the place of the forward that it checkpoints": """\
from torch.utils.checkpoint import checkpoint

def enable(model, on=True):
    done = False
    if hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable()
        done = True
    if not done:
        def forward(*inputs, **kwargs):
            return checkpoint(model.forward, *inputs, use_reentrant=False, **kwargs)

        model.forward = forward
    return done

class Trainer:
    def __init__(self, model):
        self.model = model
        enable(self.model)

def run(layer, x):
    return checkpoint(layer.forward, x, use_reentrant=False)  # error: CKPT306
""",
    "a setting that is off switches arguments": """\
from dataclasses import dataclass
from transformers import TrainingArguments

@dataclass
class Settings:
    low_memory: bool = False

def arguments(settings):
    how = {"use_reentrant": False}
    return TrainingArguments("out", gradient_checkpointing=settings.low_memory, gradient_checkpointing_kwargs=how)

arguments(Settings())
TrainingArguments("out", gradient_checkpointing_kwargs={"use_reentrant": False})  # error: CKPT215
""",
    "processes are spawned with what a function needs": """\
import torch
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.stem, self.reentrant = nn.Linear(8, 8), reentrant
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(3)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)  # error: CKPT304
        return x

def worker(rank, reentrant):
    model = Net(reentrant).to(rank)
    model = DistributedDataParallel(model, device_ids=[rank], find_unused_parameters=True)
    model(torch.randn(4, 8, device=rank)).sum().backward()

if __name__ == "__main__":
    mp.spawn(worker, args=(True,), nprocs=2)
""",
    "only the model that is not quantized is prepared": _QLORA
    + """\
def main(args, rows):
    config = BitsAndBytesConfig(load_in_4bit=True) if args.qlora else None
    model = AutoModelForCausalLM.from_pretrained("base", quantization_config=config)
    if not args.qlora:
        model = prepare_model_for_kbit_training(model)
    model = get_peft_model(model, LoraConfig())
    Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
""",
}


def _marked(text: str) -> list[tuple[int, str]]:
    return [
        (number, code.strip())
        for number, line in enumerate(text.splitlines(), 1)
        for code in line.partition("# error:")[2].split(",")
        if code
    ]


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found_and_nothing_else(name):
    found = check_source(CASES[name], "main.py")
    assert sorted((finding.span.line, finding.code) for finding in found) == _marked(CASES[name])
