"""Whatever the text: no crash, places inside the text, fixes that leave valid Python or nothing changed.

Programs come from Python's grammar (hypothesmith) and from real scripts cut and spliced at random. A few hundred run
always, ten thousand under the slow marker.
"""

import ast
import os
import random
from importlib.util import find_spec

import pytest
from hf_ckpt.lint.analysis.check_file import check_bytes
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.catalogue.rules import all_rules
from hf_ckpt.lint.fix.files import rewrite_bytes
from hf_ckpt.lint.fix.transforms import fixing
from hf_ckpt.lint.output.formats import render
from hf_ckpt.lint.output.report import build_report
from hf_ckpt.lint.project.settings import Settings
from hf_ckpt.lint.sources.lines import split_lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Generated programs call literals and the like; hypothesmith compiles them.
pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")

#: Everything is on, so that every rule meets every program.
EVERYTHING = Settings(select=("ALL",))
PREAMBLE = """\
import torch, transformers, functools
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", gradient_checkpointing=True)
model.gradient_checkpointing_enable()
"""
WORDS = (
    *("checkpoint", "(", ")", "[", "]", "{", "}", ",", ":", "=", "*", "**", ".", "\n", "    ", "\\", '"', "'''", "#"),
    *("lambda x: ", "for x in y:", "def f(x):", "class A(torch.nn.Module):", "return ", "yield ", "await ", "if x:"),
    *("use_reentrant=False", "**kwargs", "*args", "model", "args.gradient_checkpointing = ", "functools.partial", ":="),
    *("# noqa: CKPT101", "# ckpt-lint: ignore[CKPT101]", "\t", "\r\n", "\x0c", "\u2028", "ü", "\0", "match x:", "del "),
)


def holds(text):
    """Check ``text`` and fix it; assert what must hold for every text."""
    data = text.encode("utf-8", "surrogatepass")
    result = check_bytes(Job("x.py", EVERYTHING), data).result
    assert result.failure is None or "RecursionError" in result.failure, result.failure
    fixed = rewrite_bytes(Job("x.py", EVERYTHING), data, fixing(unsafe=True))
    if fixed.after != data:
        ast.parse(fixed.after)
    lines = split_lines(text)
    for finding in result.findings:
        for span in (finding.span, *(edit.span for edit in (finding.fix.edits if finding.fix else ()))):
            assert 1 <= span.line <= span.end_line <= len(lines) + 1
            assert (span.line, span.column) <= (span.end_line, span.end_column)
            if span.line <= len(lines) and "�" not in text:
                assert 1 <= span.column <= len(lines[span.line - 1]) + 2
    report = build_report([result], (("x.py", data),))
    for name in ("full", "json", "sarif", "github"):
        assert isinstance(render(report, name), str)
    return result


@st.deferred
def grammar_programs():
    import hypothesmith  # reads Python's grammar for seconds, in every process that collects tests

    return hypothesmith.from_grammar().map(lambda text: PREAMBLE + text.replace("A", "checkpoint"))


def real_texts():
    """Examples of all rules, and scripts of installed packages that use the libraries we know."""
    texts = [block.partition("```")[0] for rule in all_rules() for block in rule.page.split("```python\n")[1:]]
    for package in ("trl", "peft", "accelerate"):
        spec = find_spec(package)
        for folder in spec.submodule_search_locations if spec else ():
            texts += list(_scripts(folder))
    return texts


def _scripts(folder):
    paths = sorted(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    for path in (path for path in paths if path.endswith(".py")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if "checkpointing" in text and len(text) < 30_000:
            yield text


def mutate(texts, choose):
    """A text of ``texts``, or two spliced, with some lines and words changed."""
    lines = choose.choice(texts).splitlines(keepends=True)
    start = choose.randrange(max(len(lines) - 1, 1))
    lines = lines[:8] + lines[start : start + choose.randrange(1, 60)]
    if choose.random() < 0.3:
        lines += choose.choice(texts).splitlines(keepends=True)[: choose.randrange(1, 40)]
    for _ in range(choose.randrange(6)):
        at = choose.randrange(len(lines)) if lines else 0
        match choose.randrange(5):
            case 0 if lines:
                del lines[at]
            case 1 if lines:
                lines.insert(at, choose.choice(lines))
            case 2 if lines:
                cut = choose.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + choose.choice(WORDS) + lines[at][cut:]
            case 3 if lines:
                cut, length = choose.randrange(len(lines[at]) + 1), choose.randrange(8)
                lines[at] = lines[at][:cut] + lines[at][cut + length :]
            case _:
                lines.insert(at, PREAMBLE)
    return "".join(lines)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammar_programs)
def test_programs_of_the_grammar(text):
    holds(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25).map("".join))
def test_words_in_any_order(text):
    holds(PREAMBLE + text)
    holds(text)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes(data):
    text = b"# checkpoint gradient_checkpointing torch.utils.checkpoint\n" + data
    for name in ("x.py", "x.ipynb"):
        assert check_bytes(Job(name, EVERYTHING), text).result.failure is None


def test_mutated_scripts():
    texts, choose = real_texts(), random.Random(0)
    for _ in range(150):
        holds(mutate(texts, choose))


@pytest.mark.slow(minutes=3)
@pytest.mark.parametrize("part", range(4))
def test_eight_thousand_mutated_scripts(part):
    texts, choose = real_texts(), random.Random(1 + part)
    reached = 0
    for _ in range(2_000):
        result = holds(mutate(texts, choose))
        reached += any(finding.code != "CKPT903" for finding in result.findings)
    assert reached > 25  # the fuzzing reaches rules, not only the parser


@pytest.mark.slow(minutes=3)
@pytest.mark.parametrize("part", range(4))
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=grammar_programs)
def test_two_thousand_programs_of_the_grammar(part, text):
    holds(text)


def test_module_lists_that_contain_themselves_come_to_an_end():
    code = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(self.layers)
        self.layers.extend([self.layers, *self.layers])

    def forward(self, x):
        return checkpoint(self.layers[0], x, use_reentrant=True)
"""
    assert check_bytes(Job("a.py", Settings(select=("ALL",))), code.encode()).result.failure is None


def test_methods_that_call_each_other_come_to_an_end():
    found = check_source("""
import torch
from torch.utils.checkpoint import checkpoint

class Walker:
    def __init__(self, parts):
        self.parts = parts

    def step(self, x, depth):
        return self.deeper(x, depth)

    def deeper(self, x, depth):
        return self.step(x, depth - 1) if depth else x.sin()

    def run(self, x):
        return checkpoint(self.step, x, 3, use_reentrant=True)

Walker([]).run(torch.randn(4, requires_grad=True)).sum().backward()
""")
    assert found == []
