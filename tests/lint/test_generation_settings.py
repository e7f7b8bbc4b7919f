"""CKPT112 where the settings of `generate` come from a folder, which may switch the cache off."""

import pytest
from hf_ckpt.lint import check_source

CODE = """
from transformers import AutoModelForCausalLM, GenerationConfig
model = AutoModelForCausalLM.from_pretrained("gpt2")
model.gradient_checkpointing_enable()
model.train()
{}
"""


@pytest.mark.parametrize(
    "code",
    [
        "model.generate(ids, generation_config=GenerationConfig(max_new_tokens=3))",
        'model.generate(ids, generation_config=GenerationConfig.from_pretrained("folder", use_cache=True))',
        'model.generate(ids, generation_config=GenerationConfig.from_pretrained("folder"), use_cache=True)',
    ],
)
def test_generation_that_uses_the_cache_is_found(code):
    assert [finding.code for finding in check_source(CODE.format(code))] == ["CKPT112"]


@pytest.mark.parametrize(
    "code",
    [
        'model.generate(ids, generation_config=GenerationConfig.from_pretrained("folder"))',
        'model.generation_config = GenerationConfig.from_pretrained("folder")\nmodel.generate(ids)',
        'config = GenerationConfig.from_pretrained("folder", max_new_tokens=3)\nmodel.generate(ids, config)',
        "model.generate(ids, generation_config=GenerationConfig.from_dict(settings))",
        "model.generate(ids, generation_config=GenerationConfig.from_model_config(config))",
        "model.generate(ids, generation_config=GenerationConfig(use_cache=False))",
    ],
)
def test_generation_that_may_do_without_it_is_not_judged(code):
    assert check_source(CODE.format(code)) == []
