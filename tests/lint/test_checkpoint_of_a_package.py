"""torch's `checkpoint` that a module of the project hands on is torch's, also where nothing else names it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint import check_paths

NET = """
class Net:
    def forward(self, x):
        for block in self.blocks:
            x = {name}(lambda h: block(h), x, use_reentrant=False)
        return x
"""
TORCH = "from torch.utils.checkpoint import checkpoint\n"


def found(folder, files: dict[str, str]) -> list[tuple[str, str]]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [(finding.code, finding.filename.rpartition("/")[2]) for finding in check_paths([folder / "net.py"])]


@pytest.mark.parametrize(
    ("files", "imported", "name"),
    [
        (
            {"common/__init__.py": "from .memory import *\n", "common/memory.py": TORCH},
            "from common import *",
            "checkpoint",
        ),
        (
            {"common/__init__.py": "from .memory import checkpoint\n", "common/memory.py": TORCH},
            "from common import checkpoint as ckpt",
            "ckpt",
        ),
        ({"common.py": TORCH}, "import common", "common.checkpoint"),
        (
            {"common.py": TORCH + "def run_ckpt(f, *args, **kwargs):\n    return checkpoint(f, *args, **kwargs)\n"},
            "from common import run_ckpt",
            "run_ckpt",
        ),
    ],
)
def test_it_is_torchs(tmp_path, files: dict[str, str], imported: str, name: str) -> None:
    assert found(tmp_path, {**files, "net.py": imported + NET.format(name=name)}) == [("CKPT105", "net.py")]


def test_a_checkpoint_of_the_project_is_not(tmp_path) -> None:
    own = "def checkpoint(function, *args, **kwargs):\n    return function(*args)\n"
    assert (
        found(tmp_path, {"common.py": own, "net.py": "from common import checkpoint" + NET.format(name="checkpoint")})
        == []
    )
