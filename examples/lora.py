"""LoRA from PEFT, gradient accumulation and a written policy. Run: `python examples/lora.py`.

The base model is frozen and nothing else has to be done for it: no `enable_input_require_grads`, no
`gradient_checkpointing=True`, no `use_reentrant`.
"""

from __future__ import annotations

import tempfile

from peft import LoraConfig, get_peft_model
from stdlib_text import VOCABULARY, byte_blocks
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

from hf_ckpt import SelectiveCkpt


def main() -> None:
    """Train the adapters for a few steps and show what each layer held."""
    base = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=192, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    model = get_peft_model(base, LoraConfig(r=4, lora_dropout=0.1, task_type="CAUSAL_LM"))
    checkpointing = SelectiveCkpt("(mlp+norm)@first(3)")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-3,
            logging_steps=2, save_strategy="no", report_to="none",
        )  # fmt: skip
        dataset = byte_blocks(count=16, length=64)
        Trainer(model, arguments, train_dataset=dataset, callbacks=[checkpointing]).train()
    print(checkpointing.report)


if __name__ == "__main__":
    main()
