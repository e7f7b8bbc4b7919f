"""The report, written into a file: `-o`."""

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="needs /dev/stdout")
@pytest.mark.parametrize("redirected", [False, True])
def test_standard_output_by_name_is_where_it_leads(tmp_path, redirected):
    (tmp_path / "train.py").write_text(
        "from torch.utils.checkpoint import checkpoint\n\n\ndef run(block, x):\n    return checkpoint(block, x)\n"
    )
    command = [sys.executable, "-m", "hf_ckpt.lint", "train.py", "--no-cache", "-o", "/dev/stdout"]
    if redirected:
        with open(tmp_path / "out", "w") as out:
            subprocess.run(command, cwd=tmp_path, stdout=out, check=False)
        said = (tmp_path / "out").read_text()
    else:
        said = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False).stdout
    assert "CKPT101" in said
