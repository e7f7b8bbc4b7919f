"""A keyword that no version takes, hidden by `except TypeError`: the fallback runs every time."""

import warnings

from _symptom import TINY, confirm
from transformers import LlamaConfig, LlamaForCausalLM

warnings.simplefilter("ignore")


def build():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    try:
        model.gradient_checkpointing_enable(preserve_rng_state=False)  # mistake: CKPT214
    except TypeError:
        model.gradient_checkpointing_enable()
    return model


def main():
    asked = build().model.layers[0]._gradient_checkpointing_func.keywords
    confirm("preserve_rng_state" not in asked, f"the model runs with {asked}: the keyword never arrived")


if __name__ == "__main__":
    main()
