"""What every fork that runs ckpt-lint would load again: libcst, the rules, the option parser, the formats."""

from __future__ import annotations

import pkgutil

import hf_ckpt.lint.cli.parser
import hf_ckpt.lint.output.formats
from hf_ckpt.lint import check_source

_MISTAKE = "from torch.utils.checkpoint import checkpoint\ncheckpoint(block, x)\n"

check_source(_MISTAKE)
for _package in (hf_ckpt.lint.cli, hf_ckpt.lint.output.formats):
    for _module in pkgutil.iter_modules(_package.__path__, f"{_package.__name__}."):
        __import__(_module.name)
