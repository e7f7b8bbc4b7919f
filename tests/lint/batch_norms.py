"""Where the models of transformers and torchvision have a BatchNorm: writes `lint/model/known_models/batch_norms.py`.

`python -m tests.lint.batch_norms` reads the sources of the installed transformers and builds every model of the
installed torchvision on the meta device. The linter has the answer as a table: it imports neither of them.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

TABLE = Path(__file__).parents[2] / "lint" / "model" / "known_models" / "batch_norms.py"
_LAYER = "GradientCheckpointingLayer"
_NORM = "BatchNorm"
#: Runs its encoder of speech, which has the norms, for speech only.
_NOT_ALWAYS = ("SeamlessM4TModel",)


@dataclass
class Class:
    """A class of a modeling file: what it derives from, what its constructor certainly builds."""

    bases: list[str]
    builds: set[str] = field(default_factory=set)
    has_switch: bool = False


def classes_of(tree: ast.Module) -> dict[str, Class]:
    """The classes of a file by name."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            made = Class([ast.unparse(base).rpartition(".")[2] for base in node.bases])
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    made.builds = set(_built(part))
                made.has_switch |= ast.unparse(part) == "supports_gradient_checkpointing = True"
            found[node.name] = made
    return found


def _built(node: ast.AST) -> Iterator[str]:
    """The last names of what ``node`` calls, unless a condition decides it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.IfExp):
            continue
        if isinstance(child, ast.Call):
            yield ast.unparse(child.func).rpartition(".")[2]
        yield from _built(child)


class Modeling:
    """The classes of one modeling file."""

    def __init__(self, classes: dict[str, Class]) -> None:
        self.classes = classes

    def owners(self, name: str) -> Iterator[Class]:
        """The class and those it derives from, as far as the file has them."""
        if name in self.classes:
            yield self.classes[name]
            for base in self.classes[name].bases:
                yield from self.owners(base)

    def is_a(self, name: str, base: str) -> bool:
        return any(base in owner.bases for owner in self.owners(name))

    def parts(self, name: str) -> set[str]:
        """The names of all classes that an object of ``name`` certainly has in it, itself included."""
        found, queue = set[str](), [name]
        while queue:
            part = queue.pop()
            if part not in found:
                found.add(part)
                queue += [built for owner in self.owners(part) for built in owner.builds]
        return found

    def layer_with_norm(self, name: str) -> str | None:
        """The checkpointed layer of the model ``name`` that certainly has a BatchNorm; None for none."""
        layers = sorted(part for part in self.parts(name) if self.is_a(part, _LAYER))
        return next((layer for layer in layers if any(part.startswith(_NORM) for part in self.parts(layer))), None)


def of_transformers() -> list[dict[str, str]]:
    """For each family, by class of a model that can be checkpointed: its checkpointed layer with a BatchNorm."""
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "models"
    families = []
    for path in sorted(folder.glob("*/modeling_*.py")):
        text = path.read_text("utf-8")
        if _NORM not in text or _LAYER not in text:
            continue
        tree = ast.parse(text)
        modeling = Modeling(classes_of(tree))
        switchable = [name for name in _exported(tree) if any(owner.has_switch for owner in modeling.owners(name))]
        layers = {name: layer for name in switchable if (layer := modeling.layer_with_norm(name))}
        families += [layers] if layers else []
    return families


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            named = [str(name) for name in ast.literal_eval(node.value)]
            return [name for name in named if not name.endswith("PreTrainedModel") and name not in _NOT_ALWAYS]
    return []


def torchvision_models() -> ModuleType:
    """`torchvision.models`; beside a torch that its wheel was not built for, operators that no model needs are missing."""
    try:
        return import_module("torchvision.models")
    except RuntimeError:
        import torch

        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return import_module("torchvision.models")


def of_torchvision() -> dict[str, tuple[str, ...]]:
    """By function of `torchvision.models`: the parts of what it builds in which a BatchNorm is."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    models = torchvision_models()
    found = {}
    segmentation = models.list_models(module=models.segmentation)
    names = [*models.list_models(module=models), *segmentation, *models.list_models(module=models.video)]
    for name in sorted(names):
        given = {"weights_backbone": None} if name in segmentation else {}
        try:
            with torch.device("meta"):
                model = models.get_model(name, weights=None, **given)
        except NotImplementedError:  # it reads a value of a tensor
            model = models.get_model(name, weights=None, **given)
        parts = {
            path: module
            for path, module in model.named_modules()
            if path and path.count(".") < 2 and not any(piece.isdigit() for piece in path.split("."))
        }
        held = [path for path, part in parts.items() if any(isinstance(inner, _BatchNorm) for inner in part.modules())]
        if held:
            found[name] = tuple(held)
    return found


def written(families: list[dict[str, str]], torchvision: dict[str, tuple[str, ...]], versions: tuple[str, str]) -> str:
    """The text of the table."""
    made = " and ".join(
        f"{name} {number}" for name, number in zip(("transformers", "torchvision"), versions, strict=True)
    )
    prefixes = tuple(os.path.commonprefix([*family]) for family in families)  # noqa: RUF071 -- of names, not paths
    layers = {name: layer for family in families for name, layer in family.items()}
    text = (
        '"""Where the models of transformers and torchvision have a BatchNorm.\n\n'
        f'Generated by `python -m tests.lint.batch_norms` from {made}.\n"""\n\n'
        "from __future__ import annotations\n\n"
        "#: What the names of the classes in a family begin with.\n"
        f"FAMILIES: tuple[str, ...] = {prefixes!r}\n"
        "#: By class of transformers: the layer with a BatchNorm that it checkpoints.\n"
        f"TRANSFORMERS: dict[str, str] = {layers!r}\n"
        "#: Functions of `torchvision.models` by the parts of what they build in which a BatchNorm is.\n"
        f"_ALIKE: dict[tuple[str, ...], tuple[str, ...]] = {_alike(torchvision)!r}\n"
        "#: By function of `torchvision.models`: these parts.\n"
        "TORCHVISION = {model: parts for parts, models in _ALIKE.items() for model in models}\n"
    )
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TABLE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _alike(torchvision: dict[str, tuple[str, ...]]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The models that have the same parts."""
    return {parts: tuple(name for name in torchvision if torchvision[name] == parts) for parts in torchvision.values()}


def main() -> None:
    versions = version("transformers"), version("torchvision")
    TABLE.write_text(written(of_transformers(), of_torchvision(), versions), "utf-8")


if __name__ == "__main__":
    main()
