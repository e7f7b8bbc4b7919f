"""The model of :mod:`.scenarios.device_map`, for a process with torch's CUDA wheel and for one without."""

SHAPE = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 32000,
}
ROWS, LENGTH = 4, 1024
