"""The mask is passed on without checkpointing and forgotten with it."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        attended, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return x + attended


class Encoder(nn.Module):
    def __init__(self, checkpointing: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.checkpointing = checkpointing

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)  # mistake: CKPT128
            else:
                x = block(x, mask)
        return x


def main() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(2, 8, 16), nn.Transformer.generate_square_subsequent_mask(8)
    plain, checkpointed = Encoder(checkpointing=False), Encoder(checkpointing=True)
    checkpointed.load_state_dict(plain.state_dict())
    wanted, got = plain(x, mask), checkpointed(x, mask)
    difference = ((got - wanted).norm() / wanted.norm()).item()
    assert difference > 0.01
    print(f"confirmed: turning checkpointing on moves the output by {difference:.0%}: the model sees the future")


if __name__ == "__main__":
    main()
