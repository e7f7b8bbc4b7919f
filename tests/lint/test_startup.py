"""What a clean commit pays for: the modules that must not be imported on the way."""

import gc
import subprocess
import sys

import pytest
from hf_ckpt.lint.cli.command import run
from hf_ckpt.lint.cli.options import Options
from hf_ckpt.lint.sources.lines import split_lines

#: Heavy, or only needed once something was found.
FORBIDDEN = {
    *("torch", "transformers", "libcst", "rich", "yaml", "click", "pydantic", "numpy"),
    *("importlib.metadata", "dataclasses", "json", "multiprocessing", "difflib", "tempfile", "asyncio", "logging"),
}

NO_API = "import os\n\n\ndef f(x):\n    return x\n"
CLEAN = """\
from torch.utils.checkpoint import checkpoint


def forward(block, x):
    return checkpoint(block, x, use_reentrant=False)
"""


@pytest.mark.parametrize("text", [NO_API, CLEAN], ids=["no checkpointing in it", "clean use of checkpointing"])
def test_a_clean_file_imports_only_what_it_needs(tmp_path, text):
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    code = (
        "import sys; sys.argv = ['ckpt-lint', 'check', '--force-exclude', 'a.py']\n"
        "from hf_ckpt.lint.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "print(*sys.modules, sep='\\n')"
    )
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{PATH_FINDERS}{code}"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = set(split_lines(process.stdout))
    assert "hf_ckpt.lint.analysis.check_file" in loaded
    assert not loaded & FORBIDDEN
    if text is NO_API:
        assert not loaded & {"ast", "hf_ckpt.lint.rules", "hf_ckpt.lint.model.events"}


def _path_finders() -> str:
    """Code that makes ``hf_ckpt`` importable without site-packages' start-up files, which import on their own."""
    import hf_ckpt.lint

    import hf_ckpt

    root, lint = hf_ckpt.__path__[0], hf_ckpt.lint.__path__[0]
    return (
        "import importlib.util\n"
        "def _package(name, folder):\n"
        "    spec = importlib.util.spec_from_file_location(name, folder + '/__init__.py',"
        " submodule_search_locations=[folder])\n"
        "    module = importlib.util.module_from_spec(spec); sys.modules[name] = module\n"
        "    spec.loader.exec_module(module)\n"
        f"_package('hf_ckpt', {root!r}); _package('hf_ckpt.lint', {lint!r})\n"
    )


PATH_FINDERS = _path_finders()


def test_a_command_leaves_garbage_to_the_exit_of_its_process(tmp_path):
    """Nothing is collected between the last file and the exit; whoever runs the command in a process goes on as before."""
    (tmp_path / "train.py").write_text(CLEAN)
    assert gc.isenabled()
    gc.unfreeze()  # what an earlier test of this process left frozen may go meanwhile, and the count with it
    try:
        frozen = gc.get_freeze_count()
        assert run(Options(paths=(str(tmp_path),), no_cache=True)) == 0
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
