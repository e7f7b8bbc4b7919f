"""What registries keep under a name: mmcv's normalizations, classes of the program."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..values import Class, Const, Dict, Ref, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What mmcv registers under these names, and how it shortens them.
_NORMS: dict[str, str] = {
    "BN": "BatchNorm2d",
    **{f"BN{size}d": f"BatchNorm{size}d" for size in (1, 2, 3)},
    "SyncBN": "SyncBatchNorm",
    "GN": "GroupNorm",
    "LN": "LayerNorm",
    "IN": "InstanceNorm2d",
    **{f"IN{size}d": f"InstanceNorm{size}d" for size in (1, 2, 3)},
}


def norm_of(configuration: Value) -> str:
    """The name of the normalization of PyTorch that a ``norm_cfg`` asks for; empty where that is not known."""
    match configuration.get("type") if isinstance(configuration, Dict) else None:
        case Const(str(text)) if text in _NORMS:
            return f"torch.nn.{_NORMS[text]}"
        case Ref(name) if name.startswith("torch.nn.") and name.rpartition(".")[2] in _NORMS.values():
            return f"torch.nn.{name.rpartition('.')[2]}"
    return ""


def classes_named(classes: Iterable[Class], named: Value | None) -> list[Class]:
    """Those of ``classes``, which a program defines, that are registered under a name; none where that is open."""
    names = {cls: registered_name(cls) for cls in classes}
    if not isinstance(named, Const) or None in names.values():
        return []
    return [cls for cls, name in names.items() if name == named.value]


def registered_name(cls: Class) -> str | None:
    """The name under which `@MODELS.register_module()` keeps the class.

    Returns:
        An empty text for a class that is not registered; None for one whose name is computed, or that has several.
    """
    for decorator in cls.node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="register_module"), args=args, keywords=keywords):
                named = [*args, *(keyword.value for keyword in keywords if keyword.arg in ("name", None))]
                match named:
                    case []:
                        return cls.name
                    case [ast.Constant(value=str(name))]:
                        return name
                return None
    return ""
