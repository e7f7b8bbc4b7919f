"""The causal language model's loss in chunks of tokens: at no moment are there more logits than one chunk has.

For every chunk the logits are computed, the model's own loss function is called on them, and the gradients of the
chunk's loss are taken at once; the logits are gone before the next chunk. Nothing is computed twice: the head's matmuls
are as many as without chunks, backward only scales the finished gradients.

How exact: one chunk is bitwise equal to the plain head. With more, sums over chunks (of the loss, of the head's weight
gradients) are taken in float32 and differ from the plain ones by the order of summation; matmul kernels round what they
return to its dtype, so in bfloat16 each chunk's weight gradient is rounded as the plain one is. Where
the incoming gradient is not a power of two (1 under Trainer), it multiplies finished gradients instead of the first
one, a rounding in the gradients' own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812 (the name every torch user reads)

if TYPE_CHECKING:
    from .deferred import DeferredLogits

#: ``(chunk of hidden states, chunk of labels) -> loss``, a sum already divided by the number of labels of the batch.
ChunkLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def chunked_loss(
    loss_function: Callable[..., torch.Tensor],
    chunks: int,
    logits: DeferredLogits,
    labels: torch.Tensor | None,
    vocab_size: int,
    num_items_in_batch: torch.Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: torch.Tensor | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """What ``loss_function`` (transformers' ``ForCausalLMLoss``) says of these logits, a float32 scalar.

    ``labels`` are ``[batch, tokens]`` as the model got them, ``shift_labels`` already shifted ones. Without
    ``num_items_in_batch`` the loss is the mean over labels that are not ``ignore_index``.
    """
    recipe, hidden, given = logits.recipe, logits.hidden, shift_labels
    if shift_labels is None:
        assert labels is not None
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    targets = shift_labels.reshape(-1).to(hidden.device)
    if targets.shape[0] != hidden.shape[:-1].numel():
        # Not one label a position: the loss function knows best what to say.
        return loss_function(logits.compute(), labels, vocab_size, num_items_in_batch, ignore_index, given, **kwargs)
    if num_items_in_batch is None:
        num_items_in_batch = (targets != ignore_index).sum()

    def one(rows: torch.Tensor, row_targets: torch.Tensor) -> torch.Tensor:
        return loss_function(
            logits=recipe(rows),
            labels=None,
            vocab_size=vocab_size,
            num_items_in_batch=num_items_in_batch,
            ignore_index=ignore_index,
            shift_labels=row_targets,
            **kwargs,
        )

    loss: torch.Tensor = _ChunkedLoss.apply(one, chunks, targets, hidden, *recipe.weights)  # type: ignore[no-untyped-call]
    return loss


class _ChunkedLoss(torch.autograd.Function):
    """Loss and all its gradients in one pass over the chunks."""

    @staticmethod
    def forward(
        ctx: Any, one: ChunkLoss, chunks: int, targets: torch.Tensor, hidden: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        wanted = [w for w, needed in zip(weights, ctx.needs_input_grad[4:], strict=True) if needed]
        rows = hidden.detach().reshape(-1, hidden.shape[-1])
        size = max(1, -(-rows.shape[0] // chunks))
        total: torch.Tensor | None = None
        row_gradients: list[torch.Tensor] = []
        sums: list[torch.Tensor] = []
        for chunk, chunk_targets in zip(torch.split(rows, size), torch.split(targets, size), strict=True):
            loss, of_rows, of_weights = _gradients(one, chunk, chunk_targets, wanted, ctx.needs_input_grad[3])
            total = loss if total is None else total + loss
            row_gradients += of_rows
            sums = _add(sums, of_weights, single=size >= rows.shape[0])
        ctx.save_for_backward(*row_gradients, *(s.to(w.dtype) for s, w in zip(sums, wanted, strict=True)))
        ctx.hidden_shape, ctx.pieces = hidden.shape, len(row_gradients)
        assert total is not None
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        saved = ctx.saved_tensors
        of_rows, of_weights = saved[: ctx.pieces], iter(saved[ctx.pieces :])
        of_hidden = torch.cat(of_rows).reshape(ctx.hidden_shape).mul_(incoming) if of_rows else None
        needed = ctx.needs_input_grad[4:]
        return None, None, None, of_hidden, *(next(of_weights) * incoming if n else None for n in needed)


def _gradients(
    one: ChunkLoss, rows: torch.Tensor, targets: torch.Tensor, weights: list[torch.Tensor], of_rows: bool
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """A chunk's loss, its gradient by the rows (an empty list when not asked for), and by the weights."""
    rows = rows.detach().requires_grad_(of_rows)
    with torch.enable_grad():
        loss = one(rows, targets)
    wanted = ([rows] if of_rows else []) + weights
    gradients = list(torch.autograd.grad(loss, wanted))
    return loss.detach(), gradients[: int(of_rows)], gradients[int(of_rows) :]


def _add(sums: list[torch.Tensor], gradients: list[torch.Tensor], *, single: bool) -> list[torch.Tensor]:
    """Running float32 sums; a single chunk's gradients are the sum themselves."""
    if single:
        return gradients
    if not sums:
        return [g.to(torch.float32, copy=True) for g in gradients]
    return [s.add_(g) for s, g in zip(sums, gradients, strict=True)]
