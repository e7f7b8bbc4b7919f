"""The prefilter loses nothing: with and without it the findings are the same."""

import os
from importlib.util import find_spec

import pytest
from hf_ckpt.lint import check as core
from hf_ckpt.lint.catalogue import all_rules
from hf_ckpt.lint.rules import load_rules
from hf_ckpt.lint.sift import may_have_findings

#: Packages whose sources are real uses of the libraries the rules know.
PACKAGES = ("accelerate", "peft", "trl")


def examples():
    return [block.partition("```")[0] for rule in all_rules() for block in rule.page.split("```python\n")[1:]]


def sources(package, every):
    spec = find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed")
    [root] = spec.submodule_search_locations
    paths = sorted(os.path.join(top, name) for top, _, names in os.walk(root) for name in names)
    for path in [path for path in paths if path.endswith(".py")][::every]:
        with open(path, encoding="utf-8") as file:
            yield file.read()


def assert_lossless(texts, monkeypatch):
    count = 0
    for text in texts:
        with_filter = core.check_source(text) if may_have_findings(text.encode(), every=False) else []
        with monkeypatch.context() as patch:
            patch.setattr(core, "candidates", lambda text, every: list(load_rules()))
            without = core.check_source(text)
        # A file that cannot hold a mistake is not parsed, so it is not said to be unparsable either.
        assert with_filter == [finding for finding in without if with_filter or finding.code != "CKPT903"]
        count += len(without)
    return count


def test_on_the_examples_of_all_rules(monkeypatch):
    assert assert_lossless(examples(), monkeypatch) >= len(load_rules())


@pytest.mark.parametrize("package", PACKAGES)
def test_on_some_real_sources(package, monkeypatch):
    assert_lossless(sources(package, every=10), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("package", [*PACKAGES, "transformers"])
def test_on_all_real_sources(package, monkeypatch):
    assert_lossless(sources(package, every=1), monkeypatch)


@pytest.mark.parametrize(
    "imports",
    [
        "from torch.utils import checkpoint",
        "from torch.utils import data, checkpoint as ckpt",
        "from torch.utils import (\n    data,\n    checkpoint,\n)",
        "from torch.utils import data, \\\n    checkpoint",
        "import torch.utils.checkpoint as ckpt",
    ],
)
def test_every_way_to_import_the_module_counts_as_its_name(imports):
    assert may_have_findings(f"{imports}\n".encode())


@pytest.mark.parametrize(
    "imports", ["from .utils import save_checkpoint", "from utils import (a, b)\ncheckpoint = 1", "import torch.utils"]
)
def test_another_import_from_utils_does_not(imports):
    assert not may_have_findings(f"{imports}\n".encode())


def test_rules_that_are_off_count_only_where_rules_are_selected():
    text = b"gradient_checkpointing = True\n"
    assert may_have_findings(text, every=True)
    assert not may_have_findings(text, every=False)
