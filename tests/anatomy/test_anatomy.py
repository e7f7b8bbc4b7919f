"""Decoder layers, roles, towers and kernels are found on real architectures, whatever wraps them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    DbrxConfig,
    GptOssConfig,
    LongcatFlashConfig,
    OPTConfig,
    Qwen3MoeConfig,
    SwinConfig,
    SwinForImageClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.errors import ModelStructureError
from hf_ckpt.policy.decision import Role, Tower

from ..models import ARCHITECTURES, build, build_vlm


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_layers_and_roles(name: str) -> None:
    anatomy = read_anatomy(build(name))
    assert len(anatomy.layers) == 4
    sublayers = anatomy.stacks[0].layers[0].sublayers
    assert sublayers[Role.ATTENTION] in [("self_attn",), ("attn",)]
    assert sublayers[Role.EXPERTS if name == "mixtral" else Role.MLP] == ("mlp",)
    assert len(sublayers[Role.NORM]) >= 2
    assert anatomy.stacks[0].kernel == "sdpa"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (GptOssConfig(hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                      num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=1, vocab_size=64), "mlp"),
        (DbrxConfig(d_model=16, n_heads=2, n_layers=1, vocab_size=64, attn_config={"kv_n_heads": 1, "rope_theta": 1e4},
                    ffn_config={"ffn_hidden_size": 8, "moe_num_experts": 2, "moe_top_k": 1}), "ffn"),
    ],
)  # fmt: skip
def test_experts_below_an_mlps_name_are_experts(config, name) -> None:
    sublayers = read_anatomy(AutoModelForCausalLM.from_config(config)).layers[0].info.sublayers
    assert sublayers[Role.EXPERTS] == (name,)
    assert Role.MLP not in sublayers


def test_sublayers_in_a_list_are_what_the_list_is_called() -> None:
    """A list has no forward that could be recomputed."""
    config = LongcatFlashConfig(
        hidden_size=32, ffn_hidden_size=64, expert_ffn_hidden_size=16, num_layers=1, num_attention_heads=2,
        n_routed_experts=4, zero_expert_num=1, moe_topk=2, vocab_size=64,
    )  # fmt: skip
    with torch.device("meta"):
        layer = read_anatomy(AutoModelForCausalLM.from_config(config)).layers[0]
    found = layer.info.sublayers
    assert found[Role.ATTENTION] == ("self_attn.0", "self_attn.1")
    assert found[Role.MLP] == ("mlps.0", "mlps.1")
    assert found[Role.EXPERTS] == ("mlp",)


def test_eager_kernel_is_seen() -> None:
    assert read_anatomy(build("llama", kernel="eager")).stacks[0].kernel == "eager"


def test_lora_layers_keep_their_names() -> None:
    plain, lora = read_anatomy(build("llama")), read_anatomy(build("llama", lora=True))
    assert [layer.name for layer in lora.stacks[0].layers] == [layer.name for layer in plain.stacks[0].layers]


def test_compiled_and_data_parallel_wrappers_are_seen_through() -> None:
    model = build("llama")
    for wrapped in (torch.compile(model), nn.DataParallel(model)):
        assert read_anatomy(wrapped).stacks[0].layers[0].name == "model.layers.0"


def test_vision_tower_is_told_apart() -> None:
    vision, language = sorted(read_anatomy(build_vlm()).stacks, key=lambda s: s.tower != Tower.VISION)
    assert (vision.tower, len(vision.layers)) == (Tower.VISION, 3)
    assert (language.tower, len(language.layers)) == (Tower.LANGUAGE, 4)


def _tiny(count: int) -> dict[str, int]:
    return {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": count}


def test_other_shapes_of_models() -> None:
    with torch.device("meta"):
        bert = BertForMaskedLM(BertConfig(**_tiny(2), vocab_size=100))
        t5 = T5ForConditionalGeneration(T5Config(d_model=32, d_ff=64, num_layers=2, num_heads=2, d_kv=8, vocab_size=99))
        vit = ViTForImageClassification(ViTConfig(**_tiny(2)))
        swin = SwinForImageClassification(SwinConfig(embed_dim=16, depths=[2, 3], num_heads=[2, 2], image_size=32))
        moe = AutoModelForCausalLM.from_config(
            Qwen3MoeConfig(**_tiny(2), vocab_size=100, num_experts=4, num_key_value_heads=2, head_dim=8)
        )
        opt = AutoModelForCausalLM.from_config(
            OPTConfig(
                hidden_size=32,
                ffn_dim=64,
                num_attention_heads=4,
                num_hidden_layers=2,
                vocab_size=100,
                word_embed_proj_dim=32,
            )
        )
    assert [len(s.layers) for s in read_anatomy(bert).stacks] == [2]
    assert [s.name for s in read_anatomy(t5).stacks] == ["encoder.block", "decoder.block"]
    assert read_anatomy(vit).stacks[0].tower is Tower.VISION
    assert [len(s.layers) for s in read_anatomy(swin).stacks] == [2, 3], "the inner layers, not the stages"
    roles = read_anatomy(moe).stacks[0].layers[0].sublayers
    assert (roles[Role.ATTENTION], roles[Role.EXPERTS]) == (("self_attn",), ("mlp",))
    assert read_anatomy(opt).stacks[0].layers[0].sublayers[Role.MLP] == ("activation_fn", "fc1", "fc2")


def test_a_model_without_layers_is_one_clear_sentence() -> None:
    with pytest.raises(ModelStructureError, match=r"looked for an nn\.ModuleList"):
        read_anatomy(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
