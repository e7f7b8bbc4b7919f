"""What transformers' mixins ask of a model tester, made by the sweep's generator."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..sweep.build import Built


class Tester:
    """The tiny model's config and the inputs of its first step; labels are the mixin's to add."""

    is_training = True

    def __init__(self, built: Built) -> None:
        self.model_class, self.config = type(built.model), built.model.config
        self.inputs = {name: value for name, value in built.batches[0].items() if name != "labels"}
        first = next(iter(self.inputs.values()))
        self.batch_size = first.shape[0]
        self.seq_length = self.inputs["input_ids"].shape[1] if "input_ids" in self.inputs else first.shape[1]

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Any]]:
        """Under the name that the mixin calls."""
        return copy.deepcopy(self.config), copy.deepcopy(self.inputs)

    def attributes(self) -> dict[str, Any]:
        """The attributes of a test class."""
        return {
            "model_tester": self,
            "all_model_classes": (self.model_class,),
            "test_all_params_have_gradient": False,
        }
