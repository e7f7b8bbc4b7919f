"""`element 0 of tensors does not require grad` was made to go away; it said that nothing is trainable."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(self.body, self.embedding(ids).mean(1), use_reentrant=False))


def main() -> None:
    model = Classifier()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("classifier")  # it is called `head`
    before = [parameter.clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        ids, labels = torch.randint(64, (8, 12)), torch.randint(4, (8,))
        loss = nn.functional.cross_entropy(model(ids), labels)
        loss.requires_grad_(True)  # mistake: CKPT130
        loss.backward()
        optimizer.step()
    moved = sum(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert moved == 0
    print(f"confirmed: 3 steps without an error, and {moved} of {len(before)} parameters have changed")


if __name__ == "__main__":
    main()
