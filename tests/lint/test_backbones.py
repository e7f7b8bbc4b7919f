"""What models of transformers keep below their heads: the table is that of the installed transformers."""

from __future__ import annotations

import re
from importlib.metadata import version

import backbones
import pytest
from hf_ckpt.lint.model.known_models.backbone_parameters import HEAD_PARAMETERS
from hf_ckpt.lint.model.known_models.backbones import BACKBONES, BOTTOMS


@pytest.fixture(autouse=True, scope="module")
def transformers_of_the_table():
    made = re.search(r"transformers (\d[\d.]+\d)", backbones.TABLE.read_text("utf-8"))
    assert made is not None
    if version("transformers") != made[1]:
        pytest.skip(f"the table is that of transformers {made[1]}")


@pytest.mark.parametrize("family", ["Bert", "Llama"])
def test_a_family_of_the_table_is_up_to_date(family):
    model = backbones.built(family, backbones.FAMILIES[family], "SequenceClassification")
    assert model is not None
    assert backbones.backbone_of(model) in BACKBONES
    assert {*backbones.head_parameters(model)} <= {*HEAD_PARAMETERS}


@pytest.mark.slow
def test_the_table_is_up_to_date():
    assert backbones.table() == (BACKBONES, HEAD_PARAMETERS), "run `python -m tests.lint.backbones`"


def test_layers_that_all_compute_with_a_parameter_have_no_bottom():
    assert ("deberta", "encoder", "layer") not in BOTTOMS
    assert BOTTOMS["electra", "encoder", "layer"] == (("electra", "embeddings"), ("electra", "embeddings_project"))
    assert BOTTOMS["transformer", "h"] == (("transformer", "wte"), ("transformer", "wpe"))
