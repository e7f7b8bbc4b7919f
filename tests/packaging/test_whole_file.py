"""A file is written whole or not at all, and what is no file is never replaced by one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hf_ckpt.whole_file import written_whole

if TYPE_CHECKING:
    from pathlib import Path


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def interrupted() -> None:
        with written_whole(path) as file:
            file.write_text("half")
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
            file.write_text("page")
        assert os.read(reader, 10) == b"page"
    finally:
        os.close(reader)
    assert path.is_fifo()
