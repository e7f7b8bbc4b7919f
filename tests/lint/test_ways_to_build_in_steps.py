"""Steps that follow one another: functions in a list, in `functools.reduce`, in a pipeline, methods by their names."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
from functools import partial, reduce
import functools
import torch
from peft import LoraConfig, TaskType, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

CFG = LoraConfig(task_type=TaskType.CAUSAL_LM, r=8)

def load(name):
    return AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_8bit=True))

"""
STEPS = """
def adapt(model):
    return get_peft_model(model, CFG)

def prepare(model):
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)

def freeze_norms(model):
    return model

"""
#: By the way: the steps in the wrong order, and in the right one.
WAYS = {
    "reduce over a list": (
        STEPS
        + """
STEPS = [adapt, prepare]
model = functools.reduce(lambda m, f: f(m), STEPS, load("x"))
""",
        STEPS
        + """
STEPS = [prepare, adapt]
model = functools.reduce(lambda m, f: f(m), STEPS, load("x"))
""",
    ),
    "reduce with a function": (
        STEPS
        + """
def apply(model, step):
    print(step)
    return step(model)
model = reduce(apply, (adapt, freeze_norms, prepare), load("x"))
""",
        STEPS
        + """
def apply(model, step):
    print(step)
    return step(model)
model = reduce(apply, (prepare, freeze_norms, adapt), load("x"))
""",
    ),
    "composed by reduce": (
        STEPS
        + """
def compose(*fs):
    return reduce(lambda f, g: lambda x: g(f(x)), fs)
model = compose(adapt, prepare)(load("x"))
""",
        STEPS
        + """
def compose(*fs):
    return reduce(lambda f, g: lambda x: g(f(x)), fs)
model = compose(prepare, adapt)(load("x"))
""",
    ),
    "reduce over the values of a dict": (
        STEPS
        + """
STEPS = {"lora": adapt, "kbit": prepare}
model = reduce(lambda m, f: f(m), STEPS.values(), load("x"))
""",
        STEPS
        + """
STEPS = {"kbit": prepare, "lora": adapt}
model = reduce(lambda m, f: f(m), STEPS.values(), load("x"))
""",
    ),
    "reduce over names": (
        STEPS
        + """
STEPS = {"lora": adapt, "kbit": prepare}
model = reduce(lambda m, name: STEPS[name](m), ["lora", "kbit"], load("x"))
""",
        STEPS
        + """
STEPS = {"kbit": prepare, "lora": adapt}
model = reduce(lambda m, name: STEPS[name](m), ["kbit", "lora"], load("x"))
""",
    ),
    "a pipeline that is called": (
        STEPS
        + """
class Pipeline:
    def __init__(self, *steps):
        self.steps = steps
    def __call__(self, model):
        for step in self.steps:
            model = step(model)
        return model
model = Pipeline(adapt, prepare)(load("x"))
""",
        STEPS
        + """
class Pipeline:
    def __init__(self, *steps):
        self.steps = steps
    def __call__(self, model):
        for step in self.steps:
            model = step(model)
        return model
model = Pipeline(prepare, adapt)(load("x"))
""",
    ),
    "a pipeline that is filled": (
        STEPS
        + """
class Pipeline:
    def __init__(self):
        self.steps = []
    def add(self, step):
        self.steps.append(step)
        return self
    def run(self, model):
        return reduce(lambda m, step: step(m), self.steps, model)
model = Pipeline().add(adapt).add(prepare).run(load("x"))
""",
        STEPS
        + """
class Pipeline:
    def __init__(self):
        self.steps = []
    def add(self, step):
        self.steps.append(step)
        return self
    def run(self, model):
        return reduce(lambda m, step: step(m), self.steps, model)
model = Pipeline().add(prepare).add(adapt).run(load("x"))
""",
    ),
    "steps that register themselves": (
        """
STEPS = []
def step(fn):
    STEPS.append(fn)
    return fn

@step
def lora(model):
    return get_peft_model(model, CFG)

@step
def kbit(model):
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)

model = load("x")
for fn in STEPS:
    model = fn(model)
""",
        """
STEPS = []
def step(fn):
    STEPS.append(fn)
    return fn

@step
def kbit(model):
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)

@step
def lora(model):
    return get_peft_model(model, CFG)

model = load("x")
for fn in STEPS:
    model = fn(model)
""",
    ),
    "a loop over the items of a dict": (
        STEPS
        + """
model = load("x")
for name, fn in {"lora": adapt, "kbit": prepare}.items():
    print(name)
    model = fn(model)
""",
        STEPS
        + """
model = load("x")
for name, fn in {"kbit": prepare, "lora": adapt}.items():
    print(name)
    model = fn(model)
""",
    ),
    "a partial and a function of peft": (
        """
model = load("x")
for fn in (partial(get_peft_model, peft_config=CFG), prepare_model_for_kbit_training):
    model = fn(model)
""",
        """
model = load("x")
for fn in (prepare_model_for_kbit_training, partial(get_peft_model, peft_config=CFG)):
    model = fn(model)
""",
    ),
    "methods by their names": (
        """
class Builder:
    ORDER = ("adapt", "prepare")
    def __init__(self, name):
        self.model = load(name)
    def adapt(self):
        self.model = get_peft_model(self.model, CFG)
    def prepare(self):
        self.model = prepare_model_for_kbit_training(self.model, use_gradient_checkpointing=False)
    def build(self):
        for name in self.ORDER:
            getattr(self, name)()
        return self.model
model = Builder("x").build()
""",
        """
class Builder:
    ORDER = ("prepare", "adapt")
    def __init__(self, name):
        self.model = load(name)
    def adapt(self):
        self.model = get_peft_model(self.model, CFG)
    def prepare(self):
        self.model = prepare_model_for_kbit_training(self.model, use_gradient_checkpointing=False)
    def build(self):
        for name in self.ORDER:
            getattr(self, name)()
        return self.model
model = Builder("x").build()
""",
    ),
    "functions with options": (
        STEPS
        + """
STEPS = [(adapt, {}), (prepare, {})]
model = load("x")
for fn, kw in STEPS:
    model = fn(model, **kw)
""",
        STEPS
        + """
STEPS = [(prepare, {}), (adapt, {})]
model = load("x")
for fn, kw in STEPS:
    model = fn(model, **kw)
""",
    ),
    "objects that are called": (
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

class Stage:
    def __call__(self, run):
        raise NotImplementedError

class Adapt(Stage):
    def __call__(self, run):
        run.model = get_peft_model(run.model, LoraConfig(r=8))

class Prepare(Stage):
    def __call__(self, run):
        run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)

run = Run("a")
for stage in (Adapt(), Prepare()):
    stage(run)
run.model.train()
""",
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

class Stage:
    def __call__(self, run):
        raise NotImplementedError

class Adapt(Stage):
    def __call__(self, run):
        run.model = get_peft_model(run.model, LoraConfig(r=8))

class Prepare(Stage):
    def __call__(self, run):
        run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)

run = Run("a")
for stage in (Prepare(), Adapt()):
    stage(run)
run.model.train()
""",
    ),
    "classes of such objects": (
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

class Stage:
    def __call__(self, run):
        raise NotImplementedError

class Adapt(Stage):
    def __call__(self, run):
        run.model = get_peft_model(run.model, LoraConfig(r=8))

class Prepare(Stage):
    def __call__(self, run):
        run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)

run = Run("a")
for kind in (Adapt, Prepare):
    kind()(run)
run.model.train()
""",
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

class Stage:
    def __call__(self, run):
        raise NotImplementedError

class Adapt(Stage):
    def __call__(self, run):
        run.model = get_peft_model(run.model, LoraConfig(r=8))

class Prepare(Stage):
    def __call__(self, run):
        run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)

run = Run("a")
for kind in (Prepare, Adapt):
    kind()(run)
run.model.train()
""",
    ),
    "a list that runs them": (
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

def adapt(run):
    run.model = get_peft_model(run.model, LoraConfig(r=8))
def prepare(run):
    run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)
run = Run("a")
[step(run) for step in (adapt, prepare)]
run.model.train()
""",
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

def adapt(run):
    run.model = get_peft_model(run.model, LoraConfig(r=8))
def prepare(run):
    run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)
run = Run("a")
[step(run) for step in (prepare, adapt)]
run.model.train()
""",
    ),
    "helpers that change a run": (
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

def adapt(run):
    run.model = get_peft_model(run.model, LoraConfig(r=8))
def prepare(run, **kw):
    run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)
run = Run("a")
from contextlib import ExitStack
adapt(run)
prepare(run)
run.model.train()
""",
        """
class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

def adapt(run):
    run.model = get_peft_model(run.model, LoraConfig(r=8))
def prepare(run, **kw):
    run.model = prepare_model_for_kbit_training(run.model, use_gradient_checkpointing=False)
run = Run("a")
from contextlib import ExitStack
prepare(run)
adapt(run)
run.model.train()
""",
    ),
    "composed by a loop": (
        """
from functools import reduce
def compose(*fns):
    def run(x):
        for f in fns:
            x = f(x)
        return x
    return run

class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

def adapt(m):
    return get_peft_model(m, LoraConfig(r=8))
def prepare(m):
    return prepare_model_for_kbit_training(m, use_gradient_checkpointing=False)
run = Run("a")
flow = compose(adapt, prepare)
run.model = flow(run.model)
run.model.train()
""",
        """
from functools import reduce
def compose(*fns):
    def run(x):
        for f in fns:
            x = f(x)
        return x
    return run

class Run:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))

def adapt(m):
    return get_peft_model(m, LoraConfig(r=8))
def prepare(m):
    return prepare_model_for_kbit_training(m, use_gradient_checkpointing=False)
run = Run("a")
flow = compose(prepare, adapt)
run.model = flow(run.model)
run.model.train()
""",
    ),
}


def codes(program: str) -> set[str]:
    return {found.code for found in check_source(HEAD + program)}


@pytest.mark.parametrize(("wrong", "right"), WAYS.values(), ids=WAYS)
def test_the_preparation_behind_the_adapter_is_found(wrong, right):
    assert "CKPT123" in codes(wrong)
    assert "CKPT123" not in codes(right)


def test_the_options_of_a_step_are_known():
    options = """
from dataclasses import dataclass, field

@dataclass
class Options:
    recompute: dict = field(default_factory=lambda: {"use_reentrant": "False"})

def prepared(model, options):
    return prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs=options.recompute)

def adapted(model, options):
    return get_peft_model(model, CFG)

options = Options()
model = reduce(lambda model, step: step(model, options), (prepared, adapted), load("x"))
"""
    assert "CKPT133" in codes(options)
    assert "CKPT133" not in codes(options.replace('"False"', "False"))


def test_a_reduction_over_layers_runs_each():
    layers = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(4))

    def forward(self, x):
        return reduce(lambda h, block: checkpoint(block, h, use_reentrant=False), self.blocks, x)
"""
    assert "CKPT106" in codes(layers)
    assert "CKPT106" not in codes(layers.replace("nn.BatchNorm2d(8)", "nn.GroupNorm(4, 8)"))
