"""Notes the calls of ``generate`` in the steps that are checked.

transformers takes the KV cache away from a layer that trains with its switch on (transformers/modeling_layers.py), so
text that is generated meanwhile sees its newest token only. A layer under a policy keeps its cache.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from transformers import GenerationMixin

from ...compat.checkpointing import loses_its_cache
from ..place import waiting_place

if TYPE_CHECKING:
    import torch

    from ..place import Place


class Generations:
    """What was noted between :meth:`start` and :meth:`stop`.

    Attributes:
        places: The lines that generated.
    """

    def __init__(self) -> None:
        self.places: list[Place | None] = []
        self._before: Any = None

    def start(self, model: torch.nn.Module) -> None:
        """Take notes from here on; what was noted before is forgotten."""
        self.stop()
        self.places = []
        self._before = generate = GenerationMixin.generate

        @functools.wraps(generate)
        def noted(own: Any, *args: Any, **kwargs: Any) -> Any:
            if _asks_for_cache(own, *args, **kwargs) and any(map(loses_its_cache, own.modules())):
                self.places.append(waiting_place(sys._getframe(1)))
            return generate(own, *args, **kwargs)

        GenerationMixin.generate = noted

    def stop(self) -> None:
        """Leave transformers as it was; calling it again does nothing."""
        if self._before is not None:
            GenerationMixin.generate, self._before = self._before, None


def _asks_for_cache(own: Any, inputs: Any = None, generation_config: Any = None, *_: Any, **kwargs: Any) -> bool:
    """Whether this call of ``generate`` is to use a KV cache."""
    configured = getattr(generation_config or getattr(own, "generation_config", None), "use_cache", None)
    return kwargs.get("use_cache", configured) is not False
