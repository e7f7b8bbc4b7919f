"""Which classes of `torch.nn` derive from which others of it: `isinstance(m, _ConvNd)` asks for all convolutions."""

from __future__ import annotations

#: By base class, what derives from it: torch 2.13 `torch/nn/modules/*.py`.
_DERIVED = {
    "ConstantPad1d": "ZeroPad1d",
    "ConstantPad2d": "ZeroPad2d",
    "ConstantPad3d": "ZeroPad3d",
    "Conv1d": "LazyConv1d",
    "Conv2d": "LazyConv2d",
    "Conv3d": "LazyConv3d",
    "ConvTranspose1d": "LazyConvTranspose1d",
    "ConvTranspose2d": "LazyConvTranspose2d",
    "ConvTranspose3d": "LazyConvTranspose3d",
    "Hardtanh": "ReLU6",
    "LazyModuleMixin": "LazyLinear _LazyNormBase",
    "Linear": "LazyLinear NonDynamicallyQuantizableLinear",
    "NLLLoss": "NLLLoss2d",
    "RNNBase": "GRU LSTM RNN",
    "RNNCellBase": "GRUCell LSTMCell RNNCell",
    "Upsample": "UpsamplingBilinear2d UpsamplingNearest2d",
    "_AdaptiveAvgPoolNd": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
    "_AdaptiveMaxPoolNd": "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d",
    "_AvgPoolNd": "AvgPool1d AvgPool2d AvgPool3d",
    "_BatchNorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm",
    "_CircularPadNd": "CircularPad1d CircularPad2d CircularPad3d",
    "_ConstantPadNd": "ConstantPad1d ConstantPad2d ConstantPad3d",
    "_ConvNd": "Conv1d Conv2d Conv3d _ConvTransposeNd",
    "_ConvTransposeNd": "ConvTranspose1d ConvTranspose2d ConvTranspose3d _ConvTransposeMixin",
    "_DropoutNd": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "_InstanceNorm": (
        "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "_LPPoolNd": "LPPool1d LPPool2d LPPool3d",
    "_LazyConvXdMixin": "LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    "_LazyNormBase": (
        "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "_Loss": (
        "BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss "
        "L1Loss MSELoss MarginRankingLoss MultiLabelMarginLoss PoissonNLLLoss SmoothL1Loss SoftMarginLoss "
        "TripletMarginLoss TripletMarginWithDistanceLoss _WeightedLoss"
    ),
    "_MaxPoolNd": "MaxPool1d MaxPool2d MaxPool3d",
    "_MaxUnpoolNd": "MaxUnpool1d MaxUnpool2d MaxUnpool3d",
    "_NormBase": "_BatchNorm _InstanceNorm _LazyNormBase",
    "_ReflectionPadNd": "ReflectionPad1d ReflectionPad2d ReflectionPad3d",
    "_ReplicationPadNd": "ReplicationPad1d ReplicationPad2d ReplicationPad3d",
    "_WeightedLoss": (
        "BCELoss CrossEntropyLoss LinearCrossEntropyLoss MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss"
    ),
}
DERIVED = {base: frozenset(names.split()) for base, names in _DERIVED.items()}


def may_be_one_of(kind: str, asked: str) -> bool:
    """Whether a module of the class ``kind`` of `torch.nn` is, or its first forward pass makes it, an ``asked``."""
    kind, asked = kind.removeprefix("torch.nn."), asked.removeprefix("torch.nn.")
    becomes = kind.removeprefix("Lazy")
    return kind in _with_derived(asked) or becomes in _with_derived(asked)


def is_known_class(asked: str) -> bool:
    """Whether it is shown what derives from ``asked``: of a private class of another release it is not."""
    return not asked.rpartition(".")[2].startswith("_") or asked.removeprefix("torch.nn.") in DERIVED


def _with_derived(name: str) -> frozenset[str]:
    return frozenset({name}).union(*map(_with_derived, DERIVED.get(name, ())))
