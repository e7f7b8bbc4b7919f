"""A question about the whole program is asked of every file of it that was read."""

from __future__ import annotations

import textwrap

import pytest
from command import ckpt_lint

ENTRY = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from trainer import main
from transformers import AutoModel

if __name__ == "__main__":
    main()
"""
CACHE_OFF = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def main():
    model = LlamaForCausalLM.from_pretrained("base").train()
    SWITCH
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for ids in (1, 2):
        model(input_ids=ids, labels=ids).loss.backward()
"""
SUPPORT_PATCHED = """
from transformers import AutoModel
from transformers.models.mpnet import modeling_mpnet

def main():
    PATCH
    AutoModel.from_pretrained("microsoft/mpnet-base").gradient_checkpointing_enable()
"""


def codes(tmp_path, trainer: str) -> list[str]:
    (tmp_path / "trainer.py").write_text(textwrap.dedent(trainer))
    (tmp_path / "run.py").write_text(ENTRY)
    return reported(tmp_path)


def reported(tmp_path, path: str = ".") -> list[str]:
    printed = ckpt_lint("check", "--isolated", "--no-cache", "--output-format", "concise", path, cwd=tmp_path)
    return [word.rstrip(":") for word in printed.stdout.split() if word.startswith("CKPT")]


@pytest.mark.parametrize(
    ("switch", "expected"), [("model.config.use_cache = False", []), ("model.config.bos_token_id = 1", ["CKPT111"])]
)
def test_what_an_imported_module_switches_off(tmp_path, switch, expected):
    assert codes(tmp_path, CACHE_OFF.replace("SWITCH", switch)) == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [("modeling_mpnet.MPNetPreTrainedModel.supports_gradient_checkpointing = True", []), ("pass", ["CKPT308"])],
)
def test_what_an_imported_module_patches(tmp_path, patch, expected):
    assert codes(tmp_path, SUPPORT_PATCHED.replace("PATCH", patch)) == expected


FREEZING = """
import torch.nn as nn

class Frozen(nn.Module):
    def __init__(self, body=None):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self
"""
BLOCKS = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from backbones import Frozen

class Net(BASE):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
"""
MADE = """
net = Frozen(Net())
"""


def blocks(tmp_path, text: str) -> list[str]:
    (tmp_path / "backbones.py").write_text(FREEZING)
    (tmp_path / "net.py").write_text(text)
    return reported(tmp_path, "net.py")


def test_a_class_that_is_imported_and_never_made_freezes_nothing(tmp_path):
    assert blocks(tmp_path, BLOCKS.replace("BASE", "nn.Module")) == ["CKPT106"]


@pytest.mark.parametrize("text", [BLOCKS.replace("BASE", "Frozen"), BLOCKS.replace("BASE", "nn.Module") + MADE])
def test_a_class_that_is_made_or_derived_from_freezes_its_norms(tmp_path, text):
    assert blocks(tmp_path, text) == []


def test_a_class_that_a_registry_makes_freezes_the_norms_beside_it(tmp_path):
    freezing = FREEZING + BLOCKS.replace("BASE", "Frozen").replace("from backbones import Frozen\n", "")
    (tmp_path / "backbones.py").write_text(freezing + "\n\ndef build(name):\n    return globals()[name]()\n")
    script = "from backbones import Net, build\n\nbuild(input())(input()).sum().backward()\n"
    (tmp_path / "train.py").write_text(script)
    assert reported(tmp_path) == []


MAKER = """
from peft import prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

class Maker:
    def __call__(self):
        config = BitsAndBytesConfig(load_in_4bit=True)
        return prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained("base", quantization_config=config)GIVEN)
"""
LOOP = """
from package import Maker

model = Maker()()
model.train()
for batch in []:
    model(**batch).loss.backward()
"""


@pytest.mark.parametrize(
    ("given", "expected"), [("", ["CKPT103"]), (', gradient_checkpointing_kwargs={"use_reentrant": False}', [])]
)
def test_a_package_hands_on_what_prepares_the_model(tmp_path, given, expected):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from .making import Maker\n")
    (tmp_path / "package" / "making.py").write_text(textwrap.dedent(MAKER.replace("GIVEN", given)))
    (tmp_path / "run.py").write_text(LOOP)
    printed = ckpt_lint("check", "--isolated", "--no-cache", "--output-format", "concise", ".", cwd=tmp_path)
    assert [word.rstrip(":") for word in printed.stdout.split() if word.startswith("CKPT")] == expected


CHOSEN_NORM = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8) if norm == "bn" else nn.LayerNorm(8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
"""
RUN_OF_NET = "import sys\n\nimport torch\nfrom net import Net\n\nNet({})(torch.ones(2, 8)).sum().backward()\n"


def test_what_one_script_makes_certain_is_no_note_of_another_one(tmp_path):
    (tmp_path / "net.py").write_text(CHOSEN_NORM)
    (tmp_path / "a_open.py").write_text(RUN_OF_NET.format("sys.argv[1]"))
    (tmp_path / "b_certain.py").write_text(RUN_OF_NET.format('"bn"'))
    options = ("--isolated", "--no-cache", "--notes", "--output-format", "concise")
    printed = ckpt_lint("check", *options, ".", cwd=tmp_path).stdout
    assert "CKPT106 `BatchNorm1d`" in printed
    assert "if `norm`" not in printed
