"""How many of the first layers are frozen: what callers give, and what other files define."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.api import check_paths

if TYPE_CHECKING:
    from pathlib import Path

_FREEZE = """
def freeze(model, count):
    model.model.embed_tokens.requires_grad_(False)
    for layer in model.model.layers[:count]:
        layer.requires_grad_(False)
"""
_TRAIN = """
from transformers import AutoModelForCausalLM
IMPORT
def main(ARGUMENT):
    model = AutoModelForCausalLM.from_pretrained("base")
    freeze(model, COUNT)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    model(input_ids=tokens).loss.backward()
"""
_CALL = "\nmain({})\n"
_CONSTANTS = "KEEP, NONE = 4, 0\n"
SOME = {
    "a number": "4",
    "a constant": "KEEP",
    "all but some": "model.config.num_hidden_layers - KEEP",
    "all but some by their list": "len(model.model.layers) - 2",
    "all but some from the end": "-KEEP",
}
OPEN = {
    "what the caller gives": "keep",
    "all but what the caller gives": "model.config.num_hidden_layers - keep",
    "none": "0",
    "none by a constant": "NONE",
    "all but none": "-NONE",
    "another count": "model.config.hidden_size - KEEP",
}


def _train(count: str, imported: str = "") -> str:
    text = _TRAIN.replace("ARGUMENT", "keep").replace("COUNT", count).replace("IMPORT", imported)
    return text + _CALL.format("read_arguments().keep")


def _codes(folder: Path, count: str) -> list[str]:
    (folder / "constants.py").write_text(_CONSTANTS)
    (folder / "freezing.py").write_text(_FREEZE)
    imported = "from constants import KEEP, NONE\nfrom freezing import freeze\n"
    (folder / "train.py").write_text(_train(count, imported))
    return [finding.code for finding in check_paths([folder / "train.py"])]


@pytest.mark.parametrize("count", SOME.values(), ids=SOME)
def test_some_layers_are_frozen(count: str, tmp_path: Path) -> None:
    assert [finding.code for finding in check_source("KEEP = 4\n" + _FREEZE + _train(count))] == ["CKPT405"]
    assert _codes(tmp_path, count) == ["CKPT405"]


@pytest.mark.parametrize("count", OPEN.values(), ids=OPEN)
def test_how_many_stays_open(count: str, tmp_path: Path) -> None:
    assert check_source("KEEP = 4\nNONE = 0\n" + _FREEZE + _train(count)) == []
    assert _codes(tmp_path, count) == []
