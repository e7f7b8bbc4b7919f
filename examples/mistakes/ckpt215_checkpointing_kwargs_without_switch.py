"""Arguments for checkpointing without the switch: the Trainer never looks at them."""

import tempfile
import warnings

from _symptom import TINY, Executions, confirm, tokens
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

warnings.simplefilter("ignore")


def train(folder):
    args = TrainingArguments(  # mistake: CKPT215
        folder,
        activation_checkpointing_kwargs={"use_reentrant": False},
        max_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    batch = tokens()
    rows = [{name: rows[0] for name, rows in batch.items()}] * 8
    with Executions(*(layer.mlp for layer in model.model.layers)) as runs:
        Trainer(model, args, train_dataset=rows).train()
    return runs.count


def main():
    with tempfile.TemporaryDirectory() as folder:
        count = train(folder)
    confirm(count == 3, f"{count} layer executions in a step of 3 layers: nothing was recomputed")


if __name__ == "__main__":
    main()
