"""Policy strings and dicts, both ways.

::

    policy   := term ("+" term)*
    term     := primary ("@" selector)*
    selector := call | "(" call ("+" call)* ")"
    primary  := call | "(" policy ")"
    call     := NAME | NAME "(" arguments ")" | NAME "=" VALUE

``NAME=VALUE`` is the same as ``NAME(VALUE)``: ``budget=72GiB`` reads better than ``budget(72GiB)``. The dict form is
what JSON, YAML and a saved checkpoint hold: ``{"terms": [{"name": "attention", "args": [], "on": [{"name": "first",
"args": ["8"]}]}]}``. It may be written shorter: a policy string stands for an entry, a single entry or argument for a
list of one, and ``{"budget": "72GiB"}`` for ``{"name": "budget", "args": ["72GiB"]}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import BudgetError, PolicyError
from .base import LayerSelector, Policy
from .compose import AnyOf, Scoped, Sum, parts_of
from .registry import policies, policy_class

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<sign>[+@()=]))")
# A size may have a space before its unit: `72 GiB`.
_VALUE = re.compile(r"\s*(?P<value>[\d.]+\s+(?:%|[kmgt]i?b?(?!\w)|b(?!\w))|[\w.%-]+)", re.IGNORECASE)
_SIZE = re.compile(r"[\d.]+\s*(?:%|[kmgt]i?b?|b)", re.IGNORECASE)


def parse_string(text: str) -> Policy:
    """Read a policy string such as ``"attention+norm@layers(0-7,12)"``.

    A size with its unit alone (``"72GiB"``, ``"50%"``) can only be a budget and is one. Raises PolicyError with the
    position, BudgetError for a ``budget`` that is no memory budget.
    """
    if _SIZE.fullmatch(text.strip()):
        return build("budget", (text.strip(),))
    reader = _Reader(text)
    policy = reader.policy()
    reader.expect_end()
    return policy


def refuse_bare_budget(text: str) -> None:
    """Raise PolicyError when ``text`` is what a budget is called, without ``budget=``."""
    try:
        policy = build("budget", (text,))
    except BudgetError:
        return
    raise PolicyError(f"`{text}` is a memory budget, not a policy: write `{policy}`")


class _Reader:
    """A cursor over the text; each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def policy(self) -> Policy:
        terms = [self.term()]
        while self.sign("+"):
            terms.append(self.term())
        return sum_of(terms)

    def term(self) -> Policy:
        inner = self.primary()
        selectors = []
        while self.sign("@"):
            selectors.append(as_selector(self.primary()))
        return scoped(inner, tuple(selectors))

    def primary(self) -> Policy:
        if not self.sign("("):
            return self.call()
        inner = self.policy()
        if not self.sign(")"):
            raise self.error("a `(` is never closed")
        return inner

    def call(self) -> Policy:
        word = _VALUE.match(self.text, self.at)
        if word is not None:
            refuse_bare_budget(word["value"])
        match = _TOKEN.match(self.text, self.at)
        if match is None or match["name"] is None:
            raise self.error("the name of a policy is missing")
        self.at = match.end()
        name = match["name"]
        if self.sign("("):
            return build(name, self.arguments())
        if self.sign("="):
            return build(name, (self.value(),))
        return build(name, ())

    def arguments(self) -> tuple[str, ...]:
        end = self.text.find(")", self.at)
        if end < 0:
            raise self.error("a `(` is never closed")
        inside, self.at = self.text[self.at : end], end + 1
        return tuple(part.strip() for part in inside.split(",")) if inside.strip() else ()

    def value(self) -> str:
        match = _VALUE.match(self.text, self.at)
        if match is None:
            raise self.error("a value is missing after `=`")
        self.at = match.end()
        return match["value"]

    def sign(self, sign: str) -> bool:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match["sign"] != sign:
            return False
        self.at = match.end()
        return True

    def expect_end(self) -> None:
        if self.text[self.at :].strip():
            raise self.error(f"`{self.text[self.at :].strip()}` was not expected here")

    def error(self, what: str) -> PolicyError:
        return PolicyError(
            f"policy `{self.text}`: {what} (at character {self.at + 1}); write for example "
            "`attention+norm` or `budget=0.5`"
        )


def build(name: str, arguments: tuple[str, ...]) -> Policy:
    """The policy called ``name`` with these written arguments. Raises PolicyError."""
    return policy_class(name).parse(arguments)


def as_selector(policy: Policy) -> LayerSelector:
    """``policy`` as what stands behind ``@``; a sum means the layers of any term. Raises PolicyError for others."""
    if isinstance(policy, Sum):
        return AnyOf(tuple(map(as_selector, policy.terms)))
    if not isinstance(policy, LayerSelector):
        raise PolicyError(
            f"`@{policy}` does not name layers: use `first(n)`, `last(n)`, `every(k)`, `layers(...)` or a tower"
        )
    return policy


def scoped(policy: Policy, selectors: tuple[LayerSelector, ...]) -> Policy:
    """``policy`` on the layers that every selector names. Raises PolicyError when it is not about layers."""
    if not selectors:
        return policy
    for part in parts_of(policy):
        if not part.about_layers():
            raise PolicyError(f"`{part}` is about no layers, so `@{selectors[0]}` cannot restrict it: add it with `+`")
    return Scoped(policy, selectors)


def sum_of(terms: list[Policy]) -> Policy:
    """One policy from several; nested sums are flattened."""
    flat: list[Policy] = []
    for term in terms:
        flat.extend(term.terms if isinstance(term, Sum) else [term])
    return flat[0] if len(flat) == 1 else Sum(tuple(flat))


def to_dict(policy: Policy) -> dict[str, Any]:
    """The JSON form of a policy: ``from_dict`` reads it back to an equal one."""
    terms = policy.terms if isinstance(policy, Sum) else (policy,)
    return {"terms": [_term_to_dict(term) for term in terms]}


def _term_to_dict(term: Policy) -> dict[str, Any]:
    if isinstance(term, Sum):
        return to_dict(term)
    if isinstance(term, AnyOf):
        return to_dict(Sum(term.selectors))
    if isinstance(term, Scoped):
        return _term_to_dict(term.policy) | {"on": [_term_to_dict(s) for s in term.selectors]}
    return {"name": term.name, "args": list(term.arguments())}


def from_dict(data: Mapping[str, Any]) -> Policy:
    """Read the JSON form. Raises PolicyError naming the entry that is wrong, BudgetError as ``parse_string`` does."""
    return _from_entry(data)


def _from_entry(entry: object) -> Policy:
    if isinstance(entry, str):
        return parse_string(entry)
    if not isinstance(entry, Mapping):
        raise _malformed(entry)
    entry = _spelt_out(entry)
    if set(entry) - {"name", "args", "on", "terms"}:
        raise _malformed(entry)
    inner = _sum_from(entry) if "terms" in entry else _call_from(entry)
    selectors = tuple(as_selector(_from_entry(s)) for s in _several(entry.get("on", ())))
    return scoped(inner, selectors)


def _spelt_out(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """``{"budget": 0.5}`` as ``{"name": "budget", "args": [0.5]}``; other entries as they are."""
    names = [name for name in entry if name in policies()]
    if len(names) != 1 or set(entry) - {names[0], "on"}:
        return entry
    rest = {key: value for key, value in entry.items() if key != names[0]}
    return {"name": names[0], "args": entry[names[0]], **rest}


def _sum_from(entry: Mapping[str, Any]) -> Policy:
    if "name" in entry or "args" in entry:
        raise _malformed(entry)
    terms = [_from_entry(term) for term in _several(entry["terms"])]
    if not terms:
        raise PolicyError(f"policy entry {dict(entry)!r} names no policy: `none` keeps everything")
    return sum_of(terms)


def _call_from(entry: Mapping[str, Any]) -> Policy:
    name, arguments = entry.get("name"), _several(entry.get("args", ()))
    if not isinstance(name, str) or not all(_is_argument(argument) for argument in arguments):
        raise _malformed(entry)
    return build(name, tuple(map(str, arguments)))


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _is_argument(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _malformed(entry: object) -> PolicyError:
    return PolicyError(
        f'policy entry {entry!r} is not of the form {{"name": ..., "args": [...], "on": [...]}}, '
        '{"terms": [...], "on": [...]} or a policy string'
    )
