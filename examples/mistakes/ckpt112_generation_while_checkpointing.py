"""A callback that shows samples while the model trains: with checkpointing on, they are not what the model says."""

import torch
from _symptom import TINY, confirm
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

PROMPT = torch.arange(3, 11)[None]
shown = []


class Sample(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        text = model.generate(PROMPT, max_new_tokens=8, do_sample=False)  # mistake: CKPT112
        shown.append(text[0, PROMPT.shape[1] :].tolist())


def main():
    torch.manual_seed(0)
    # No token ends a text, so that all have the same length.
    model = LlamaForCausalLM(LlamaConfig(**TINY | {"eos_token_id": None}, initializer_range=0.3))
    args = TrainingArguments(
        "out", gradient_checkpointing=True, max_steps=1, report_to=[], save_strategy="no", disable_tqdm=True
    )
    data = [{"input_ids": PROMPT[0], "labels": PROMPT[0]}] * 4
    Trainer(model, args, train_dataset=data, callbacks=[Sample()]).train()
    model.eval()
    wanted = model.generate(PROMPT, max_new_tokens=8, do_sample=False)[0, PROMPT.shape[1] :].tolist()
    wrong = sum(a != b for a, b in zip(shown[0], wanted, strict=True))
    confirm(
        wrong > 0 and shown[0][0] == wanted[0],
        f"{wrong} of {len(wanted)} tokens shown in training differ from those of the same model in eval mode",
    )


if __name__ == "__main__":
    main()
