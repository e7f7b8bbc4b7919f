"""Usual mistakes in the spellings of many scripts, by rule: each is found in every one of them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPTS = {
    "CKPT105": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

class Net(nn.Module):
    def __init__(self, n=4, d=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(n))
    def forward(self, x, mask=None):
        {0}
        return x
""",
    "CKPT112": """\
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, BertModel, AutoModelForSequenceClassification
from peft import LoraConfig, get_peft_model

{0}
""",
    "CKPT122": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def set_seed(s):
    random.seed(s)
    torch.manual_seed(s)

class Block(nn.Module):
    def __init__(self, d=8, seed=0):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.drop = nn.Dropout(0.1)
        self.seed = seed
    def forward(self, x):
        {0}
        return self.drop(self.fc(x))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for b in self.b:
            x = checkpoint(b, x, use_reentrant=False)
        return x
""",
    "CKPT128": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp

class Layer(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.fc = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
    def forward(self, x, mask=None, pos=None, scale=1.0):
        y, w = self.attn(x, x, x, attn_mask=mask, need_weights=False)
        x = self.norm(x + y)
        if pos is not None:
            x = x + pos
        return x + self.fc(x) * scale
class Net(nn.Module):
    def __init__(self, d=16, n=3, use_ckpt=False):
        super().__init__()
        self.layers = nn.ModuleList(Layer(d) for _ in range(n))
        self.norm = nn.LayerNorm(d)
        self.use_ckpt = use_ckpt
        self.gradient_checkpointing = False
    def forward(self, x, mask=None, pos=None):
        {0}
        return x
""",
    "CKPT130": """\
import functools, copy, math, os, random, types
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig, AutoModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.llama import modeling_llama

{0}
""",
    "CKPT132": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.fc = nn.Linear(d, d)
    def helper(self, x):
        {1}
    def forward(self, x):
        {0}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, 8)
        self.b = Block()
    def forward(self, x):
        return checkpoint(self.b, self.inp(x), use_reentrant=True)
""",
    "CKPT203": """\
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, BertModel, AutoModelForSequenceClassification
from peft import LoraConfig, get_peft_model

{0}
""",
    "CKPT205": """\
import torch
from transformers import AutoModelForCausalLM, AutoConfig, Trainer, TrainingArguments, Seq2SeqTrainingArguments
from trl import SFTTrainer, SFTConfig, DPOTrainer, DPOConfig
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
{0}
""",
    "CKPT211": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

{0}
""",
    "CKPT215": """\
import torch
from transformers import AutoModelForCausalLM, AutoConfig, Trainer, TrainingArguments, Seq2SeqTrainingArguments
from trl import SFTTrainer, SFTConfig, DPOTrainer, DPOConfig
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
{0}
""",
    "CKPT304": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.layers = nn.ModuleList(nn.Linear(d, d) for _ in range(3))
    def forward(self, x):
        x = self.stem(x)
        for l in self.layers:
            x = checkpoint(l, x, use_reentrant=True)
        return x
{0}
""",
    "CKPT308": """\
import torch
from transformers import AutoModelForCausalLM, AutoConfig, Trainer, TrainingArguments, Seq2SeqTrainingArguments
from trl import SFTTrainer, SFTConfig, DPOTrainer, DPOConfig
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
{0}
""",
    "CKPT310": """\
import functools, copy, math, os, random, types
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig, AutoModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.llama import modeling_llama

{0}
""",
    "CKPT402": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

{0}
""",
    "CKPT403": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.fc, self.act, self.drop, self.norm = nn.Linear(d, d), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(d)
        self.body = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        self.conv = nn.Conv1d(d, d, 1)
        self.attn = nn.MultiheadAttention(d, 4)
        self.head = nn.Linear(d, 10)
    def forward(self, x):
        {0}
""",
    "CKPT405": """\
import functools, copy, math, os, random, types
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, LlamaForCausalLM, LlamaConfig, AutoModel, AutoModelForSequenceClassification
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from transformers.models.llama import modeling_llama

{0}
""",
    "CKPT406": """\
import functools, copy, math, os, random
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
import torch.utils.checkpoint as cp

from torch.distributed.fsdp import fully_shard
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, apply_activation_checkpointing
from transformers import LlamaForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
model = LlamaForCausalLM(LlamaConfig())
{0}
""",
}
WAYS = {
    ("CKPT105", "lambda"): (
        "for l in self.layers:\n            x = checkpoint(lambda h: l(h), x, use_reentrant=False)",
    ),
    ("CKPT105", "lambda i"): (
        "for i in range(4):\n            x = checkpoint(lambda h: self.layers[i](h), x, use_reentrant=False)",
    ),
    ("CKPT105", "def"): (
        "for l in self.layers:\n            def run(h):\n                return l(h).relu()\n            x = checkpoint(run, x, use_reentrant=False)",
    ),
    ("CKPT105", "enumerate"): (
        "for i, l in enumerate(self.layers):\n            x = checkpoint(lambda h: l(h) * i, x, use_reentrant=False)",
    ),
    ("CKPT105", "zip"): (
        "for l, s in zip(self.layers, [1, 2, 3, 4]):\n            x = checkpoint(lambda h: l(h) * s, x, use_reentrant=False)",
    ),
    ("CKPT105", "var"): (
        "for l in self.layers:\n            s = x.mean()\n            x = checkpoint(lambda h: l(h) - s, x, use_reentrant=False)",
    ),
    ("CKPT105", "outer x"): (
        "for l in self.layers:\n            x = checkpoint(lambda h: l(h) + x, x, use_reentrant=False)",
    ),
    ("CKPT105", "while"): (
        "i = 0\n        while i < 4:\n            x = checkpoint(lambda h: self.layers[i](h), x, use_reentrant=False)\n            i += 1",
    ),
    ("CKPT105", "res"): (
        "res = x\n        for l in self.layers:\n            x = checkpoint(lambda h: l(h) + res, x, use_reentrant=False)\n            res = x",
    ),
    ("CKPT105", "scale"): (
        "scale = 1.0\n        for l in self.layers:\n            x = checkpoint(lambda h, l=l: l(h) * scale, x, use_reentrant=False)\n            scale *= 0.5",
    ),
    ("CKPT105", "partial of lambda"): (
        "for l in self.layers:\n            x = checkpoint(functools.partial(lambda h: l(h)), x, use_reentrant=False)",
    ),
    ("CKPT105", "named"): (
        "for l in self.layers:\n            f = lambda h: l(h)\n            x = checkpoint(f, x, use_reentrant=False)",
    ),
    ("CKPT105", "after"): (
        "block = self.layers[0]\n        y = checkpoint(lambda h: block(h), x, use_reentrant=False)\n        block = self.layers[1]\n        x = checkpoint(lambda h: block(h), y, use_reentrant=False)",
    ),
    ("CKPT105", "mask rebound"): (
        "y = checkpoint(lambda h: self.layers[0](h) * mask, x, use_reentrant=False)\n        mask = mask * 2\n        x = y * mask",
    ),
    ("CKPT105", "nested"): (
        "for a in range(0, 4, 2):\n            def run(h):\n                for l in self.layers[a:a + 2]:\n                    h = l(h)\n                return h\n            x = checkpoint(run, x, use_reentrant=False)",
    ),
    ("CKPT105", "comp"): (
        "outs = [checkpoint(lambda h: l(h), x, use_reentrant=False) for l in self.layers]\n        x = sum(outs)",
    ),
    ("CKPT105", "list of fns"): (
        "fns = []\n        for l in self.layers:\n            fns.append(lambda h: l(h))\n        for f in fns:\n            x = checkpoint(f, x, use_reentrant=False)",
    ),
    ("CKPT105", "dict"): (
        "for name, l in self.layers.named_children():\n            x = checkpoint(lambda h: getattr(self.layers, name)(h), x, use_reentrant=False)",
    ),
    ("CKPT112", "loop"): (
        'def train(name, loader):\n    tok = AutoTokenizer.from_pretrained(name)\n    model = AutoModelForCausalLM.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.train()\n    opt = torch.optim.AdamW(model.parameters())\n    for step, batch in enumerate(loader):\n        model(**batch).loss.backward()\n        opt.step(); opt.zero_grad()\n        if step % 100 == 0:\n            ids = tok("a", return_tensors="pt").input_ids\n            print(tok.decode(model.generate(ids, max_new_tokens=20)[0]))\n',
    ),
    ("CKPT112", "class"): (
        'class T:\n    def __init__(self, name):\n        self.model = AutoModelForCausalLM.from_pretrained(name)\n        self.model.gradient_checkpointing_enable()\n        self.model.train()\n        self.opt = torch.optim.AdamW(self.model.parameters())\n    def sample(self, ids):\n        return self.model.generate(input_ids=ids, max_length=64)\n    def fit(self, loader):\n        for b in loader:\n            self.model(**b).loss.backward()\n            self.opt.step()\n            self.sample(b["input_ids"][:, :4])\n',
    ),
    ("CKPT112", "rl"): (
        "def ppo(name, prompts, reward):\n    policy = AutoModelForCausalLM.from_pretrained(name)\n    policy.gradient_checkpointing_enable()\n    policy.train()\n    opt = torch.optim.AdamW(policy.parameters())\n    for ids in prompts:\n        with torch.no_grad():\n            out = policy.generate(ids, do_sample=True, max_new_tokens=32)\n        logits = policy(out).logits\n        loss = -(logits.log_softmax(-1).mean() * reward(out))\n        opt.zero_grad(); loss.backward(); opt.step()\n",
    ),
    ("CKPT112", "peft"): (
        "def ppo(name, prompts):\n    policy = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())\n    policy.enable_input_require_grads()\n    policy.gradient_checkpointing_enable()\n    policy.train()\n    opt = torch.optim.AdamW(policy.parameters())\n    for batch in prompts:\n        seq = policy.generate(**batch, max_new_tokens=8)\n        loss = policy(seq, labels=seq).loss\n        loss.backward(); opt.step()\n",
    ),
    ("CKPT112", "unwrap"): (
        'from accelerate import Accelerator\ndef main(name, loader):\n    acc = Accelerator()\n    model = AutoModelForCausalLM.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    opt = torch.optim.AdamW(model.parameters())\n    model, opt, loader = acc.prepare(model, opt, loader)\n    model.train()\n    for batch in loader:\n        loss = model(**batch).loss\n        acc.backward(loss)\n        opt.step(); opt.zero_grad()\n        acc.unwrap_model(model).generate(batch["input_ids"], max_new_tokens=4)\n',
    ),
    ("CKPT112", "helper arg"): (
        '@torch.no_grad()\ndef show(model, tok, text):\n    ids = tok(text, return_tensors="pt").to("cuda")\n    return tok.batch_decode(model.generate(**ids, max_new_tokens=10))\ndef main(name, loader):\n    tok = AutoTokenizer.from_pretrained(name)\n    model = AutoModelForCausalLM.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.train()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        model(**batch).loss.backward()\n        opt.step(); opt.zero_grad()\n    show(model, tok, "x")\n',
    ),
    ("CKPT112", "pipeline"): (
        'from transformers import pipeline, TrainerCallback, Trainer, TrainingArguments\nclass Gen(TrainerCallback):\n    def __init__(self, tok):\n        self.tok = tok\n    def on_step_end(self, args, state, control, model=None, **kw):\n        ids = self.tok("x", return_tensors="pt").input_ids\n        print(self.tok.decode(model.generate(ids, max_new_tokens=8)[0]))\ndef main(name):\n    tok = AutoTokenizer.from_pretrained(name)\n    model = AutoModelForCausalLM.from_pretrained(name)\n    Trainer(model=model, args=TrainingArguments("o", gradient_checkpointing=True), callbacks=[Gen(tok)]).train()\n',
    ),
    ("CKPT122", "const"): ("torch.manual_seed(0)",),
    ("CKPT122", "attr"): ("torch.manual_seed(self.seed)",),
    ("CKPT122", "random"): ("torch.random.manual_seed(42)",),
    ("CKPT122", "cuda"): ("torch.cuda.manual_seed_all(0)",),
    ("CKPT122", "helper"): ("set_seed(0)",),
    ("CKPT122", "hf"): ("from transformers import set_seed as ss\n        ss(42)",),
    ("CKPT122", "cond"): ("if self.training:\n            torch.manual_seed(self.seed)",),
    ("CKPT122", "lightning"): ("import lightning as L\n        L.seed_everything(1)",),
    ("CKPT122", "accelerate"): ("from accelerate.utils import set_seed as s2\n        s2(1)",),
    ("CKPT128", "mask dropped"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(l, x, use_reentrant=False)\n            else:\n                x = l(x, mask)",
    ),
    ("CKPT128", "swapped"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(l, x, pos, mask, use_reentrant=False)\n            else:\n                x = l(x, mask, pos)",
    ),
    ("CKPT128", "scale"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(l, x, mask, pos, use_reentrant=False)\n            else:\n                x = l(x, mask, pos, 0.5)",
    ),
    ("CKPT128", "ifexp"): (
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=False) if self.use_ckpt else l(x, mask)",
    ),
    ("CKPT128", "residual"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(l, x, mask, use_reentrant=False)\n            else:\n                x = x + l(x, mask)",
    ),
    ("CKPT128", "norm only"): (
        "if self.use_ckpt and self.training:\n            for l in self.layers:\n                x = checkpoint(l, x, mask, use_reentrant=False)\n        else:\n            for l in self.layers:\n                x = l(x, mask)\n            x = self.norm(x)",
    ),
    ("CKPT128", "return"): (
        "for l in self.layers:\n            if not self.use_ckpt:\n                x = l(x, mask)\n                continue\n            x = checkpoint(l, x, use_reentrant=False)",
    ),
    ("CKPT128", "closure"): (
        "def run(l):\n            def f(h):\n                return l(h)\n            return f\n        for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(run(l), x, use_reentrant=False)\n            else:\n                x = l(x, mask)",
    ),
    ("CKPT128", "lambda"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(lambda h, l=l: l(h), x, use_reentrant=False)\n            else:\n                x = l(x, mask=mask)",
    ),
    ("CKPT128", "partial"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(functools.partial(l, pos=pos), x, use_reentrant=False)\n            else:\n                x = l(x, mask=mask, pos=pos)",
    ),
    ("CKPT128", "method"): (
        "for l in self.layers:\n            x = self.run(l, x, mask)\n        return x\n\n    def run(self, l, x, mask):\n        if self.use_ckpt:\n            return checkpoint(l, x, use_reentrant=False)\n        return l(x, mask)\n\n    def unused(self, x):",
    ),
    ("CKPT128", "hf flag"): (
        "for l in self.layers:\n            if self.gradient_checkpointing and self.training:\n                x = self._gradient_checkpointing_func(l.__call__, x)\n            else:\n                x = l(x, mask)",
    ),
    ("CKPT128", "dropout"): (
        "for l in self.layers:\n            if self.use_ckpt and self.training:\n                x = checkpoint(l, x, mask, use_reentrant=False)\n            else:\n                x = F.dropout(l(x, mask), 0.1, self.training)",
    ),
    ("CKPT130", "plain"): (
        "model = LlamaForCausalLM.from_pretrained('x')\nmodel.gradient_checkpointing_enable({'use_reentrant': True})\nfor p in model.model.embed_tokens.parameters():\n    p.requires_grad = False\nmodel.train()\nfor b in []:\n    loss = model(**b).loss\n    loss.requires_grad_(True)\n    loss.backward()\n",
    ),
    ("CKPT130", "assign"): (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.b = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n    def forward(self, x):\n        return checkpoint(self.b, x, use_reentrant=True)\nnet = N()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor x, y in []:\n    loss = F.mse_loss(net(x), y)\n    loss.requires_grad = True\n    loss.backward()\n    opt.step()\n",
    ),
    ("CKPT130", "chain"): (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.b = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n    def forward(self, x):\n        return checkpoint(self.b, x, use_reentrant=True)\nnet = N()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor x, y in []:\n    F.mse_loss(net(x), y).requires_grad_().backward()\n    opt.step()\n",
    ),
    ("CKPT130", "variable"): (
        "from torch.autograd import Variable\nclass N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.b = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n    def forward(self, x):\n        return checkpoint(self.b, x, use_reentrant=True)\nnet = N()\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nfor x, y in []:\n    loss = Variable(F.mse_loss(net(x), y), requires_grad=True)\n    loss.backward()\n    opt.step()\n",
    ),
    ("CKPT132", "is_grad_enabled"): (
        "if torch.is_grad_enabled():\n            return self.fc(x) * 2\n        return self.fc(x)",
        "pass",
    ),
    ("CKPT132", "not"): (
        "if not torch.is_grad_enabled():\n            return self.fc(x)\n        return self.fc(x).relu()",
        "pass",
    ),
    ("CKPT132", "requires_grad"): (
        "h = self.fc(x)\n        if h.requires_grad:\n            h = h * 2\n        return h",
        "pass",
    ),
    ("CKPT132", "ifexp"): ("return self.fc(x) * (2 if torch.is_grad_enabled() else 1)", "pass"),
    ("CKPT132", "helper"): (
        "return self.helper(x)",
        "if torch.is_grad_enabled():\n            return self.fc(x) * 2\n        return self.fc(x)",
    ),
    ("CKPT132", "var"): (
        "g = torch.is_grad_enabled()\n        h = self.fc(x)\n        return h * 2 if g else h",
        "pass",
    ),
    ("CKPT132", "and"): (
        "if self.training and torch.is_grad_enabled():\n            x = x + torch.randn_like(x)\n        return self.fc(x)",
        "pass",
    ),
    ("CKPT132", "grad_fn"): ("h = self.fc(x)\n        return h * 2 if h.grad_fn is not None else h", "pass"),
    ("CKPT203", "eval before"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.eval()\n    model.gradient_checkpointing_enable()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        loss = model(**batch).loss\n        loss.backward()\n        opt.step()\n",
    ),
    ("CKPT203", "enable eval"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.eval()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        loss = model(**batch).loss\n        loss.backward()\n        opt.step()\n",
    ),
    ("CKPT203", "train False"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.train(False)\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        loss = model(**batch).loss\n        loss.backward()\n        opt.step()\n",
    ),
    ("CKPT203", "no train"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        loss = model(**batch).loss\n        loss.backward()\n        opt.step()\n",
    ),
    ("CKPT203", "eval in loop"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.train()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        loss = model(**batch).loss\n        loss.backward()\n        opt.step()\n        model.eval()\n        print(model(**batch).loss)\n",
    ),
    ("CKPT203", "helper eval"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    prepare(model)\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        loss = model(**batch).loss\n        loss.backward()\n        opt.step()\n\ndef prepare(m):\n    m.eval()\n    return m\n",
    ),
    ("CKPT203", "chained"): (
        "def train(name, loader):\n    model = AutoModelForSequenceClassification.from_pretrained(name).eval()\n    model.gradient_checkpointing_enable()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        model(**batch).loss.backward()\n        opt.step()\n",
    ),
    ("CKPT203", "peft"): (
        "def train(name, loader):\n    model = AutoModelForCausalLM.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.enable_input_require_grads()\n    model = get_peft_model(model, LoraConfig())\n    model.eval()\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        model(**batch).loss.backward()\n        opt.step()\n",
    ),
    ("CKPT203", "class"): (
        "class Trainer:\n    def __init__(self, name):\n        self.model = AutoModelForSequenceClassification.from_pretrained(name)\n        self.model.gradient_checkpointing_enable()\n        self.model.eval()\n        self.opt = torch.optim.AdamW(self.model.parameters())\n    def fit(self, loader):\n        for batch in loader:\n            self.model(**batch).loss.backward()\n            self.opt.step()\n",
    ),
    ("CKPT203", "encoder in module"): (
        "class Net(nn.Module):\n    def __init__(self, name):\n        super().__init__()\n        self.bert = BertModel.from_pretrained(name)\n        self.bert.gradient_checkpointing_enable()\n        self.bert.eval()\n        self.head = nn.Linear(768, 2)\n    def forward(self, ids):\n        return self.head(self.bert(ids).pooler_output)\ndef train(name, loader):\n    net = Net(name)\n    opt = torch.optim.AdamW(net.parameters())\n    for ids, y in loader:\n        nn.functional.cross_entropy(net(ids), y).backward()\n        opt.step()\n",
    ),
    ("CKPT203", "validate at end"): (
        "def validate(model, loader):\n    model.eval()\n    with torch.no_grad():\n        return sum(model(**b).loss.item() for b in loader)\ndef train(name, loader, val):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.train()\n    opt = torch.optim.AdamW(model.parameters())\n    for epoch in range(3):\n        for batch in loader:\n            model(**batch).loss.backward()\n            opt.step()\n            opt.zero_grad()\n        validate(model, val)\n",
    ),
    ("CKPT203", "validate first"): (
        "def validate(model, loader):\n    model.eval()\n    with torch.no_grad():\n        return sum(model(**b).loss.item() for b in loader)\ndef train(name, loader, val):\n    model = AutoModelForSequenceClassification.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.train()\n    validate(model, val)\n    opt = torch.optim.AdamW(model.parameters())\n    for batch in loader:\n        model(**batch).loss.backward()\n        opt.step()\n",
    ),
    ("CKPT205", "attr"): ("m = AutoModelForCausalLM.from_pretrained('x')\nm.gradient_checkpointing = True\n",),
    ("CKPT205", "config"): ("m = AutoModelForCausalLM.from_pretrained('x')\nm.config.gradient_checkpointing = True\n",),
    ("CKPT205", "model.model"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nm.model.gradient_checkpointing = True\n",
    ),
    ("CKPT205", "setattr"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nsetattr(m.config, 'gradient_checkpointing', True)\n",
    ),
    ("CKPT205", "update"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nm.config.update({'gradient_checkpointing': True})\n",
    ),
    ("CKPT205", "peft"): (
        "m = get_peft_model(AutoModelForCausalLM.from_pretrained('x'), LoraConfig())\nm.config.gradient_checkpointing = True\n",
    ),
    ("CKPT205", "peft base"): (
        "m = get_peft_model(AutoModelForCausalLM.from_pretrained('x'), LoraConfig())\nm.base_model.model.gradient_checkpointing = True\n",
    ),
    ("CKPT205", "loop"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nfor k, v in {'use_cache': False, 'gradient_checkpointing': True}.items():\n    setattr(m.config, k, v)\n",
    ),
    ("CKPT211", "eval script"): (
        "model = AutoModelForCausalLM.from_pretrained('x')\nmodel.gradient_checkpointing_enable()\nmodel.eval()\nwith torch.no_grad():\n    for b in []:\n        print(model(**b).loss)\n",
    ),
    ("CKPT211", "generate"): (
        "model = AutoModelForCausalLM.from_pretrained('x')\nmodel.gradient_checkpointing_enable()\nprint(model.generate(torch.tensor([[1]]), max_new_tokens=3))\n",
    ),
    ("CKPT211", "fn"): (
        "@torch.no_grad()\ndef evaluate(name, loader):\n    model = AutoModelForCausalLM.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.eval()\n    return sum(model(**b).loss.item() for b in loader)\nprint(evaluate('x', []))\n",
    ),
    ("CKPT211", "inference_mode"): (
        "def main(name, loader):\n    model = AutoModelForCausalLM.from_pretrained(name).eval()\n    model.gradient_checkpointing_enable()\n    with torch.inference_mode():\n        return [model(**b).logits for b in loader]\nmain('x', [])\n",
    ),
    ("CKPT211", "trainer evaluate"): (
        "model = AutoModelForCausalLM.from_pretrained('x')\nmodel.gradient_checkpointing_enable()\nt = Trainer(model=model, args=TrainingArguments('o'), eval_dataset=[])\nprint(t.evaluate())\n",
    ),
    ("CKPT211", "class"): (
        "class Evaluator:\n    def __init__(self, name):\n        self.model = AutoModelForCausalLM.from_pretrained(name)\n        self.model.gradient_checkpointing_enable()\n        self.model.eval()\n    @torch.no_grad()\n    def ppl(self, loader):\n        return sum(self.model(**b).loss.item() for b in loader)\nprint(Evaluator('x').ppl([]))\n",
    ),
    ("CKPT211", "perplexity"): (
        "model = LlamaForCausalLM.from_pretrained('x')\nmodel.gradient_checkpointing_enable()\ntorch.set_grad_enabled(False)\nfor b in []:\n    print(model(**b).loss)\n",
    ),
    ("CKPT211", "extract"): (
        "def embed(name, texts):\n    model = AutoModelForCausalLM.from_pretrained(name)\n    model.gradient_checkpointing_enable()\n    model.eval()\n    out = []\n    for t in texts:\n        with torch.no_grad():\n            out.append(model(**t, output_hidden_states=True).hidden_states[-1])\n    return out\nembed('x', [])\n",
    ),
    ("CKPT215", "args"): ("TrainingArguments('o', gradient_checkpointing_kwargs={'use_reentrant': False})\n",),
    ("CKPT215", "var"): (
        "a = TrainingArguments('o')\na.gradient_checkpointing_kwargs = {'use_reentrant': False}\nTrainer(model=AutoModelForCausalLM.from_pretrained('x'), args=a).train()\n",
    ),
    ("CKPT215", "False"): (
        "a = Seq2SeqTrainingArguments(output_dir='o', gradient_checkpointing=False, gradient_checkpointing_kwargs={'use_reentrant': False})\n",
    ),
    ("CKPT215", "dict"): (
        "kw = dict(output_dir='o', gradient_checkpointing_kwargs={'use_reentrant': False})\nTrainingArguments(**kw)\n",
    ),
    ("CKPT304", "find"): (
        "def main(loader):\n    dist.init_process_group('nccl')\n    net = Net().cuda()\n    net = DDP(net, find_unused_parameters=True)\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x, y in loader:\n        F.mse_loss(net(x), y).backward()\n        opt.step()\n",
    ),
    ("CKPT304", "kwargs"): (
        "def main(loader):\n    dist.init_process_group('nccl')\n    net = Net().cuda()\n    kw = {'find_unused_parameters': True}\n    net = DDP(net, device_ids=[0], **kw)\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x, y in loader:\n        F.mse_loss(net(x), y).backward()\n        opt.step()\n",
    ),
    ("CKPT304", "module"): (
        "def main(loader):\n    dist.init_process_group('nccl')\n    net = Net().cuda()\n    net = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x, y in loader:\n        F.mse_loss(net(x), y).backward()\n        opt.step()\n",
    ),
    ("CKPT304", "partial"): (
        "def main(loader):\n    dist.init_process_group('nccl')\n    net = Net().cuda()\n    wrap = functools.partial(DDP, find_unused_parameters=True)\n    net = wrap(net)\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x, y in loader:\n        F.mse_loss(net(x), y).backward()\n        opt.step()\n",
    ),
    ("CKPT304", "helper"): (
        "def main(loader):\n    dist.init_process_group('nccl')\n    net = Net().cuda()\n    net = wrap(net)\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    for x, y in loader:\n        F.mse_loss(net(x), y).backward()\n        opt.step()\n\ndef wrap(m):\n    return DDP(m, find_unused_parameters=True)\n",
    ),
    ("CKPT304", "accelerate"): (
        "from accelerate import Accelerator, DistributedDataParallelKwargs\ndef main(loader):\n    acc = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])\n    net = Net()\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    net, opt, loader = acc.prepare(net, opt, loader)\n    for x, y in loader:\n        acc.backward(F.mse_loss(net(x), y))\n        opt.step()\n",
    ),
    ("CKPT304", "lightning"): (
        "import lightning as L\nclass Lit(L.LightningModule):\n    def __init__(self):\n        super().__init__()\n        self.net = Net()\n    def training_step(self, b, i):\n        return F.mse_loss(self.net(b[0]), b[1])\n    def configure_optimizers(self):\n        return torch.optim.Adam(self.parameters())\nL.Trainer(strategy='ddp_find_unused_parameters_true', devices=2).fit(Lit())\n",
    ),
    ("CKPT304", "lightning obj"): (
        "import lightning as L\nfrom lightning.pytorch.strategies import DDPStrategy\nclass Lit(L.LightningModule):\n    def __init__(self):\n        super().__init__()\n        self.net = Net()\n    def training_step(self, b, i):\n        return F.mse_loss(self.net(b[0]), b[1])\n    def configure_optimizers(self):\n        return torch.optim.Adam(self.parameters())\nL.Trainer(strategy=DDPStrategy(find_unused_parameters=True), devices=2).fit(Lit())\n",
    ),
    ("CKPT304", "trainer"): (
        "Trainer(model=AutoModelForCausalLM.from_pretrained('x'), args=TrainingArguments('o', gradient_checkpointing=True, gradient_checkpointing_kwargs={'use_reentrant': True}, ddp_find_unused_parameters=True)).train()\n",
    ),
    ("CKPT304", "fabric"): (
        "from lightning.fabric import Fabric\nfrom lightning.fabric.strategies import DDPStrategy\ndef main(loader):\n    fabric = Fabric(strategy=DDPStrategy(find_unused_parameters=True), devices=2)\n    fabric.launch()\n    net = Net()\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    net, opt = fabric.setup(net, opt)\n    for x, y in loader:\n        fabric.backward(F.mse_loss(net(x), y))\n        opt.step()\n",
    ),
    ("CKPT304", "class"): (
        "class T:\n    def __init__(self):\n        self.model = Net().cuda()\n        self.model = DDP(self.model, find_unused_parameters=True)\n        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)\n    def fit(self, loader):\n        for x, y in loader:\n            F.mse_loss(self.model(x), y).backward()\n            self.opt.step()\n",
    ),
    ("CKPT304", "hf ddp"): (
        "def main(loader):\n    model = LlamaForCausalLM(LlamaConfig()).cuda()\n    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': True})\n    model = DDP(model, find_unused_parameters=True)\n    model.train()\n    for b in loader:\n        model(**b).loss.backward()\n",
    ),
    ("CKPT308", "enable kw"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nm.gradient_checkpointing_enable(use_reentrant=False)\n",
    ),
    ("CKPT308", "enable True"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nm.gradient_checkpointing_enable(True)\n",
    ),
    ("CKPT308", "from_pretrained"): ("m = AutoModelForCausalLM.from_pretrained('x', gradient_checkpointing=True)\n",),
    ("CKPT308", "args"): ("TrainingArguments('o', gradient_checkpointing=True, use_reentrant=False)\n",),
    ("CKPT308", "prepare"): (
        "m = AutoModelForCausalLM.from_pretrained('x', load_in_4bit=True)\nprepare_model_for_kbit_training(m, use_reentrant=False)\n",
    ),
    ("CKPT308", "checkpoint fn called"): (
        "from torch.utils.checkpoint import checkpoint\nimport torch.nn as nn\nf = nn.Linear(2, 2)\nx = torch.randn(2, 2)\ncheckpoint(f(x), use_reentrant=False)\n",
    ),
    ("CKPT308", "kwargs dict pos"): (
        "m = AutoModelForCausalLM.from_pretrained('x')\nm.gradient_checkpointing_enable(False)\n",
    ),
    ("CKPT308", "enable attr"): ("m = AutoModelForCausalLM.from_pretrained('x')\nm.enable_gradient_checkpointing()\n",),
    ("CKPT308", "missing arg"): (
        "from torch.utils.checkpoint import checkpoint\nimport torch.nn as nn\nclass B(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.f = nn.Linear(2, 2)\n    def forward(self, x, mask):\n        return self.f(x) * mask\nb = B()\ncheckpoint(b, torch.randn(2, 2), use_reentrant=False)\n",
    ),
    ("CKPT308", "too many"): (
        "from torch.utils.checkpoint import checkpoint\nimport torch.nn as nn\nb = nn.Linear(2, 2)\ncheckpoint(b, torch.randn(2, 2), torch.randn(2), use_reentrant=False)\n",
    ),
    ("CKPT310", "segments 0"): (
        "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\ncheckpoint_sequential(net, 0, torch.randn(2, 2), use_reentrant=False)\n",
    ),
    ("CKPT310", "too many"): (
        "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\ncheckpoint_sequential(net, 5, torch.randn(2, 2), use_reentrant=False)\n",
    ),
    ("CKPT310", "module"): (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(2, 2)\n    def forward(self, x):\n        return self.a(x)\ncheckpoint_sequential(M(), 2, torch.randn(2, 2), use_reentrant=False)\n",
    ),
    ("CKPT310", "swapped"): (
        "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\nx = torch.randn(2, 2)\ncheckpoint_sequential(net, x, 2, use_reentrant=False)\n",
    ),
    ("CKPT310", "two inputs"): (
        "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\nx = torch.randn(2, 2)\ncheckpoint_sequential(net, 2, x, x, use_reentrant=False)\n",
    ),
    ("CKPT310", "attr"): (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.body = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)])\n    def forward(self, x):\n        return checkpoint_sequential(self.body, 8, x, use_reentrant=False)\n",
    ),
    ("CKPT402", "hf+apply"): (
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\nmodel = LlamaForCausalLM(LlamaConfig())\nmodel.gradient_checkpointing_enable({'use_reentrant': True})\napply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))\n",
    ),
    ("CKPT402", "apply+hf"): (
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\nmodel = LlamaForCausalLM(LlamaConfig())\napply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))\nmodel.gradient_checkpointing_enable({'use_reentrant': True})\n",
    ),
    ("CKPT402", "loop wrap"): (
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\nmodel = LlamaForCausalLM(LlamaConfig())\nmodel.gradient_checkpointing_enable({'use_reentrant': True})\nfor i in range(len(model.model.layers)):\n    model.model.layers[i] = checkpoint_wrapper(model.model.layers[i])\n",
    ),
    ("CKPT402", "trainer"): (
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\nmodel = LlamaForCausalLM(LlamaConfig())\napply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))\nTrainer(model=model, args=TrainingArguments('o', gradient_checkpointing=True, gradient_checkpointing_kwargs={'use_reentrant': True})).train()\n",
    ),
    ("CKPT402", "own"): (
        "class Mlp(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)\n    def inner(self, x):\n        return self.b(self.a(x).relu())\n    def forward(self, x):\n        return checkpoint(self.inner, x, use_reentrant=True)\nclass Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n, self.m = nn.LayerNorm(8), Mlp()\n    def forward(self, x):\n        return x + self.m(self.n(x))\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.blocks = nn.ModuleList(Block() for _ in range(4))\n    def forward(self, x):\n        for b in self.blocks:\n            x = checkpoint(b, x, use_reentrant=True)\n        return x\n",
    ),
    ("CKPT402", "own wrap"): (
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl\nclass Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)\n    def forward(self, x):\n        return self.b(self.a(x).relu())\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.blocks = nn.ModuleList(checkpoint_wrapper(Block(), checkpoint_impl=CheckpointImpl.REENTRANT) for _ in range(4))\n    def forward(self, x):\n        for b in self.blocks:\n            x = checkpoint(b, x, use_reentrant=True)\n        return x\n",
    ),
    ("CKPT402", "wrap wrap"): (
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl\nw = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)\nb = w(w(nn.Sequential(nn.Linear(4, 4), nn.ReLU())))\n",
    ),
    ("CKPT403", "linear"): ("x = checkpoint(self.fc, x, use_reentrant=False)\n        return self.head(self.body(x))",),
    ("CKPT403", "head"): ("x = self.body(x)\n        return checkpoint(self.head, x, use_reentrant=False)",),
    ("CKPT403", "lambda"): (
        "x = checkpoint(lambda h: self.fc(h), x, use_reentrant=False)\n        return self.body(x)",
    ),
    ("CKPT403", "act"): ("x = checkpoint(self.act, self.fc(x), use_reentrant=False)\n        return self.body(x)",),
    ("CKPT405", "params"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor p in model.bert.parameters():\n    p.requires_grad = False\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "module"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nmodel.bert.requires_grad_(False)\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "base"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nmodel.base_model.requires_grad_(False)\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "base loop"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor p in model.base_model.parameters():\n    p.requires_grad_(False)\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "by name"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor n, p in model.named_parameters():\n    if 'classifier' not in n:\n        p.requires_grad = False\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "assign"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor n, p in model.named_parameters():\n    p.requires_grad = n.startswith('classifier')\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "all then head"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor p in model.parameters():\n    p.requires_grad = False\nfor p in model.classifier.parameters():\n    p.requires_grad = True\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "all then head2"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nmodel.requires_grad_(False)\nmodel.classifier.requires_grad_(True)\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "helper"): (
        "def freeze(m):\n    for p in m.parameters():\n        p.requires_grad = False\nmodel = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfreeze(model.bert)\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "map"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nlist(map(lambda p: p.requires_grad_(False), model.bert.parameters()))\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "first layers"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nmodel.bert.embeddings.requires_grad_(False)\nfor l in model.bert.encoder.layer[:8]:\n    l.requires_grad_(False)\nmodel.gradient_checkpointing_enable({'use_reentrant': False})\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "first layers params"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor m in [model.bert.embeddings, *model.bert.encoder.layer[:8]]:\n    for p in m.parameters():\n        p.requires_grad = False\nmodel.gradient_checkpointing_enable({'use_reentrant': False})\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT405", "comp"): (
        "model = AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')\nfor p in [p for n, p in model.named_parameters() if not n.startswith('classifier')]:\n    p.requires_grad = False\nmodel.gradient_checkpointing_enable()\nmodel.train()\nopt = torch.optim.AdamW(model.parameters())\nfor b in []:\n    model(**b).loss.backward()\n    opt.step()\n",
    ),
    ("CKPT406", "loop"): (
        "for i, l in enumerate(model.model.layers):\n    fully_shard(l)\n    model.model.layers[i] = checkpoint_wrapper(l)\nfully_shard(model)\nmodel = torch.compile(model)\n",
    ),
    ("CKPT406", "compile layer"): (
        "for i, l in enumerate(model.model.layers):\n    fully_shard(l)\n    model.model.layers[i] = torch.compile(checkpoint_wrapper(l))\nfully_shard(model)\n",
    ),
    ("CKPT406", "apply"): (
        "for l in model.model.layers:\n    fully_shard(l)\nfully_shard(model)\napply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))\nmodel = torch.compile(model)\n",
    ),
    ("CKPT406", "compile()"): (
        "for l in model.model.layers:\n    fully_shard(l)\nfully_shard(model)\napply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))\nmodel.compile()\n",
    ),
    ("CKPT406", "helpers"): (
        "def shard(m):\n    for l in m.model.layers:\n        fully_shard(l)\n    fully_shard(m)\ndef ac(m):\n    apply_activation_checkpointing(m, check_fn=lambda s: isinstance(s, LlamaDecoderLayer))\nshard(model)\nac(model)\nmodel = torch.compile(model)\n",
    ),
    ("CKPT406", "each compile"): (
        "for l in model.model.layers:\n    fully_shard(l)\nfor i, l in enumerate(model.model.layers):\n    model.model.layers[i] = checkpoint_wrapper(l)\nfor l in model.model.layers:\n    l.compile()\n",
    ),
    ("CKPT406", "steps"): (
        "def shard(m):\n    for l in m.model.layers:\n        fully_shard(l)\n    return m\ndef ac(m):\n    apply_activation_checkpointing(m, check_fn=lambda s: isinstance(s, LlamaDecoderLayer))\n    return m\nfor step in (shard, ac, torch.compile):\n    model = step(model)\n",
    ),
}


@pytest.mark.parametrize(("code", "way"), WAYS)
def test_it_is_found(code, way):
    script = SCRIPTS[code]
    for at, part in enumerate(WAYS[code, way]):
        script = script.replace(f"{{{at}}}", part)
    assert code in {found.code for found in check_source(script)}
