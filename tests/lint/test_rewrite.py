"""Files are rewritten in one way, and analysed no more often than their texts differ."""

from collections import Counter

import pytest
from hf_ckpt.lint.analysis import check_text
from hf_ckpt.lint.cli.command import run
from hf_ckpt.lint.cli.options import Options

HEAD = "from torch.utils.checkpoint import checkpoint\n\n\n"
MISTAKE = HEAD + "def forward(block, x):\n    return checkpoint(block, x)\n"
CLEAN = HEAD + "def forward(block, x):\n    return checkpoint(block, x, use_reentrant=False)\n"


@pytest.fixture
def analysed(monkeypatch):
    """How often each text was analysed, by file name."""
    counts: Counter[tuple[str, str]] = Counter()
    whole = check_text.check_source

    def counted(text, *args, **kwargs):
        counts[kwargs["filename"], text] += 1
        return whole(text, *args, **kwargs)

    monkeypatch.setattr(check_text, "check_source", counted)
    return counts


@pytest.mark.parametrize("mode", [{"diff": True}, {"fix": True}], ids=["--diff", "--fix"])
def test_a_file_is_analysed_once_and_once_more_after_its_edit(tmp_path, monkeypatch, analysed, mode, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mistake.py").write_text(MISTAKE)
    (tmp_path / "clean.py").write_text(CLEAN)
    run(Options(paths=("mistake.py", "clean.py"), unsafe_fixes=True, **mode))
    assert Counter(name for name, _ in analysed.elements()) == {"mistake.py": 2, "clean.py": 1}
    assert set(analysed.values()) == {1}, "a text was analysed twice"


def test_silencing_analyses_a_file_once_and_once_more_after_its_edit(tmp_path, monkeypatch, analysed, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mistake.py").write_text(MISTAKE)
    run(Options(paths=("mistake.py",), add_ignore="later"))
    assert analysed.total() == 2
    assert "# ckpt-lint: ignore[CKPT101] later" in (tmp_path / "mistake.py").read_text()


def test_standard_input_is_analysed_once_and_once_more_after_its_edit(monkeypatch, analysed, capsysbinary):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MISTAKE.encode())))
    run(Options(paths=("-",), stdin_filename="mistake.py", diff=True, unsafe_fixes=True))
    assert analysed.total() == 2
    assert b"+    return checkpoint(block, x, use_reentrant=False)" in capsysbinary.readouterr().out
