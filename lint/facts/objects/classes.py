"""Classes of the file: what they derive from, their fields and decorators."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..values import Class, Function, Instance, Ref, Result, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Where the modules of PyTorch, and models that are modules, come from.
_MODULES = (
    *("torch.nn.", "transformers.", "diffusers.", "timm.", "torchvision.models."),
    *("mmengine.model.Base", "mmcv.runner.Base"),
)

#: Bases that add no behaviour.
_PLAIN = (
    *("builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol"),
    *("contextlib.AbstractContextManager", "contextlib.AbstractAsyncContextManager"),
)

#: Decorators of attrs that make a class one of fields.
_ATTRS = frozenset(
    (
        *("attr.s", "attr.attrs", "attr.attributes"),
        *(f"{library}.{name}" for library in ("attr", "attrs") for name in ("define", "frozen", "mutable")),
    )
)
#: What stands for a field of attrs: `lr = attr.ib(default=0.1)`.
_MAKERS = ("ib", "attrib", "field")

#: Decorators that make a context manager of a generator.
_MANAGERS = frozenset(("contextlib.contextmanager", "contextlib.asynccontextmanager"))
#: Decorators that leave the arguments and the result of a function as they are.
_TRANSPARENT = (
    "staticmethod",
    "classmethod",
    "property",
    "cached_property",
    "no_grad",
    "inference_mode",
    "autocast",
    "sdpa_kernel",
    "compile",
    "cache",
    "lru_cache",
    "wraps",
    "record",
)


def field_argument(instance: Instance, name: str) -> Value:
    """What the constructor of a dataclass was given for field ``name``."""
    assert instance.call is not None
    owners = (*reversed([*ancestors(instance.cls)]), instance.cls)
    names = [field for cls in owners for field in declared_fields(cls)]
    if not all(isinstance(base, Class) for cls in owners for base in cls.bases):
        names = []  # The fields of an imported class come first.
    return instance.call.argument(names.index(name) if name in names else None, name)


def declared_fields(cls: Class) -> list[str]:
    """The annotated names of a class body, which are the fields of a dataclass, and those that attrs makes."""
    return [name for statement in cls.node.body if (name := _declared_by(statement)) is not None]


def _declared_by(statement: ast.stmt) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr=maker) | ast.Name(id=maker))
        ):
            return name if maker in _MAKERS else None
    return None


def is_dataclass(cls: Class) -> bool:
    """Whether the class, or one it derives from, is decorated as a dataclass, of attrs too (pydantic's look alike)."""
    return any(
        isinstance(part, ast.Name | ast.Attribute) and ("dataclass" in ast.unparse(part) or _is_of_attrs(owner, part))
        for owner in (cls, *ancestors(cls))
        for decorator in owner.node.decorator_list
        for part in (decorator, getattr(decorator, "func", None))
    )


def _is_of_attrs(cls: Class, decorator: ast.Name | ast.Attribute) -> bool:
    """Whether the decorator of ``cls`` is `attrs.define` or one of its kin, by the name that it was imported under."""
    match decorator:
        case ast.Name(id=name):
            found = cls.scope.look_up(name)
            return isinstance(found, Ref) and found.name in _ATTRS
        case ast.Attribute(value=ast.Name(id=library), attr=name):
            found = cls.scope.look_up(library)
            return isinstance(found, Ref) and f"{found.name}.{name}" in _ATTRS
    return False


def decorator_names(function: Function) -> Iterator[str]:
    """The dotted names of its decorators, called or not."""
    for decorator in function.decorators:
        called = decorator.call.func if isinstance(decorator, Result) else decorator
        if isinstance(called, Ref):
            yield called.name


def is_class_method(function: Function) -> bool:
    """Whether its first parameter is the class, and not an object of it."""
    return "builtins.classmethod" in decorator_names(function)


def is_run_as_written(function: Function) -> bool:
    """Whether a call of ``function`` runs its body and nothing else: no decorator of it does more."""
    if function.is_bare:
        return True
    known = [name.rpartition(".")[2] in _TRANSPARENT for name in decorator_names(function)]
    return all(known) and len(known) == len(function.decorators)


def is_manager(function: Function) -> bool:
    """Whether ``function`` is a generator that `contextlib` makes a context manager of."""
    return not _MANAGERS.isdisjoint(decorator_names(function))


def is_torch_module(cls: Class) -> bool:
    """Whether the class derives from a module of PyTorch, or from a model of a library that is one."""
    names = [base.name for owner in (cls, *ancestors(cls)) for base in owner.bases if isinstance(base, Ref)]
    # A Trainer has `train`, too, which gives figures.
    modules = [name for name in names if name.startswith(_MODULES) and not name.endswith("Trainer")]
    return bool(modules) or any(name.endswith("LightningModule") for name in names)


def is_plain(cls: Class) -> bool:
    """Whether objects of the class are of no library: nobody calls their methods but who has the object."""
    bases = [base for owner in (cls, *ancestors(cls)) for base in owner.bases]
    return all(isinstance(base, Class) or (isinstance(base, Ref) and base.name.startswith(_PLAIN)) for base in bases)


def method_of(cls: Class, name: str) -> Function | None:
    """The method ``name`` of objects of ``cls``: its own, else the nearest that it inherits from the file."""
    found = next((owner.body[name] for owner in (cls, *ancestors(cls)) if name in owner.body), None)
    return found if isinstance(found, Function) else None


def are_one_family(classes: Iterable[Class]) -> bool:
    """Whether one of ``classes`` derives from all others, as the class does whose object they are written for."""
    known = set(classes)
    return any(known <= {cls, *ancestors(cls)} for cls in known)


def ancestors(cls: Class) -> Iterator[Class]:
    """The classes of the file that ``cls`` derives from, nearest first."""
    seen = {cls}
    queue = list(cls.bases)
    while queue:
        base = queue.pop(0)
        if isinstance(base, Class) and base not in seen:
            seen.add(base)
            yield base
            queue += base.bases


def related(left: Class, right: Class) -> bool:
    """Whether one of them is the other, or derives from it."""
    return left is right or left in ancestors(right) or right in ancestors(left)
