"""Ways to freeze all that a model of transformers has but its head, before it is checkpointed, and ways to let more train."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from transformers import BertForSequenceClassification

def freeze_one(module):
    for parameter in module.parameters(recurse=False):
        parameter.requires_grad = False

def freeze_all_but(model, *kept):
    for name, module in model.named_children():
        if name not in kept:
            for parameter in module.parameters():
                parameter.requires_grad = False

def freeze_by_name(model, kept):
    for name, parameter in model.named_parameters():
        if not any(part in name for part in kept):
            parameter.requires_grad = False

def main():
    model = BertForSequenceClassification.from_pretrained("base")
    {0}
    model.gradient_checkpointing_enable()
    model.train()

main()
"""
FROZEN = {
    "by the prefix of its model": "getattr(model, model.base_model_prefix).requires_grad_(False)",
    "parameters by the prefix": """
    backbone = getattr(model, model.base_model_prefix)
    for parameter in backbone.parameters():
        parameter.requires_grad = False
""",
    "parts by their names": """
    for part in ("embeddings", "encoder"):
        getattr(model.bert, part).requires_grad_(False)
""",
    "parts in a list": """
    for module in [model.bert.embeddings, model.bert.encoder]:
        for parameter in module.parameters():
            parameter.requires_grad = False
""",
    "all layers in one": """
    model.bert.embeddings.requires_grad_(False)
    model.bert.encoder.layer.requires_grad_(False)
""",
    "children by name": """
    for name, module in model.named_children():
        if name != "classifier":
            for parameter in module.parameters():
                parameter.requires_grad = False
""",
    "children at once": """
    for name, module in model.named_children():
        if name not in ("classifier", "score"):
            module.requires_grad_(False)
""",
    "helper for children": 'freeze_all_but(model, "classifier")',
    "helper for names": 'freeze_by_name(model, ["classifier"])',
    "modules": """
    for module in model.bert.modules():
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad = False
""",
    "children of the backbone": """
    for child in model.bert.children():
        child.requires_grad_(False)
""",
    "apply": "model.bert.apply(freeze_one)",
    "all, then the head by name": """
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.startswith("classifier"):
            parameter.requires_grad_(True)
""",
    "all, then the head by the name of the child": """
    model.requires_grad_(False)
    for name, module in model.named_children():
        if name == "classifier":
            module.requires_grad_(True)
""",
    "names of the backbone": """
    for name, parameter in model.bert.named_parameters():
        if "classifier" not in name:
            parameter.requires_grad = False
    model.bert.requires_grad_(False)
""",
}
TRAINED = {
    "embeddings by the prefix": "getattr(model, model.base_model_prefix).embeddings.requires_grad_(False)",
    "parts that are no layers": """
    for part in ("pooler", "embeddings"):
        getattr(model.bert, part).requires_grad_(False)
""",
    "the layers alone": "model.bert.encoder.requires_grad_(False)",
    "the last layers and the embeddings": """
    model.bert.embeddings.requires_grad_(False)
    for layer in model.bert.encoder.layer[4:]:
        layer.requires_grad_(False)
""",
    "another child": """
    for name, module in model.named_children():
        if name == "classifier":
            module.requires_grad_(False)
""",
    "helper keeps the backbone": 'freeze_all_but(model, "bert")',
    "the layers by their names in the backbone": """
    model.bert.requires_grad_(False)
    for name, parameter in model.bert.named_parameters():
        if name.startswith("encoder"):
            parameter.requires_grad = True
""",
    "a child of the backbone": """
    model.bert.requires_grad_(False)
    for name, module in model.bert.named_children():
        if name == "encoder":
            module.requires_grad_(True)
""",
    "some modules of the backbone": """
    for name, module in model.bert.named_modules():
        if "embeddings" in name:
            module.requires_grad_(False)
""",
    "all, then the layers by name": """
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "encoder" in name:
            parameter.requires_grad_(True)
""",
    "the hook is off": """
    model.bert.requires_grad_(False)
    model.disable_input_require_grads()
""",
}


def codes(freezing):
    return [finding.code for finding in check_source(SCRIPT.format(freezing))]


@pytest.mark.parametrize("freezing", FROZEN.values(), ids=FROZEN)
def test_a_frozen_backbone_is_recomputed(freezing):
    assert codes(freezing) == ["CKPT405"]


@pytest.mark.parametrize("freezing", TRAINED.values(), ids=TRAINED)
def test_a_backbone_that_trains_is_right(freezing):
    assert codes(freezing) == []
