"""Changes of a model between its forward and its backward pass, which stand in functions of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hf_ckpt.lint import check_paths
from hf_ckpt.lint.analysis.check_text import check_source

_ERROR = re.compile(r"# error: (CKPT\d{3})$")
_LOAD = """\
import torch
import torch.nn.functional as F
from peft import PeftModel
from transformers import AutoModelForCausalLM

def load():
    model = AutoModelForCausalLM.from_pretrained("x", attn_pdrop=0.1)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model = PeftModel.from_pretrained(model, "sft", adapter_name="policy", is_trainable=True)
    model.load_adapter("sft", adapter_name="reference")
    model.train()
    return model

"""
WRONG = {
    "a method that runs the forward pass": """\
class T:
    def __init__(self):
        self.model = load()
    def logp(self, ids):
        return self.model(input_ids=ids).logits.float().log_softmax(-1).sum((-1, -2))
    def step(self, ids):
        self.model.set_adapter("policy")
        pi = self.logp(ids)
        self.model.set_adapter("reference")  # error: CKPT114
        with torch.no_grad():
            ref = self.logp(ids)
        loss = -F.logsigmoid(pi - ref).mean()
        loss.backward()
t = T()
for ids in []:
    t.step(ids)
""",
    "another adapter than that of the start": """\
def main(loader):
    model = load()
    for b in loader:
        policy = model(**b).logits
        model.set_adapter("reference")  # error: CKPT114
        policy.mean().backward()
""",
    "a mode that a context manager leaves": """\
import torch
import torch.nn as nn
from contextlib import contextmanager
from torch.utils.checkpoint import checkpoint
net = torch.nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))  # nn.Module
@contextmanager
def evaluating(m):
    m.eval()  # error: CKPT114
    yield
def train(x):
    y = checkpoint(net, x, use_reentrant=False)
    with evaluating(net):
        print(net(x))
    y.sum().backward()
""",
    "modes that are set to off": """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
net = torch.nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1))  # nn.Module
def train(x):
    y = checkpoint(net, x, use_reentrant=False)
    net.eval()  # error: CKPT114
    for part in net.modules():
        part.training = False
    y.sum().backward()
""",
    "a class that another module uses": """\
class T:
    def __init__(self):
        self.model = load()
    def logp(self, ids):
        return self.model(input_ids=ids).logits.float().log_softmax(-1).sum((-1, -2))
    def step(self, ids):
        self.model.set_adapter("policy")
        pi = self.logp(ids)
        self.model.set_adapter("reference")  # error: CKPT114
        with torch.no_grad():
            ref = self.logp(ids)
        loss = -F.logsigmoid(pi - ref).mean()
        loss.backward()
""",
    "functions that give a tuple and that leave eval mode behind": """\
def compute_loss(model, batch):
    out = model(**batch)
    loss = out.loss
    return loss, out.logits
def generate(model, ids):
    model.eval()  # error: CKPT114
    return model.generate(ids)
def main(loader):
    model = load()
    for b in loader:
        loss, logits = compute_loss(model, b)
        generate(model, b["input_ids"])
        loss.backward()
        model.train()
""",
    "a function that gives a dict and one that runs the backward pass": """\
def compute_loss(model, batch):
    out = model(**batch)
    return {"loss": out.loss, "logits": out.logits}
def optimize(loss, opt):
    loss = loss / 4
    loss.backward()
    opt.step()
def main(loader):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    for b in loader:
        out = compute_loss(model, b)
        model.set_adapter("reference")  # error: CKPT114
        optimize(out["loss"], opt)
""",
    "losses in a list": """\
def main(loader):
    model = load()
    for b in loader:
        losses = []
        losses.append(model(**b).loss)
        model.set_adapter("reference")  # error: CKPT114
        losses.append(model(**b).loss)
        loss = sum(losses)
        loss.backward()
""",
    "losses in a dict": """\
def main(loader, accelerator):
    model = load()
    for b in loader:
        losses = {}
        model.set_adapter("policy")
        losses["a"] = model(**b).loss
        model.set_adapter("reference")  # error: CKPT114
        losses["b"] = model(**b).loss
        total = torch.stack(list(losses.values())).sum()
        accelerator.backward(total)
""",
    "a lambda": """\
def main(loader):
    model = load()
    f = lambda b: model(**b).loss
    for b in loader:
        loss = f(b)
        model.eval()  # error: CKPT114
        loss.backward()
        model.train()
""",
    "a function that calls another, and a pair of forward passes": """\
def token_logps(model, b):
    return model(**b).logits.log_softmax(-1)
def seq_logps(model, b):
    lp = token_logps(model, b)
    mask = b["labels"] != -100
    return (lp * mask).sum(-1)
def main(loader):
    model = load()
    for b in loader:
        c, r = seq_logps(model, b["c"]), seq_logps(model, b["r"])
        with torch.no_grad():
            model.set_adapter("reference")  # error: CKPT114
            rc, rr = seq_logps(model, b["c"]), seq_logps(model, b["r"])
        loss = -F.logsigmoid((c - r) - (rc - rr)).mean()
        loss.backward()
""",
    "a gradient scaler steps between two backward passes": """\
def main(loader):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler()
    for b in loader:
        l1 = model(**b).loss
        out = model(**b)
        scaler.scale(l1).backward()
        scaler.step(opt)  # error: CKPT114
        scaler.scale(out.loss).backward()
""",
    "adapters that are switched off": """\
def main(loader):
    model = load()
    for b in loader:
        l1 = model(**b).loss
        model.disable_adapter_layers()  # error: CKPT114
        with torch.no_grad():
            ref = model(**b).loss
        (l1 - ref).backward()
        model.enable_adapter_layers()
""",
    "a step between two backward passes of one forward pass": """\
def losses_of(model, b):
    out = model(**b)
    return out.loss, out.logits.pow(2).mean()
def main(loader):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    for b in loader:
        l1, l2 = losses_of(model, b)
        l1.backward(retain_graph=True)
        opt.step()  # error: CKPT114
        l2.backward()
""",
    "a module that holds a checkpointed model": """\
import torch
from torch import nn
from transformers import AutoModel

class TwoHeads(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(name)
        self.encoder.gradient_checkpointing_enable({"use_reentrant": False})
        self.a, self.b = nn.Linear(8, 5), nn.Linear(8, 2)

    def forward(self, **batch):
        hidden = self.encoder(**batch).last_hidden_state[:, 0]
        return self.a(hidden), self.b(hidden)

def train(loader, name):
    model = TwoHeads(name)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for batch in loader:
        first, second = model(**batch)
        first.sum().backward(retain_graph=True)
        optimizer.step()  # error: CKPT114
        second.sum().backward()
""",
}
RIGHT = {
    "a constructor that may leave checkpointing off": """\
class Trainer:
    def __init__(self, checkpointing):
        self.model = AutoModelForCausalLM.from_pretrained("x").train()
        if checkpointing:
            self.model.gradient_checkpointing_enable()
    def step(self, batch):
        loss = self.model(**batch).loss
        self.model.set_adapter("other")
        loss.backward()
""",
    "adapters that are switched on again": """\
def main(loader):
    model = load()
    for b in loader:
        l1 = model(**b).loss
        model.disable_adapter_layers()
        with torch.no_grad():
            ref = model(**b).loss
        model.enable_adapter_layers()
        (l1 - ref).backward()
""",
    "a step of another model": """\
def losses_of(model, b):
    out = model(**b)
    return out.loss, out.logits.pow(2).mean()
def main(loader):
    model = load()
    opt = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())
    for b in loader:
        l1, l2 = losses_of(model, b)
        l1.backward(retain_graph=True)
        opt.step()
        l2.backward()
""",
    "two forward passes, each with its step behind it": """\
def main(loader):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    for b in loader:
        l1 = model(**b).loss
        l1.backward(retain_graph=True)
        opt.step()
        l2 = model(**b).loss
        l2.backward(retain_graph=True)
        opt.step()
""",
    "a second loss of values without gradients": """\
def main(loader, other):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    for b in loader:
        out = model(**b)
        out.loss.backward(retain_graph=True)
        opt.step()
        ids = out.logits.argmax(-1)
        target = out.logits.detach()
        with torch.no_grad():
            t3 = out.logits.softmax(-1)
        l2 = other(ids, target, t3).loss
        l2.backward()
        opt.step()
""",
    "two backward passes and one step": """\
def main(loader):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    for b in loader:
        out = model(**b)
        l1, l2 = out.loss, out.logits.mean()
        l1.backward(retain_graph=True)
        g1 = [p.grad.clone() for p in model.parameters()]
        opt.zero_grad()
        l2.backward()
        opt.step()
""",
    "a function that takes the adapter back": """\
def logp(model, ids):
    return model(input_ids=ids).logits.log_softmax(-1)
def ref_logp(model, ids):
    model.set_adapter("reference")
    with torch.no_grad():
        out = logp(model, ids)
    model.set_adapter("policy")
    return out
def main(loader):
    model = load()
    model.set_adapter("policy")
    for b in loader:
        pi = logp(model, b)
        ref = ref_logp(model, b)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "set_grad_enabled decides": """\
def logp(model, ids, grad=True):
    with torch.set_grad_enabled(grad):
        return model(input_ids=ids).logits.log_softmax(-1)
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = logp(model, b, grad=False)
        model.set_adapter("policy")
        pi = logp(model, b)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "a function that detaches in a branch": """\
def logp(model, ids, ref=False):
    lp = model(input_ids=ids).logits.log_softmax(-1)
    if ref:
        return lp.detach()
    return lp
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = logp(model, b, ref=True)
        model.set_adapter("policy")
        pi = logp(model, b)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "a function that detaches in an expression": """\
def logp(model, ids, ref=False):
    lp = model(input_ids=ids).logits.log_softmax(-1)
    return lp.detach() if ref else lp
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = logp(model, b, ref=True)
        model.set_adapter("policy")
        pi = logp(model, b)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "a function that detaches before it returns": """\
def logp(model, ids, ref=False):
    lp = model(input_ids=ids).logits.log_softmax(-1)
    if ref:
        lp = lp.detach()
    return lp
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = logp(model, b, ref=True)
        model.set_adapter("policy")
        pi = logp(model, b)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "a function that may detach": """\
def logp(model, ids, flag):
    lp = model(input_ids=ids).logits.log_softmax(-1)
    if flag:
        return lp.detach()
    return lp
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = logp(model, b, SOME)
        model.set_adapter("policy")
        pi = logp(model, b, OTHER)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "a decorator two calls above the forward pass": """\
def logp(model, ids):
    return model(input_ids=ids).logits.log_softmax(-1)
@torch.no_grad()
def ref_logp(model, ids):
    return logp(model, ids)
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = ref_logp(model, b)
        model.set_adapter("policy")
        pi = logp(model, b)
        loss = (pi - ref).mean()
        loss.backward()
""",
    "evaluation behind the backward pass": """\
def loss_of(model, b):
    return model(**b).loss
def main(loader, val):
    model = load()
    opt = torch.optim.AdamW(model.parameters())
    for i, b in enumerate(loader):
        loss = loss_of(model, b)
        loss.backward()
        if i % 4 == 0:
            opt.step()
            opt.zero_grad()
        if i % 100 == 0:
            model.eval()
            with torch.no_grad():
                vloss = loss_of(model, val)
            model.train()
""",
    "a function that detaches what it is given": """\
def stop_gradient(x):
    held = x.detach()
    return held
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = stop_gradient(model(**b).logits)
        model.set_adapter("policy")
        loss = (model(**b).logits - ref).mean()
        loss.backward()
""",
    "a statement that detaches": """\
def main(loader):
    model = load()
    for b in loader:
        model.set_adapter("reference")
        ref = model(**b).logits
        ref.detach_()
        model.set_adapter("policy")
        loss = (model(**b).logits - ref).mean()
        loss.backward()
""",
    "the adapter of the start is set again": """\
def main(name, loader):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    for b in loader:
        policy = model(**b).logits
        with torch.no_grad(), model.disable_adapter():
            reference = model(**b).logits
        model.set_adapter("default")
        (policy - reference).mean().backward()
def named(loader):
    model = load()
    for b in loader:
        policy = model(**b).logits
        model.set_adapter(adapter_name="policy")
        policy.mean().backward()
""",
    "modes that are set back": """\
from contextlib import contextmanager
from torch.utils.checkpoint import checkpoint
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1))
def probe(m, x):
    modes = [(k, k.training) for k in m.modules()]
    m.eval()
    try:
        with torch.no_grad():
            return m(x).mean()
    finally:
        for k, mode in modes:
            k.training = mode
def by_name(m, x):
    modes = {name: part.training for name, part in m.named_modules()}
    m.eval()
    m(x)
    for name, part in m.named_modules():
        part.training = modes[name]
def of_itself(m, x):
    before = m.training
    m.eval()
    m(x)
    m.training = before
@contextmanager
def evaluating(m):
    before = m.training
    m.eval()
    try:
        yield m
    finally:
        m.train(before)
class Evaluating:
    def __init__(self, m):
        self.m = m
    def __enter__(self):
        self.before = self.m.training
        self.m.eval()
    def __exit__(self, *error):
        self.m.train(self.before)
def train(x):
    y = checkpoint(net, x, use_reentrant=False)
    probe(net, x)
    y.sum().backward()
def train_by_name(x):
    y = checkpoint(net, x, use_reentrant=False)
    by_name(net, x)
    y.sum().backward()
def train_itself(x):
    y = checkpoint(net, x, use_reentrant=False)
    of_itself(net, x)
    y.sum().backward()
def train_around(x):
    y = checkpoint(net, x, use_reentrant=False)
    with evaluating(net) as net_in_eval, torch.no_grad():
        print(net_in_eval(x))
    with Evaluating(net):
        print(net(x))
    y.sum().backward()
""",
    "a copy whose original was switched before": """\
import copy
from torch.utils.checkpoint import checkpoint
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1))
def train(x):
    net.eval()
    net(x)
    net.train()
    y = checkpoint(net, x, use_reentrant=False)
    print(copy.deepcopy(net).eval()(x))
    y.sum().backward()
""",
    "generation in a context that is in eval mode": """\
import contextlib
@contextlib.contextmanager
def evaluating(model):
    model.eval()
    try:
        yield
    finally:
        model.train()
def main(loader):
    model = load()
    for b in loader:
        loss = model(**b).loss
        with evaluating(model):
            model.generate(b)
        loss.backward()
""",
    "a copy is changed": """\
import copy
from torch.utils.checkpoint import checkpoint
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.drop = torch.nn.Linear(8, 8), torch.nn.Dropout(0.1)
    def forward(self, x):
        return self.drop(checkpoint(self.block, x, use_reentrant=False))
def main(loader, weights):
    model = load()
    for b in loader:
        loss = model(**b).loss
        copied = copy.deepcopy(model).eval()
        copied.set_adapter("reference")
        copied.load_state_dict(weights)
        loss.backward()
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.1))
own = Net()
def train(x):
    y = checkpoint(net, x, use_reentrant=False) + checkpoint(own, x, use_reentrant=False)
    averaged = copy.deepcopy(net).eval()
    other = copy.deepcopy(own).eval()
    other.load_state_dict({})
    y.sum().backward()
""",
}


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG.keys())
def test_a_change_is_found_through_functions(code):
    code = code if "nn.Module" in code else _LOAD + code
    expected = [(n, m[1]) for n, line in enumerate(code.splitlines(), 1) if (m := _ERROR.search(line))]
    assert expected
    assert [(finding.span.line, finding.code) for finding in check_source(code)] == expected


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_order_is_not_reported(code):
    assert [(finding.span.line, finding.code) for finding in check_source(_LOAD + code)] == []


def test_helpers_of_another_module(tmp_path):
    (tmp_path / "losses.py").write_text("""\
import torch

def log_probability(model, ids):
    return model(input_ids=ids).logits.log_softmax(-1)

@torch.no_grad()
def reference(model, ids):
    model.set_adapter("reference")
    return log_probability(model, ids)
""")
    script = _LOAD.replace("import torch\n", "import torch\nfrom losses import log_probability, reference\n", 1)
    (tmp_path / "train.py").write_text(f"""\
{script}
model = load()
for ids in []:
    policy = log_probability(model, ids)
    loss = (policy - reference(model, ids)).mean()
    loss.backward()
""")
    (found,) = check_paths([tmp_path])
    assert (Path(found.filename).name, found.span.line, found.code) == ("losses.py", 8, "CKPT114")
    assert "line" not in found.message


_SWITCHED = """\
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

def logits_of(model, adapter, ids):
    model.set_adapter(adapter)
    return model(input_ids=ids).logits

model = LlamaForCausalLM(LlamaConfig())
model.gradient_checkpointing_enable()
model = get_peft_model(model, LoraConfig(), adapter_name="left")
model.add_adapter("right", LoraConfig())
model.train()
for ids in batches:
    first = logits_of(model, "left", ids)
    second = logits_of(model, ANOTHER, ids)
    (first - second).square().mean().backward()
"""


@pytest.mark.parametrize(("another", "is_wrong"), [('"right"', True), ('"left"', False)])
def test_a_helper_switches_to_what_it_is_given(another: str, is_wrong: bool) -> None:
    """Both calls write `set_adapter(adapter)`: the names that they are given decide."""
    found = check_source(_SWITCHED.replace("ANOTHER", another), "train.py")
    assert any(it.code == "CKPT114" for it in found) is is_wrong
