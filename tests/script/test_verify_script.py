"""``hf-ckpt verify train.py``: real scripts, each in a process of its own."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ..forked import Forked, Run

#: What every script begins with.
BEGIN = """
    import sys
    import torch
    from pathlib import Path
    from transformers import GenerationConfig, GPT2Config, LlamaConfig, AutoModelForCausalLM, Trainer, TrainingArguments

    torch.manual_seed(0)
    small = dict(vocab_size=64, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    llama = LlamaConfig(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=3, **small)
    gpt2 = GPT2Config(n_embd=32, n_layer=3, n_head=4, **small)
    ids = torch.arange(16) % 64
    data = [{"input_ids": ids + i, "labels": ids + i} for i in range(16)]
    common = dict(per_device_train_batch_size=2, num_train_epochs=1, use_cpu=True, disable_tqdm=True)
"""


def verify(forked: Forked, folder: Path, script: str, *options: str, after: tuple[str, ...] = ()) -> Run:
    (folder / "train.py").write_text(dedent(BEGIN) + dedent(script))
    return forked.run("-m", "hf_ckpt", "verify", *options, "train.py", *after, folder=folder)


def line_of(folder: Path, word: str) -> int:
    lines = (folder / "train.py").read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if word in line)


def test_a_trainer_without_checkpointing_is_proven_and_writes_nothing(forked: Forked, tmp_path: Path) -> None:
    script = """
    assert __name__ == "__main__" and sys.argv == ["train.py", "--rate", "1e-4"], sys.argv
    args = TrainingArguments("out", save_steps=1, eval_strategy="epoch", **common)
    trainer = Trainer(AutoModelForCausalLM.from_config(llama), args, train_dataset=data, eval_dataset=data)
    trainer.train(resume_from_checkpoint=False)
    Path("after").write_text("the script went on")
    """
    result = verify(forked, tmp_path, script, "--policy", "full", after=("--rate", "1e-4"))
    assert result.status == 0, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert "train.py: Trainer, policy full, put in, stopped after 2 optimizer steps" in said
    assert "bitwise equal: the loss and" in said
    assert "model.layers.0..2" in said or "model.layers.0" in said
    assert "the doctor found nothing" in said
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_checkpointing_of_its_own_is_judged_as_it_is(forked: Forked, tmp_path: Path) -> None:
    script = """
    args = TrainingArguments("out", gradient_checkpointing=True,
                             gradient_checkpointing_kwargs={"use_reentrant": False, "preserve_rng_state": False}, **common)
    trainer = Trainer(AutoModelForCausalLM.from_config(gpt2), args, train_dataset=data)
    try:
        trainer.train()  # trains
    finally:
        trainer.save_model("final")
        torch.save(trainer.model.state_dict(), "final.pt")
        GenerationConfig().save_pretrained("final")
        raise RuntimeError("on the way out")
    """
    result = verify(forked, tmp_path, script)
    assert result.status == 1, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert "the script's own activation checkpointing" in said
    assert "3 checkpointed calls in a forward" in said
    assert "gradients differ (loss equal)" in said
    assert "CKPT108 first in `transformer.h.0" in said
    assert f"train.py:{line_of(tmp_path, '# trains')}: CKPT108 this checkpoint has preserve_rng_state=False" in said
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.slow
def test_checkpointing_of_its_own_without_effect_is_told(forked: Forked, tmp_path: Path) -> None:
    script = """
    model = AutoModelForCausalLM.from_config(llama)
    for layer in model.model.layers:
        layer.train = lambda mode=True, layer=layer: torch.nn.Module.train(layer, False)
    args = TrainingArguments("out", gradient_checkpointing=True, **common)
    Trainer(model, args, train_dataset=data).train()
    """
    result = verify(forked, tmp_path, script)
    assert result.status == 1, result.stdout + result.stderr
    assert "no checkpointed calls in a forward" in result.stdout
    assert "CKPT203 model.layers.0" in result.stdout


def test_a_callback_of_its_own_is_kept(forked: Forked, tmp_path: Path) -> None:
    script = """
    from hf_ckpt import SelectiveCkpt

    class Peeks(Trainer):
        def compute_loss(self, model, inputs, **_):
            loss = model(**inputs).loss
            model.eval()  # too early
            return loss

    callbacks = [SelectiveCkpt("attention")]
    Peeks(AutoModelForCausalLM.from_config(llama), TrainingArguments("out", **common), train_dataset=data,
          callbacks=callbacks).train()
    """
    result = verify(forked, tmp_path, script)
    assert result.status == 1, result.stdout + result.stderr
    assert "Peeks, policy attention, the script's own" in result.stdout
    assert "CKPT114 the training mode of the model changed" in result.stdout


def test_a_loop_of_its_own_is_stopped_and_told_what_to_write(forked: Forked, tmp_path: Path) -> None:
    script = """
    model = AutoModelForCausalLM.from_config(llama).train()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10_000):
        model(input_ids=ids[None], labels=ids[None]).loss.backward()
        try:
            optimizer.step()  # steps
        finally:
            torch.save(model.state_dict(), "final.pt")
        optimizer.zero_grad()
    """
    result = verify(forked, tmp_path, script)
    assert result.status == 2, result.stdout + result.stderr
    said = " ".join(result.stderr.split())
    assert f"train.py:{line_of(tmp_path, '# steps')} steps the optimizer in a loop of its own" in said
    assert "hf_ckpt.verify(model, lambda: model(**batch).loss" in said
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("sys.exit(3)", "train.py left with exit code 3 without a training step"),
        ("raise KeyError('data')", "train.py ended with KeyError before its second step"),
    ],
)
def test_a_script_that_does_not_train_is_one_sentence(forked: Forked, tmp_path: Path, script: str, says: str) -> None:
    result = verify(forked, tmp_path, script)
    assert result.status == 2, result.stdout + result.stderr
    assert says in result.stderr
    assert "runpy" not in result.stderr


@pytest.mark.slow
def test_a_script_that_runs_out_of_memory_is_diagnosed_on_a_page(forked: Forked, tmp_path: Path) -> None:
    script = """
    from hf_ckpt.measuring.memory_limit import MemoryLimit

    long = torch.arange(256) % 64
    data = data[:2] + [{"input_ids": long, "labels": long} for _ in range(8)]
    model = AutoModelForCausalLM.from_config(llama)
    args = TrainingArguments("out", train_sampling_strategy="sequential", **common)
    trainer = Trainer(model, args, train_dataset=data)
    with MemoryLimit(1_500_000, model):
        trainer.train()
    """
    result = verify(forked, tmp_path, script, "--policy", "full", "--html", "oom.html")
    assert result.status == 1, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert "Out of memory in the" in said
    assert "this batch is larger than any that fitted" in said
    assert "bitwise equal" in said
    assert "<svg" in (tmp_path / "oom.html").read_text()


@pytest.mark.slow
def test_trls_trainer_with_adapters(forked: Forked, tmp_path: Path) -> None:
    script = """
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    letters = {chr(i): i for i in range(64)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(letters, chr(3))), pad_token=chr(2))
    args = SFTConfig("out", bf16=False, dataset_kwargs={"skip_prepare_dataset": True}, **common)
    rows = Dataset.from_list([{"input_ids": e["input_ids"].tolist()} for e in data])
    SFTTrainer(AutoModelForCausalLM.from_config(llama), args, train_dataset=rows, processing_class=tokenizer,
               peft_config=LoraConfig(r=2, lora_dropout=0.1, target_modules=["q_proj"])).train()
    """
    result = verify(forked, tmp_path, script, "--policy", "attention")  # TRL's own switch is on
    assert result.status == 0, result.stdout + result.stderr
    assert "SFTTrainer, policy attention, put in" in result.stdout
    assert "bitwise equal" in result.stdout


@pytest.mark.slow
def test_ranks_of_a_launcher_are_proven_together(forked: Forked, tmp_path: Path) -> None:
    script = """
    args = TrainingArguments("out", ddp_backend="gloo", **common)
    Trainer(AutoModelForCausalLM.from_config(llama), args, train_dataset=data).train()
    """
    (tmp_path / "train.py").write_text(dedent(BEGIN) + dedent(script))
    first, second = forked.run_ranks("-m", "hf_ckpt", "verify", "--policy", "full", "train.py", folder=tmp_path)
    assert (first.status, second.status) == (0, 0), first.stderr + second.stderr
    assert "bitwise equal" in first.stdout
    assert second.stdout == ""
