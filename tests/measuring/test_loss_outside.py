"""``held_bytes`` has what a loss outside the model saves: logits when they exist, nothing for them when they never do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.trainer_pt_utils import LabelSmoother

from hf_ckpt import apply

from ..models import build

if TYPE_CHECKING:
    from collections.abc import Callable

    #: A loss from the model and the token ids.
    Loss = Callable[[Any, torch.Tensor], torch.Tensor]

VOCABULARY, ROWS, LENGTH = 512, 2, 24
IDS = torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH)
LOGITS = 4 * ROWS * (LENGTH - 1) * VOCABULARY


def _model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, use_cache=False, **sizes)).train()


def _own(model: Any, ids: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=ids, labels=ids).loss
    return loss


def _smoothed(model: Any, ids: torch.Tensor) -> torch.Tensor:
    return LabelSmoother(0.1)(model(input_ids=ids), ids, shift_labels=True)


def _computed(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids).logits[:, :-1]
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def _in_chunks(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The logits of a few rows at a time, made again in backward."""
    from torch.utils.checkpoint import checkpoint

    def piece(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model.lm_head(hidden), labels, reduction="sum")

    output = model(input_ids=ids, logits_to_keep=1, output_hidden_states=True)
    hidden = output.hidden_states[-1][:, :-1].flatten(0, 1)
    pieces = zip(hidden.split(8), ids[:, 1:].flatten().split(8), strict=True)
    return sum(checkpoint(piece, *part, use_reentrant=False) for part in pieces) / len(hidden)


def _counted(loss: Loss) -> int:
    """Bytes of the storages that the graph saves, every saved tensor seen by a hook around the whole step."""
    model, seen = _model(), dict[int, int]()
    weights = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss(model, IDS)
    return sum(seen.values())


def _held(loss: Loss) -> int:
    model = _model()
    before = torch.autograd.backward
    handle = apply(model, "none")
    with handle.measure():
        loss(model, IDS).backward()
    assert torch.autograd.backward is before
    held = handle.report().held_bytes
    assert held is not None
    return held


@pytest.mark.parametrize("loss", [_own, _smoothed, _computed])
def test_logits_that_exist_are_counted(loss: Loss) -> None:
    counted = _counted(loss)
    assert counted > LOGITS
    assert abs(_held(loss) - counted) <= 0.05 * counted


def test_logits_that_never_exist_are_not() -> None:
    assert _held(_computed) - _held(_in_chunks) > 0.9 * LOGITS


def test_of_several_forwards_and_one_loss_everything_is_counted_once() -> None:
    def both(model: Any, ids: torch.Tensor) -> torch.Tensor:
        return _computed(model, ids) + _smoothed(model, ids)

    assert abs(_held(both) - _held(_computed) - _held(_smoothed)) <= 0.05 * _held(both)


def test_models_that_are_measured_together_stop_in_any_order() -> None:
    before = torch.autograd.backward
    first, second = (apply(build("llama"), "full") for _ in range(2))
    first.start_measuring()
    second.start_measuring()
    taken = torch.autograd.backward
    first.stop_measuring()
    second.stop_measuring()
    assert torch.autograd.backward is before
    x = torch.ones(2, requires_grad=True)
    taken(x.sum())
    assert x.grad is not None
