"""Models of transformers whose main input is `input_ids`, compared with the sources of the installed release."""

import ast
from pathlib import Path

import pytest
from hf_ckpt.lint import check_source
from hf_ckpt.lint.model.known_models.main_inputs import is_text_class


def declared():
    """By class of the models its own `main_input_name`, if it has one, and the names of its bases."""
    transformers = pytest.importorskip("transformers")
    found = {}
    for file in (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                own = [part.value for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign) and names(part)]
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                found[node.name] = (ast.literal_eval(own[0]) if own else None, bases)
    return found


def names(part):
    targets = part.targets if isinstance(part, ast.Assign) else [part.target]
    return [target.id for target in targets if isinstance(target, ast.Name)] == ["main_input_name"]


def main_input(name, found):
    if name == "PreTrainedModel" or name not in found:
        return "input_ids" if name == "PreTrainedModel" else None
    own, bases = found[name]
    return own or next(filter(None, (main_input(base, found) for base in bases)), None)


def test_classes_that_take_token_ids():
    found = declared()
    inputs = {name: given for name in found if (given := main_input(name, found)) is not None}
    told = {name for name in inputs if is_text_class(name)}
    assert {inputs[name] for name in told} == {"input_ids"}
    assert len(told) > 500


FROZEN = """
from transformers import {cls}

model = {cls}.from_pretrained(name)
for key, parameter in model.named_parameters():
    if not key.startswith("classifier"):
        parameter.requires_grad_(False)
model.gradient_checkpointing_enable()
model.train()
"""


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        ("BertForSequenceClassification", ["CKPT405"]),
        ("AutoModelForTokenClassification", ["CKPT405"]),
        ("ViTForImageClassification", []),
        ("AutoModelForImageClassification", []),
        ("AutoModelForAudioClassification", []),
        ("Wav2Vec2ForSequenceClassification", []),
    ],
)
def test_frozen_layers_run_again_where_embeddings_are_made_to_require_gradients(cls, expected):
    assert [finding.code for finding in check_source(FROZEN.format(cls=cls))] == expected
