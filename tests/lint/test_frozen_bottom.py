"""First layers that are frozen below checkpointing."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_MODEL = """\
from transformers import AutoModelForMaskedLM
model = AutoModelForMaskedLM.from_pretrained(name)
"""
_EMBEDDINGS = "model.roberta.embeddings.requires_grad_(False)\n"
_LAYERS = "for layer in model.roberta.encoder.layer[:8]:\n    layer.requires_grad_(False)\n"
_ENABLE = "model.gradient_checkpointing_enable()\n"
RIGHT = {
    "embeddings that train": _LAYERS,
    "layers that all train": _EMBEDDINGS,
    "a number of layers that is open": _EMBEDDINGS + _LAYERS.replace("8", "n"),
    "no layers": _EMBEDDINGS + _LAYERS.replace("8", "0"),
    "the layers above": _EMBEDDINGS + _LAYERS.replace(":8", "8:"),
    "every second layer": _EMBEDDINGS + _LAYERS.replace(":8", "::2"),
    "a part of each layer": _EMBEDDINGS + _LAYERS.replace("layer.req", "layer.attention.req"),
    "a condition": _EMBEDDINGS + "if freeze:\n" + "".join(f"    {line}\n" for line in _LAYERS.splitlines()),
    "only the word embeddings": _EMBEDDINGS.replace("ings.", "ings.word_embeddings.") + _LAYERS,
    "trained again": _EMBEDDINGS + _LAYERS + "model.roberta.requires_grad_(True)\n",
    "without the hook": _EMBEDDINGS + _LAYERS + "model.disable_input_require_grads()\n",
    "embeddings that are projected": (_EMBEDDINGS + _LAYERS).replace("roberta", "electra"),
    "embeddings of another model": _EMBEDDINGS.replace("model", "teacher", 1) + _LAYERS,
}


def _rows(text: str) -> list[str]:
    return [found.code for found in check_source(_MODEL + text + _ENABLE) if found.code == "CKPT405"]


@pytest.mark.parametrize("layers", [_LAYERS, _LAYERS.replace("8", "-2")])
def test_frozen_first_layers(layers: str) -> None:
    assert _rows(_EMBEDDINGS + layers) == ["CKPT405"]


_CAUSAL = """\
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(name)
KEPT = 2
"""
_DECODER = "layers = model.model.layers\nfor layer in layers[: len(layers) - KEPT]:\n    layer.requires_grad_(False)\n"


@pytest.mark.parametrize(
    ("embeddings", "expected"),
    [
        ("model.get_input_embeddings().requires_grad_(False)\n", ["CKPT405"]),
        ("for p in model.get_input_embeddings().parameters():\n    p.requires_grad = False\n", ["CKPT405"]),
        ("model.get_input_embeddings().weight.requires_grad = False\n", ["CKPT405"]),
        ("model.model.embed_tokens.weight.requires_grad = False\n", ["CKPT405"]),
        ("model.get_output_embeddings().requires_grad_(False)\n", []),
        ("teacher.get_input_embeddings().requires_grad_(False)\n", []),
    ],
)
def test_embeddings_that_a_method_gives(embeddings: str, expected: list[str]) -> None:
    found = check_source(_CAUSAL + embeddings + _DECODER + _ENABLE)
    assert [row.code for row in found if row.code == "CKPT405"] == expected
    assert not _rows(embeddings + _LAYERS)  # These are a part of RoBERTa's embeddings.


COUNTED = """\
def freeze(model, top=2):
    n = model.config.num_hidden_layers
    cut = n - top
    for layer in model.roberta.encoder.layer[:CUT]:
        layer.requires_grad_(False)
freeze(model)
"""


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ("cut", ["CKPT405"]),
        (" n - top", ["CKPT405"]),
        (" n // 2", ["CKPT405"]),
        (" model.config.num_hidden_layers - 4", ["CKPT405"]),
        (" len(model.roberta.encoder.layer) // 3", ["CKPT405"]),
        (" n - first(model)", []),
        (" top - n", []),
        (" n // parts", []),
        (" n // 40", []),
        (" model.config.num_labels - 1", []),
    ],
)
def test_a_part_of_all_the_layers(cut: str, expected: list[str]) -> None:
    assert _rows(_EMBEDDINGS + COUNTED.replace("CUT", cut)) == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("2", ["CKPT405"]), ("len(layers) - top", []), ("cut", []), ("cut - 1", [])]
)
def test_names_of_the_caller_mean_nothing_here(given: str, expected: list[str]) -> None:
    assert (
        _rows(_EMBEDDINGS + COUNTED.replace("CUT", "top").replace("freeze(model)", f"freeze(model, {given})"))
        == expected
    )


HELPED = "def freeze(model, *, n=0):\n    for layer in model.roberta.encoder.layer[:n]:\n        layer.requires_grad_(False)\n"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("freeze(model, n=8)", ["CKPT405"]),
        ("freeze(model)", []),
        ("freeze(model, **options)", []),
        ("functools.partial(freeze, n=8)(model)", ["CKPT405"]),
    ],
)
def test_how_many_layers_a_call_says(call: str, expected: list[str]) -> None:
    assert _rows(f"import functools\n{HELPED}{_EMBEDDINGS}{call}\n") == expected


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert not _rows(RIGHT[name])
