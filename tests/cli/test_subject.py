"""What a command does with a model, a length, layers and an optimizer that do not fit together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from transformers import (
    BartConfig,
    BertConfig,
    GPT2Config,
    GPTJConfig,
    LlamaConfig,
    OPTConfig,
    PretrainedConfig,
    Qwen3Config,
    RobertaConfig,
)

from hf_ckpt.cli import command
from hf_ckpt.cli.model import build_model
from hf_ckpt.cli.subject import Subject
from hf_ckpt.errors import CkptError

if TYPE_CHECKING:
    from pathlib import Path

POSITIONS = 16
_SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64, "pad_token_id": 1}
_WIDE = _SIZES | {"intermediate_size": 64}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "bos_token_id": 0, "eos_token_id": 1}

CONFIGS: dict[str, PretrainedConfig] = {
    "gpt2": GPT2Config(**_GPT, n_positions=POSITIONS),
    "bert": BertConfig(**_WIDE, max_position_embeddings=POSITIONS),
    # Two rows in front for the padding: 16 positions.
    "roberta": RobertaConfig(**_WIDE, max_position_embeddings=POSITIONS + 2),
    "opt": OPTConfig(**_SIZES, ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=POSITIONS),
    "gptj": GPTJConfig(**_GPT, rotary_dim=4, n_positions=POSITIONS),
    "bart": BartConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=64, max_position_embeddings=POSITIONS,
    ),
    "llama": LlamaConfig(**_WIDE, max_position_embeddings=POSITIONS),
    "qwen3": Qwen3Config(**_WIDE | {"num_hidden_layers": 3}, head_dim=8, max_window_layers=2, use_sliding_window=True),
}  # fmt: skip
LEARNED = ("gpt2", "bert", "roberta", "opt", "gptj", "bart")


def saved(name: str, folder: Path) -> str:
    CONFIGS[name].save_pretrained(folder / name)
    return str(folder / name)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize("name", LEARNED)
def test_the_default_length_is_cut_to_the_positions_of_the_model(tmp_path: Path, name: str) -> None:
    result = run("verify", "--model", saved(name, tmp_path), "--policy", "full")
    assert result.exit_code == 0, result.output
    assert f"taking {POSITIONS} tokens, all the positions that" in result.stderr


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("action", ["verify", "bench", "plan", "explain"])
def test_a_length_beyond_the_positions_is_refused(tmp_path: Path, name: str, action: str) -> None:
    result = run(action, "--model", saved(name, tmp_path), "--length", str(POSITIONS + 1))
    assert isinstance(result.exception, CkptError)
    assert f"has {POSITIONS} positions, fewer than --length {POSITIONS + 1}" in str(result.exception)


def test_rotary_positions_have_no_end(tmp_path: Path) -> None:
    result = run("verify", "--model", saved("llama", tmp_path), "--length", str(POSITIONS + 8), "--policy", "full")
    assert result.exit_code == 0, result.output


def test_plan_says_the_length_it_is_for(tmp_path: Path) -> None:
    result = run("plan", "--model", saved("gpt2", tmp_path), "--policy", "full")
    assert f"1 x {POSITIONS} tokens" in " ".join(result.stdout.split())


def subject(model: str, layers: int) -> Subject:
    return Subject(model, layers, 0, "fp32", None, 1, 8, length_asked=True)


@pytest.mark.parametrize("layers", [1, 2, 7])
def test_lists_of_layers_follow_the_number_of_layers(tmp_path: Path, layers: int) -> None:
    built = build_model(subject(saved("qwen3", tmp_path), layers), "meta")
    pattern = CONFIGS["qwen3"].layer_types
    assert len(set(pattern)) == 2
    assert built.config.layer_types == [pattern[i % len(pattern)] for i in range(layers)]


def test_layers_are_those_of_both_sides(tmp_path: Path) -> None:
    built = build_model(subject(saved("bart", tmp_path), 3), "meta")
    assert len(built.model.encoder.layers) == len(built.model.decoder.layers) == 3


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"hidden_size": 33}, "The hidden size (33) is not a multiple"),
        ({"num_hidden_layers": "three"}, "num_hidden_layers"),
        ({"layer_types": ["full_attention"]}, "is not valid"),
    ],
)
def test_an_invalid_config_is_one_sentence(tmp_path: Path, entry: dict, says: str) -> None:
    config = json.loads(
        (tmp_path / saved("qwen3" if "layer_types" in entry else "llama", tmp_path) / "config.json").read_text()
    )
    (tmp_path / "config.json").write_text(json.dumps(config | entry))
    result = run("plan", "--model", str(tmp_path))
    assert isinstance(result.exception, CkptError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


def test_an_unknown_optimizer_is_refused(tmp_path: Path) -> None:
    model = saved("llama", tmp_path)
    assert "TrainingArguments knows adamw_torch" in " ".join(
        run("plan", "--model", model, "--optimizer", "x").stderr.split()
    )
    assert "did you mean adafactor?" in run("explain", "--model", model, "--optimizer", "adafacter").stderr


def test_a_guessed_optimizer_is_said(tmp_path: Path) -> None:
    result = run("plan", "--model", saved("llama", tmp_path), "--length", "8", "--policy", "full",
                 "--optimizer", "schedule_free_sgd")  # fmt: skip
    assert result.exit_code == 0
    assert "taken for that of 32-bit Adam" in result.stderr
