"""The one line: `callbacks=[SelectiveCkpt()]` in an ordinary Trainer script.

Run: `python examples/trainer_minimal.py`, or on several GPUs
`accelerate launch --config_file examples/accelerate_fsdp.yaml examples/trainer_minimal.py`.
"""

from __future__ import annotations

import tempfile

from stdlib_text import VOCABULARY, byte_blocks
from transformers import AutoModelForCausalLM, Qwen3Config, Trainer, TrainingArguments

from hf_ckpt import SelectiveCkpt


def main() -> None:
    """Train for a few steps and show what the callback did."""
    model = AutoModelForCausalLM.from_config(
        Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=192, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    checkpointing = SelectiveCkpt()  # plans for the memory there is; SelectiveCkpt(budget="20GiB") for what you allow
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=4, per_device_train_batch_size=2, logging_steps=2, save_strategy="no", report_to="none"
        )
        trainer = Trainer(model, arguments, train_dataset=byte_blocks(count=16, length=64), callbacks=[checkpointing])
        trainer.train()
    if trainer.is_world_process_zero():
        print(checkpointing.report)


if __name__ == "__main__":
    main()
