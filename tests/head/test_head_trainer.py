"""The chunked head under the real Trainer: accumulation, evaluation, label smoothing, a loss of the user's own."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

from hf_ckpt.head.install import install

CONFIG = LlamaConfig(
    num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=128, use_cache=False
)


def dataset():
    text = [ord(c) % 128 for c in Path(torch.__file__).read_text(encoding="utf-8")[: 40 * 24]]
    rows = [text[i : i + 24] for i in range(0, len(text), 24)]
    return [{"input_ids": r, "labels": [-100] * (i % 7) + r[i % 7 :]} for i, r in enumerate(rows)]


def train(tmp_path, chunks, *, compute_loss_func=None, **options):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG)
    handle = install(model, chunks) if chunks else None
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        **options,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=dataset(),
        eval_dataset=dataset()[:4],
        compute_loss_func=compute_loss_func,
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, model, handle, trainer


def test_gradient_accumulation_is_bitwise_equal_with_one_chunk(tmp_path):
    losses, model, _, _ = train(tmp_path, None)
    chunked_losses, chunked, handle, _ = train(tmp_path, 1)
    assert handle.uses == 12
    assert chunked_losses == losses
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), chunked.parameters(), strict=True))


@pytest.mark.parametrize("bf16", [False, True])
def test_more_chunks_train_alike(tmp_path, bf16):
    losses, *_ = train(tmp_path, None, bf16=bf16)
    chunked, _, handle, _ = train(tmp_path, 5, bf16=bf16)
    assert handle.uses == 12
    assert chunked == pytest.approx(losses, rel=1e-2 if bf16 else 1e-5)


def test_evaluation_has_its_logits(tmp_path):
    _, _, handle, trainer = train(tmp_path, 4)
    uses = handle.uses
    prediction = trainer.predict(dataset()[:4])
    assert prediction.predictions.shape == (4, 24, 128)
    assert handle.uses == uses


def test_label_smoothing_and_a_loss_function_get_whole_logits(tmp_path):
    smoothed, _, handle, _ = train(tmp_path, 4, label_smoothing_factor=0.1)
    assert handle.uses == 0
    assert smoothed == train(tmp_path, None, label_smoothing_factor=0.1)[0]

    def mean_square(outputs, labels, num_items_in_batch=None):
        return outputs.logits.float().pow(2).mean()

    own, _, handle, _ = train(tmp_path, 4, compute_loss_func=mean_square)
    assert handle.uses == 0
    assert own == train(tmp_path, None, compute_loss_func=mean_square)[0]
