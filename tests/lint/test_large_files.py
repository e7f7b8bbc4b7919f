"""Generated code: many calls, long chains, deep nesting. None of it ends in an internal error or takes minutes."""

import sys

import pytest
from hf_ckpt.lint.analysis.check_file import check_bytes
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.explain.files import explain_files
from hf_ckpt.lint.project.settings import Settings

HEAD = "from torch.utils.checkpoint import checkpoint\n\n\ndef forward(block, x, k):\n    y = checkpoint(block, x)\n"
DEEP = {
    "5,000 elif": "    if k < 0:\n        pass\n"
    + "".join(f"    elif k == {i}:\n        z = {i}\n" for i in range(5_000)),
    "a sum of 5,000 terms": f"    z = {' + '.join(f'a{i}' for i in range(5_000))}\n",
    "a chain of 5,000 calls": f"    z = x{'.a()' * 5_000}\n",
    "a condition of 5,000 parts": f"    z = {' and '.join(f'a{i} or b{i}' for i in range(5_000))}\n",
    "5,000 contexts in one statement": f"    with {', '.join(f'c as a{i}' for i in range(5_000))}:\n        z = x\n",
    "600 calls in one with": f"    with {', '.join(f'open({i!r}) as a{i}' for i in range(600))}:\n        z = x\n",
    "90 patterns in one another": f"    match k:\n        case {'[' * 90}z{']' * 90}:\n            pass\n",
    "5,000 conditional values": f"    z = {'k if x else ' * 5_000}x\n",
    "5,000 times not": f"    z = {'not ' * 5_000}x\n",
    "5,000 comparisons in one": f"    z = k{' < x' * 5_000}\n",
    "150 parentheses": f"    z = {'(' * 150}x{')' * 150}\n",
}


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP.keys())
def test_deep_code_is_checked(body):
    checked = check_bytes(Job("deep.py", Settings()), f"{HEAD}{body}    return y\n".encode())
    assert checked.result.failure is None
    assert [(finding.code, finding.span.line) for finding in checked.result.findings] == [("CKPT101", 5)]
    assert sys.getrecursionlimit() < 10_000


@pytest.mark.parametrize("body", ["a sum of 5,000 terms", "5,000 elif", "5,000 contexts in one statement"])
def test_deep_code_is_explained(tmp_path, capsys, body):
    (tmp_path / "deep.py").write_text(f"{HEAD}{DEEP[body]}    return y\n")
    assert explain_files([str(tmp_path / "deep.py")], "text") == 0
    assert "checkpoints a region of its own" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["lambda: " * 5_000 + "x", "x" + " ** k" * 5_000])
def test_what_pythons_own_parser_refuses_is_said(tmp_path, capsys, value):
    text = f"{HEAD}    z = {value}\n    return y\n"
    [finding] = check_bytes(Job("deep.py", Settings()), text.encode()).result.findings
    assert finding.code == "CKPT903"
    assert "nested more deeply than its parser allows" in finding.message
    (tmp_path / "deep.py").write_text(text)
    assert explain_files([str(tmp_path / "deep.py")], "text") == 2
    assert "deep.py:1: not valid Python" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["a += b; b += a", "a = a + b; b = b + a", "a.extend(b); b.extend(a)"])
def test_lists_that_are_added_to_each_other_end(step):
    code = (
        "import torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        a, b = [nn.BatchNorm1d(1)], [nn.Linear(1, 1)]\n"
        + f"        {step}\n"
        * 30
        + "        self.block = nn.Sequential(*a)\n\n    def forward(self, x):\n"
        "        return checkpoint(self.block, x, use_reentrant=False)\n"
    )
    assert [finding.code for finding in check_source(code, "generated.py")] == ["CKPT106"]


def functions(count):
    return "".join(
        f"def forward{i}(block, x):\n    y = checkpoint(block, x, use_reentrant=False)\n    return y + {i}\n\n"
        for i in range(count)
    )


def branches(count):
    pairs = (
        "        if self.training:\n            x = checkpoint(self.block, x, use_reentrant=False)\n"
        "        else:\n            x = self.block(x)\n"
    )
    return (
        "import torch.nn as nn\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n\n    def forward(self, x):\n"
        f"{pairs * count}        return x\n"
    )


def chosen_layers(count):
    pairs = "".join(
        f"            if norm == {i}:\n                layers += [nn.BatchNorm1d(v)]\n" for i in range(count)
    )
    return (
        "import torch.nn as nn\n\nclass Model(nn.Module):\n    def __init__(self, norm, sizes):\n        super().__init__()\n"
        f"        layers = []\n        for v in sizes:\n{pairs}        self.block = nn.Sequential(*layers)\n\n"
        "    def forward(self, x):\n        return checkpoint(self.block, x, use_reentrant=False)\n"
    )


def training_steps(count):
    steps = "".join(
        f"        x{i} = model(**batch).logits\n        y{i} = x{i}.detach()\n        z{i} = model(**batch).loss\n"
        f"        z{i}.backward()\n        optimizer.step()\n"
        for i in range(count)
    )
    return (
        "import torch\nfrom transformers import AutoModelForCausalLM\n\ndef main(name, batches):\n"
        "    model = AutoModelForCausalLM.from_pretrained(name).train()\n    model.gradient_checkpointing_enable()\n"
        f"    optimizer = torch.optim.SGD(model.parameters())\n    for batch in batches:\n{steps}"
    )


def chained_losses(count):
    added = "".join(f"        loss{i} = model(**batch).loss\n        total = total + loss{i}\n" for i in range(count))
    return (
        "import torch\nfrom transformers import AutoModelForCausalLM\n\ndef main(name, batches):\n"
        "    model = AutoModelForCausalLM.from_pretrained(name).train()\n    model.gradient_checkpointing_enable()\n"
        "    optimizer = torch.optim.SGD(model.parameters())\n    total = 0\n    for batch in batches:\n"
        f"{added}        total.backward()\n        optimizer.step()\n"
    )


def returned_losses(count):
    head, _, steps = chained_losses(count).partition("    for batch in batches:\n")
    added, _, ending = steps.partition("        total.backward()\n")
    function = f"def loss_of(model, batch):\n        total = 0\n{added}        return total\n\n"
    return f"{function}{head}    for batch in batches:\n        loss_of(model, batch).backward()\n{ending}"


def chained_checkpoints(count):
    added = "".join(
        f"    loss{i} = checkpoint(block, x, use_reentrant=False).sum()\n    total = total + loss{i}\n"
        for i in range(count)
    )
    return f"def step(block, x, optimizer):\n    total = 0\n{added}    total.backward()\n    optimizer.step()\n"


def chosen_norms(count):
    pairs = "".join(
        f"            kept{i} = v + {i}\n            if norm == {i}:\n                layers += [nn.BatchNorm1d(v)]\n"
        "            else:\n                layers += [nn.Linear(v, v)]\n"
        for i in range(count)
    )
    return chosen_layers(0).replace("        for v in sizes:\n", f"        for v in sizes:\n{pairs}")


def accelerators(count):
    return "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n" + "".join(
        f"def run{i}(model):\n"
        "    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)\n"
        "    return Accelerator(fsdp_plugin=plugin).prepare(model)\n\n"
        for i in range(count)
    )


def trained_models(count):
    return "import torch\nfrom transformers import AutoModelForCausalLM\n" + "".join(
        f"def run{i}(name, batches):\n    model = AutoModelForCausalLM.from_pretrained(name).train()\n"
        "    for parameter in model.model.parameters():\n        parameter.requires_grad = False\n"
        "    model.gradient_checkpointing_enable()\n    optimizer = torch.optim.SGD(model.parameters())\n"
        "    for batch in batches:\n        model(**batch).loss.backward()\n        optimizer.step()\n"
        "    model.eval()\n    return model.generate(batches)\n\n"
        for i in range(count)
    )


def changed_inputs(count):
    steps = "".join(
        f"        y{i} = checkpoint(self.block, x{i}, use_reentrant=False)\n        x{i} += y{i}\n"
        for i in range(count)
    )
    names = ", ".join(f"x{i}" for i in range(count))
    return (
        "import torch.nn as nn\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.block = nn.Linear(8, 8)\n\n    def forward(self, {names}):\n{steps}        return x0\n"
    )


def steps_of(text):
    """How many calls of functions the analysis of ``text`` takes: a measure that no other process disturbs."""
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        steps += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        check_source(text, "generated.py")
    finally:
        sys.setprofile(before)
    return steps


PROGRAMS = (
    *(functions, branches, chosen_layers, chosen_norms, training_steps),
    *(chained_losses, returned_losses, chained_checkpoints, accelerators),
    *(trained_models, changed_inputs),
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_twice_as_many_checkpoints_cost_twice_as_much(program):
    head = "from torch.utils.checkpoint import checkpoint\n"
    steps_of(head + program(2))  # what is imported and cached on the way
    small, large = (steps_of(head + program(count)) for count in (100, 200))
    assert large < 2.3 * small
