"""Which classes of the installed transformers the sweep is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

#: Auto classes in the order in which a model folder's class is chosen for its table row.
KINDS = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "IMAGE_CLASSIFICATION",
    "CTC", "AUDIO_CLASSIFICATION", "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION",
    "DEPTH_ESTIMATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "ZERO_SHOT_OBJECT_DETECTION", "MASK_GENERATION",
    "VIDEO_CLASSIFICATION", "TEXT_TO_SPECTROGRAM",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """One class, and the config it is built from."""

    model_class: str
    config_class: str
    kind: str


def subjects() -> list[Subject]:
    """Every class of the auto mappings in ``KINDS``, once, sorted; vision and audio folders by their base model else."""
    exported = frozenset(dir(transformers))  # `hasattr` would import every model
    found: dict[str, Subject] = {}
    for kind in KINDS:
        for model_type, names in getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").items():
            for name in (names,) if isinstance(names, str) else names:
                config = CONFIG_MAPPING_NAMES.get(model_type)
                if config is not None and name not in found and name in exported:
                    found[name] = Subject(name, config, kind.lower())
    return sorted(found.values())


def classes_of(subject: Subject) -> tuple[Any, Any]:
    """The model class and the config class."""
    model_class = getattr(transformers, subject.model_class)
    config_class = getattr(model_class, "config_class", None) or getattr(transformers, subject.config_class)
    return model_class, config_class
