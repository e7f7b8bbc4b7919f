"""A block that returns a dict, checkpointed reentrant: nothing in it trains, and the loss falls all the same."""

import torch
from _symptom import confirm, gradients, missing
from torch import nn
from torch.utils.checkpoint import checkpoint


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        inner = torch.relu(self.up(x))
        return {"last_hidden_state": self.down(inner), "hidden": inner}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.encoder, self.head = nn.Embedding(32, 16), Encoder(), nn.Linear(16, 4)

    def forward(self, ids):
        x = self.embedding(ids)
        x = x + checkpoint(self.encoder, x, use_reentrant=True)["last_hidden_state"]  # mistake: CKPT116
        return self.head(x.mean(1))


def main():
    torch.manual_seed(0)
    model, ids, labels = Classifier(), torch.randint(32, (4, 8)), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(10):
        loss = nn.functional.cross_entropy(model(ids), labels)
        lost = missing(gradients(model, loss))
        optimizer.step()
        losses.append(loss.item())
    confirm(
        losses[-1] < losses[0] and len(lost) == 4,
        f"the loss falls from {losses[0]:.2f} to {losses[-1]:.2f}, and {len(lost)} of 4 encoder tensors got no gradient",
    )


if __name__ == "__main__":
    main()
