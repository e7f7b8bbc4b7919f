"""FSDP's checkpointing and the Trainer's: the Trainer refuses to be built."""

import tempfile

from _symptom import TINY, confirm, failure
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def arguments(output):
    return TrainingArguments(
        output,
        use_cpu=True,
        report_to="none",
        fsdp="full_shard",
        fsdp_config={"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "activation_checkpointing": True},
        gradient_checkpointing=True,  # mistake: CKPT303
    )


def main():
    with tempfile.TemporaryDirectory() as output:
        args = arguments(output)
        assert args.device.type == "cpu"
        # Without an accelerator FSDP is not selected; on one it leaves its plugin in the state, as here.
        Accelerator(cpu=True).state.fsdp_plugin = FullyShardedDataParallelPlugin(**args.fsdp_plugin_args)
        model = LlamaForCausalLM(LlamaConfig(**TINY))
        problem = failure(lambda: Trainer(model=model, args=args))
    confirm("can't both be set to True" in problem, problem)


if __name__ == "__main__":
    main()
