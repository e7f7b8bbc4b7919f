"""Finds the policies: every module in ``hf_ckpt/policies/`` defines exactly one."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from ..errors import PolicyError
from .base import Policy


@cache
def policies() -> dict[str, type[Policy]]:
    """All policies by name, sorted. Raises TypeError when a file there does not define exactly one."""
    from .. import policies as folder

    found = {}
    for info in iter_modules(folder.__path__):
        policy = _policy_in(f"{folder.__name__}.{info.name}")
        found[policy.name] = policy
    return dict(sorted(found.items()))


def policy_class(name: str) -> type[Policy]:
    """The policy called ``name``. Raises PolicyError with the nearest names."""
    known = policies()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
    raise PolicyError(f"there is no policy `{name}`: {hint}")


def _policy_in(module_name: str) -> type[Policy]:
    module = import_module(module_name)
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Policy)
        and value.__module__ == module_name
        and not isabstract(value)
    ]
    if len(own) != 1:
        raise TypeError(f"{module_name} must define exactly one policy, but defines {len(own)}")
    return own[0]
