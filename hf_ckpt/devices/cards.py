"""The cards that ``hf-ckpt plan --gpu`` knows: data, with a source beside every number. Pure, no torch.

A new card is one more entry. Rates are of dense products; data sheets often print the doubled ones of sparse products.
"""

from __future__ import annotations

from difflib import get_close_matches

from ..errors import DeviceError
from .profile import DeviceProfile, Figure

_GIB = 1 << 30

# What of the data sheet's rate large products reach, by Stas Bekman's Machine Learning Engineering.
_MAMF = "github.com/stas00/ml-engineering compute/accelerator, maximum achievable matmul FLOPS, bf16"
_A100_REACHED = Figure(271.2e12, f"{_MAMF}: A100 SXM, torch 2.6")
_H100_REACHED = Figure(794.5e12, f"{_MAMF}: H100 SXM, torch 2.7")
_AMPERE = _A100_REACHED.value / 312e12
_HOPPER = _H100_REACHED.value / 989e12
_LIKE_A100 = "the share that an A100 SXM reaches (271.2 of 312 TFLOP/s, ml-engineering's MAMF)"
_LIKE_H100 = "the share that an H100 SXM reaches (794.5 of 989 TFLOP/s, ml-engineering's MAMF)"

_FLASH_2 = "FlashAttention-2 (arXiv:2307.08691): 50 to 73 % of an A100's peak; the middle"
_FLASH_3 = "FlashAttention-3 (arXiv:2407.08608): up to 75 % of an H100's peak"
_FP32_ATTENTION = "no publication found: half of the rate of products"

_STREAM = "an assumption between copies (about 92 % on an H100) and torch's element-wise kernels"
_LAUNCH = Figure(
    5e-6, "an assumption: torch's eager dispatch takes a few microseconds an op; measured on the card itself"
)
_REPLAY = Figure(1e-4, "an assumption, of the size that tests/benchmarks/host_cost.py measures on a CPU")
_LINK = "an assumption: what pinned copies usually reach of one direction"


def _card(
    name: str, title: str, capability: tuple[int, int], *, gib: Figure, half: Figure, single: Figure, bandwidth: Figure,
    link: Figure, reached: Figure | None = None, attention: tuple[float, str] = (0.615, _FLASH_2),
) -> DeviceProfile:  # fmt: skip
    share, like = (_HOPPER, _LIKE_H100) if capability >= (9, 0) else (_AMPERE, _LIKE_A100)
    matmul = {"half": reached or half.share(share, like), "single": single.share(share, like)}
    return DeviceProfile(
        name=name,
        title=title,
        capability=capability,
        capacity=Figure(int(gib.value * _GIB), gib.source),
        peak={"half": half, "single": single},
        matmul=matmul,
        attention={"half": half.share(*attention), "single": matmul["single"].share(0.5, _FP32_ATTENTION)},
        bandwidth=bandwidth,
        stream=bandwidth.share(0.85, _STREAM),
        launch=_LAUNCH,
        replay=_REPLAY,
        host_link=link.share(0.8, _LINK),
    )


def _reported(gib: float, where: str) -> Figure:
    """As torch.OutOfMemoryError prints it; with the driver it differs by a quarter of a GiB."""
    return Figure(gib, f"total capacity of {gib} GiB, {where}")


_GEN3 = Figure(16e9, "PCIe 3.0 x16, one direction")
_GEN4 = Figure(32e9, "PCIe 4.0 x16, one direction (64 GB/s in both)")
_GEN5 = Figure(64e9, "PCIe 5.0 x16, one direction (128 GB/s in both)")
_A100 = "NVIDIA A100 Tensor Core GPU data sheet, SXM"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet, SXM"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet, SXM"
_L40S = "NVIDIA L40S data sheet"
_ADA = "NVIDIA Ada GPU architecture whitepaper, GeForce RTX 4090"
_GA102 = "NVIDIA Ampere GA102 GPU architecture whitepaper, GeForce RTX 3090"
_T4 = "NVIDIA T4 data sheet"

CARDS: dict[str, DeviceProfile] = {
    card.name: card
    for card in (
        _card("a100-40", "NVIDIA A100-SXM4-40GB", (8, 0), gib=_reported(39.5, "github.com/TianheWu/CoSeR issue 10"),
              half=Figure(312e12, f"{_A100}: BF16"), single=Figure(19.5e12, f"{_A100}: FP32"),
              bandwidth=Figure(1.555e12, f"{_A100}: 1,555 GB/s"),
              link=_GEN4, reached=_A100_REACHED),
        _card("a100", "NVIDIA A100-SXM4-80GB", (8, 0),
              gib=_reported(79.25, "github.com/levihsu/OOTDiffusion issue 235"),
              half=Figure(312e12, f"{_A100}: BF16"), single=Figure(19.5e12, f"{_A100}: FP32"),
              bandwidth=Figure(2.039e12, f"{_A100}: 2,039 GB/s"),
              link=_GEN4, reached=_A100_REACHED),
        _card("h100", "NVIDIA H100 80GB HBM3", (9, 0), gib=_reported(79.11, "github.com/vllm-project/vllm issue 27508"),
              half=Figure(989e12, f"{_H100}: BF16, dense"), single=Figure(67e12, f"{_H100}: FP32"),
              bandwidth=Figure(3.35e12, f"{_H100}: 3.35 TB/s"), link=_GEN5, reached=_H100_REACHED,
              attention=(0.6, f"{_FLASH_3}, backward less")),
        _card("h200", "NVIDIA H200", (9, 0), gib=_reported(139.8, "in logs of several users, 139.72 to 139.81"),
              half=Figure(989e12, f"{_H200}: BF16, dense"),
              single=Figure(67e12, f"{_H200}: FP32"), bandwidth=Figure(4.8e12, f"{_H200}: 4.8 TB/s"), link=_GEN5,
              attention=(0.6, f"{_FLASH_3}, backward less")),
        _card("l40s", "NVIDIA L40S", (8, 9),
              gib=_reported(44.42, "github.com/stepfun-ai/Step-Video-T2V issue 8; others print up to 44.53"),
              half=Figure(362.05e12, f"{_L40S}: BF16, dense"), single=Figure(91.6e12, f"{_L40S}: FP32"),
              bandwidth=Figure(864e9, f"{_L40S}: 864 GB/s"), link=_GEN4),
        _card("rtx4090", "NVIDIA GeForce RTX 4090", (8, 9),
              gib=_reported(23.52, "github.com/Soul-AILab/SoulX-FlashTalk issue 5; others print up to 23.68"),
              half=Figure(165.2e12, f"{_ADA}: BF16, dense, FP32 accumulate"), single=Figure(82.6e12, f"{_ADA}: FP32"),
              bandwidth=Figure(1.008e12, f"{_ADA}: 1,008 GB/s"), link=_GEN4),
        _card("rtx3090", "NVIDIA GeForce RTX 3090", (8, 6), gib=_reported(23.7, "github.com/GaoLii/DSP issue 10"),
              half=Figure(71e12, f"{_GA102}: BF16, dense, FP32 accumulate"), single=Figure(35.6e12, f"{_GA102}: FP32"),
              bandwidth=Figure(936e9, f"{_GA102}: 936 GB/s"), link=_GEN4),
        _card("t4", "Tesla T4", (7, 5), gib=_reported(14.75, "github.com/hpcaitech/Open-Sora issue 697"),
              half=Figure(65e12, f"{_T4}: FP16"), single=Figure(8.1e12, f"{_T4}: FP32"),
              bandwidth=Figure(300e9, f"{_T4}: 300 GB/s"), link=_GEN3),
    )
}  # fmt: skip
_OTHER_NAMES = {"a100-80": "a100", "h100-80": "h100", "4090": "rtx4090", "3090": "rtx3090", "l40s-48": "l40s"}


def card_named(name: str) -> DeviceProfile:
    """The profile of a card.

    Args:
        name: A card's name, in any case, with or without spaces, dashes and ``rtx``.

    Returns:
        Its profile.

    Raises:
        DeviceError: there is none; the message names those there are.
    """
    asked = name.lower().strip()
    found = {_plain(key): card for key, card in CARDS.items()} | {_plain(k): CARDS[v] for k, v in _OTHER_NAMES.items()}
    card = found.get(_plain(asked))
    if card is not None:
        return card
    near = get_close_matches(asked, CARDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CARDS)}"
    raise DeviceError(f"there is no profile of a card named {name!r}: {hint}")


def _plain(name: str) -> str:
    return "".join(character for character in name.removesuffix("gb") if character.isalnum())
