"""Whether a module is of the class that `isinstance` asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Class, Instance, Ref, Result, Seq
from .classes import ancestors
from .torch_classes import is_known_class, may_be_one_of

if TYPE_CHECKING:
    from ..values import Value

_TORCH, _LAZY = "torch.nn.", "torch.nn.Lazy"


def is_of_kind(module: Value, kinds: Value) -> bool | None:
    """Whether ``module`` is an instance of one of ``kinds``, a class or a tuple of classes; None where that is open."""
    asked = kinds.items if isinstance(kinds, Seq) and not kinds.open else [kinds]
    answers = [_is_of(module, kind) for kind in asked]
    return True if True in answers else None if None in answers else False


def _is_of(module: Value, kind: Value) -> bool | None:
    match module, kind:
        case Instance(cls), Class():
            known = (cls, *ancestors(cls))
            return any(owner.node is kind.node for owner in known) or (False if _has_known_bases(cls) else None)
        case Instance(cls), Ref(asked) if asked.startswith(_TORCH):
            derived = {_is_of_torch(base.name, asked) for base in _bases(cls) if isinstance(base, Ref)}
            return True in derived or (None if None in derived or not _has_known_bases(cls) else False)
        case Result(call), Ref(asked) if asked.startswith(_TORCH):
            return _is_of_torch(call.name, asked)
        case Result(call), Class() if _is_public(_shown(call.name)):
            return False
    return None


def _is_of_torch(kind: str, asked: str) -> bool | None:
    """Whether a class of `torch.nn` is ``asked`` or derives from it."""
    kind, asked = _shown(kind), _shown(asked)
    if asked == f"{_TORCH}Module" and _is_public(kind):
        return True
    if not _is_public(kind) or kind.startswith(_LAZY) or not is_known_class(asked):
        return None
    return may_be_one_of(kind, asked)


def _shown(name: str) -> str:
    """A class of `torch.nn` by its short name: `torch.nn.modules.conv.Conv2d` is `torch.nn.Conv2d`."""
    return f"{_TORCH}{name.rpartition('.')[2]}" if name.startswith(f"{_TORCH}modules.") else name


def _is_public(name: str) -> bool:
    """Whether it names a class as `torch.nn` shows it, and no function below it."""
    return name.startswith(_TORCH) and name.removeprefix(_TORCH).isalnum()


def _bases(cls: Class) -> list[Value]:
    return [base for owner in (cls, *ancestors(cls)) for base in owner.bases]


def _has_known_bases(cls: Class) -> bool:
    """Whether the program and torch show all that ``cls`` derives from."""
    return all(
        isinstance(base, Class) or (isinstance(base, Ref) and _is_public(_shown(base.name))) for base in _bases(cls)
    )
