"""Python code blocks in Markdown: found, reported where they stand, fixed in place."""

from __future__ import annotations

import pytest
from command import ckpt_lint as lint
from hf_ckpt.lint.analysis.check_file import check_bytes
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.fix.files import rewrite_bytes
from hf_ckpt.lint.fix.transforms import fixing
from hf_ckpt.lint.project.settings import Settings
from hf_ckpt.lint.sources.markdown import read_markdown

CODE = "from torch.utils.checkpoint import checkpoint\n\ny = checkpoint(f, x)\n"
DOCUMENT = f"# Title\n\nText with `checkpoint(f, x)`.\n\n```python\n{CODE}```\n\nThe end.\n"


def check(text: str):
    return [
        (f.span.line, f.span.column, f.code)
        for f in check_bytes(Job("a.md", Settings()), text.encode()).result.findings
    ]


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("```python", "```"),
        ("```py", "```"),
        ("```Python", "````"),
        ("~~~python", "~~~"),
        ("````python", "````"),
        ('```python title="train.py" {hl_lines="3"}', "```"),
        ("```{python}", "```"),
        ("```{.python .numberLines}", "```"),
        ("``` python3", "```  "),
    ],
)
def test_blocks_of_python(opening, closing):
    assert check(f"a\n{opening}\n{CODE}{closing}\nb\n") == [(5, 5, "CKPT101")]


@pytest.mark.parametrize(
    "text",
    [
        CODE,
        f"```\n{CODE}```\n",
        f"```pycon\n{CODE}```\n",
        f"```bash\n{CODE}```\n",
        f"```python-repl\n{CODE}```\n",
        f"`````text\n```python\n{CODE}```\n`````\n",
        f"```python\n{CODE}",
        "```python\n>>> from torch.utils.checkpoint import checkpoint\n>>> checkpoint(f, x)\n```\n",
        "```python\nfrom torch.utils.checkpoint import checkpoint\ncheckpoint(f, x, ...\n```\n",
        "```python\n```\n",
    ],
)
def test_what_is_no_block_of_python_is_left_alone(text):
    assert check(text) == []


def test_each_block_is_a_program_of_its_own():
    first, second = CODE.split("\n\n")
    assert check(f"```python\n{first}\n```\n\n```python\n{second}```\n") == []
    assert [line for line, _, _ in check(f"```python\n{CODE}```\n\n```python\n{CODE}```\n")] == [4, 10]


def test_blocks_in_lists_keep_their_columns():
    indented = "".join(f"   {line}" if line.strip() else line for line in CODE.splitlines(keepends=True))
    assert check(f"1. A step\n\n   ```python\n{indented}   ```\n") == [(6, 8, "CKPT101")]
    assert check(f"```python\n{CODE}```\n1. A step\n   ```python\n{indented}   ```\n") == [
        (4, 5, "CKPT101"),
        (10, 8, "CKPT101"),
    ]


def test_magics_and_line_ends():
    assert check(f"```python\n!pip install torch\n{CODE}```\n") == [(5, 5, "CKPT101")]
    assert check(DOCUMENT.replace("\n", "\r\n")) == [(8, 5, "CKPT101")]


@pytest.mark.parametrize("comment", ["# noqa: CKPT101", "# ckpt-lint: ignore[CKPT101] shown on purpose"])
def test_comments_in_a_block_silence(comment):
    assert check(DOCUMENT.replace("y = checkpoint(f, x)", f"y = checkpoint(f, x)  {comment}")) == []
    idle = check(DOCUMENT.replace("y = checkpoint(f, x)", f"y = checkpoint(f, x, use_reentrant=False)  {comment}"))
    assert [code for _, _, code in idle] == ["CKPT901"]


def test_a_comment_outside_of_blocks_is_text():
    assert check(DOCUMENT + "\n<!-- # ckpt-lint: ignore-file -->\n") == [(8, 5, "CKPT101")]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["", "  "])
def test_fixes_change_nothing_but_the_block(newline, indent):
    text = "".join(f"{indent}{line}" if line.strip() else line for line in DOCUMENT.splitlines(keepends=True))
    data = text.replace("\n", newline).encode()
    fixed = rewrite_bytes(Job("a.md", Settings()), data, fixing(unsafe=True))
    expected = text.replace("y = checkpoint(f, x)", "y = checkpoint(f, x, use_reentrant=False)")
    assert fixed.after == expected.replace("\n", newline).encode()
    assert fixed.result.findings == ()


def test_a_fix_stays_in_its_block():
    text = (
        "# T\n\n```python\nfrom transformers import TrainingArguments\n"
        'args = TrainingArguments("o", gradient_checkpointing=True)\nargs.gradient_checkpointing = False\n```\n'
    )
    fixed = rewrite_bytes(Job("a.md", Settings()), text.encode(), fixing(unsafe=True))
    assert fixed.result.failure is None
    assert fixed.after.decode().startswith("# T\n\n```python\n")
    assert fixed.after.decode().endswith("\n```\n")


def test_a_document_is_read_when_it_is_named_or_wanted(tmp_path):
    (tmp_path / "README.md").write_text(DOCUMENT)
    (tmp_path / "a.py").write_text("x = 1\n")
    assert lint(".", cwd=tmp_path).returncode == 0
    process = lint("README.md", cwd=tmp_path)
    assert process.returncode == 1
    assert " --> README.md:8:5" in process.stdout
    assert "8 | y = checkpoint(f, x)\n" in process.stdout
    assert lint(".", "--markdown", cwd=tmp_path).returncode == 1
    (tmp_path / "pyproject.toml").write_text("[tool.ckpt-lint]\nmarkdown = true\n")
    assert lint(".", cwd=tmp_path).returncode == 1
    assert lint("-", "--stdin-filename", "x.md", stdin=DOCUMENT, cwd=tmp_path).returncode == 1
    assert lint("README.md", "--add-ignore", cwd=tmp_path).returncode == 0
    silenced = DOCUMENT.replace("y = checkpoint(f, x)", "y = checkpoint(f, x)  # ckpt-lint: ignore[CKPT101]")
    assert (tmp_path / "README.md").read_text() == silenced


def test_any_text_can_be_read():
    for text in ("", "```", "```python", "```python\n```", "~~~py\n\t\n~~~", "\n\n   ```py\nx=1\n```"):
        assert len(read_markdown(text).python.split("\n")) == len(text.split("\n"))


@pytest.mark.parametrize(
    "code",
    [
        "from torch.utils.checkpoint import checkpoint\ny = checkpoint(f, x)\n",
        '  """\nA text further left.\n  """\n  from torch.utils.checkpoint import checkpoint\n  y = checkpoint(f, x)\n',
        '  from torch.utils.checkpoint import checkpoint\n  y = checkpoint(f, """\nx""")\n',
    ],
)
def test_what_stands_further_left_than_its_fence_keeps_its_columns(code):
    text = f"- item\n  ```python\n{code}  ```\n"
    result = rewrite_bytes(Job("a.md", Settings()), text.encode(), fixing(unsafe=True))
    assert result.applied["CKPT101"] == 1
    assert result.after.decode() == text.replace(")\n", ", use_reentrant=False)\n")
