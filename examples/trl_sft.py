"""Supervised fine-tuning with TRL's SFTTrainer. Run: `python examples/trl_sft.py`.

SFTConfig switches activation checkpointing on by itself; SelectiveCkpt takes its place, layer for layer.
"""

from __future__ import annotations

import sys
import tempfile

from stdlib_text import stdlib_text
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from hf_ckpt import SelectiveCkpt

try:
    from datasets import Dataset
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from trl import SFTConfig, SFTTrainer
except ModuleNotFoundError as error:
    sys.exit(f"trl_sft.py needs {error.name}, which is not installed: run `pip install trl`")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte and one that ends and pads: a tokenizer that needs no download."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: index for index, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")


def main() -> None:
    """Fine-tune on pieces of the standard library, completion style."""
    tokenizer = byte_tokenizer()
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=64, intermediate_size=192, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2,
            bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    paragraphs = [part for part in stdlib_text(20_000).decode("utf-8", "replace").split("\n\n") if part.strip()]
    checkpointing = SelectiveCkpt("full")
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            folder, max_steps=4, per_device_train_batch_size=2, max_length=64, logging_steps=2, save_strategy="no",
            report_to="none", bf16=False,
        )  # fmt: skip
        trainer = SFTTrainer(
            model,
            arguments,
            train_dataset=Dataset.from_dict({"text": paragraphs[:32]}),
            processing_class=tokenizer,
            callbacks=[checkpointing],
        )
        trainer.train()
    print(checkpointing.report)


if __name__ == "__main__":
    main()
