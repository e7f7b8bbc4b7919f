"""Which code runs without gradients, however the program switches them off: the same answer for every rule."""

from __future__ import annotations

import ast

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.facts.interpreter.program import read_program
from hf_ckpt.lint.facts.values.grad_mode import GradMode

_HEAD = """\
import contextlib
import torch
from contextlib import AsyncExitStack, ExitStack, contextmanager, nullcontext
from transformers import AutoModelForCausalLM

@contextmanager
def frozen():
    with torch.no_grad():
        yield

@contextmanager
def switched(mode):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(mode)
    try:
        yield
    finally:
        torch.set_grad_enabled(before)

@contextmanager
def timed():
    print("begin")
    yield
    print("end")

class Frozen:
    def __enter__(self):
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        return self
    def __exit__(self, *error):
        torch.set_grad_enabled(self.before)

class Held:
    def __init__(self):
        self.context = torch.no_grad()
    def __enter__(self):
        self.context.__enter__()
    def __exit__(self, kind, error, trace):
        self.context.__exit__(kind, error, trace)

class Timer:
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass

class Derived(torch.no_grad):
    pass

def without_gradients(function):
    def run(*args):
        with torch.no_grad():
            return function(*args)
    return run

def stop():
    torch.set_grad_enabled(False)

def go():
    torch.set_grad_enabled(True)

@torch.no_grad()
def decorated(model, batch):
    return model(**batch).logits

@torch.no_grad
def bare(model, batch):
    return model(**batch).logits

@torch.set_grad_enabled(False)
def set_off(model, batch):
    return model(**batch).logits

@torch.inference_mode()
def outer(model, batch):
    return logits(model, batch)

def logits(model, batch):
    return model(**batch).logits

@without_gradients
def wrapped(model, batch):
    return model(**batch).logits

"""
_LOOP = """\
def main(name, batches, flag, phase):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    for batch in batches:
        model.set_adapter("reference")
{reference}
        model.set_adapter("policy")
        policy = model(**batch).logits
        loss = (policy - reference).mean()
        loss.backward()
"""
_RUN = "reference = model(**batch).logits"
OFF = {
    "with": f"with torch.no_grad():\n    {_RUN}",
    "inference mode": f"with torch.inference_mode():\n    {_RUN}",
    "set_grad_enabled in a with": f"with torch.set_grad_enabled(False):\n    {_RUN}",
    "a context that is made before": f"off = torch.no_grad()\nwith off:\n    {_RUN}",
    "a name of its own": f"from torch import no_grad as off\nwith off():\n    {_RUN}",
    "statements": f"torch.set_grad_enabled(False)\n{_RUN}\ntorch.set_grad_enabled(True)",
    "statements in functions": f"stop()\n{_RUN}\ngo()",
    "try and finally": f"torch.set_grad_enabled(False)\ntry:\n    {_RUN}\nfinally:\n    torch.set_grad_enabled(True)",
    "the mode before": "before = torch.is_grad_enabled()\ntorch.set_grad_enabled(False)\n"
    f"{_RUN}\ntorch.set_grad_enabled(before)",
    "a stack": f"with ExitStack() as stack:\n    stack.enter_context(torch.no_grad())\n    {_RUN}",
    "a stack under a condition": "with ExitStack() as stack:\n    stack.enter_context(torch.no_grad())\n"
    f"    if flag:\n        stack.enter_context(timed())\n    {_RUN}",
    "a stack that is closed": f"stack = contextlib.ExitStack()\nstack.enter_context(torch.no_grad())\n{_RUN}\nstack.close()",
    "a stack with a callback": "with ExitStack() as stack:\n    torch.set_grad_enabled(False)\n"
    f"    stack.callback(torch.set_grad_enabled, True)\n    {_RUN}",
    "an own manager on a stack": f"with ExitStack() as stack:\n    stack.enter_context(frozen())\n    {_RUN}",
    "entered by hand": f"off = torch.no_grad()\noff.__enter__()\n{_RUN}\noff.__exit__(None, None, None)",
    "an own manager": f"with frozen():\n    {_RUN}",
    "an own manager that sets the mode": f"with switched(False):\n    {_RUN}",
    "own managers in one statement": f"with timed(), frozen():\n    {_RUN}",
    "the other order": f"with frozen(), timed():\n    {_RUN}",
    "an own manager with a name": f"with frozen() as nothing:\n    {_RUN}",
    "an own class": f"with Frozen():\n    {_RUN}",
    "an own class that holds a context": f"with Held():\n    {_RUN}",
    "a class of its own kind": f"with Derived():\n    {_RUN}",
    "a decorator": "reference = decorated(model, batch)",
    "a decorator without a call": "reference = bare(model, batch)",
    "a decorator that sets the mode": "reference = set_off(model, batch)",
    "a decorator of the caller": "reference = outer(model, batch)",
    "an own decorator": "reference = wrapped(model, batch)",
    "a switch that is open": f'with torch.set_grad_enabled(phase == "train"):\n    {_RUN}',
    "a choice": f"with torch.no_grad() if flag else nullcontext():\n    {_RUN}",
}
ON = {
    "no context": _RUN,
    "switched on again": f"torch.set_grad_enabled(False)\ntorch.set_grad_enabled(True)\n{_RUN}",
    "after the block": f"with torch.no_grad():\n    pass\n{_RUN}",
    "after the stack": f"with ExitStack() as stack:\n    stack.enter_context(torch.no_grad())\n{_RUN}",
    "after the own manager": f"with frozen():\n    pass\n{_RUN}",
    "after the own manager that sets the mode": f"with switched(False):\n    pass\n{_RUN}",
    "after the own class": f"with Frozen():\n    pass\n{_RUN}",
    "after the held context": f"with Held():\n    pass\n{_RUN}",
    "a call of the generator alone": f"frozen()\n{_RUN}",
    "a manager without an effect": f"with timed():\n    {_RUN}",
    "a manager that switches on": f"with switched(True):\n    {_RUN}",
    "a class without an effect": f"with Timer():\n    {_RUN}",
    "set to on": f"with torch.set_grad_enabled(True):\n    {_RUN}",
    "switched on inside": f"with torch.no_grad():\n    with torch.enable_grad():\n        {_RUN}",
    "a stack of something else": f"with ExitStack() as stack:\n    stack.enter_context(timed())\n    {_RUN}",
    "after a decorated function": f"decorated(model, batch)\n{_RUN}",
    "a manager that is entered often": "with frozen():\n    pass\n" * 8 + _RUN,
}


def _program(reference: str) -> str:
    return _HEAD + _LOOP.format(reference="\n".join(f"        {line}" for line in reference.splitlines()))


@pytest.mark.parametrize("reference", OFF.values(), ids=OFF.keys())
def test_a_forward_pass_without_gradients_feeds_no_backward_pass(reference):
    assert [it.code for it in check_source(_program(reference), "a.py") if it.code == "CKPT114"] == []


@pytest.mark.parametrize("reference", ON.values(), ids=ON.keys())
def test_a_forward_pass_with_gradients_does(reference):
    code = _program(reference)
    found = [it.span.line for it in check_source(code, "a.py") if it.code == "CKPT114"]
    assert found == [code.splitlines().index('        model.set_adapter("policy")') + 1]


def test_the_ninth_entering_of_one_manager_counts_too():
    reference = "with frozen():\n    pass\n" * 8 + f"with frozen():\n    {_RUN}"
    assert [it.code for it in check_source(_program(reference), "a.py") if it.code == "CKPT114"] == []


MODES = {
    "branches that differ": ("if flag:\n    torch.set_grad_enabled(False)\nprobe()", GradMode.OPEN),
    "branches that agree": (
        "if flag:\n    torch.set_grad_enabled(False)\nelse:\n    torch.set_grad_enabled(False)\nprobe()",
        GradMode.OFF,
    ),
    "a branch that leaves": ("if flag:\n    torch.set_grad_enabled(False)\n    raise SystemExit\nprobe()", GradMode.ON),
    "a case": (
        "match flag:\n    case 1:\n        torch.set_grad_enabled(False)\n    case _:\n        pass\nprobe()",
        GradMode.OPEN,
    ),
    "a loop": ("for x in flag:\n    torch.set_grad_enabled(False)\nprobe()", GradMode.OPEN),
    "a loop of one": ("for x in [1]:\n    torch.set_grad_enabled(False)\nprobe()", GradMode.OFF),
    "a handler": ("try:\n    torch.set_grad_enabled(False)\nexcept OSError:\n    pass\nprobe()", GradMode.OPEN),
    "inference mode off": ("with torch.inference_mode(False):\n    probe()", GradMode.ON),
    "inference mode open": ("with torch.inference_mode(flag):\n    probe()", GradMode.OPEN),
    "a choice of contexts": ("with torch.no_grad() if flag else torch.enable_grad():\n    probe()", GradMode.EITHER),
    "a manager with a condition": (
        "import contextlib\n@contextlib.contextmanager\ndef maybe(on):\n    if on:\n        with torch.no_grad():\n"
        "            yield\n    else:\n        yield\nwith maybe(flag):\n    probe()",
        GradMode.OPEN,
    ),
    "the condition given": (
        "import contextlib\n@contextlib.contextmanager\ndef maybe(on):\n    if on:\n        with torch.no_grad():\n"
        "            yield\n    else:\n        yield\nwith maybe(True):\n    probe()",
        GradMode.OFF,
    ),
    "a manager that checks first": (
        "import contextlib\n@contextlib.contextmanager\ndef off(on):\n    if not on:\n        raise ValueError\n"
        "    with torch.no_grad():\n        yield\nwith off(flag):\n    probe()",
        GradMode.OFF,
    ),
    "off for the whole file": ("torch.set_grad_enabled(False)\ndef later(model):\n    probe()", GradMode.EITHER),
    "a stack of a helper": ("def enter(stack):\n    stack.enter_context(torch.no_grad())\n    probe()", GradMode.OPEN),
}

_OFTEN = """\
import contextlib

@contextlib.contextmanager
def grads(on):
    with torch.set_grad_enabled(on):
        yield

@contextlib.contextmanager
def maybe(on):
    if on:
        yield
    else:
        with torch.no_grad():
            yield

class Stage:
    def __init__(self, trains):
        self.trains = trains
    def run(self, probe):
        context = maybe(self.trains)
        with context:
            probe()

class Frozen:
    def __enter__(self):
        self.before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
    def __exit__(self, *error):
        torch.set_grad_enabled(self.before)

class Always:
    def __enter__(self):
        torch.set_grad_enabled(False)
    def __exit__(self, *error):
        torch.set_grad_enabled(True)

def turn(on):
    torch.set_grad_enabled(on)

def train():
    torch.set_grad_enabled(True)

"""
#: What functions do that are called more often than each is walked.
OFTEN = {
    "a manager, at last with another argument": ("with grads(False):\n    pass\n" * 4, "with grads(True):", GradMode.OPEN),
    "a manager, always with the same": ("with grads(False):\n    pass\n" * 4, "with grads(False):", GradMode.OFF),
    "one call of a manager for two objects": ("Stage(False).run(print)\n", "Stage(True).run(probe)", GradMode.ON),
    "a class inside of no_grad": ("with Frozen():\n    pass\n" * 4 + "torch.set_grad_enabled(False)\nwith Frozen():\n    pass\n", "", GradMode.OFF),
    "a class that sets a constant": ("with Always():\n    pass\n" * 5, "", GradMode.ON),
    "a switch, at last with another argument": ("turn(True)\n" * 4, "turn(False)", GradMode.OPEN),
    "a switch, both ways before": ("turn(True)\nturn(False)\n" * 3, "turn(True)", GradMode.ON),
    "a switch to the mode it was in": ("train()\n" * 4 + "torch.set_grad_enabled(False)\n", "train()", GradMode.ON),
}  # fmt: skip


@pytest.mark.parametrize(("before", "last", "mode"), OFTEN.values(), ids=OFTEN.keys())
def test_functions_that_are_called_often(before, last, mode):
    probe = f"{last}\n    probe()\n" if last.endswith(":") else f"{last}\nprobe()\n"
    probe = last + "\n" if "probe" in last else probe
    program = read_program(f"import torch\nfrom somewhere import probe\n{_OFTEN}{before}{probe}", "a.py")
    (found,) = (call for call in program.calls if call.name == "somewhere.probe")
    assert found.grad_mode is mode


_TRAINED = """\
import torch
from transformers import AutoModelForCausalLM

def train(name, batches, args):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    for phase in ("train", "val"):
        {switch}
        for batch in batches:
            loss = model(**batch).loss
            {between}
            if phase == "train":
                model.set_adapter("other")
                loss.backward()
"""


@pytest.mark.parametrize("value", ['phase == "train"', "args.train"])
def test_a_backward_pass_shows_that_gradients_are_on_since_the_last_switch(value):
    switch = f"torch.set_grad_enabled({value})"
    codes = [it.code for it in check_source(_TRAINED.format(switch=switch, between=""), "a.py")]
    assert "CKPT114" in codes
    back_on = _TRAINED.format(switch=switch, between="torch.set_grad_enabled(True)")
    assert "CKPT114" not in [it.code for it in check_source(back_on, "a.py")]


@pytest.mark.parametrize(("code", "mode"), MODES.values(), ids=MODES.keys())
def test_the_mode_where_ways_meet(code, mode):
    program = read_program(f"import torch\nfrom somewhere import flag, probe\n{code}\n", "a.py")
    (probe,) = (call for call in program.calls if call.name == "somewhere.probe")
    statement = next(node for node in ast.walk(program.tree) if isinstance(node, ast.Expr) and node.value is probe.node)
    assert probe.grad_mode is mode
    assert program.grad.is_off_at(statement) is (mode is GradMode.OFF)


def test_the_body_runs_between_the_two_halves_of_a_manager():
    program = read_program(
        "import contextlib\nfrom somewhere import first, body, last\n@contextlib.contextmanager\ndef around():\n"
        "    first()\n    try:\n        yield 3\n    finally:\n        last()\n"
        "with around() as given:\n    body(given)\n",
        "a.py",
    )
    run = [call for call in program.calls if call.name.startswith("somewhere.")]
    assert [call.name.rpartition(".")[2] for call in sorted(run, key=lambda call: call.order)] == [
        "first",
        "body",
        "last",
    ]
    assert run[1].args[0].value == 3


_NET = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)

"""
_MOE = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
{imported}

class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Linear(8, 8)
        self.aux = 0.0
    def part(self, x):
        y = self.block(x)
        self.aux = self.aux + y.mean()
        return y
    def forward(self, x):
        return checkpoint(self.part, x, use_reentrant=True)

moe = Moe()

def run(x):
    loss = moe(x.requires_grad_()).sum()
    loss.backward()
    with {context}:
        total = moe.aux + 1
    return total
"""


def test_a_name_that_is_given_another_value_without_gradients_feeds_no_loss_any_more():
    code = _NET + (
        "def run(x, head):\n    for _ in range(3):\n        pred = net(x)\n        opt.step()\n"
        "        {switch}\n            pred = net(x)\n        loss = (head(x) - pred).pow(2).mean()\n        loss.backward()\n"
    )
    assert "CKPT114" not in _codes(code.format(switch="with torch.no_grad():"))
    # Which of the branches gave the value is open.
    branch = (
        "def run(x, head, flag):\n    if flag:\n        pred = net(x)\n        opt.step()\n    else:\n"
        "        with torch.no_grad():\n            pred = net(x)\n    pred.mean().backward()\n"
    )
    assert "CKPT114" in _codes(_NET + branch)


@pytest.mark.parametrize(
    ("imported", "context", "found"),
    [
        ("from compat import no_grad", "no_grad()", False),
        ("from mylib.utils import misc", "misc.no_grad()", False),
        ("from mylib.utils import misc", "misc.maybe_inference_mode()", False),
        ("from mylib.utils import disable_grad", "disable_grad()", False),
        ("from mylib.utils import misc", "misc.timed()", True),
    ],
)
def test_a_context_from_elsewhere_is_known_by_its_name(imported, context, found):
    assert ("CKPT113" in _codes(_MOE.format(imported=imported, context=context))) is found


def test_gradients_that_are_on_again_inside_of_a_function_without_them():
    code = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Runner(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Linear(8, 8)
        self.seen = []
    @torch.no_grad()
    def part(self, x):
        {context}
            self.seen.append(self.block(x))
        return x
    def forward(self, x):
        checkpoint(self.part, x, use_reentrant=False)
        return sum(self.seen)
"""
    assert "CKPT209" not in _codes(code.format(context="with torch.enable_grad():"))
    assert "CKPT209" in _codes(code.format(context="if True:"))


_STEP = "def train(x):\n    out = net(x)\n    opt.step()\n    out.mean().backward()\n"


@pytest.mark.parametrize("end", ["exit()", "quit(1)", "sys.exit()", "os._exit(0)"])
def test_a_branch_that_ends_the_program_leaves_no_mode_behind(end):
    program = read_program(
        f"import os, sys, torch\nfrom somewhere import flag, probe\nif flag:\n    torch.set_grad_enabled(False)\n    {end}\nprobe()\n",
        "a.py",
    )
    (probe,) = (call for call in program.calls if call.name == "somewhere.probe")
    assert probe.grad_mode is GradMode.ON
    code = f"import os, sys\n{_NET}def main(x, flag):\n    if flag:\n        {end}\n    train(x)\n{_STEP}"
    assert "CKPT114" in _codes(code)


def test_the_main_block_switches_nothing_for_functions_that_it_does_not_call():
    main = 'if __name__ == "__main__":\n    torch.set_grad_enabled(False)\n    print(net(torch.ones(2, 8)))\n'
    assert "CKPT114" in _codes(_NET + _STEP + main)
    assert "CKPT114" in _codes(f"import sys\n{_NET}{main}    sys.exit()\n{_STEP}")


_ENTERED = """\
class Evaluating:
    def __init__(self, model, shadow):
        self.model, self.shadow = model, shadow
    def __enter__(self):
        {change}
        return self.model
    def __exit__(self, *error):
        {back}

def set_train(model):
    model.train()

shadow = net.state_dict()

def run(x):
    set_train(net)
    set_train(net)
    set_train(net)
    set_train(net)
    out = net(x)
    with Evaluating(net, shadow) as model, torch.no_grad():
        teacher = model(x)
{behind}
    loss = (out - teacher).pow(2).mean()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("change", "back", "behind", "found"),
    [
        ("self.model.eval()", "set_train(self.model)", "", False),
        ("self.model.eval()", "self.model.train()", "", False),
        ("self.model.eval()", "pass", "", True),
        ("self.model.eval()", "set_train(self.model)", "        out.mean().backward()", True),
        (
            "self.model.load_state_dict(self.shadow)",
            "[p.copy_(self.shadow[k]) for k, p in self.model.state_dict().items()]",
            "",
            False,
        ),
    ],
)
def test_a_change_that_an_exit_may_take_back_unseen(change, back, behind, found):
    code = _NET + _ENTERED.format(change=change, back=back, behind=behind)
    assert ("CKPT114" in _codes(code)) is found


def _codes(code: str) -> list[str]:
    return [it.code for it in check_source(code, "a.py")]


@pytest.mark.parametrize(
    "built", ["net = Net()", "net = Net().eval()", "def make():\n    return Net()\n\nnet = make()", ""]
)
def test_a_module_that_ends_without_gradients_says_nothing_of_functions_that_nothing_calls(built):
    code = (
        "import torch\nimport torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\n\n"
        "torch.set_grad_enabled(False)\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.block, self.kept = nn.Linear(4, 4), []\n\n    def remember(self, x):\n"
        "        self.kept.append(self.block(x))\n\n    def forward(self, x):\n"
        "        checkpoint(self.remember, x, use_reentrant=False)\n        return self.kept[-1]\n\n"
    )
    assert check_source(f"{code}{built}\n") == []
