"""`checkpoint` without `use_reentrant` is the reentrant variant: behind a frozen embedding nothing trains."""

import torch
from _symptom import confirm, gradients, missing
from torch import nn
from torch.utils.checkpoint import checkpoint


class Classifier(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.embedding = nn.Embedding(32, 16)
        self.embedding.requires_grad_(False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpoint(block, x) if self.checkpointing else block(x)  # mistake: CKPT101, CKPT104
        return self.head(x.mean(1))


def main():
    ids, labels = torch.randint(0, 32, (4, 8)), torch.tensor([0, 1, 2, 3])
    lost = {}
    for checkpointing in (False, True):
        model = Classifier(checkpointing)
        loss = nn.functional.cross_entropy(model(ids), labels)
        lost[checkpointing] = missing(gradients(model, loss))
    confirm(
        not lost[False] and len(lost[True]) == 6,
        f"{len(lost[True])} of 8 trainable tensors get no gradient, without checkpointing {len(lost[False])}",
    )


if __name__ == "__main__":
    main()
