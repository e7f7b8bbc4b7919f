"""Makes a model's inputs from its forward signature and its config."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import torch

from .particular import INPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_MEDIA = frozenset({"pixel_values", "input_features", "input_values"})


class NoInputsError(Exception):
    """The generator cannot feed this model; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Size:
    """One step: how many samples, and how many tokens or frames each."""

    batch: int
    length: int


def make_inputs(model: nn.Module, size: Size) -> dict[str, Any]:
    """Inputs on which the model's forward runs and whose outputs have gradients.

    Several shapes are tried where a signature does not tell (images as one batch, as patches with a grid, ...). Raises
    NoInputsError with every reason when none runs.
    """
    reasons: dict[str, None] = {}
    for inputs in _candidates(model, size):
        try:
            seed(7)
            with torch.no_grad():
                outputs = model(**inputs)
        except Exception as error:
            text = next(iter(str(error).strip().splitlines()), "")
            reasons[f"{type(error).__name__}: {text}"[:160]] = None
            continue
        del outputs
        return inputs
    raise NoInputsError(" | ".join(reasons) or "its forward takes nothing that is known here")


def seed(value: int) -> None:
    """Every random generator that models draw from."""
    import random

    import numpy as np

    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def _candidates(model: nn.Module, size: Size) -> Iterator[dict[str, Any]]:
    if known := INPUTS.get(type(model).__name__):
        yield known(model, size)
        return
    names = _parameters(model)
    text = _text(model, names, size)
    for image, sound in product(_images(model, names, size), _sounds(model, names, size)):
        media = image | sound
        placed = _with_placeholders(model, names, text, media, size)
        if "labels" in names and "decoder_input_ids" in names and "decoder_input_ids" not in placed:
            yield placed | {"labels": _ids(model, size)}
            yield placed | {"decoder_input_ids": _ids(model, size)}
        yield placed
        if media and text:
            yield media
        if "decoder_input_ids" in names and media:
            yield media | {"decoder_input_ids": _ids(model, size)}
            yield media | {"labels": _ids(model, size)}
    if text and len(_MEDIA.intersection(names)) > 1:  # any one kind of media will do
        for media in chain(_images(model, names, size), _sounds(model, names, size)):
            yield _with_placeholders(model, names, text, media, size)
    if text:
        yield text
        if "mm_token_type_ids" in names:
            yield text | {"mm_token_type_ids": torch.zeros_like(text["input_ids"])}


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model.forward).parameters)


def _ids(model: nn.Module, size: Size) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size.length)
    vocabulary = getattr(_text_config(model), "vocab_size", None) or 90
    top = min(90, vocabulary if isinstance(vocabulary, int) else 90)
    return torch.randint(min(5, top - 2), top - 1, (size.batch, size.length), generator=generator)


def _text_config(model: Any) -> Any:
    config = model.config
    for name in ("text_config", "language_config", "llm_config", "thinker_config", "decoder"):
        nested = getattr(config, name, None)
        if nested is not None and hasattr(nested, "to_dict"):
            return nested
    return config


def _text(model: nn.Module, names: dict[str, Any], size: Size) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "input_ids" not in names:
        return made
    made["input_ids"] = _ids(model, size)
    if "bbox" in names:
        corners = torch.randint(0, 20, (size.batch, size.length, 2), generator=torch.Generator().manual_seed(3))
        made["bbox"] = torch.cat([corners, corners + 8], dim=-1)
    if "attention_mask" in names:
        made["attention_mask"] = torch.ones(size.batch, size.length, dtype=torch.long)
    if "qformer_input_ids" in names:
        made["qformer_input_ids"] = _ids(model, size)
    if "image_attention_mask" in names:
        made["image_attention_mask"] = torch.ones(size.batch, size.length, 1, dtype=torch.long)
    return made


def _rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _find(config: Any, *names: str) -> Any:
    """The first of these fields, here or in a nested config."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for nested in vars(config).values():
        if hasattr(nested, "to_dict") and hasattr(nested, "model_type"):
            value = _find(nested, *names)
            if value is not None:
                return value
    return None


def _side(value: Any) -> int:
    return int(value[0] if isinstance(value, list | tuple) else value)


def _vision(config: Any) -> Any:
    """The config of the images, however deep it is."""
    for name in ("vision_config", "vit_config", "image_config", "vision_encoder_config", "encoder"):
        nested = getattr(config, name, None)
        if nested is not None and hasattr(nested, "to_dict"):
            return _vision(nested)
    return config


def _images(model: Any, names: dict[str, Any], size: Size) -> Iterator[dict[str, Any]]:
    if not {"pixel_values", "pixel_values_videos"} & set(names):
        yield {}
        return
    config = _vision(model.config)
    channels = _find(config, "num_channels", "in_channels", "in_chans") or 3
    channels = channels if isinstance(channels, int) else 3
    patch = _side(_find(config, "patch_size") or 16)
    side = _find(config, "image_size", "input_size")
    sides = [_side(side)] if side is not None else []
    # A model that takes any size has its own idea of the smallest.
    sides += [value for value in (4 * patch, 64, 128, 224) if value not in sides]
    for value in sides:
        yield from _image_shapes(names, size, channels, patch, value, config)


def _image_shapes(
    names: dict[str, Any], size: Size, channels: int, patch: int, side: int, config: Any
) -> Iterator[dict[str, Any]]:
    key = "pixel_values" if "pixel_values" in names else "pixel_values_videos"
    batch = size.batch
    grid_name = next(
        (n for n in ("image_grid_thw", "grid_thw", "image_grid_hw", "image_grid_hws", "spatial_shapes") if n in names),
        None,
    )
    if grid_name is not None:
        temporal = _find(config, "temporal_patch_size") or 1
        rows = 4
        grid = torch.tensor([[1, rows, rows] if "thw" in grid_name else [rows, rows]] * batch)
        yield {key: _rand(batch * rows * rows, channels * temporal * patch * patch), grid_name: grid}
        yield {key: _rand(batch * rows * rows, channels, patch, patch), grid_name: grid}
        yield {key: _rand(batch, rows * rows, channels * patch * patch), grid_name: grid}
    image = _rand(batch, channels, side, side)
    extra: dict[str, Any] = {}
    if "image_sizes" in names:
        extra["image_sizes"] = torch.tensor([[side, side]] * batch)
    if "bool_masked_pos" in names:
        masked = torch.zeros(batch, (side // patch) ** 2, dtype=torch.bool)
        masked[:, ::2] = True
        yield {key: image, **extra, "bool_masked_pos": masked}
    yield {key: image, **extra}
    if "aspect_ratio_ids" in names:
        tiles = _find(config, "max_num_tiles") or 4
        yield {
            key: _rand(batch, 1, tiles, channels, side, side),
            "aspect_ratio_ids": torch.ones(batch, 1, dtype=torch.long),
            "aspect_ratio_mask": torch.ones(batch, 1, tiles, dtype=torch.long),
        }
    yield {key: image[:, None], **extra}
    frames = _find(config, "num_frames", "frames_per_clip", "num_image_with_embedding") or 4
    yield {key: _rand(batch, _side(frames), channels, side, side)}
    yield {key: _rand(batch, 2, channels, side, side), **extra}


def _sounds(model: Any, names: dict[str, Any], size: Size) -> Iterator[dict[str, Any]]:
    config = model.config
    batch = size.batch
    known = (
        _find(config, name)
        for name in (
            "num_mel_bins", "n_mels", "input_feat_per_channel", "feature_size", "input_dim", "feature_projection_input_dim",
        )
    )  # fmt: skip
    every = list(dict.fromkeys(value for value in known if isinstance(value, int))) or [80]
    mels = every[0]
    every += [frames * mels for frames in (2, 4)]  # stacked
    if "input_values" in names:
        frames = _find(config, "max_length") or 128
        yield {"input_values": _rand(batch, 200 * size.length)}
        yield {"input_values": _rand(batch, frames, mels)}
        yield {"input_values": _rand(batch, 1, 200 * size.length)}
        yield {"input_values": _rand(batch, 4 * size.length, mels)}
        return
    if "input_features" in names:
        positions = _find(config, "max_source_positions")
        if isinstance(positions, int):
            features = {"input_features": _rand(batch, mels, 2 * positions)}
            yield features
            yield features | _masks(names, batch, 2 * positions)
        for frames, mels in product((8 * size.length, 128), every):
            yield {"input_features": _rand(batch, frames, mels)} | _masks(names, batch, frames)
            yield {"input_features": _rand(batch, frames, mels)}
            yield {"input_features": _rand(batch, mels, frames)} | _masks(names, batch, frames)
        yield {"input_features": _rand(batch, 1, 1024, mels)}
        return
    yield {}


def _masks(names: dict[str, Any], batch: int, frames: int) -> dict[str, Any]:
    return {
        name: torch.ones(batch, frames, dtype=torch.long)
        for name in ("feature_attention_mask", "input_features_mask", "attention_mask")
        if name in names and (name != "attention_mask" or "input_ids" not in names)
    }


def _with_placeholders(
    model: Any, names: dict[str, Any], text: dict[str, Any], media: dict[str, Any], size: Size
) -> dict[str, Any]:
    """Text with as many placeholder tokens in front as the model makes features of the media."""
    if not text or not media:
        return text | media
    kind = "image" if any(name.startswith("pixel") for name in media) else "audio"
    token = _find(model.config, f"{kind}_token_id", f"{kind}_token_index", f"{kind}_patch_id", "img_context_token_id")
    count = _feature_count(model, kind, media) if isinstance(token, int) else None
    if not count or token is None:
        return text | media
    ids = text["input_ids"]
    start = _find(model.config, "vision_start_token_id", "boi_token_id", "audio_bos_token_id")
    end = _find(model.config, "vision_end_token_id", "eoi_token_id", "audio_eos_token_id")
    row = [
        *([start] if isinstance(start, int) and start != token else []),
        *[token] * (count // size.batch),
        *([end] if isinstance(end, int) and end != token else []),
    ]
    placeholders = torch.tensor([row] * size.batch)
    made = dict(text, input_ids=torch.cat([ids[:, :1], placeholders, ids[:, 1:]], dim=1))
    if "attention_mask" in made:
        made["attention_mask"] = torch.ones_like(made["input_ids"])
    types = (made["input_ids"] == token).long()
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in names:
            made[name] = types
    return made | media


def _feature_count(model: Any, kind: str, media: dict[str, Any]) -> int | None:
    for owner in (model, getattr(model, "model", None), getattr(model, "base_model", None)):
        function = getattr(owner, f"get_{kind}_features", None)
        if function is None:
            continue
        known = inspect.signature(function).parameters
        try:
            with torch.no_grad():
                features = function(**{n: v for n, v in media.items() if n in known})
        except Exception:
            continue
        return _rows(features)
    return None


def _rows(features: Any) -> int | None:
    if isinstance(features, torch.Tensor):
        return features.shape[:-1].numel()
    pooled = getattr(features, "pooler_output", None)
    if pooled is not None:
        return _rows(pooled)
    if isinstance(features, tuple | list) and features:
        counts = [_rows(item) for item in features]
        return sum(c for c in counts if c) if all(isinstance(f, torch.Tensor) for f in features) else counts[0]
    return None
