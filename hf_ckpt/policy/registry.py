"""Finds the policies: every concrete class with a name in the modules of ``hf_ckpt/policies/``."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import TypeGuard

from ..errors import PolicyError
from .base import Policy


@cache
def policies() -> dict[str, type[Policy]]:
    """All policies by name, sorted. Raises TypeError when a file there defines none, or a name that is taken."""
    from .. import policies as folder  # late: its files import this package

    found: dict[str, type[Policy]] = {}
    for info in iter_modules(folder.__path__):
        for policy in _policies_in(f"{folder.__name__}.{info.name}"):
            if policy.name in found:
                raise TypeError(f"{policy.__module__} and {found[policy.name].__module__} both define `{policy.name}`")
            found[policy.name] = policy
    return dict(sorted(found.items()))


def policy_class(name: str) -> type[Policy]:
    """Find a policy's class.

    Args:
        name: The policy's name, as it is written in a string.

    Returns:
        The class.

    Raises:
        PolicyError: There is no such policy; the message names the nearest one.
    """
    known = policies()
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
    raise PolicyError(f"there is no policy `{name}`: {hint}")


def _policies_in(module_name: str) -> list[type[Policy]]:
    found = [value for value in vars(import_module(module_name)).values() if _is_policy_of(module_name, value)]
    if not found:
        raise TypeError(f"{module_name} defines no policy: a policy is a subclass of Policy with a `name`")
    return found


def _is_policy_of(module_name: str, value: object) -> TypeGuard[type[Policy]]:
    own = isinstance(value, type) and issubclass(value, Policy) and value.__module__ == module_name
    return own and hasattr(value, "name") and not isabstract(value)
