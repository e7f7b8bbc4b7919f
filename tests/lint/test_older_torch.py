"""A call that an older torch needs without `use_reentrant` is right, however the program asks for the release."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import inspect
import re
import sys
import torch
import torch.utils.checkpoint as cp
from packaging.version import Version
from torch.utils.checkpoint import checkpoint
"""

#: By how it is called: what is done at the top, and the condition under which the newer torch is there.
CONDITIONS = {
    "a pair of numbers": (
        "major, minor = (int(p) for p in torch.__version__.split('.')[:2])",
        "(major, minor) >= (1, 11)",
    ),
    "numbers by map": ("major, minor = map(int, torch.__version__.split('.')[:2])", "(major, minor) >= (1, 11)"),
    "a tuple": ("V = tuple(int(p) for p in torch.__version__.split('+')[0].split('.')[:2])", "V >= (1, 11)"),
    "the first number": ("major = int(torch.__version__.split('.')[0])", "major >= 2"),
    "one digit": ("", "int(torch.__version__[0]) > 1"),
    "numbers one by one": (
        "A, B = int(torch.__version__.split('.')[0]), int(torch.__version__.split('.')[1])",
        "A > 1 or (A == 1 and B >= 11)",
    ),
    "a float": ("v = float('.'.join(torch.__version__.split('.')[:2]))", "v > 1.1"),
    "a pattern": (
        "found = re.match(r'(\\d+)\\.(\\d+)', torch.__version__)\nV = int(found[1]), int(found[2])",
        "V >= (1, 11)",
    ),
    "an attribute of torch": ("", "hasattr(torch, 'compile')"),
    "an attribute of its module": ("", "hasattr(torch.utils.checkpoint, 'noop_context_fn')"),
    "a flag": ("NEW = hasattr(cp, 'set_checkpoint_early_stop')", "NEW"),
    "getattr": ("NEW = getattr(cp, 'noop_context_fn', None) is not None", "NEW"),
    "a flag by signature": ("TAKES = 'use_reentrant' in inspect.signature(checkpoint).parameters", "TAKES"),
    "what is imported": (
        "try:\n    from torch.utils.checkpoint import noop_context_fn\n    NEW = True\nexcept ImportError:\n    NEW = False",
        "NEW",
    ),
    "imported or None": (
        "try:\n    from torch.utils.checkpoint import noop_context_fn\nexcept ImportError:\n    noop_context_fn = None",
        "noop_context_fn is not None",
    ),
    "named": ("try:\n    torch.compile\n    NEW = True\nexcept AttributeError:\n    NEW = False", "NEW"),
    "tried": (
        "try:\n    checkpoint(abs, torch.ones(1), use_reentrant=False)\n    TAKES = True\nexcept Exception:\n    TAKES = False",
        "TAKES",
    ),
    "a helper that tries": (
        "def takes():\n    try:\n        checkpoint(abs, torch.ones(1), use_reentrant=False)\n        return True\n"
        "    except TypeError:\n        return False",
        "takes()",
    ),
    "a helper that imports": (
        "def new():\n    try:\n        from torch.utils.checkpoint import noop_context_fn\n    except ImportError:\n"
        "        return False\n    return True",
        "new()",
    ),
    "a flag of another file": (
        "from .compat import CHECKPOINT_SUPPORTS_USE_REENTRANT as unused",
        "SUPPORTS_USE_REENTRANT",
    ),
}

#: Conditions that say nothing about the release of torch.
OTHERS = {
    "a size": ("h, w = map(int, input().split('.'))", "(h, w) >= (64, 64)"),
    "Python": ("", "sys.version_info >= (3, 8)"),
    "an attribute of a block": ("", "hasattr(block, 'attention')"),
    "another vendor's backend": ("", "hasattr(torch, 'npu')"),
    "another library": (
        "try:\n    import flash_attn\n    FLASH = True\nexcept ImportError:\n    FLASH = False",
        "FLASH",
    ),
    "a switch": ("REENTRANT = bool(len(sys.argv))", "REENTRANT"),
}

BRANCHES = """
def run(block, x):
    if CONDITION:
        return checkpoint(block, x, use_reentrant=False)
    return checkpoint(block, x)
"""
EXPRESSION = """
def run(block, x):
    return checkpoint(block, x) if not (CONDITION) else checkpoint(block, x, use_reentrant=False)
"""
NEWER = """
def run(block, x):
    if CONDITION:
        return checkpoint(block, x)
    return block(x)
"""


def codes(*parts: str) -> list[str]:
    text = "\n".join((HEAD, *map(textwrap.dedent, parts)))
    return [finding.code for finding in check_source(text, "model.py") if finding.code == "CKPT101"]


@pytest.mark.parametrize("way", [BRANCHES, EXPRESSION], ids=["branches", "expression"])
@pytest.mark.parametrize(("top", "condition"), CONDITIONS.values(), ids=CONDITIONS)
def test_the_branch_for_an_older_torch_is_right(top, condition, way):
    assert codes(top, way.replace("CONDITION", condition)) == []


@pytest.mark.parametrize(("top", "condition"), OTHERS.values(), ids=OTHERS)
def test_other_conditions_are_no_question_of_the_release(top, condition):
    assert codes(top, BRANCHES.replace("CONDITION", condition)) == ["CKPT101"]


@pytest.mark.parametrize(
    "name", ["a pair of numbers", "the first number", "an attribute of torch", "a flag", "what is imported"]
)
def test_the_branch_for_a_newer_torch_is_not(name):
    top, condition = CONDITIONS[name]
    assert codes(top, NEWER.replace("CONDITION", condition)) == ["CKPT101"]


def test_a_name_that_newer_releases_lack_is_no_question_of_the_release():
    # torch 2.13 has no `_checkpoint_without_reentrant` any more: the plain call is the one that runs.
    top = "NEW = hasattr(cp, '_checkpoint_without_reentrant')"
    assert codes(top, BRANCHES.replace("CONDITION", "NEW")) == ["CKPT101"]


FALLBACKS = {
    "any error": "try:\n    TRIED\nexcept Exception:\n    PLAIN",
    "any error by name": "try:\n    TRIED\nexcept Exception as error:\n    print(error)\n    PLAIN",
    "everything": "try:\n    TRIED\nexcept:\n    PLAIN",
    "one of two errors": "try:\n    TRIED\nexcept (RuntimeError, TypeError):\n    PLAIN",
    "a message": (
        "try:\n    TRIED\nexcept Exception as error:\n    if 'use_reentrant' in str(error):\n        PLAIN\n    else:\n        raise"
    ),
    "passed over": "try:\n    TRIED\n    return out\nexcept Exception:\n    pass\nPLAIN",
    "None": "try:\n    TRIED\nexcept TypeError:\n    out = None\nif out is None:\n    PLAIN",
    "None before": "out = None\ntry:\n    TRIED\nexcept Exception:\n    pass\nif out is None:\n    PLAIN",
    "a flag": "try:\n    TRIED\n    done = True\nexcept TypeError:\n    done = False\nif not done:\n    PLAIN",
}


def _body(fallback: str, tried: str) -> str:
    inside = fallback.replace("TRIED", f"out = {tried}").replace("PLAIN", "out = checkpoint(block, x)")
    return "def run(block, x, fast):\n" + textwrap.indent(f"{inside}\nreturn out", "    ")


@pytest.mark.parametrize("fallback", FALLBACKS.values(), ids=FALLBACKS)
def test_what_follows_a_call_that_failed_is_for_an_older_torch(fallback):
    assert codes(_body(fallback, "checkpoint(block, x, use_reentrant=False)")) == []


@pytest.mark.parametrize(
    "fallback", [FALLBACKS[name] for name in ("any error", "everything", "passed over", "None before")]
)
def test_another_call_fails_for_another_reason(fallback):
    assert codes(_body(fallback, "fast(block, x)")) == ["CKPT101"]


@pytest.mark.parametrize("error", ["ValueError", "RuntimeError", "(KeyError, RuntimeError)"])
def test_an_older_torch_raises_another_error(error):
    body = _body(FALLBACKS["any error"], "checkpoint(block, x, use_reentrant=False)")
    assert codes(body.replace("except Exception", f"except {error}")) == ["CKPT101"]
