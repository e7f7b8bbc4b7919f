"""Every example runs as its first lines say, in a process of its own (`tests/forked`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Imported by the others.
SHARED = {"stdlib_text.py"}
SINGLE = {"trainer_minimal.py": "planned per batch", "lora.py": "recompute mlp+norm", "trl_sft.py": "recompute layer"}
TWO_RANKS = ("fsdp1.py", "fsdp2.py")


def test_every_script_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SINGLE, *TWO_RANKS, *SHARED, "demo.py", "finetune.py"}


@pytest.mark.parametrize(("script", "decision"), SINGLE.items(), ids=list(SINGLE))
def test_single_process(script, decision, forked, tmp_path):
    done = forked.run(EXAMPLES / script, folder=tmp_path)
    assert done.status == 0, done.stderr
    assert decision in done.stdout
    assert "all  " in done.stdout  # the last row: bytes were measured
    assert not list(tmp_path.iterdir())


@pytest.fixture
def saved_model(tmp_path):
    """A folder that ``from_pretrained`` reads: a small Llama and a tokenizer with a token for every byte."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from trl_sft import byte_tokenizer
    finally:
        sys.path.remove(str(EXAMPLES))
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    for part in (LlamaForCausalLM(config), tokenizer):
        part.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_finetune_as_a_user_would(saved_model, forked, tmp_path):
    options = ("--model", saved_model, "--data", EXAMPLES / "README.md", "--output", tmp_path / "out")
    short = ("--steps", "3", "--batch", "2", "--length", "32")
    done = forked.run(EXAMPLES / "finetune.py", *options, *short, folder=tmp_path)
    assert done.status == 0, done.stderr
    assert "planned per batch" in done.stdout
    assert (tmp_path / "out" / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("script", ["fsdp1.py", "fsdp2.py"])
def test_two_ranks(script, forked):
    ranks = forked.run_ranks(EXAMPLES / script, folder=EXAMPLES.parent)
    if any("terminate called without an active exception" in rank.stderr for rank in ranks):
        # Gloo's threads may abort an interpreter that ends while they run; a script for users does not work round it.
        ranks = forked.run_ranks(EXAMPLES / script, folder=EXAMPLES.parent)
    for rank in ranks:
        assert rank.status == 0, rank.stderr
        assert "equal, every bit" in rank.stdout


def test_trl_missing_is_one_sentence(tmp_path, forked):
    script = tmp_path / "without_trl.py"
    script.write_text(
        "import runpy, sys; sys.modules['trl'] = None; sys.path.insert(0, 'examples')\n"
        "runpy.run_path('examples/trl_sft.py', run_name='__main__')"
    )
    done = forked.run(script, folder=EXAMPLES.parent)
    assert done.status == 1
    assert done.stderr.splitlines()[-1] == "trl_sft.py needs trl, which is not installed: run `pip install trl`"
    assert "Traceback" not in done.stderr
