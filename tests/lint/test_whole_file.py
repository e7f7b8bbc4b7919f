"""What ckpt-lint writes is whole, and what is no file is written as it is."""

import os
import subprocess
import sys

import pytest
from hf_ckpt.lint.output.whole_file import write_whole


def test_a_new_file_has_the_permissions_that_the_user_gives_to_files(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(str(tmp_path / "new"), b"text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_link_and_the_permissions_of_its_file_stay(tmp_path):
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "file").chmod(0o755)
    (tmp_path / "link").symlink_to("file")
    write_whole(str(tmp_path / "link"), b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"after"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o755


def test_a_folder_in_the_place_is_an_error_and_nothing_is_left(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(str(tmp_path / "folder"), b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


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
