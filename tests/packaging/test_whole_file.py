"""A file is written whole or not at all, and what is no file is never replaced by one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from hf_ckpt.whole_file import write_whole, written_whole


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def interrupted() -> None:
        with written_whole(path) as file:
            Path(file).write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [found.name for found in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with written_whole(path) as file:
            Path(file).write_text("page")
        assert os.read(reader, 10) == b"page"
    finally:
        os.close(reader)
    assert path.is_fifo()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="this system has no /dev/shm")
def test_a_file_in_memory_is_written_whole_too() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder, "report.json")
        path.write_text("old")
        with written_whole(path) as file:
            Path(file).write_text("new")
            assert path.read_text() == "old"
        assert path.read_text() == "new"


def test_a_new_file_has_the_permissions_that_the_user_gives_to_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(str(tmp_path / "new"), b"text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_link_and_the_permissions_of_its_file_stay(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "file").chmod(0o755)
    (tmp_path / "link").symlink_to("file")
    write_whole(str(tmp_path / "link"), b"after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"after"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o755


def test_a_folder_in_the_place_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(str(tmp_path / "folder"), b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
