"""What a loss head takes, in chunks or not: the options the planner chooses from. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..planner.costs.problem import HeadOption

#: Bytes a logit at the worst moment, in the backward of the cross-entropy: log-probabilities, their gradient and the
#: logits' gradient, all float32. Counted on float32 and bfloat16 models: the same.
BYTES_PER_LOGIT = 12
#: The same of transformers' ``LabelSmoother``: its two terms give log-probabilities a gradient each. Counted likewise.
SMOOTHED_BYTES_PER_LOGIT = 16
#: The same of a logit in a tile that TRL's fused head makes with torch's ops: seven float32 tensors and a mask. Counted
#: on float32 models.
BYTES_PER_TILE_LOGIT = 29
#: Bytes an element of the hidden states in the backward of a norm that computes in float32, as those of transformers'
#: language models do: what it saves, and five tensors (three for its square: pow_backward in FunctionsManual.cpp).
BYTES_PER_NORMED = 24
#: Numbers of chunks worth considering; more only where logits are most of what the head takes.
CHUNKS = (1, 2, 4, 8, 16, 32, 64)
MORE_CHUNKS = (128, 256, 512)
#: The share of its bytes that twice as many chunks have to take off a head with so many.
_LESS = 0.25


@dataclass(frozen=True, slots=True)
class Tile:
    """Logits that a fused loss makes at once in backward: of up to ``rows`` tokens, in a buffer of ``columns``.

    ``itemsize`` are the buffer's bytes an element, ``bytes_per_logit`` what its arithmetic takes beside it.
    """

    rows: int
    columns: int
    itemsize: int
    bytes_per_logit: int


@dataclass(frozen=True, slots=True)
class HeadShape:
    """A loss head for one batch: logits are ``tokens x vocabulary``, weights ``vocabulary x width``.

    ``itemsize`` is the weights' bytes an element; ``trained`` whether they get gradients. ``rows`` are the tokens for
    which there are logits, where these are not all; ``bytes_per_logit`` are those of its loss at the worst moment.
    ``tile`` is what a loss that never builds logits makes of them in backward. ``norm_chunks`` are the chunks of the
    tokens in which the norm before the head runs. ``copied`` are the bytes an element of the copy that autocast makes
    of the weights, 0 where it makes none.
    """

    tokens: int
    vocabulary: int
    width: int
    itemsize: int
    trained: bool
    rows: int | None = None
    bytes_per_logit: int = BYTES_PER_LOGIT
    tile: Tile | None = None
    norm_chunks: int = 1
    copied: int = 0

    def read_as(self, itemsize: int) -> HeadShape:
        """The head where its product reads weights of so many bytes an element: a copy, where these are others."""
        return replace(self, copied=0 if itemsize == self.itemsize else itemsize)


def head_option(shape: HeadShape, chunks: int, bytes_per_second: float) -> HeadOption:
    """Bytes at the peak of this head in so many chunks, and the added seconds: adding up the weight gradients.

    What the final norm before it saves counts as the head's, and what the backward of that norm takes.

    Args:
        shape: Sizes of the head and of the batch.
        chunks: How many parts of the tokens go through the head one after the other.
        bytes_per_second: Memory bandwidth of the device.
    """
    option = _behind_norm(shape, chunks, bytes_per_second)
    return replace(option, nbytes=max(option.nbytes, _norm_backward_bytes(shape)), waits=option.held)


def _behind_norm(shape: HeadShape, chunks: int, bytes_per_second: float) -> HeadOption:
    rows = -(-(shape.tokens if shape.rows is None else shape.rows) // chunks)
    weights = shape.vocabulary * shape.width
    if shape.tile is not None:
        return HeadOption(chunks, final_norm_bytes(shape) + _bytes_in_tiles(shape, shape.tile))
    if not rows and shape.trained:  # a fused loss makes the gradient of its weights in the forward
        return HeadOption(chunks, final_norm_bytes(shape) + weights * shape.itemsize)
    copy, loss = weights * shape.copied, rows * shape.vocabulary * shape.bytes_per_logit
    product, cast = _of_copied_weights(shape, rows)
    if chunks == 1:
        waits = _held_logits(shape, rows)
        nbytes = max(loss + copy, product + copy, cast) + final_norm_bytes(shape)
        return HeadOption(1, nbytes, waits=None if waits is None else waits + copy)
    finished = shape.tokens * shape.width * shape.itemsize  # the gradients of hidden states
    waits = final_norm_bytes(shape) + finished
    # Autocast caches the copy until the forward is over.
    nbytes = waits + copy + max(loss, product, cast)
    if not shape.trained:
        return HeadOption(chunks, nbytes, chunks * 1e-5, waits)
    # A float32 sum beside the gradient of the chunk before; per chunk one pass over both.
    sums, seconds = weights * (4 + shape.itemsize), chunks * weights * (8 + shape.itemsize) / bytes_per_second
    return HeadOption(chunks, nbytes + sums, seconds, waits + weights * shape.itemsize)


def _of_copied_weights(shape: HeadShape, rows: int) -> tuple[int, int]:
    """Bytes of gradients when the product with a copy of the weights is in backward, and when theirs is cast."""
    if not (shape.copied and shape.trained):
        return 0, 0
    product = (rows + shape.width) * shape.vocabulary * shape.copied
    return product, shape.vocabulary * shape.width * (shape.copied + shape.itemsize)


def _held_logits(shape: HeadShape, rows: int) -> int | None:
    """Bytes of the logits, their log-probabilities in float32 and the norm; None where the loss is another one."""
    if shape.bytes_per_logit != BYTES_PER_LOGIT:
        return None
    return rows * shape.vocabulary * (4 + shape.itemsize) + final_norm_bytes(shape)


def _bytes_in_tiles(shape: HeadShape, tile: Tile) -> int:
    """Bytes in the backward of a loss that makes its logits in tiles: it sums gradients in float32, then casts them."""
    rows = min(shape.tokens, tile.rows)
    gradients = shape.tokens * shape.width + shape.trained * shape.vocabulary * shape.width
    cast = 0 if shape.itemsize == 4 else gradients * shape.itemsize
    columns = min(shape.vocabulary, tile.columns)
    # Under autocast the tokens and the weights of a tile are cast to the buffer's dtype.
    casts = 0 if shape.itemsize == tile.itemsize else (rows + columns) * shape.width * tile.itemsize
    arithmetic = rows * columns * tile.bytes_per_logit + casts
    return 4 * gradients + rows * tile.columns * tile.itemsize + max(cast, arithmetic)


def final_norm_bytes(shape: HeadShape) -> int:
    """Bytes between the last layer and the logits: two float32 tensors in the norm, and its result.

    In chunks the norm saves what it is given.
    """
    return shape.tokens * shape.width * (shape.itemsize + (8 if shape.norm_chunks == 1 else shape.itemsize))


def _norm_backward_bytes(shape: HeadShape) -> int:
    """Bytes in the backward of the final norm; in chunks it has what it was given and two gradients of all tokens."""
    each = BYTES_PER_NORMED // shape.norm_chunks + (0 if shape.norm_chunks == 1 else 3 * shape.itemsize)
    return shape.tokens * shape.width * each


def head_options(shape: HeadShape, bytes_per_second: float) -> tuple[HeadOption, ...]:
    """All options worth considering, the plain head first."""
    found = [head_option(shape, chunks, bytes_per_second) for chunks in CHUNKS if chunks <= shape.tokens]
    for chunks in MORE_CHUNKS:
        option = head_option(shape, chunks, bytes_per_second)
        if chunks > shape.tokens or found[-1].nbytes < option.nbytes / (1 - _LESS):
            break
        found.append(option)
    return tuple(found)
