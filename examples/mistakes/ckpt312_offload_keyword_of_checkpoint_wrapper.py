"""fairscale's `offload_to_cpu` given to torch's `checkpoint_wrapper`: the first step fails."""

import torch
from _symptom import confirm, failure
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper


def build():
    blocks = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3)]
    return nn.Sequential(*(checkpoint_wrapper(block, offload_to_cpu=True) for block in blocks))  # mistake: CKPT312


def main():
    model = build()
    problem = failure(lambda: model(torch.randn(4, 16)))
    confirm("TypeError" in problem and "offload_to_cpu" in problem, problem)


if __name__ == "__main__":
    main()
