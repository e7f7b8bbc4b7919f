"""One class of each of 30 families: text, images, sound, and both of them with text."""

FAMILIES = (
    "LlamaForCausalLM", "Qwen3ForCausalLM", "MixtralForCausalLM", "Qwen3MoeForCausalLM", "Gemma3ForCausalLM",
    "GPT2LMHeadModel", "GPTNeoForCausalLM", "FalconForCausalLM", "BloomForCausalLM", "OPTForCausalLM",
    "MambaForCausalLM", "JambaForCausalLM", "BertForMaskedLM", "RobertaForMaskedLM", "ElectraForMaskedLM",
    "DebertaV2ForMaskedLM", "ModernBertForMaskedLM", "T5ForConditionalGeneration", "BartForConditionalGeneration",
    "MarianMTModel", "PegasusForConditionalGeneration", "LongT5ForConditionalGeneration", "ViTForImageClassification",
    "SwinForImageClassification", "BeitForImageClassification", "SegformerForSemanticSegmentation",
    "DetrForObjectDetection", "Wav2Vec2ForCTC", "WhisperForConditionalGeneration", "LlavaForConditionalGeneration",
)  # fmt: skip
