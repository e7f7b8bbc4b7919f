"""Which models of transformers take token ids: for these alone it makes the embeddings require gradients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..types import class_names, unwrapped

if TYPE_CHECKING:
    from ...facts.values import Value

#: transformers 5.23, where `main_input_name` is `input_ids` (tests/lint/test_main_inputs.py).
_TEXT = re.compile(
    r"(ForCausalLM|LMHeadModel|For(Sequence|Token)Classification|ForMaskedLM|ForQuestionAnswering|ForMultipleChoice"
    r"|ForNextSentencePrediction|AutoModelForSeq2SeqLM|(T5|Bart|Pegasus|LED|Marian|Prophetnet)\w*ForConditionalGeneration)\Z"
)
#: Families of such names that take sound, or anything.
_OTHER = re.compile(r"Data2VecAudio|Hubert|Perceiver|SEW|UniSpeech|Wav2Vec2|WavLM")
#: Models whose family alone tells: their own classes, and those that a program derives from them.
_FAMILY = re.compile(
    r"(Albert|Bart|Bert|BigBird|Bloom|Camembert|CodeGen|DebertaV?2?|DistilBert|Electra|Esm|Falcon|GPT\w*|Gemma[23]?"
    r"|Llama|Longformer|MBart|MPNet|MT5|MegatronBert|Mistral|Mixtral|ModernBert|Mpt|OPT|Olmo2?|Phi3?|Qwen[23](Moe)?"
    r"|RemBert|Roberta|RoFormer|T5|UMT5|XLMRoberta|XLNet)(PreTrained)?Model\Z"
    r"|CLIPTextModel(WithProjection)?\Z|U?M?T5EncoderModel\Z"
)


#: Any model is one of them.
_ANY = frozenset(("AutoModel", "PeftModel", "PreTrainedModel"))


def may_take_token_ids(model: Value) -> bool:
    """Whether ``model`` may have `input_ids` as its main input: False for the classes of pictures and sound."""
    classes = [name.split(".")[1] for name in class_names(unwrapped(model)) if name.startswith("transformers.")]
    return not classes or any(name in _ANY or is_text_class(name) for name in classes)


def is_text_class(name: str) -> bool:
    """Whether the class of transformers called ``name`` certainly has `input_ids` as its main input."""
    return (_TEXT.search(name) is not None and _OTHER.match(name) is None) or _FAMILY.match(name) is not None
