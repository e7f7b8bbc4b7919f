"""What runs the first time: ``python tests/packaging/cold_path.py [CHECKOUT]``.

Trains a tiny Llama for three steps with ``SelectiveCkpt("budget=0.5")`` and prints how many files of the runtime are
entered, between how many pairs of files control moves, and how often; of this checkout, or of another one
(``git worktree add ../before REVISION``).
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).resolve().parents[2]


class Moves:
    """Calls from one file of ``package`` into another, counted while it is entered."""

    def __init__(self, package: Path) -> None:
        self._package = str(package)
        self.between: Counter[tuple[str, str]] = Counter()
        self.entered: set[str] = set()

    def __enter__(self) -> Moves:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        # Bodies of modules and classes run when they are imported: that is no step of the path.
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if event != "call" or not is_function or not file.startswith(self._package):
            return
        self.entered.add(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._package):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != file:
            self.between[caller.f_code.co_filename, file] += 1


def linked(checkout: Path, folder: Path) -> Path:
    """The package of ``checkout`` as it is installed, made of links in ``folder``."""
    package = folder / "hf_ckpt"
    package.mkdir()
    for path in (*(checkout / "hf_ckpt").iterdir(), checkout / "lint", checkout / "callbacks"):
        (package / path.name).symlink_to(path)
    return package


def train(output: str) -> None:
    """Three optimizer steps under a budget, from the construction of the callback on."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    from hf_ckpt import SelectiveCkpt

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2
    )
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 128, (8, 16)).tolist()]
    args = TrainingArguments(
        output, max_steps=3, per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    Trainer(LlamaForCausalLM(config), args, train_dataset=rows, callbacks=[SelectiveCkpt("budget=0.5")]).train()


def main(checkout: Path) -> None:
    """Print the figures of ``checkout``."""
    with tempfile.TemporaryDirectory() as folder:
        package = linked(checkout, Path(folder))
        sys.path.insert(0, folder)
        with Moves(package) as moves:
            train(folder)
    print(f"{len(moves.entered)} files entered, {len(moves.between)} pairs of files, {moves.between.total()} moves")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
