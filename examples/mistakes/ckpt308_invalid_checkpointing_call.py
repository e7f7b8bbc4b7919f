"""Three ways to ask for checkpointing that raise: a bool, a keyword of torch's function, a method of DDP."""

from _symptom import TINY, confirm, failure, on_two_ranks
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import LlamaConfig, LlamaForCausalLM


def with_a_flag():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable(True)  # mistake: CKPT308


def with_a_keyword():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable(use_reentrant=False)  # mistake: CKPT308


def after_wrapping():
    model = DDP(LlamaForCausalLM(LlamaConfig(**TINY)))
    model.gradient_checkpointing_enable()  # mistake: CKPT308


def main():
    found = [failure(with_a_flag), failure(with_a_keyword), on_two_ranks(lambda rank: failure(after_wrapping))]
    kinds = [problem.split(":")[0] for problem in found]
    confirm(kinds == ["TypeError", "TypeError", "AttributeError"], "; ".join(found))


if __name__ == "__main__":
    main()
