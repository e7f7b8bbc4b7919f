"""A checkpoint around one light layer is told where the file itself says that it is one."""

from __future__ import annotations

from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.project.local_modules import LocalModules

WRAPPER = """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Checkpointed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return checkpoint(self.module, x, use_reentrant=False)
"""
USE = "net = Checkpointed(nn.Linear(8, 8))\n"


def test_in_one_file_it_is_told():
    assert [finding.code for finding in check_source(WRAPPER + USE)] == ["CKPT403"]


def test_a_wrapper_in_a_file_of_its_own_runs_other_modules_too(tmp_path):
    (tmp_path / "wrapper.py").write_text(WRAPPER)
    script = tmp_path / "test_wrapper.py"
    script.write_text("import torch.nn as nn\nfrom wrapper import Checkpointed\n" + USE)
    find = LocalModules(str(script))
    assert not check_source(script.read_text(), str(script), find_module=find, reported=lambda file: True)
