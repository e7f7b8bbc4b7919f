"""Variables of the environment that a program sets for itself, as a launcher would."""

from __future__ import annotations

from ...facts.objects.dicts import merge_into
from ...facts.values import Const, Dict, Value
from .event import CallEvent, Event, WriteEvent


class EnvironmentSetting(Event):
    """Variables of the environment are set."""

    __slots__ = ()
    words = ("environ", "putenv")

    @property
    def variables(self) -> dict[str, Value]:
        """What is set, by name."""
        raise NotImplementedError


class EnvironmentWrite(WriteEvent, EnvironmentSetting):
    """``os.environ["NAME"] = value``."""

    __slots__ = ()

    @property
    def variables(self) -> dict[str, Value]:
        """What is set, by name."""
        return {self.write.field: self.write.value}


class EnvironmentCall(CallEvent, EnvironmentSetting):
    """``os.environ.setdefault("NAME", value)`` or ``os.putenv("NAME", value)``."""

    __slots__ = ()

    @property
    def variables(self) -> dict[str, Value]:
        """What is set, by name; empty when the name is not known."""
        name = self.call.argument(0)
        return {name.value: self.call.argument(1)} if isinstance(name, Const) and isinstance(name.value, str) else {}


class EnvironmentUpdate(CallEvent, EnvironmentSetting):
    """``os.environ.update({"NAME": value})``, ``os.environ.update(NAME=value)``, or the same with pairs."""

    __slots__ = ()

    @property
    def variables(self) -> dict[str, Value]:
        """What is set, by name."""
        listed = Dict({}, False, None)
        merge_into(listed, self.call.argument(0))
        return {**listed.items, **self.call.kwargs}
