"""What models of transformers keep below their heads: embeddings, and a list of layers."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .backbone_parameters import HEAD_PARAMETERS, ROWS

#: No model is expected to have more layers.
_LAYERS = 48


class Backbone(NamedTuple):
    """How the models of a family keep what stands below their heads."""

    #: The attribute of the model that has it.
    holder: str
    #: The path from there to the list of layers.
    layers: str
    #: The parameters outside of the layers that the first layer computes with.
    below: tuple[str, ...]
    #: The parameters of a layer.
    layer: tuple[str, ...]

    def modules_below(self) -> tuple[tuple[str, ...], ...]:
        """The paths from the model to the modules that train below the layers; none where one feeds every layer."""
        around = self.layers.rpartition(".")[0]
        if around and any(name.startswith(f"{around}.") for name in self.below):
            return ()
        return tuple(dict.fromkeys((self.holder, name.partition(".")[0]) for name in self.below))

    def parameters(self) -> tuple[str, ...]:
        """The names, in the model, of the parameters of the layers and of those below them."""
        inside = (name for number in range(_LAYERS) for name in self.layer_parameters(number))
        return (*self.parameters_below(), *inside)

    def parameters_below(self) -> tuple[str, ...]:
        """The names, in the model, of the parameters below the layers."""
        return tuple(f"{self.holder}.{name}" for name in self.below)

    def layer_parameters(self, number: int) -> tuple[str, ...]:
        """The names, in the model, of the parameters of one layer."""
        return tuple(f"{self.holder}.{self.layers}.{number}.{part}" for part in self.layer)


BACKBONES = tuple(Backbone(*row) for row in ROWS)
#: By family the attribute under which its models with a head have it.
HOLDER_OF = {
    "Bert": "bert",
    "Camembert": "roberta",
    "Deberta": "deberta",
    "DebertaV2": "deberta",
    "DistilBert": "distilbert",
    "Electra": "electra",
    "GPT2": "transformer",
    "GPTNeoX": "gpt_neox",
    **dict.fromkeys(("Gemma", "Gemma2", "Llama", "Mistral", "Qwen2", "Qwen3"), "model"),
    "Roberta": "roberta",
    "XLMRoberta": "roberta",
}
#: The attributes under which models keep everything but the head.
HOLDERS = frozenset(("base_model", *(backbone.holder for backbone in BACKBONES)))
#: And under which they keep the head; an `lm_head` may share its weight with the embeddings.
HEADS = frozenset(name.partition(".")[0] for name in HEAD_PARAMETERS)
#: The modules that `get_input_embeddings()` gives, where it is all that a token goes through.
INPUT_EMBEDDINGS = frozenset(("embed_in", "embed_tokens", "wte"))
#: Where models keep their layers, and the modules that train below them.
BOTTOMS = {(it.holder, *it.layers.split(".")): below for it in BACKBONES if (below := it.modules_below())}


@lru_cache(maxsize=1)
def backbone_parameters() -> tuple[tuple[str, ...], ...]:
    """For each family the names of the parameters of its backbone."""
    return tuple(backbone.parameters() for backbone in BACKBONES)
