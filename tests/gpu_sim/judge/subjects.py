"""What is trained on the simulated cards: real architectures at their real width. Pure data, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Setup(StrEnum):
    """How a model is fine-tuned."""

    FULL = "full"
    MIXED = "full, fp32 weights, autocast"
    LORA = "LoRA, dropout 0.05"
    QLORA = "QLoRA (NF4), dropout 0.05"
    FSDP2 = "full, fp32 weights, FSDP2 over 8 cards"

    @property
    def trained(self) -> float:
        """Gradients and the optimizer's state, over the bytes of all weights."""
        return {Setup.LORA: 0.06, Setup.QLORA: 0.06}.get(self, 3.0)

    @property
    def on_one_card(self) -> float:
        """What one card stores of the weights as they are built."""
        return {Setup.QLORA: 0.3, Setup.FSDP2: 1 / 8}.get(self, 1.0)


@dataclass(frozen=True)
class Subject:
    """A model on batches of sequences of ``length`` tokens.

    ``token_bytes`` is about what a token saves in all layers; it only sets how large a batch a card gets.
    """

    name: str
    kind: str
    shape: Mapping[str, Any]
    setups: tuple[Setup, ...]
    token_bytes: int
    length: int = 2048


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject(
            "Llama 7B",
            "llama",
            {
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "intermediate_size": 11008,
                "num_attention_heads": 32,
                "vocab_size": 32000,
            },
            (Setup.FULL, Setup.LORA, Setup.QLORA, Setup.FSDP2),
            token_bytes=5_700_000,
        ),
        Subject(
            "Llama 8B",
            "llama",
            {
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 128256,
            },
            (Setup.FULL, Setup.LORA, Setup.QLORA, Setup.FSDP2),
            token_bytes=6_400_000,
        ),
        Subject(
            "Llama 1.3B",
            "llama",
            {
                "num_hidden_layers": 24,
                "hidden_size": 2048,
                "intermediate_size": 5504,
                "num_attention_heads": 16,
                "vocab_size": 32000,
            },
            (Setup.MIXED, Setup.LORA, Setup.QLORA, Setup.FSDP2),
            token_bytes=2_200_000,
        ),
        Subject(
            "Qwen3 MoE (8 layers)",
            "qwen3_moe",
            {
                "num_hidden_layers": 8,
                "hidden_size": 2048,
                "intermediate_size": 6144,
                "moe_intermediate_size": 768,
                "num_experts": 32,
                "num_experts_per_tok": 8,
                "num_attention_heads": 32,
                "num_key_value_heads": 4,
                "head_dim": 128,
                "vocab_size": 151936,
            },
            (Setup.FULL,),
            token_bytes=2_000_000,
        ),
    )
}

#: Rivals and shares keep what they keep: their batches would take this much of the room if all were kept. Budgets that
#: bound the device are asked for more than it has.
ALL_KEPT = {"auto": 1.5, "0.9 of the card": 1.5}
OTHERWISE = 0.7

#: Nobody fine-tunes a model on a card that has less room than this share of it.
LEAST_ROOM = 0.15

#: The first step is measured, plans settle in the next ones.
MOST_STEPS = 16
#: So many steps in a row that read the same, under the same plan, are what every later one reads: nothing is left to
#: chance on a simulated card.
ALIKE = 3

LABELS = ("auto", "0.9 of the card", "0.5", "0.3", "full", "HF's own", "torch's SAC")


def rows_for(subject: Subject, label: str, room: float) -> int:
    """Rows of a batch for a card with so many bytes beside the model, its gradients and its optimizer."""
    kept = ALL_KEPT.get(label, OTHERWISE) * room
    return max(1, round(kept / (subject.token_bytes * subject.length)))
