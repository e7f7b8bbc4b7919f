"""Offloading the inputs of checkpointed layers while no layer is checkpointed: accelerate's plugin refuses."""

from _symptom import confirm, failure
from accelerate import FullyShardedDataParallelPlugin


def plugin():
    return FullyShardedDataParallelPlugin(  # mistake: CKPT316
        fsdp_version=2,
        activation_checkpointing=False,
        activation_checkpointing_offload=True,
    )


def main():
    problem = failure(plugin)
    confirm("requires `activation_checkpointing=True`" in problem, problem)


if __name__ == "__main__":
    main()
