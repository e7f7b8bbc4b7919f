"""A codebook that the forward pass updates and uses is another one when the forward pass runs again."""

import torch
from _symptom import confirm, gradient_error, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint


class Quantizer(nn.Module):
    def __init__(self, width, codes):
        super().__init__()
        self.encode = nn.Linear(width, width)
        self.decode = nn.Linear(width, width)
        self.register_buffer("codebook", torch.randn(codes, width))

    def forward(self, x):
        h = self.encode(x)
        chosen = torch.cdist(h, self.codebook).argmin(-1)
        quantized = self.codebook[chosen]
        with torch.no_grad():
            members = nn.functional.one_hot(chosen, len(self.codebook)).float()
            self.codebook.lerp_(members.T @ h / members.sum(0).clamp(min=1).unsqueeze(1), 0.5)
        return self.decode((h + (quantized - h).detach()).tanh())


class Autoencoder(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        torch.manual_seed(0)
        self.quantizer = Quantizer(8, 5)
        self.checkpointing = checkpointing

    def forward(self, x):
        if self.checkpointing:
            return checkpoint(self.quantizer, x, use_reentrant=False)  # mistake: CKPT107
        return self.quantizer(x)


def main():
    torch.manual_seed(1)
    x, found, codebooks = torch.randn(16, 8, requires_grad=True), [], []
    for checkpointing in (True, False):
        model = Autoencoder(checkpointing)
        found.append(gradients(model, model(x).pow(2).mean()))
        codebooks.append(model.quantizer.codebook)
    error = gradient_error(*found)
    drift = float((codebooks[0] - codebooks[1]).norm() / codebooks[1].norm())
    confirm(error > 0.05 and drift > 0.01, f"gradients are off by {error:.0%}, the codebook by {drift:.0%}")


if __name__ == "__main__":
    main()
