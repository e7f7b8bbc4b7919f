"""Models of timm: which of them have a BatchNorm in what their `set_grad_checkpointing` checkpoints, by their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Const, Ref, Result, Value, equals, is_absent
from ..types import unwrapped

if TYPE_CHECKING:
    from ...facts.values import Call

#: Families whose layers are normalized by a BatchNorm (`tests/lint/test_batch_norms.py` builds one model of each).
_FAMILIES = re.compile(
    r"(wide_|se|eca|gc|sk)?res(net|next)(aa|blur|rs)?\d|res2ne[tx]t?\d|resnest\d|(tf_)?efficientnet(v2)?_|regnet[xy]_"
    r"|(tf_)?mobilenetv[234]|densenet\d|(se)?mnasnet_|spnasnet_|(tf_)?mixnet_|fbnet(c|v3)_|rexnet_|ghostnet_|repvgg_"
    r"|dpn\d|(ese_)?vovnet\d"
)
#: In the name of one of them: it is built with another normalization.
_OTHER_NORM = re.compile(r"_(gn|evo|frn|iabn|ln)")
#: The parts of such a model in which the norms are, where they are called so.
_PARTS = frozenset(("layer1", "layer2", "layer3", "layer4", "blocks", "s1", "s2", "s3", "s4", "features"))


def timm_name(model: Value) -> str:
    """The name of the model of timm that ``model`` is, without the tag of its weights; empty for anything else."""
    made = unwrapped(model)
    if not isinstance(made, Result) or not isinstance(made.call.func, Ref):
        return ""
    return _name_of(made.call)


def _name_of(call: Call) -> str:
    library, last = call.name.partition(".")[0], call.name.rpartition(".")[2]
    if library != "timm":
        return ""
    if last != "create_model":
        return last if last.islower() else ""
    named = call.argument(0, "model_name")
    text = named.value if isinstance(named, Const) and isinstance(named.value, str) else ""
    return text.rpartition("/")[2].partition(".")[0]


def feature_model(model: Value) -> Result | None:
    """The model of timm that ``model`` is, where it is one that returns the list of its feature maps."""
    made = unwrapped(model)
    if not isinstance(made, Result) or made.call.name not in ("timm.create_model", "timm.models.create_model"):
        return None
    return made if equals(made.call.keyword("features_only"), True) is True else None


def has_batch_norm(call: Call, part: str = "") -> bool:
    """Whether the model of timm that ``call`` builds, or this part of it, certainly has a BatchNorm."""
    name = _name_of(call)
    known = _FAMILIES.match(name) is not None and _OTHER_NORM.search(name) is None
    return known and (not part or part in _PARTS) and is_absent(call.keyword("norm_layer")) is True
