"""A policy that generates while it trains: what switches its mode is followed through loops, methods and constructors."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
from transformers import AutoModelForCausalLM
"""

WRONG = {
    "same walk class": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, prompts):
        with torch.no_grad():
            return self.model.generate(**prompts, max_new_tokens=64)
    def update(self, batch):
        loss = self.model(**batch).loss
        loss.backward()
        self.opt.step()
def main(loader):
    policy = Policy("gpt2")
    for batch in loader:
        out = policy.rollout(batch)
        policy.update({"input_ids": out, "labels": out})
""",
    "alone class loop": """
class GRPO:
    def __init__(self, cfg):
        self.model = AutoModelForCausalLM.from_pretrained(cfg.model)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters())
    @torch.no_grad()
    def rollout(self, prompts):
        return self.model.generate(**prompts, max_new_tokens=64)
    def train(self, loader):
        for batch in loader:
            out = self.rollout(batch)
            loss = self.model(input_ids=out, labels=out).loss
            loss.backward()
            self.opt.step()
""",
    "train in method": """
class GRPO:
    def __init__(self, cfg):
        self.model = AutoModelForCausalLM.from_pretrained(cfg.model)
        self.model.gradient_checkpointing_enable()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, prompts):
        with torch.no_grad():
            return self.model.generate(**prompts, max_new_tokens=64)
    def train(self, loader):
        self.model.train()
        for batch in loader:
            out = self.rollout(batch)
            loss = self.model(input_ids=out, labels=out).loss
            loss.backward()
            self.opt.step()
""",
    "train in update loop": """
class GRPO:
    def __init__(self, cfg):
        self.model = AutoModelForCausalLM.from_pretrained(cfg.model)
        self.model.gradient_checkpointing_enable()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, prompts):
        with torch.no_grad():
            return self.model.generate(**prompts, max_new_tokens=64)
    def update(self, out):
        self.model.train()
        loss = self.model(input_ids=out, labels=out).loss
        loss.backward()
        self.opt.step()
    def fit(self, loader):
        for batch in loader:
            self.update(self.rollout(batch))
""",
    "function loop": """
def train(name, loader):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        with torch.no_grad():
            out = model.generate(**batch, max_new_tokens=64)
        model.train()
        loss = model(input_ids=out, labels=out).loss
        loss.backward()
        opt.step()
""",
    "setup method": """
class PPO:
    def __init__(self, cfg):
        self.cfg = cfg
        self._setup_model()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def _setup_model(self):
        self.model = AutoModelForCausalLM.from_pretrained(self.cfg.model, torch_dtype=torch.bfloat16)
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model.train()
    def sample(self, prompts):
        with torch.inference_mode():
            return self.model.generate(**prompts, max_new_tokens=64, do_sample=True)
    def step(self, batch):
        seq = self.sample(batch)
        loss = self.model(input_ids=seq, labels=seq).loss
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
""",
    "two methods no caller": """
class Agent:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def act(self, prompts):
        with torch.no_grad():
            return self.model.generate(**prompts, max_new_tokens=64)
    def learn(self, batch):
        loss = self.model(**batch).loss
        loss.backward()
        self.opt.step()
""",
    "given model": """
class Trainer:
    def __init__(self, model, tokenizer):
        self.model = model
        self.tok = tokenizer
        self.opt = torch.optim.AdamW(model.parameters())
    def rollout(self, prompts):
        ids = self.tok(prompts, return_tensors="pt")
        with torch.no_grad():
            return self.model.generate(**ids, max_new_tokens=64)
    def train(self, loader):
        self.model.train()
        for batch in loader:
            out = self.rollout(batch)
            self.model(input_ids=out, labels=out).loss.backward()
            self.opt.step()
def main(tok, loader):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.gradient_checkpointing_enable()
    Trainer(model, tok).train(loader)
""",
    "peft policy": """
from peft import LoraConfig, get_peft_model
class Policy:
    def __init__(self, name):
        base = AutoModelForCausalLM.from_pretrained(name)
        base.gradient_checkpointing_enable()
        base.enable_input_require_grads()
        self.policy = get_peft_model(base, LoraConfig())
        self.policy.train()
        self.opt = torch.optim.AdamW(self.policy.parameters())
    def generate(self, ids):
        return self.policy.generate(input_ids=ids, max_new_tokens=32)
    def train_step(self, ids):
        out = self.generate(ids)
        loss = self.policy(input_ids=out, labels=out).loss
        loss.backward()
        self.opt.step()
""",
    "nn module used": """
class Policy(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids).loss
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
def main(loader):
    policy = Policy("gpt2")
    policy.train()
    opt = torch.optim.AdamW(policy.parameters())
    for ids in loader:
        with torch.no_grad():
            out = policy.rollout(ids)
        policy(out).backward()
        opt.step()
""",
    "accelerator policy": """
from accelerate import Accelerator
class Trainer:
    def __init__(self, name, loader):
        self.accelerator = Accelerator()
        model = AutoModelForCausalLM.from_pretrained(name)
        model.gradient_checkpointing_enable()
        opt = torch.optim.AdamW(model.parameters())
        self.model, self.opt, self.loader = self.accelerator.prepare(model, opt, loader)
    def rollout(self, batch):
        with torch.no_grad():
            return self.accelerator.unwrap_model(self.model).generate(**batch, max_new_tokens=16)
    def train(self):
        self.model.train()
        for batch in self.loader:
            out = self.rollout(batch)
            loss = self.model(input_ids=out, labels=out).loss
            self.accelerator.backward(loss)
            self.opt.step()
""",
    "helper function": """
def sample(model, batch):
    with torch.no_grad():
        return model.generate(**batch, max_new_tokens=16)
def train(loader):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.gradient_checkpointing_enable()
    model.train()
    opt = torch.optim.AdamW(model.parameters())
    for batch in loader:
        out = sample(model, batch)
        model(input_ids=out, labels=out).loss.backward()
        opt.step()
""",
    "actor attr": """
class Actor:
    def __init__(self, name):
        self.lm = AutoModelForCausalLM.from_pretrained(name)
        self.lm.gradient_checkpointing_enable()
        self.lm.train()
    def sample(self, batch):
        return self.lm.generate(**batch, max_new_tokens=4)
    def loss(self, ids):
        return self.lm(input_ids=ids, labels=ids).loss
class Learner:
    def __init__(self, name):
        self.actor = Actor(name)
        self.opt = torch.optim.SGD(self.actor.lm.parameters(), lr=0.1)
    def run(self, loader):
        for batch in loader:
            with torch.no_grad():
                ids = self.actor.sample(batch)
            self.actor.loss(ids).backward()
            self.opt.step()
""",
    "evaluate restores": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def evaluate(self, loader):
        self.model.eval()
        for ids in loader:
            self.model.generate(input_ids=ids, max_new_tokens=32)
        self.model.train()
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "inherits": """
class Base:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
class Policy(Base):
    @torch.no_grad()
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def step(self, ids):
        self.model(input_ids=self.rollout(ids), labels=ids).loss.backward()
""",
    "every epoch sample": """
def f(loader, name, prompt):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    for epoch in range(3):
        model.train()
        for ids in loader:
            model(input_ids=ids, labels=ids).loss.backward()
        print(model.generate(**prompt, max_new_tokens=32))
""",
    "autocast decorated": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    @torch.no_grad()
    @torch.autocast("cuda", dtype=torch.bfloat16)
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
""",
    "config model class": """
from transformers import AutoConfig, AutoModelForCausalLM
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name))
        self.model.gradient_checkpointing_enable()
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def step(self, ids):
        self.model(input_ids=self.rollout(ids), labels=ids).loss.backward()
""",
    "to device": """
class RLHF:
    def __init__(self, args):
        self.actor = AutoModelForCausalLM.from_pretrained(args.path, torch_dtype="auto").to("cuda")
        self.actor.gradient_checkpointing_enable()
        self.ref = AutoModelForCausalLM.from_pretrained(args.path).to("cuda").eval()
        self.opt = torch.optim.AdamW(self.actor.parameters(), lr=1e-6)
    def collect(self, batch):
        with torch.no_grad():
            seq = self.actor.generate(batch["input_ids"], max_new_tokens=128, do_sample=True)
            lp = self.ref(seq).logits
        return seq, lp
    def learn(self, seq, lp):
        self.actor.train()
        loss = (self.actor(seq).logits - lp).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
    def run(self, data):
        for epoch in range(10):
            for batch in data:
                seq, lp = self.collect(batch)
                for _ in range(4):
                    self.learn(seq, lp)
""",
}

RIGHT = {
    "guarded enable param": """
class Policy:
    def __init__(self, name, grad_ckpt=False):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        if grad_ckpt:
            self.model.gradient_checkpointing_enable()
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
            self.opt.step()
""",
    "eval in rollout": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, ids):
        self.model.eval()
        out = self.model.generate(input_ids=ids, max_new_tokens=32)
        self.model.train()
        return out
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
            self.opt.step()
""",
    "eval in caller": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            self.model.eval()
            out = self.rollout(ids)
            self.model.train()
            self.model(input_ids=out, labels=out).loss.backward()
            self.opt.step()
""",
    "disable around": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, ids):
        self.model.gradient_checkpointing_disable()
        out = self.model.generate(input_ids=ids, max_new_tokens=32)
        self.model.gradient_checkpointing_enable()
        return out
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "outer eval method": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def eval(self):
        self.model.eval()
    def train(self):
        self.model.train()
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def update(self, ids):
        self.model(input_ids=ids, labels=ids).loss.backward()
""",
    "nn module policy": """
class Policy(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids).loss
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
""",
    "nn module used eval": """
class Policy(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids).loss
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
def main(loader):
    policy = Policy("gpt2")
    opt = torch.optim.AdamW(policy.parameters())
    for ids in loader:
        policy.eval()
        with torch.no_grad():
            out = policy.rollout(ids)
        policy.train()
        policy(out).backward()
        opt.step()
""",
    "use cache false": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32, use_cache=False)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "ref model": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        self.sampler = AutoModelForCausalLM.from_pretrained(name)
    def rollout(self, ids):
        return self.sampler.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "never trains": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.opt = torch.optim.AdamW(self.model.parameters())
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "context eval": """
import contextlib
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    @contextlib.contextmanager
    def inference(self):
        self.model.eval()
        try:
            yield
        finally:
            self.model.train()
    def rollout(self, ids):
        with self.inference():
            return self.model.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "eval decorator": """
import functools
def in_eval(f):
    @functools.wraps(f)
    def g(self, *a):
        self.model.eval()
        out = f(self, *a)
        self.model.train()
        return out
    return g
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    @in_eval
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
    def fit(self, loader):
        for ids in loader:
            out = self.rollout(ids)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "evaluate leaves": """
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def evaluate(self, loader):
        self.model.eval()
        for ids in loader:
            self.model.generate(input_ids=ids, max_new_tokens=32)
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
""",
    "unknown base": """
from base import BasePolicy
class Policy(BasePolicy):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def rollout(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
""",
    "only predicts after": """
class LM:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
    def fit(self, loader):
        self.model.train()
        for ids in loader:
            self.model(input_ids=ids, labels=ids).loss.backward()
    def predict(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
""",
    "break loop": """
def f(loader):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.gradient_checkpointing_enable()
    for ids in loader:
        model.generate(input_ids=ids, max_new_tokens=32)
        model.train()
        model(input_ids=ids, labels=ids).loss.backward()
        break
""",
    "model per iteration": """
def f(loader, names):
    for name in names:
        model = AutoModelForCausalLM.from_pretrained(name)
        model.gradient_checkpointing_enable()
        print(model.generate(max_new_tokens=32))
        model.train()
        for ids in loader:
            model(input_ids=ids, labels=ids).loss.backward()
""",
    "self mode args": """
from helpers import set_mode
class Policy:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def fit(self, loader):
        for ids in loader:
            set_mode(self.model, False)
            out = self.model.generate(input_ids=ids, max_new_tokens=32)
            set_mode(self.model, True)
            self.model(input_ids=out, labels=out).loss.backward()
""",
    "nn eval outside": """
class Policy(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids).loss
    def sample(self, ids):
        return self.model.generate(input_ids=ids, max_new_tokens=32)
def main(loader):
    policy = Policy("x")
    policy.eval()
    print(policy.sample(None))
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT112" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT112" not in codes(case)
