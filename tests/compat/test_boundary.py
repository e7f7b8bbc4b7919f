"""Only ``hf_ckpt/compat`` knows the insides of transformers, accelerate and PEFT."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT)
    for folder in ("hf_ckpt", "callbacks")
    for path in (ROOT / folder).rglob("*.py")
    if "compat" not in path.parts
)
LIBRARIES = ("transformers", "accelerate", "peft")
#: Attributes that these libraries and the wrappers use among themselves.
INSIDES = frozenset(
    {
        "_set_gradient_checkpointing",
        "_gradient_checkpointing_func",
        "_attn_implementation",
        "_loss_function",
        "_model_mapping",
        "_fsdp_wrapped_module",
        "_checkpoint_wrapped_module",
        "_orig_mod",
        "_local_tensor",
        "_hf_hook",
    }
)
IMPORT_EVERYTHING = """
import sys, types
from importlib.machinery import ModuleSpec

class Public(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"{self.__name__}.{name} is private")
        return type(name, (), {})

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in LIBRARIES:
            return ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Public(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
import importlib
for name in MODULES:
    importlib.import_module(name)
print("imported", len(MODULES))
"""


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_private_name_of_a_library(path):
    tree = ast.parse((ROOT / path).read_text())
    private = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES
        for alias in node.names
        if any(part.startswith("_") for part in f"{node.module}.{alias.name}".split("."))
    ]
    inside = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & INSIDES
    inside |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & INSIDES
    assert (private, inside) == ([], set())


def test_everything_else_imports_on_public_names_alone():
    """With transformers, accelerate and PEFT replaced by modules that have public names only."""
    modules = [module_name(path) for path in FILES]
    code = f"LIBRARIES, MODULES = {LIBRARIES!r}, {modules!r}\n{IMPORT_EVERYTHING}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == f"imported {len(modules)}", done.stderr


def module_name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    if parts[0] == "callbacks":
        parts.insert(0, "hf_ckpt")
    return ".".join(parts).removesuffix(".__init__")
