"""What the loss of transformers before 4.46 held, counted by running it: logits in float32, and a shifted copy of them.

It stood in every model (``LlamaForCausalLM.forward``); published figures of 2023 and 2024 were taken with it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from hf_ckpt.measuring.peak import PeakMeter

_TOKENS, _WIDTH = 64, 8


def older_loss(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the logits that the model returned with it."""
    logits = logits.float()
    shifted = logits[..., :-1, :].contiguous()
    loss = F.cross_entropy(shifted.view(-1, logits.shape[-1]), labels[..., 1:].contiguous().view(-1))
    return loss, logits


def bytes_per_logit() -> float:
    """Bytes at the peak of a step for each logit of a bfloat16 model: the slope over two vocabularies."""
    small, large = 1024, 4096
    return (_peak(large) - _peak(small)) / (_TOKENS * (large - small))


def _peak(vocabulary: int) -> int:
    head = torch.nn.Linear(_WIDTH, vocabulary, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    hidden = torch.ones(1, _TOKENS, _WIDTH, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(1, _TOKENS, dtype=torch.long)
    with PeakMeter(torch.device("cpu")) as meter:
        loss, logits = older_loss(head(hidden), labels)
        loss.backward()
        del logits  # the caller had them until here
    return meter.peak_bytes
