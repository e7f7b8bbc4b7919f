"""A model whose encoder hands the hidden states on by keyword, trained with the reentrant variant."""

import torch
from _symptom import confirm, gradients, missing
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


class Block(GradientCheckpointingLayer):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, hidden_states, scale=1.0):
        return hidden_states + scale * self.down(torch.relu(self.up(hidden_states)))


class Encoder(PreTrainedModel):
    config_class = PreTrainedConfig
    supports_gradient_checkpointing = True

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Linear(16, 16)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 4)
        self.post_init()

    def forward(self, x):
        hidden_states = self.embedding(x)
        for layer in self.layers:
            hidden_states = layer(hidden_states=hidden_states, scale=0.5)  # mistake: CKPT118
        return self.head(hidden_states)


def main():
    model = Encoder(PreTrainedConfig()).train()
    x, labels = torch.randn(4, 16), torch.tensor([0, 1, 2, 3])
    plain = missing(gradients(model, nn.functional.cross_entropy(model(x), labels)))
    model.gradient_checkpointing_enable({"use_reentrant": True})
    lost = missing(gradients(model, nn.functional.cross_entropy(model(x), labels)))
    confirm(not plain and len(lost) == 14, f"{len(lost)} of 16 tensors, all but the head's, get no gradient")


if __name__ == "__main__":
    main()
