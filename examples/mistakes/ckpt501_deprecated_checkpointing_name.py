"""The old names warn with every use and go away in transformers 6."""

import warnings

from _symptom import TINY, confirm
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable()  # mistake: CKPT501
    return model


def main():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        build()
    said = [str(warning.message) for warning in seen if "will be removed in v6" in str(warning.message)]
    confirm(len(said) == 1, f"transformers warns: {said[0] if said else 'nothing'}")


if __name__ == "__main__":
    main()
