"""peft prepares a quantized model with the reentrant variant unless it is told not to."""

from _symptom import TINY, confirm, reentrant_nodes, tokens
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import LlamaConfig, LlamaForCausalLM

LORA = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def load():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.is_loaded_in_4bit = True  # what bitsandbytes sets; the weights stay float here
    return model


def build():
    model = load()
    model = prepare_model_for_kbit_training(model)  # mistake: CKPT103
    return get_peft_model(model, LORA).train()


def build_right():
    model = load()
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    return get_peft_model(model, LORA).train()


def main():
    found, wanted = (reentrant_nodes(model(**tokens()).loss) for model in (build(), build_right()))
    confirm((found, wanted) == (3, 0), f"{found} of 3 layers run the reentrant variant, {wanted} with the dict given")


if __name__ == "__main__":
    main()
